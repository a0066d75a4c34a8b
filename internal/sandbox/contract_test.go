package sandbox

import (
	"strings"
	"testing"
	"time"
)

// under starts a sandbox with the default contract changed.
func under(t *testing.T, change func(*Contract)) *fixture {
	t.Helper()
	f := start(t)
	terms := DefaultContract()
	change(&terms)
	f.ok(f.SetContract(f.ctx, terms))
	return f
}

func TestSameKeyIsExecutedOnceAndAnswersTheSameBytes(t *testing.T) {
	f := start(t)
	first := f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_ok")), 200)
	if again := f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_ok")), 200); again.body != first.body {
		t.Errorf("replayed %s, was %s", again.body, first.body)
	}
	f.moved(1)
}

func TestKeyWithAnotherBodyIsRefused(t *testing.T) {
	f := start(t)
	f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_ok")), 200)
	g := f.post(f.ctx, "k1", bodyOf("order-2", "pm_ok"))
	f.wantCode(g, 422, "key_reused")
	if strings.Contains(g.body, "order-1") {
		t.Errorf("the answer tells of the first request: %s", g.body)
	}
	f.moved(1)
}

func TestWithoutAKeyEveryRequestIsExecuted(t *testing.T) {
	f := start(t)
	for n := 1; n <= 2; n++ {
		f.want(f.post(f.ctx, "", bodyOf("order-1", "pm_ok")), 200)
		f.moved(n)
	}
}

func TestKeysNotHonoured(t *testing.T) {
	f := under(t, func(c *Contract) { c.KeysHonoured = false })
	for n := 1; n <= 2; n++ {
		f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_ok")), 200)
		f.moved(n)
	}
	if g := f.want(f.get("/charges?reference=order-1"), 200); strings.Count(g.body, `"ch_`) != 2 {
		t.Errorf("the lookup hides one of two: %s", g.body)
	}
}

func TestKeyWindowCountsFromFirstReceipt(t *testing.T) {
	f := under(t, func(c *Contract) { c.KeyWindowSeconds = 100 })
	body := bodyOf("order-1", "pm_ok")
	f.want(f.post(f.ctx, "k1", body), 200)
	f.ok(f.Advance(f.ctx, 60*time.Second))
	f.want(f.post(f.ctx, "k1", body), 200) // a repeat does not extend it
	f.moved(1)
	f.ok(f.Advance(f.ctx, 40*time.Second))
	f.want(f.post(f.ctx, "k1", body), 200)
	f.moved(2)
}

func TestUniqueReference(t *testing.T) {
	f := under(t, func(c *Contract) { c.KeysHonoured, c.ReferenceUnique = false, true })
	f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_ok")), 200)
	f.wantCode(f.post(f.ctx, "k2", bodyOf("order-1", "pm_ok")), 409, "duplicate_reference")
	f.want(f.post(f.ctx, "k1", bodyOf("order-2", "pm_declined_expired_card")), 402)
	f.wantCode(f.post(f.ctx, "k1", bodyOf("order-2", "pm_ok")), 409, "duplicate_reference")
	f.moved(1)
}

func TestUniqueReferenceInFlight(t *testing.T) {
	f := under(t, func(c *Contract) { c.KeysHonoured, c.ReferenceUnique = false, true })
	f.ok(f.SetFaults(f.ctx, 0, Rule{Fault: "hold_during", Gate: "g", Times: 1}))
	first := f.async(f.ctx, "", bodyOf("order-1", "pm_ok"))
	f.ok(f.WaitWaiting(f.ctx, "g", 1))
	f.wantCode(f.post(f.ctx, "", bodyOf("order-1", "pm_ok")), 409, "in_flight")
	f.release("g", 1)
	f.want(f.await(first), 200)
	f.moved(1)
}

func TestRefusalsNotRemembered(t *testing.T) {
	f := under(t, func(c *Contract) { c.RefusalsRemembered = false })
	body := bodyOf("order-1", "pm_declined_do_not_honor|pm_ok")
	f.want(f.post(f.ctx, "k1", body), 402)
	f.want(f.post(f.ctx, "k1", body), 200)
	f.moved(1)
}

func TestRefusalsRememberedWinOverTheChain(t *testing.T) {
	f := start(t)
	body := bodyOf("order-1", "pm_declined_do_not_honor|pm_ok")
	f.want(f.post(f.ctx, "k1", body), 402)
	f.want(f.post(f.ctx, "k1", body), 402)
	f.moved(0)
}

func TestErrorsNotStored(t *testing.T) {
	f := under(t, func(c *Contract) { c.ErrorsStored = false })
	f.onceThenGood("pm_500_executed", 500, "internal", 1)
	body := bodyOf("order-2", "pm_500_not_executed")
	f.want(f.post(f.ctx, "k2", body), 500)
	f.moved(1)
	f.want(f.post(f.ctx, "k2", body), 200)
	f.moved(2)
}

func TestRepeatInFlight(t *testing.T) {
	for policy, atOnce := range map[string]int{RepeatConflict: 409, RepeatWait: 200} {
		t.Run(policy, func(t *testing.T) {
			f := under(t, func(c *Contract) { c.RepeatInFlight = policy })
			f.ok(f.SetFaults(f.ctx, 0, Rule{Fault: "hold_during", Gate: "g", Times: 1},
				Rule{Fault: "hold_before", Gate: "door", Skip: 1}))
			body := bodyOf("order-1", "pm_ok")
			first := f.async(f.ctx, "k1", body)
			f.ok(f.WaitWaiting(f.ctx, "g", 1))
			second, other := f.async(f.ctx, "k1", body), f.async(f.ctx, "k1", bodyOf("order-2", "pm_ok"))
			f.ok(f.WaitWaiting(f.ctx, "door", 2))
			f.release("door", 2)
			f.wantCode(f.await(other), 422, "key_reused") // whatever the policy
			if policy == RepeatConflict {
				f.wantCode(f.await(second), 409, "in_flight")
			}
			f.release("g", 1)
			one := f.want(f.await(first), 200)
			if policy == RepeatWait {
				if two := f.want(f.await(second), atOnce); two.body != one.body {
					t.Errorf("answers differ: %s and %s", one.body, two.body)
				}
			}
			f.moved(1)
		})
	}
}

func TestRepeatLater(t *testing.T) {
	for policy, status := range map[string]string{RepeatOriginal: StatusProcessing, RepeatCurrent: StatusSucceeded} {
		t.Run(policy, func(t *testing.T) {
			f := under(t, func(c *Contract) { c.RepeatLater = policy })
			body := bodyOf("order-1", "pm_processing_1000")
			f.want(f.post(f.ctx, "k1", body), 200)
			f.ok(f.Advance(f.ctx, time.Second))
			f.movedWithin(1)
			if c := f.want(f.post(f.ctx, "k1", body), 200).charge(t); c.Status != status {
				t.Errorf("the repeat says %s, want %s", c.Status, status)
			}
			f.moved(1)
		})
	}
}

func TestLookups(t *testing.T) {
	f := under(t, func(c *Contract) {
		c.LookupByKey, c.LookupByReference, c.LookupLagMS, c.LookupWindowSeconds = true, false, 5000, 60
	})
	c := f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_ok")), 200).charge(t)
	f.want(f.get("/charges?idempotency_key=k1"), 404) // the lag
	f.want(f.get("/charges/"+c.ID), 200)
	f.wantCode(f.get("/charges?reference=order-1"), 422, "not_supported")
	f.ok(f.Advance(f.ctx, 5*time.Second))
	if g := f.want(f.get("/charges?idempotency_key=k1"), 200); !strings.Contains(g.body, c.ID) {
		t.Errorf("found %s", g.body)
	}
	f.want(f.get("/charges?idempotency_key=k2"), 404)
	f.ok(f.Advance(f.ctx, time.Minute))
	f.want(f.get("/charges?idempotency_key=k1"), 404) // too old to be seen
	for _, path := range []string{"/charges", "/charges?reference=a&idempotency_key=b", "/charges?reference=a&reference=b", "/charges?reference=",
		"/charges?reference=a&x=1", "/movements?from=yesterday"} {
		f.wantCode(f.get(path), 400, "malformed")
	}
}

func TestFlightDelaysEveryCharge(t *testing.T) {
	f := under(t, func(c *Contract) { c.FlightMS = 60_000 })
	f.leftAtTheClock("k1", bodyOf("order-1", "pm_ok"))
	f.moved(0)
	f.ok(f.Advance(f.ctx, time.Minute))
	f.movedWithin(1)
}

func TestMovementsByTime(t *testing.T) {
	f := start(t)
	f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_ok")), 200)
	f.ok(f.Advance(f.ctx, time.Hour))
	f.want(f.post(f.ctx, "k2", bodyOf("order-2", "pm_ok")), 200)
	at := f.moved(2)[1].At.Format(time.RFC3339Nano)
	for path, want := range map[string][2]bool{
		"/movements": {true, true}, "/movements?from=" + at: {false, true}, "/movements?to=" + at: {true, false},
		"/movements?from=" + at + "&to=" + at: {false, false},
	} {
		g := f.want(f.get(path), 200)
		if got := [2]bool{strings.Contains(g.body, "order-1"), strings.Contains(g.body, "order-2")}; got != want {
			t.Errorf("%s: %s", path, g.body)
		}
	}
}

func TestContractIsChecked(t *testing.T) {
	f := start(t)
	for _, change := range []func(*Contract){
		func(c *Contract) { c.RepeatInFlight = "perhaps" }, func(c *Contract) { c.RepeatLater = "" },
		func(c *Contract) { c.KeyWindowSeconds = -1 }, func(c *Contract) { c.LookupLagMS = 1 << 62 },
	} {
		terms := DefaultContract()
		change(&terms)
		if err := f.SetContract(f.ctx, terms); err == nil || !strings.Contains(err.Error(), "422") {
			t.Errorf("accepted %+v: %v", terms, err)
		}
	}
	if terms, err := f.Contract(f.ctx); err != nil || terms != DefaultContract() {
		t.Errorf("the contract moved: %+v, %v", terms, err)
	}
}
