package scene

import (
	"context"
	"fmt"
	"time"

	"github.com/hapaxpay/hapax/internal/sandbox"
)

// play is one scenario. contract is what the acquirer keeps, where it differs from the sandbox's default; terms are the
// same facts as Hapax's account declares them.
type play struct {
	name, title string
	contract    func(*sandbox.Contract)
	terms       terms
	script      func(context.Context, *stage) error
}

// plays lists the scenarios that need no restore, in the order in which they are printed.
func plays() []play { return append(directPlays(), hostedPlays()...) }

func directPlays() []play {
	return []play{
		{name: "incident_1", title: "the read times out, the acquirer books 0.8 s later", script: readTimeout},
		{name: "incident_2", title: "a POST is doubled by the phone's HTTP library, two replicas take it", script: doubledPost},
		{name: "crash_after_charge", title: "the process dies between the acquirer's answer and its record", script: crashAfterCharge},
		{name: "pause_longer_than_lease", title: "the process stands still between claim and call, and wakes after another took over", script: longPause},
		{name: "late_answer", title: "the acquirer executes 30 s after everybody stopped waiting", script: cards("pm_executes_after_30s", "pm_ok")},
		{name: "key_reuse", title: "the same key comes with another amount", script: keyReuse},
		{name: "lost_key", title: "the app loses its key while the acquirer works, and pays the same order with a new one", script: lostKey},
		{name: "refusal_then_new_card", title: "the first card is refused, the second one is good", script: cards("pm_declined_insufficient_funds", "pm_ok")},
		{name: "repeat_answered_401", title: "the charge went through unheard, its repeat is answered 401", script: cards("pm_timeout_executed|pm_401_once", "pm_ok")},
		{name: "kept_connection_dies", title: "a kept connection dies after the acquirer booked; it honours keys", script: keptConnection},
		{name: "kept_connection_dies_no_keys", title: "the same at an acquirer that does not honour keys",
			contract: noKeys, terms: noKeyTerms, script: keptConnection},
		{name: "pause_longer_than_lease_no_keys", title: "the long pause at an acquirer that does not honour keys",
			contract: noKeys, terms: noKeyTerms, script: longPause},
		{name: "key_window_over", title: "the acquirer books and is dark for 25 h; keys and lookups end after 24 h",
			contract: func(c *sandbox.Contract) { c.LookupWindowSeconds = c.KeyWindowSeconds },
			terms:    terms{"not_found_final": false}, script: darkTooLong},
		{name: "refusal_not_remembered", title: "the repeat is refused and the acquirer forgets it; then the first request arrives",
			contract: func(c *sandbox.Contract) { c.RefusalsRemembered = false },
			terms:    terms{"remembers_refusals": false},
			script:   cards("pm_arrives_after_20s|pm_declined_insufficient_funds", "pm_ok")},
	}
}

// noKeys is an acquirer that logs keys and otherwise ignores them.
func noKeys(c *sandbox.Contract) { c.KeysHonoured = false }

var noKeyTerms = terms{"identity": "none"}

// cards is the script of scenarios in which only the acquirer's behaviour is special.
func cards(methods ...string) func(context.Context, *stage) error {
	return func(ctx context.Context, s *stage) error { return s.shop(ctx, 0, methods...) }
}

// Incident 1: bookedAfter is 5 s of read time-out and 0.8 s more, scaled.
const bookedAfter = (5*time.Second + 800*time.Millisecond) / scale

// readTimeout: the first call is booked, and its answer sent, only after the caller's read time-out.
func readTimeout(ctx context.Context, s *stage) error {
	if err := s.acquirer.SetFaults(ctx, 0, sandbox.Rule{Fault: "hold_during", Gate: "slow", Times: 1}); err != nil {
		return err
	}
	first := s.payAside(ctx, 0, key1, s.order)
	if err := s.acquirer.WaitWaiting(ctx, "slow", 1); err != nil {
		return err
	}
	timer := time.NewTimer(bookedAfter)
	defer timer.Stop()
	<-timer.C
	if _, err := s.acquirer.Release(ctx, "slow", 0); err != nil {
		return err
	}
	last, err := s.wait(first)
	if err != nil {
		return err
	}
	return s.finish(ctx, last, s.order)
}

// doubledPost: the connection is reset after the request was sent, and the client's library sends it again, to another
// replica, while the first one stands at the acquirer's door: whoever looks now, looks after the first one looked.
func doubledPost(ctx context.Context, s *stage) error { return s.meetAtTheDoor(ctx, key1) }

// lostKey: as doubledPost, but the app was installed anew in between, and makes a new key for the same order.
func lostKey(ctx context.Context, s *stage) error { return s.meetAtTheDoor(ctx, key2) }

// meetAtTheDoor sends the order twice; the second time with another key, perhaps. Both requests wait at the acquirer, or
// only the first one does.
func (s *stage) meetAtTheDoor(ctx context.Context, second string) error {
	if err := s.acquirer.SetFaults(ctx, 0, sandbox.Rule{Fault: "hold_before", Gate: "door"}); err != nil {
		return err
	}
	first := s.payAside(ctx, 0, key1, s.order)
	if err := s.acquirer.WaitWaiting(ctx, "door", 1); err != nil {
		return err
	}
	first.hangUp()
	if _, err := s.wait(first); err != nil {
		return err
	}
	again := s.payAside(ctx, 1, second, s.order)
	if err := s.answeredOrAt(ctx, again, "door", 2); err != nil {
		return err
	}
	if err := s.acquirer.SetFaults(ctx, 0); err != nil {
		return err
	}
	if _, err := s.acquirer.Release(ctx, "door", 0); err != nil {
		return err
	}
	last, err := s.wait(again)
	if err != nil {
		return err
	}
	return s.finish(ctx, last, s.order)
}

// answeredOrAt waits until the request is answered or n requests stand at the gate.
func (s *stage) answeredOrAt(ctx context.Context, a *aside, gate string, n int) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	reached := make(chan error, 1)
	go func() { reached <- s.acquirer.WaitWaiting(waiting, gate, n) }()
	select {
	case <-a.done:
		return nil
	case err := <-reached:
		return err
	}
}

// crashAfterCharge: the acquirer's answer is in memory when the process ends.
func crashAfterCharge(ctx context.Context, s *stage) error {
	s.replicas[0].process.die(afterCall)
	return s.shop(ctx, 0, "pm_ok")
}

// pausedFor is longer than every lease.
const pausedFor = 35 * time.Second

// longPause: the first owner wakes when its successor has finished, and the payer has gone home.
func longPause(ctx context.Context, s *stage) error {
	sleeper := s.replicas[0].process
	sleeper.stop(beforeCall)
	first := s.payAside(ctx, 0, key1, s.order)
	select {
	case <-sleeper.stopped:
	case <-ctx.Done():
		return ctx.Err()
	}
	first.hangUp() // the client's own time is over
	if _, err := s.wait(first); err != nil {
		return err
	}
	if err := s.later(ctx, pausedFor); err != nil {
		return err
	}
	last, err := s.insist(ctx, 1, key1, s.order)
	if err != nil {
		return err
	}
	if err := s.finish(ctx, last, s.order, "pm_ok"); err != nil {
		return err
	}
	sleeper.goOn(pausedFor)
	if err := s.retire(ctx, 0); err != nil {
		return err
	}
	return s.recover(ctx)
}

// keyReuse: a defect of the client, which pays a larger sum under a key that was used.
func keyReuse(ctx context.Context, s *stage) error {
	if _, err := s.insist(ctx, 0, key1, s.order); err != nil {
		return err
	}
	dearer := s.order
	dearer.amount += 100_000
	last, err := s.insist(ctx, 1, key1, dearer)
	if err != nil {
		return err
	}
	return s.finish(ctx, last, dearer)
}

// keptConnection: an earlier order leaves a kept connection between the first replica and the acquirer. The acquirer
// closes it in order, after it booked what came over it.
func keptConnection(ctx context.Context, s *stage) error {
	if err := s.earlierOrder(ctx); err != nil {
		return err
	}
	if err := s.acquirer.SetFaults(ctx, 0, sandbox.Rule{Fault: "drop_kept_executed", Times: 1}); err != nil {
		return err
	}
	return s.shop(ctx, 0, "pm_ok")
}

// earlierOrder is paid before the scenario begins, and does not count in it.
func (s *stage) earlierOrder(ctx context.Context) error {
	earlier := s.order
	earlier.number--
	a, err := s.send(ctx, 0, "key-0", earlier)
	if err != nil {
		return err
	}
	if a.says != saysPaid {
		return fmt.Errorf("the earlier order was not paid: %v", a)
	}
	return s.mark(ctx)
}

// The dark time, in steps: at each of them recovery tries.
const (
	darkSteps = 5
	darkStep  = 5 * time.Hour
)

// darkTooLong: the acquirer executes and answers nobody, for longer than it keeps keys.
func darkTooLong(ctx context.Context, s *stage) error {
	if err := s.acquirer.SetFaults(ctx, 0, sandbox.Rule{Fault: "dark"}); err != nil {
		return err
	}
	last, err := s.insist(ctx, 0, key1, s.order)
	if err != nil {
		return err
	}
	for range darkSteps {
		if err := s.later(ctx, darkStep); err != nil {
			return err
		}
		if err := s.pass(ctx); err != nil {
			return err
		}
	}
	if err := s.acquirer.SetFaults(ctx, 0); err != nil {
		return err
	}
	return s.finish(ctx, last, s.order)
}
