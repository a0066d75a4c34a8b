package sandbox

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// together holds every request of a call at a gate, with its key taken, until
// all are there, and lets them go at once. It counts the answers by status.
func (f *fixture) together(call string, n int, one func(i int) got) map[int]int {
	f.t.Helper()
	f.ok(f.SetFaults(f.ctx, 0, Rule{Call: call, Fault: "hold_during", Gate: "start"}))
	var answers []<-chan got
	for i := range n {
		answers = append(answers, beside(func() got { return one(i) }))
	}
	f.ok(f.WaitWaiting(f.ctx, "start", n))
	f.release("start", n)
	counts := map[int]int{}
	for _, a := range answers {
		g := f.await(a)
		if g.err != nil {
			f.t.Fatal(g.err)
		}
		counts[g.status]++
	}
	f.ok(f.SetFaults(f.ctx, 0))
	return counts
}

// actOn is one act with a key of its own.
func (f *fixture) actOn(charge, verb string, i int, minor int64) got {
	name := fmt.Sprintf("%s-%d", verb, i)
	return f.postTo(f.ctx, "/charges/"+charge+"/"+pathOf(verb), "k-"+name, actBody(verb, name, minor, "USD"))
}

func TestParallelActsSeeEachOther(t *testing.T) {
	const callers = 20
	for _, tc := range []struct {
		begin, verb string
		minor       int64
		good        int
		net         int64
		status      string
	}{
		{"sale 100", KindRefund, 60, 1, 40, StatusSucceeded},
		{"sale 100", KindRefund, 10, 10, 0, StatusSucceeded},
		{"sale 100", KindReverse, 0, 1, 0, StatusReversed},
		{"hold 100", KindCapture, 60, 1, 60, StatusHeld},
		{"hold 100", KindCapture, 10, 10, 100, StatusSucceeded},
		{"hold 100", "final", 10, 1, 10, StatusSucceeded},
		{"hold 100", KindReverse, 0, 1, 0, StatusReversed},
	} {
		t.Run(fmt.Sprintf("%s, %s %d", tc.begin, tc.verb, tc.minor), func(t *testing.T) {
			l := lifeOf(start(t), tc.begin)
			counts := l.together(pathOf(tc.verb), callers, func(i int) got { return l.actOn(l.charge.ID, tc.verb, i, tc.minor) })
			if counts[200] != tc.good || counts[422] != callers-tc.good {
				t.Errorf("answers by status: %v", counts)
			}
			if c := l.now(); c.Status != tc.status || len(c.Acts) != tc.good {
				t.Errorf("the charge: %+v", c)
			}
			if net := Net(l.register())["order-1"].Net["USD"]; net != tc.net {
				t.Errorf("net %d, want %d: %s", net, tc.net, told(l.register()))
			}
		})
	}
}

// A hold is captured or released, never both.
func TestCaptureAgainstReverse(t *testing.T) {
	l := lifeOf(start(t), "hold 100")
	counts := l.together(callAny, 20, func(i int) got {
		return l.actOn(l.charge.ID, []string{KindCapture, KindReverse}[i%2], i, 100)
	})
	moved := told(l.register())
	released := counts[200] == 1 && moved == "reverse 100 held"
	givenBack := counts[200] == 2 && moved == "capture 100, reverse 100" // captured first, and given back whole
	if !released && !givenBack || counts[200]+counts[422] != 20 {
		t.Errorf("answers %v, moved %q", counts, moved)
	}
}

func TestManyRepeatsOfOneActAreOne(t *testing.T) {
	for _, policy := range []string{RepeatConflict, RepeatWait} {
		t.Run(policy, func(t *testing.T) {
			l := lifeOf(under(t, func(c *Contract) { c.RepeatInFlight = policy }), "sale 100")
			const callers = 20
			l.ok(l.SetFaults(l.ctx, 0, Rule{Call: KindRefund, Fault: "hold_before", Gate: "start"}))
			var answers []<-chan got
			for range callers {
				answers = append(answers, beside(func() got { return l.actOn(l.charge.ID, KindRefund, 1, 30) }))
			}
			l.ok(l.WaitWaiting(l.ctx, "start", callers))
			l.release("start", callers)
			bodies := map[string]int{}
			for _, a := range answers {
				switch g := l.await(a); {
				case g.status == 200:
					bodies[g.body]++
				case g.status != 409 || policy == RepeatWait:
					t.Errorf("got %v", g)
				}
			}
			if len(bodies) != 1 || told(l.register()) != "charge 100, refund 30" {
				t.Errorf("answers %v, moved %q", bodies, told(l.register()))
			}
		})
	}
}

// Acts in processing count: what they will take or give back is spoken for.
func TestActsInProcessingAreSpokenFor(t *testing.T) {
	for _, tc := range []struct{ begin, slow, meanwhile, moved, status string }{
		{"sale 100", "refund 60", "refund 41!exceeds_remaining, refund 40", "charge 100, refund 40, refund 60", StatusSucceeded},
		{"sale 100", "refund 60", "chargeback 41!exceeds_remaining, reverse", "charge 100, reverse 40, refund 60", StatusReversed},
		{"sale 100", "reverse", "refund 1!not_refundable, reverse!nothing_to_reverse, chargeback 1!not_refundable", "charge 100, reverse 100", StatusReversed},
		{"hold 100", "capture 60", "capture 41!exceeds_remaining, capture 40, reverse!already_captured", "capture 40, capture 60", StatusSucceeded},
		{"hold 100", "final 60", "capture 1!already_captured, reverse!already_captured", "capture 60", StatusSucceeded},
		{"hold 100", "reverse", "capture 1!not_capturable, reverse!nothing_to_reverse", "reverse 100 held", StatusReversed},
		{"challenge 100", "reverse", "refuse", "", StatusDeclined},
		{"challenge 100", "reverse", "confirm", "charge 100, reverse 100", StatusReversed},
		{"challenge_hold 100", "reverse", "confirm", "reverse 100 held", StatusReversed},
		{"sale 100", "refund 60", "fail, refund 100", "charge 100, refund 100", StatusSucceeded},
	} {
		t.Run(tc.begin+", "+tc.slow+", "+tc.meanwhile, func(t *testing.T) {
			l := lifeOf(start(t), tc.begin)
			verb, _, _ := strings.Cut(tc.slow, " ")
			l.ok(l.SetFaults(l.ctx, 0, Rule{Call: pathOf(verb), Fault: "processing_600000", Times: 1}))
			l.play(tc.slow)
			if c := l.now(); len(c.Acts) != 1 || c.Acts[0].Status != StatusProcessing {
				t.Fatalf("acts: %+v", c.Acts)
			}
			l.plays(tc.meanwhile)
			l.ok(l.Advance(l.ctx, 10*time.Minute))
			l.settled()
			if c := l.now(); c.Status != tc.status || told(l.register()) != tc.moved {
				t.Errorf("%s, moved %q; want %s, %q", c.Status, told(l.register()), tc.status, tc.moved)
			}
		})
	}
}

// settled books what is due by the clock, in case that it is not yet.
func (l *life) settled() {
	l.t.Helper()
	for _, a := range l.now().Acts {
		l.ok(l.server.settleAct(a.ID))
	}
}

// A hold that lapses waits for the capture in processing.
func TestAHoldWaitsForWhatIsInProcessing(t *testing.T) {
	for fault, want := range map[string]struct{ status, moved string }{
		"slow_1": {StatusSucceeded, "capture 60"}, "failed_no_answer": {StatusExpired, ""},
	} {
		l := lifeOf(under(t, func(c *Contract) { c.HoldSeconds = 60 }), "hold 100")
		l.ok(l.SetFaults(l.ctx, 0, Rule{Call: KindCapture, Fault: "processing_600000"}, Rule{Call: KindCapture, Fault: fault}))
		l.plays("capture 60, minute")
		if c := l.now(); c.Status != StatusHeld || c.CapturedAmount != 0 {
			t.Errorf("%s: before: %+v", fault, c)
		}
		l.ok(l.Advance(l.ctx, 9*time.Minute))
		l.settled()
		if c := l.now(); c.Status != want.status || told(l.register()) != want.moved {
			t.Errorf("%s: %s, moved %q", fault, c.Status, told(l.register()))
		}
	}
}
