package sandbox

import (
	"context"
	"strings"
	"testing"
	"time"
)

// closing is the one call without a key.
var closing = call{name: callClose}

// send makes the call, for a closing too.
func (c call) send(l *life, ctx context.Context, session string) got {
	if c.name == callClose {
		return l.postTo(ctx, "/sessions/"+session+"/close", "", "{}")
	}
	return l.postTo(ctx, c.path(l.charge.ID), "k1", c.body("mine", 10))
}

// done is how often the call was executed.
func (c call) done(l *life, session string) int {
	l.t.Helper()
	if c.name != callClose {
		return c.count(l)
	}
	if l.page(session).Status == StatusClosed {
		return 1
	}
	return 0
}

// forOrderedCalls runs a test for every call beside a charge, on a sandbox
// where it can be made.
func forOrderedCalls(t *testing.T, test func(t *testing.T, c call, l *life, session string)) {
	for _, c := range append([]call{closing}, keyedCalls...) {
		t.Run(c.name, func(t *testing.T) {
			f, session := start(t), ""
			if c.name == callClose {
				session = f.opened("").ID
			}
			test(t, c, c.on(f), session)
		})
	}
}

func TestFaultsOfEveryCall(t *testing.T) {
	for _, tc := range []struct {
		fault  string
		status int // 0: no answer
		text   string
		done   int
		stored bool // the key's answer is the same again
	}{
		{"slow_1", 200, `"id":"`, 1, false},
		{"reset_executed", 0, "", 1, false},
		{"reset_not_executed", 0, "", 0, false},
		{"500_executed", 500, "internal", 1, true},
		{"500_not_executed", 500, "internal", 0, true},
		{"502_executed", 502, "<html>", 1, false},
		{"502_not_executed", 502, "<html>", 0, false},
		{"broken_json_executed", 200, `{"id":"ch_`, 1, false},
		{"200_error_executed", 200, `"error"`, 1, false},
		{"200_error_not_executed", 200, `"error"`, 0, false},
		{"409_in_flight", 409, "in_flight", 1, false},
		{"401_once", 401, "unauthorized", 0, false},
		{"503_once", 503, "unavailable", 0, false},
		{"refused_no_funds", 422, "no_funds", 0, true},
		{"refused_no_funds_executed", 422, "no_funds", 1, false},
	} {
		t.Run(tc.fault, func(t *testing.T) {
			forOrderedCalls(t, func(t *testing.T, c call, l *life, session string) {
				l.ok(l.SetFaults(l.ctx, 0, Rule{Call: c.name, Fault: tc.fault, Times: 1}))
				first := l.want(c.send(l, l.ctx, session), tc.status)
				if n := c.done(l, session); n != tc.done || !strings.Contains(first.body, tc.text) {
					t.Errorf("done %d times, got %v", n, first)
				}
				if tc.stored && c.name != callClose { // a closing has no key that could remember
					l.want(c.send(l, l.ctx, session), tc.status)
				} else {
					l.want(c.send(l, l.ctx, session), 200)
				}
				if n := c.done(l, session); n != 1 && (n != 0 || !tc.stored) {
					t.Errorf("done %d times after the repeat", n)
				}
			})
		})
	}
}

func TestRedirectLeadsBackToTheSameCall(t *testing.T) {
	forOrderedCalls(t, func(t *testing.T, c call, l *life, session string) {
		l.ok(l.SetFaults(l.ctx, 0, Rule{Call: c.name, Fault: "307_once", Times: 1}))
		path := "/sessions/" + session + "/close"
		if c.name != callClose {
			path = c.path(l.charge.ID)
		}
		if g := l.want(c.send(l, l.ctx, session), 307); g.location != path || c.done(l, session) != 0 {
			t.Errorf("leads to %s", g.location)
		}
	})
}

func TestSilenceOfEveryCall(t *testing.T) {
	for fault, done := range map[string]int{"timeout_executed": 1, "timeout_not_executed": 0, "dark": 1} {
		forOrderedCalls(t, func(t *testing.T, c call, l *life, session string) {
			l.ok(l.SetFaults(l.ctx, 0, Rule{Call: c.name, Fault: fault, Times: 1}))
			l.goesAway(silentGate, func(ctx context.Context) got { return c.send(l, ctx, session) })
			if n := c.done(l, session); n != done {
				t.Errorf("%s: done %d times", fault, n)
			}
			l.want(c.send(l, l.ctx, session), 200)
			if n := c.done(l, session); n != 1 {
				t.Errorf("%s: done %d times after the repeat", fault, n)
			}
		})
	}
}

// goesAway makes a call, waits until it stands at the gate, and leaves.
func (f *fixture) goesAway(gate string, send func(context.Context) got) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	answers := beside(func() got { return send(ctx) })
	f.ok(f.WaitWaiting(f.ctx, gate, 1))
	cancel()
	f.want(f.await(answers), 0)
}

func TestGatesOfEveryCall(t *testing.T) {
	for _, tc := range []struct {
		fault        string
		done, repeat int // while the first one stands there
	}{{"hold_before", 0, 200}, {"hold_during", 0, 409}, {"hold_after", 1, 200}} {
		t.Run(tc.fault, func(t *testing.T) {
			forOrderedCalls(t, func(t *testing.T, c call, l *life, session string) {
				l.ok(l.SetFaults(l.ctx, 0, Rule{Call: c.name, Fault: tc.fault, Gate: "g", Times: 1}))
				first := beside(func() got { return c.send(l, l.ctx, session) })
				l.ok(l.WaitWaiting(l.ctx, "g", 1))
				if n := c.done(l, session); n != tc.done {
					t.Errorf("done %d times at the gate", n)
				}
				if c.name != callClose { // without a key there is no repeat
					l.want(c.send(l, l.ctx, session), tc.repeat)
				}
				l.release("g", 1)
				l.want(l.await(first), 200)
				if n := c.done(l, session); n != 1 {
					t.Errorf("done %d times", n)
				}
			})
		})
	}
}

func TestDelaysOfEveryCall(t *testing.T) {
	for _, fault := range []string{"arrives_after_30s", "executes_after_30s"} {
		forOrderedCalls(t, func(t *testing.T, c call, l *life, session string) {
			l.ok(l.SetFaults(l.ctx, 0, Rule{Call: c.name, Fault: fault, Times: 1}))
			first := beside(func() got { return c.send(l, l.ctx, session) })
			l.ok(l.WaitWaiting(l.ctx, clockGate, 1))
			if n := c.done(l, session); n != 0 {
				t.Errorf("%s: done %d times too early", fault, n)
			}
			l.ok(l.Advance(l.ctx, 30*time.Second))
			l.want(l.await(first), 200)
			if n := c.done(l, session); n != 1 {
				t.Errorf("%s: done %d times", fault, n)
			}
		})
	}
}

func TestForgottenKeysOfEveryCall(t *testing.T) {
	forKeyedCalls(t, nil, func(_ *testing.T, c call, l *life) {
		l.ok(l.SetFaults(l.ctx, 0, Rule{Call: c.name, Fault: "forget_key", Times: 1}))
		l.want(c.make(l, "k1", 10), 200)
		c.again(l, "k1")
	})
}

func TestLookupFaultsOfEveryCall(t *testing.T) {
	forKeyedCalls(t, nil, func(t *testing.T, c call, l *life) {
		id := decoded[struct{ ID string }](t, l.want(c.make(l, "k1", 10), 200)).ID
		for _, path := range []string{c.lookup + "?reference=mine", c.lookup + "/" + id} {
			for fault, status := range map[string]int{"lookup_not_found": 404, "lookup_down": 503, "lookup_reset": 0, "lookup_slow_1": 200} {
				l.ok(l.SetFaults(l.ctx, 0, Rule{Call: c.name, Fault: fault}))
				l.want(l.get(path), status)
				l.want(l.get("/charges?reference=order-1"), map[bool]int{true: 404, false: 200}[c.begin == ""]) // not met
			}
			for _, fault := range []string{"lookup_hold_before", "lookup_hold_after"} {
				l.ok(l.SetFaults(l.ctx, 0, Rule{Call: c.name, Fault: fault, Gate: "g"}))
				asked := beside(func() got { return l.get(path) })
				l.ok(l.WaitWaiting(l.ctx, "g", 1))
				l.release("g", 1)
				l.want(l.await(asked), 200)
			}
			l.ok(l.SetFaults(l.ctx, 0))
		}
	})
}

// A lookup of an act is answered as of the moment between its gates.
func TestLookupOfAnActBetweenItsGates(t *testing.T) {
	for fault, status := range map[string]int{"lookup_hold_before": 200, "lookup_hold_after": 404} {
		l := lifeOf(start(t), "sale 100")
		l.ok(l.SetFaults(l.ctx, 0, Rule{Call: KindRefund, Fault: fault, Gate: "g"}))
		asked := beside(func() got { return l.get("/refunds?reference=refund-1") })
		l.ok(l.WaitWaiting(l.ctx, "g", 1))
		l.plays("refund 10")
		l.release("g", 1)
		l.want(l.await(asked), status)
	}
}

func TestActsThatEndLater(t *testing.T) {
	for _, tc := range []struct{ begin, act, fails, status, moved string }{
		{"hold 100", KindCapture, "", StatusSucceeded, "capture 10"},
		{"sale 100", KindRefund, "", StatusSucceeded, "charge 100, refund 10"},
		{"sale 100", KindReverse, "", StatusSucceeded, "charge 100, reverse 100"},
		{"hold 100", KindReverse, "", StatusSucceeded, "reverse 100 held"},
		{"hold 100", KindCapture, "no_answer", StatusFailed, ""},
		{"sale 100", KindRefund, "account_closed", StatusFailed, "charge 100"},
		{"hold 100", KindReverse, "no_answer", StatusFailed, ""},
	} {
		t.Run(tc.begin+", "+tc.act+" "+tc.fails, func(t *testing.T) {
			l := lifeOf(start(t), tc.begin)
			rules := []Rule{{Call: tc.act, Fault: "processing_60000"}}
			if tc.fails != "" {
				rules = append(rules, Rule{Call: tc.act, Fault: "failed_" + tc.fails})
			}
			l.ok(l.SetFaults(l.ctx, 0, rules...))
			before := told(l.register())
			first := decoded[Act](t, l.want(l.actOn(l.charge.ID, tc.act, 1, 10), 200))
			if first.Status != StatusProcessing || first.Code != "" || told(l.register()) != before {
				t.Errorf("first: %+v, moved %q", first, told(l.register()))
			}
			l.ok(l.Advance(l.ctx, time.Minute))
			l.settled()
			act := l.now().Acts[0]
			if act.ID != first.ID || act.Status != tc.status || act.Code != tc.fails || told(l.register()) != tc.moved {
				t.Errorf("later: %+v, moved %q", act, told(l.register()))
			}
		})
	}
}

// An act that failed moved nothing, and what it was for is free again.
func TestActsThatFail(t *testing.T) {
	for _, tc := range []struct{ begin, act, next, moved string }{
		{"hold 100", "capture 100", "capture 100", "capture 100"}, {"sale 100", "refund 100", "refund 100", "charge 100, refund 100"},
		{"hold 100", "reverse", "reverse", "reverse 100 held"},
	} {
		l := lifeOf(start(t), tc.begin)
		kind, _, _ := strings.Cut(tc.act, " ")
		l.ok(l.SetFaults(l.ctx, 0, Rule{Call: kind, Fault: "failed_do_not_honor", Times: 1}))
		l.plays(tc.act)
		if a := l.now().Acts[0]; a.Status != StatusFailed || a.Code != "do_not_honor" || l.now().Status != l.charge.Status {
			t.Errorf("%s: %+v", tc.act, a)
		}
		l.plays(tc.next)
		if got := told(l.register()); got != tc.moved {
			t.Errorf("%s: moved %q", tc.act, got)
		}
	}
}

func TestWrongAmountsOfActsAndPages(t *testing.T) {
	for begin, tc := range map[string]struct{ act, moved string }{
		"hold 100": {KindCapture, "capture 11"}, "sale 100": {KindRefund, "charge 100, refund 11"},
	} {
		l := lifeOf(start(t), begin)
		l.ok(l.SetFaults(l.ctx, 0, Rule{Call: tc.act, Fault: "wrong_amount"}))
		if a := decoded[Act](t, l.want(l.actOn(l.charge.ID, tc.act, 1, 10), 200)); a.Amount != 11 || told(l.register()) != tc.moved {
			t.Errorf("%+v, moved %q", a, told(l.register()))
		}
	}
	f := start(t)
	f.ok(f.SetFaults(f.ctx, 0, Rule{Call: callSession, Fault: "wrong_amount"}))
	if s := f.opened(""); s.Amount != 1251 {
		t.Errorf("session: %+v", s)
	}
}

// A rule meets its own call only: without a name that is a charge.
func TestRulesNameTheirCall(t *testing.T) {
	l := lifeOf(start(t), "sale 100")
	l.ok(l.SetFaults(l.ctx, 0, Rule{Fault: "503_once"}))
	l.want(l.actOn(l.charge.ID, KindRefund, 1, 10), 200)
	l.want(l.post(l.ctx, "k9", bodyOf("order-9", "pm_ok")), 503)
	l.ok(l.SetFaults(l.ctx, 0, Rule{Call: callAny, Fault: "503_once", Reference: "order-1"}))
	l.want(l.actOn(l.charge.ID, KindRefund, 2, 10), 503) // its charge's reference
	l.want(l.post(l.ctx, "k9", bodyOf("order-9", "pm_ok")), 200)
	for _, rule := range []Rule{
		{Call: "chargeback", Fault: "503_once"}, {Call: callRefund, Fault: "declined_x"}, {Call: callSession, Fault: "processing_10"},
		{Call: callClose, Fault: "wrong_amount"}, {Call: callReverse, Fault: "wrong_currency"}, {Fault: "refused_x"}, {Fault: "failed_x"},
		{Call: callSession, Fault: "failed_x"}, {Call: callCapture, Fault: "hold"}, {Call: callClose, Fault: "lookup_down"}, {Call: callAny, Fault: "3ds"},
	} {
		if err := l.SetFaults(l.ctx, 0, rule); err == nil || !strings.Contains(err.Error(), "422") {
			t.Errorf("accepted %+v: %v", rule, err)
		}
	}
}
