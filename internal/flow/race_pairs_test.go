package flow_test

import (
	"slices"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/money"
)

// The races of equals: the same command twice, by two processes, each forced by a point after the look.

// theOrder is what every race is about.
var theOrder = rig.Order{Reference: "order-1", Minor: 1000}

// twin is a command that two processes run at once.
type twin struct {
	name    string
	prepare func(l life)
	run     func(l life, p *rig.Replica, key string) (operation.Answer, error)
	later   int            // what a repeat is told afterwards
	refused []problem.Code // what another key may be told where it does not join; afterwards, the first of them
	ending  string         // of the call's path at the acquirer
	kind    string         // of the one line in the acquirer's register; empty: none moves
	net     int64
	events  []string
}

var twins = []twin{
	{name: "create a page", prepare: func(l life) {
		reference := theOrder.Reference // the intent exists, so that it can be locked
		a, err := l.p.Flow.CreateIntent(l.t.Context(), flow.CreateIntentCommand{Merchant: l.r.Merchant.ID, Key: "intent-1", RequestID: "req_intent",
			Intent: flow.IntentFields{Amount: money.Must(theOrder.Minor, "KZT"), ClientReference: &reference}})
		status(l.t, "intent", 201)(a, err)
	}, run: func(_ life, p *rig.Replica, key string) (operation.Answer, error) { return p.Hosted(key, theOrder) },
		later: 200, ending: "/sessions", net: 1000, events: []string{"payment.registered", "payment.paid"}},
	{name: "cancel a hold", prepare: func(l life) { l.held("key-1") }, run: cancelFirst,
		later: 201, refused: []problem.Code{problem.NotCancelable}, ending: "/reverse", kind: "reverse", events: []string{"payment.authorized", "payment.canceled"}},
	{name: "cancel a page", prepare: page, run: cancelFirst,
		later: 201, refused: []problem.Code{problem.NotCancelable}, ending: "/close", events: []string{"payment.registered", "payment.canceled"}},
	{name: "capture", prepare: func(l life) { l.held("key-1") }, run: func(l life, p *rig.Replica, key string) (operation.Answer, error) {
		return p.Capture(key, l.r.PaymentOf("key-1"), 1000, nil)
	}, later: 201, refused: []problem.Code{problem.NotCapturable, problem.OperationInProgress}, ending: "/capture", kind: "capture", net: 1000,
		events: []string{"payment.authorized", "payment.paid"}},
	{name: "refund", prepare: func(l life) { l.sale("key-1") }, run: func(l life, p *rig.Replica, key string) (operation.Answer, error) {
		return p.Refund(key, l.r.PaymentOf("key-1"), 1000)
	}, later: 201, refused: []problem.Code{problem.ExceedsRemaining, problem.RefundUnsettled}, ending: "/refund", kind: "refund",
		events: []string{"payment.paid", "refund.succeeded"}},
}

func cancelFirst(l life, p *rig.Replica, key string) (operation.Answer, error) {
	return p.Cancel(key, l.r.PaymentOf("key-1"), "")
}

// page is a payment that waits for its payer.
func page(l life) {
	l.t.Helper()
	status(l.t, "page", 201)(l.p.Hosted("key-1", theOrder))
}

// TestRaceTwins: two of a kind at once, with one key and with two, over two replicas: one call at the acquirer, one line in its
// register, one in the books, one event, whichever of the points the first one stands at while the second one comes.
func TestRaceTwins(t *testing.T) {
	for _, w := range twins {
		for _, keys := range [][2]string{{"one", "one"}, {"one", "two"}} {
			for _, point := range []string{behindTheLock, operation.PointInClaim, operation.PointAfterClaim, operation.PointBeforeRecord} {
				t.Run(w.name+"/"+map[bool]string{true: "one key", false: "two keys"}[keys[0] == keys[1]]+"/"+point, func(t *testing.T) {
					t.Parallel()
					l := newLife(t, nil)
					w.prepare(l)
					w.race(l, point, keys)
					w.judge(l)
				})
			}
		}
	}
}

// behindTheLock is the point at which both have looked, and wait for the lock under which they look again.
const behindTheLock = "behind the lock"

// told is what one caller was told.
type told struct {
	answer operation.Answer
	err    error
}

// race forces the two to meet at the point, and judges what each is told, then and later.
func (w twin) race(l life, point string, keys [2]string) {
	l.t.Helper()
	var got [2]told
	runs := func(n int, p *rig.Replica) { got[n].answer, got[n].err = w.run(l, p, keys[n]) }
	other := l.r.Replica()
	switch point {
	case behindTheLock:
		l.r.BehindLock(func() { runs(0, l.p) }, func() { runs(1, other) })
	case operation.PointInClaim: // the second one stands behind what the first one has written and not committed
		second := make(chan struct{})
		l.r.During(point, func(p *rig.Replica) { runs(0, p) }, func() {
			go func() { defer close(second); runs(1, other) }()
			l.r.DB.WaitBlocked(l.t, 1)
		})
		<-second
	default:
		l.r.During(point, func(p *rig.Replica) { runs(0, p) }, func() { runs(1, other) })
	}
	finals := 0
	for n, g := range got {
		refused := keys[0] != keys[1] && slices.ContainsFunc(w.refused, func(c problem.Code) bool { return problem.Is(g.err, c) })
		switch {
		case g.err == nil && g.answer.Status == 201:
			finals++
		case g.err == nil && (g.answer.Status == 202 || g.answer.Status == w.later):
		case refused, keys[0] == keys[1] && problem.Is(g.err, problem.OperationInProgress):
		default:
			l.t.Errorf("caller %d was told %d %s, %v", n+1, g.answer.Status, g.answer.Body, g.err)
		}
		a, err := w.run(l, l.p, keys[n])
		if !refused && a.Status != w.later || refused && !problem.Is(err, w.refused[0]) {
			l.t.Errorf("caller %d, refused: %v, repeats and is told %d %s, %v", n+1, refused, a.Status, a.Body, err)
		}
	}
	if finals == 0 {
		l.t.Error("nobody was told the result")
	}
}

func (w twin) judge(l life) {
	l.t.Helper()
	if got := l.calls(w.ending); got != 1 {
		l.t.Errorf("%d calls %s at the acquirer, want 1", got, w.ending)
	}
	if w.kind != "" && l.r.Moved(w.kind) != 1 {
		l.t.Errorf("%d of %s in the acquirer's register, want 1", l.r.Moved(w.kind), w.kind)
	}
	if w.later == 200 { // the one page is paid, once
		pay, err := id.ParseUUID(l.r.Text("SELECT id::text FROM payment"))
		l.ok(err)
		_, err = l.r.Acquirer.PaySession(l.t.Context(), l.r.SessionOf(pay).ID)
		l.ok(err)
		status(l.t, "check", 200)(l.p.Check(pay))
	}
	l.money(w.net, w.events...)
	l.count("unfinished operations", 0, "SELECT count(*) FROM operation WHERE state <> 'completed'")
	l.r.Verify()
}

// TestRaceChecks: two checks, and a sweep beside them, all hold the acquirer's word that it was paid before any of them applies it:
// one receipt in the books, one event. So it is where they wait for the lock with it.
func TestRaceChecks(t *testing.T) {
	for _, tc := range []struct {
		name  string
		sweep bool
		ready func(l life) id.ID // a payment of which the acquirer has news
		net   int64
		event []string
	}{
		{"a page that was paid", false, paidPage, 1000, []string{"payment.registered", "payment.paid"}},
		{"a page that was paid, with a sweep", true, paidPage, 1000, []string{"payment.registered", "payment.paid"}},
		{"a capture by hand", false, func(l life) id.ID {
			pay := l.held("key-1")
			_, err := l.r.Acquirer.CaptureByHand(l.t.Context(), l.r.ChargeOf(pay).ID, 0)
			l.ok(err)
			return pay
		}, 1000, []string{"payment.authorized", "payment.paid"}},
		{"a refund by hand", false, func(l life) id.ID {
			pay := l.sale("key-1")
			_, err := l.r.Acquirer.RefundByHand(l.t.Context(), l.r.ChargeOf(pay).ID, 400)
			l.ok(err)
			return pay
		}, 600, []string{"payment.paid", "refund.succeeded"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := newLife(t, nil)
			pay := tc.ready(l)
			check := func(p *rig.Replica) {
				if a, err := p.Check(pay); err != nil || a.Status != 200 {
					t.Errorf("check: told %d %s, %v", a.Status, a.Body, err)
				}
			}
			all := []func(p *rig.Replica){check, check}
			if tc.sweep {
				l.r.Later(10 * time.Minute) // the page is due
				all = append(all, func(p *rig.Replica) { p.Sweep.Pass(t.Context()) })
			}
			l.r.Together(operation.PointAfterLookup, all...)
			status(t, "one more", 200)(l.p.Check(pay))
			l.money(tc.net, tc.event...)
			l.r.Verify()
		})
	}
}

// paidPage is a payment that was paid on its page, and nobody knows it yet.
func paidPage(l life) id.ID {
	l.t.Helper()
	page(l)
	pay := l.r.PaymentOf("key-1")
	_, err := l.r.Acquirer.PaySession(l.t.Context(), l.r.SessionOf(pay).ID)
	l.ok(err)
	return pay
}

func (l life) ok(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}
