package sandbox

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// call is one of the keyed calls beside a charge, for the tests that hold for
// all of them.
type call struct {
	name    string
	begin   string // what the call acts upon; empty for nothing
	off     func(*Contract)
	path    func(charge string) string
	body    func(reference string, minor int64) string
	lookup  string
	prefix  string // of the object's id
	another bool   // a second one can follow
}

func actCall(kind, begin, lookup string, another bool, off func(*Contract)) call {
	return call{name: kind, begin: begin, off: off, lookup: lookup, prefix: idPrefixes[kind], another: another,
		path: func(charge string) string { return "/charges/" + charge + "/" + kind },
		body: func(reference string, minor int64) string { return actBody(kind, reference, minor, "USD") }}
}

var keyedCalls = []call{
	actCall(KindCapture, "hold 100", "/captures", true, func(c *Contract) { c.CaptureKeys = false }),
	actCall(KindRefund, "sale 100", "/refunds", true, func(c *Contract) { c.RefundKeys = false }),
	actCall(KindReverse, "sale 100", "/reversals", false, func(c *Contract) { c.ReverseKeys = false }),
	{name: callSession, off: func(c *Contract) { c.SessionKeys = false }, lookup: "/sessions", prefix: "cs_", another: true,
		path: func(string) string { return "/sessions" },
		body: func(reference string, minor int64) string {
			return fmt.Sprintf(`{"reference":%q,"amount":%d,"currency":"USD","return_url":%q}`, reference, minor, returnURL)
		}},
}

// on is a life on which the call can be made.
func (c call) on(f *fixture) *life {
	f.t.Helper()
	if c.begin == "" {
		return &life{fixture: f}
	}
	return lifeOf(f, c.begin)
}

func (c call) make(l *life, key string, minor int64) got {
	return l.postTo(l.ctx, c.path(l.charge.ID), key, c.body("mine", minor))
}

// count is how many objects of the call there are.
func (c call) count(l *life) int {
	l.t.Helper()
	if c.name == callSession {
		sessions, err := l.Sessions(l.ctx, "")
		l.ok(err)
		return len(sessions)
	}
	return len(l.now().Acts)
}

func forKeyedCalls(t *testing.T, change func(call) func(*Contract), test func(*testing.T, call, *life)) {
	for _, c := range keyedCalls {
		t.Run(c.name, func(t *testing.T) {
			terms := func(*Contract) {}
			if change != nil {
				terms = change(c)
			}
			test(t, c, c.on(under(t, terms)))
		})
	}
}

func TestKeysOfEveryCall(t *testing.T) {
	forKeyedCalls(t, nil, func(t *testing.T, c call, l *life) {
		first := l.want(c.make(l, "k1", 10), 200)
		if again := l.want(c.make(l, "k1", 10), 200); again.body != first.body || c.count(l) != 1 {
			t.Errorf("replayed %s, was %s", again.body, first.body)
		}
		l.wantCode(l.postTo(l.ctx, c.path(l.charge.ID), "k1", c.body("other", 10)), 422, "key_reused")
		l.wantCode(l.post(l.ctx, "k1", bodyOf("order-9", "pm_ok")), 422, "key_reused")
		other := l.want(l.post(l.ctx, "k9", bodyOf("order-9", "pm_hold")), 200).charge(t)
		if c.begin != "" { // a key belongs to one charge
			l.wantCode(l.postTo(l.ctx, c.path(other.ID), "k1", c.body("mine", 10)), 422, "key_reused")
		}
		l.wantCode(l.postTo(l.ctx, c.path(l.charge.ID), "k9", c.body("mine", 10)), 422, "key_reused")
		if n := c.count(l); n != 1 {
			t.Errorf("%d were made", n)
		}
	})
}

func TestKeysEndWithTheirWindow(t *testing.T) {
	forKeyedCalls(t, func(call) func(*Contract) { return func(c *Contract) { c.KeyWindowSeconds = 60 } }, func(t *testing.T, c call, l *life) {
		l.want(c.make(l, "k1", 10), 200)
		l.ok(l.Advance(l.ctx, time.Minute))
		c.again(l, "k1")
	})
}

// again makes the call once more, where it is not recognised as a repeat.
func (c call) again(l *life, key string) {
	l.t.Helper()
	if !c.another {
		l.wantCode(c.make(l, key, 10), 422, "nothing_to_reverse")
		return
	}
	l.want(c.make(l, key, 10), 200)
	if n := c.count(l); n != 2 {
		l.t.Errorf("%d were made", n)
	}
}

func TestKeysNotHonouredForACall(t *testing.T) {
	forKeyedCalls(t, func(c call) func(*Contract) { return c.off }, func(t *testing.T, c call, l *life) {
		l.want(c.make(l, "k1", 10), 200)
		c.again(l, "k1")
		charge := l.want(l.post(l.ctx, "k1", bodyOf("order-9", "pm_ok")), 200) // keys of charges are
		if again := l.want(l.post(l.ctx, "k1", bodyOf("order-9", "pm_ok")), 200); again.body != charge.body {
			t.Errorf("replayed %s, was %s", again.body, charge.body)
		}
	})
	forKeyedCalls(t, func(call) func(*Contract) { return func(c *Contract) { c.KeysHonoured = false } }, func(_ *testing.T, c call, l *life) {
		l.want(c.make(l, "k1", 10), 200)
		c.again(l, "k1")
	})
	forKeyedCalls(t, nil, func(_ *testing.T, c call, l *life) {
		l.want(c.make(l, "", 10), 200)
		c.again(l, "")
	})
}

func TestRepeatsInFlightOfEveryCall(t *testing.T) {
	forKeyedCalls(t, nil, func(_ *testing.T, c call, l *life) {
		l.ok(l.SetFaults(l.ctx, 0, Rule{Call: c.name, Fault: "hold_during", Gate: "g", Times: 1}))
		first := beside(func() got { return c.make(l, "k1", 10) })
		l.ok(l.WaitWaiting(l.ctx, "g", 1))
		l.wantCode(c.make(l, "k1", 10), 409, "in_flight")
		l.wantCode(l.postTo(l.ctx, c.path(l.charge.ID), "k1", c.body("other", 10)), 422, "key_reused")
		l.release("g", 1)
		l.want(l.await(first), 200)
	})
}

func TestUniqueReferencesOfEveryCall(t *testing.T) {
	forKeyedCalls(t, func(call) func(*Contract) { return func(c *Contract) { c.ReferenceUnique = true } }, func(_ *testing.T, c call, l *life) {
		l.want(c.make(l, "k1", 10), 200)
		l.wantCode(c.make(l, "k2", 10), 409, "duplicate_reference")
		l.want(c.make(l, "k1", 10), 200) // the key comes first
		// The same word is free for another sort of call.
		l.want(l.post(l.ctx, "", bodyOf("mine", "pm_ok")), 200)
	})
}

func TestRefusedActsAreRemembered(t *testing.T) {
	for remembered, status := range map[bool]int{true: 422, false: 200} {
		l := lifeOf(under(t, func(c *Contract) { c.RefusalsRemembered = remembered }), "hold 100")
		refund := func() got {
			return l.postTo(l.ctx, "/charges/"+l.charge.ID+"/refund", "k1", actBody(KindRefund, "mine", 10, "USD"))
		}
		l.wantCode(refund(), 422, "not_refundable")
		_, err := l.CaptureByHand(l.ctx, l.charge.ID, 0)
		l.ok(err)
		l.want(refund(), status) // it would be accepted now
	}
}

// What is told about a finished key now: the act's own present state.
func TestRepeatLaterOfActs(t *testing.T) {
	for policy, status := range map[string]string{RepeatOriginal: StatusProcessing, RepeatCurrent: StatusSucceeded} {
		l := lifeOf(under(t, func(c *Contract) { c.RepeatLater = policy }), "sale 100")
		l.ok(l.SetFaults(l.ctx, 0, Rule{Call: KindRefund, Fault: "processing_1000"}))
		refund := func() Act { return decoded[Act](t, l.want(l.actOn(l.charge.ID, KindRefund, 1, 30), 200)) }
		if first := refund(); first.Status != StatusProcessing {
			t.Errorf("first: %+v", first)
		}
		l.ok(l.Advance(l.ctx, time.Second))
		l.movedWithin(2)
		if again := refund(); again.Status != status {
			t.Errorf("%s: again: %+v", policy, again)
		}
	}
	f := under(t, func(c *Contract) { c.RepeatLater = RepeatCurrent })
	s := f.opened("")
	f.leaves(f.form("/pay/"+s.ID, "pay"))
	if again := f.opened(""); again.Status != StatusPaid || again.Charge == nil {
		t.Errorf("the session again: %+v", again)
	}
}

func TestLookupsOfEveryCall(t *testing.T) {
	forKeyedCalls(t, func(call) func(*Contract) {
		return func(c *Contract) { c.LookupLagMS, c.LookupWindowSeconds = 5000, 60 }
	}, func(t *testing.T, c call, l *life) {
		g := l.want(c.make(l, "k1", 10), 200)
		id := decoded[struct{ ID string }](t, g).ID
		if !strings.HasPrefix(id, c.prefix) {
			t.Errorf("id %s", id)
		}
		byKey, byReference := c.lookup+"?idempotency_key=k1", c.lookup+"?reference=mine"
		l.want(l.get(byKey), 404) // the lag
		if now := l.want(l.get(c.lookup+"/"+id), 200); !strings.Contains(now.body, `"reference":"mine"`) {
			t.Errorf("by id: %s", now.body)
		}
		l.ok(l.Advance(l.ctx, 5*time.Second))
		for _, path := range []string{byKey, byReference} {
			if found := decoded[struct{ Data []struct{ ID string } }](t, l.want(l.get(path), 200)).Data; len(found) != 1 || found[0].ID != id {
				t.Errorf("%s: %+v", path, found)
			}
		}
		l.wantCode(l.get(c.lookup+"?reference=other"), 404, "not_found")
		l.wantCode(l.get(c.lookup+"/"+id+"x"), 404, "not_found")
		l.wantCode(l.get(c.lookup), 400, "malformed")
		l.ok(l.Advance(l.ctx, time.Minute))
		l.want(l.get(byKey), 404) // too old to be seen
		l.want(l.get(c.lookup+"/"+id), 200)
	})
}

func TestLookupsThatAreNotOffered(t *testing.T) {
	l := lifeOf(under(t, func(c *Contract) { c.ActsLookup = false }), "sale 100, refund 10")
	for _, path := range []string{"/captures", "/reversals", "/refunds"} {
		l.wantCode(l.get(path+"?reference=refund-1"), 422, "not_supported")
		l.wantCode(l.get(path+"?idempotency_key=k-refund-1"), 422, "not_supported")
	}
	l.want(l.get("/refunds/"+l.refund), 200)
	l.wantCode(l.get("/captures/"+l.refund), 404, "not_found") // it is no capture
	if c := l.now(); len(c.Acts) != 1 || c.Acts[0].ID != l.refund {
		t.Errorf("the charge tells %+v", c.Acts)
	}
	l.ok(l.SetContract(l.ctx, func() Contract { c := DefaultContract(); c.LookupByKey = false; return c }()))
	l.want(l.get("/refunds?reference=refund-1"), 200)
	l.wantCode(l.get("/refunds?idempotency_key=k-refund-1"), 422, "not_supported")
}

func TestBadActsAreRefused(t *testing.T) {
	l := lifeOf(start(t), "hold 100")
	for _, tc := range []struct {
		call, body string
		status     int
	}{
		{KindCapture, ``, 400}, {KindCapture, `{}`, 400}, {KindCapture, `{"reference":"r","amount":10}`, 400},
		{KindCapture, `{"reference":"r","amount":0,"currency":"USD"}`, 422}, {KindCapture, `{"reference":"","amount":1,"currency":"USD"}`, 422},
		{KindCapture, `{"reference":"r","amount":1,"currency":"USD","final":"yes"}`, 400}, {KindCapture, `{"reference":"r","amount":-1,"currency":"USD"}`, 422},
		{KindCapture, `{"reference":"r","amount":1.5,"currency":"USD"}`, 400}, {KindRefund, `{"reference":"r","amount":1,"currency":"USD","final":true}`, 400},
		{KindRefund, `{"reference":"r"}`, 400}, {KindReverse, `{"reference":"r","amount":1,"currency":"USD"}`, 400}, {KindReverse, `{}`, 400},
		{KindReverse, `{"reference":"r","reference":"r"}`, 400}, {"chargeback", `{"reference":"r"}`, 404},
	} {
		if g := l.postTo(l.ctx, "/charges/"+l.charge.ID+"/"+tc.call, "k1", tc.body); g.status != tc.status {
			t.Errorf("%s %s: %v, want %d", tc.call, tc.body, g, tc.status)
		}
	}
	for _, kind := range onlyActs {
		g := l.postTo(l.ctx, "/charges/ch_unknown/"+kind, "k1", actBody(kind, "r", 10, "USD"))
		l.wantCode(g, 404, "not_found")
	}
	if c := l.now(); c.Status != StatusHeld || len(c.Acts) != 0 {
		t.Errorf("the charge: %+v", c)
	}
	l.want(l.postTo(l.ctx, "/charges/"+l.charge.ID+"/capture", "k1", actBody(KindCapture, "r", 10, "USD")), 200) // the key is still free
}
