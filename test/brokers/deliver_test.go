package brokers

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/outbox"
)

// How much is brought, and how often a broker is killed meanwhile.
const (
	subjects = 60
	events   = 20 // of each
	kills    = 3
	seed     = 7
)

// report says what the consumer counted: the figures of a run.
func (b *broker) report(j *journal) counted {
	b.t.Helper()
	c := count(b.t, b.stored(), j.given)
	b.t.Logf("%s: %v; %d kills of the broker, %d acknowledgements forgotten, %d tries without one, %d connections cut by chance",
		b.name, c, b.kills, j.forgotten.Load(), j.failures.Load(), b.link.cuts)
	return c
}

func (b *broker) openSink() closable {
	s := b.sink()
	b.t.Cleanup(s.Close)
	return s
}

// A relay that dies between the broker's word and its own mark brings the event again: the same bytes under the same id.
func TestRelayDiesAfterTheBrokersWord(t *testing.T) {
	eachBroker(t, func(t *testing.T, b *broker) {
		j := newJournal(t, subjects, events)
		j.forget = func(n int64) bool { return n%3 == 0 }
		j.bring(t.Context(), b.openSink())
		c := b.report(j)
		switch want := int(j.forgotten.Load()); {
		case want == 0:
			t.Error("nothing was forgotten: this tries nothing")
		case b.dedups && c.repeats != 0:
			t.Errorf("%d repeats within the window of the stream, which knows them by their id", c.repeats)
		case !b.dedups && c.repeats != want:
			t.Errorf("%d repeats, want %d", c.repeats, want)
		}
	})
}

// A broker that is killed in the middle has everything it acknowledged when it comes back, and gets the rest.
func TestBrokerIsKilledInTheMiddle(t *testing.T) {
	eachBroker(t, func(t *testing.T, b *broker) {
		j := newJournal(t, subjects, events)
		j.whileBringing(b.openSink(), func() {
			for n := range int64(kills) {
				j.untilAcked((n + 1) * subjects * events / (kills + 1))
				b.kill()
				if j.acked.Load() >= subjects*events {
					t.Error("killed when all was brought: this tries nothing")
				}
				b.start()
			}
		})
		b.report(j)
	})
}

// A link that is cut again and again, at places drawn from a seed, loses nothing.
func TestLinkIsCutInTheMiddle(t *testing.T) {
	eachBroker(t, func(t *testing.T, b *broker) {
		j := newJournal(t, subjects, events)
		b.link.flaky(seed, 3_000, 60_000)
		j.bring(t.Context(), b.openSink())
		b.report(j)
		if b.link.cuts == 0 {
			t.Error("the link was never cut")
		}
	})
}

// A broker that stands still holds a try until its end, and loses nothing.
func TestBrokerStandsStill(t *testing.T) {
	eachBroker(t, func(t *testing.T, b *broker) {
		j := newJournal(t, subjects, events)
		j.whileBringing(b.openSink(), func() {
			j.untilAcked(subjects)
			b.process.pause()
			before := j.failures.Load()
			eventually(t.Context(), t, "no try ends", func() error {
				if j.failures.Load() == before {
					return context.DeadlineExceeded
				}
				return nil
			})
			b.process.resume()
		})
		b.report(j)
	})
}

// Ten rows that no broker takes do not keep it from the one beside them, though it would refuse them together.
func TestPoisonBeforeOneGoodRow(t *testing.T) {
	eachBroker(t, func(t *testing.T, b *broker) {
		const poison = 10
		var batch []outbox.Message
		for n := range poison {
			batch = append(batch, newMessage(n, 1, incompressible(maxMessage)))
		}
		good := newMessage(poison, 1, "")
		s := b.openSink()
		for range 2 { // the second time the sink has seen failures
			results := s.Deliver(t.Context(), append(batch, good))
			for n, r := range results[:poison] {
				if r.Err == nil || r.Abandon {
					t.Fatalf("row %d: %+v, want a failure that stays due", n, r)
				}
			}
			if err := results[poison].Err; err != nil {
				t.Fatalf("the good row waits behind poison: %v", err)
			}
			t.Logf("%s says of poison: %v", b.name, results[0].Err)
		}
		if c := count(t, b.stored(), map[string]string{good.ID.Text("evt_"): string(good.Payload)}); c.messages > 2 {
			t.Errorf("%v", c)
		}
	})
}

// incompressible gives text that a codec makes little shorter.
func incompressible(n int) string {
	var b strings.Builder
	for x := uint64(seed); b.Len() < n; {
		x = x*6364136223846793005 + 1442695040888963407
		b.WriteByte('!' + byte(x>>33)%90)
	}
	return strings.NewReplacer(`"`, "_", `\`, "_").Replace(b.String())
}

// Case 58: a message without an answer is unknown. The row stays until an acknowledgement; what comes twice has one id; and
// stopping takes no longer than its limit.
func TestCase058_NoAnswerIsUnknownAndHoldsNobody(t *testing.T) {
	eachBroker(t, func(t *testing.T, b *broker) {
		s := b.openSink()
		first, second, last := newMessage(1, 1, ""), newMessage(1, 2, ""), newMessage(1, 3, "")
		mustDeliver(t, s, first)

		b.link.makeDeaf(true) // the request is written, the answer is lost
		ctx, cancel := context.WithCancel(t.Context())
		unanswered := make(chan []outbox.Result, 1)
		go func() { unanswered <- s.Deliver(ctx, []outbox.Message{second}) }()
		eventually(t.Context(), t, "the broker does not have it", func() error {
			if len(b.stored()) < 2 {
				return context.DeadlineExceeded
			}
			return nil
		})
		begun := time.Now()
		cancel()
		r := (<-unanswered)[0]
		if took := time.Since(begun); took > stopLimit {
			t.Errorf("a canceled try took %v, more than %v", took, stopLimit)
		}
		if r.Err == nil || r.Abandon || !strings.Contains(r.Err.Error(), "unknown") {
			t.Errorf("%+v: want unknown, to be tried again", r)
		}

		b.link.makeDeaf(false)
		b.link.cut()
		mustDeliver(t, s, second)
		mustDeliver(t, s, last)
		c := count(t, b.stored(), map[string]string{first.ID.Text("evt_"): string(first.Payload),
			second.ID.Text("evt_"): string(second.Payload), last.ID.Text("evt_"): string(last.Payload)})
		if want := map[bool]int{true: 0, false: 1}[b.dedups]; c.repeats != want || c.late != 0 {
			t.Errorf("%v, want %d repeats", c, want)
		}

		b.link.makeDeaf(true) // stopping while nothing is answered
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		s.Deliver(ctx, []outbox.Message{newMessage(2, 1, "")})
		begun = time.Now()
		s.Close()
		if took := time.Since(begun); took > stopLimit {
			t.Errorf("closing took %v, more than %v", took, stopLimit)
		}
	})
}

// stopLimit is how long a canceled try, or closing, may take.
const stopLimit = 3 * time.Second

// mustDeliver tries again until there is an acknowledgement: a sink may have to notice first that its link was cut.
func mustDeliver(t *testing.T, s outbox.Sink, m outbox.Message) {
	t.Helper()
	eventually(t.Context(), t, "no acknowledgement", func() error {
		return s.Deliver(t.Context(), []outbox.Message{m})[0].Err
	})
}

// What was not sent when its try ended is never sent: newer events of its subject may be there by then.
func TestNothingIsSentAfterItsTry(t *testing.T) {
	eachBroker(t, func(t *testing.T, b *broker) {
		s := b.openSink()
		warm, late, sentinel := newMessage(1, 1, ""), newMessage(2, 1, ""), newMessage(3, 1, "")
		mustDeliver(t, s, warm)
		b.link.take(true)
		ctx, cancel := context.WithTimeout(t.Context(), tryWithin)
		defer cancel()
		if r := s.Deliver(ctx, []outbox.Message{late})[0]; r.Err == nil {
			t.Fatal("delivered without a link")
		}
		b.link.take(false)
		mustDeliver(t, s, sentinel)
		count(t, b.stored(), map[string]string{warm.ID.Text("evt_"): string(warm.Payload), sentinel.ID.Text("evt_"): string(sentinel.Payload)})
	})
}
