package sandbox

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

func TestRuleFilters(t *testing.T) {
	f := start(t)
	f.ok(f.SetFaults(f.ctx, 0, Rule{Fault: "503_once", Reference: "order-1", Skip: 1, Times: 2}))
	for i, status := range []int{200, 503, 503, 200} {
		if g := f.post(f.ctx, "", bodyOf("order-1", "pm_ok")); g.status != status {
			t.Errorf("call %d: %v, want %d", i, g, status)
		}
		f.want(f.post(f.ctx, "", bodyOf("order-2", "pm_ok")), 200)
	}
	f.ok(f.SetFaults(f.ctx, 0, Rule{Fault: "429_once", IdempotencyKey: "k1", ForMS: 1000}))
	f.want(f.post(f.ctx, "k2", bodyOf("order-3", "pm_ok")), 200)
	f.want(f.post(f.ctx, "k1", bodyOf("order-3", "pm_ok")), 429)
	f.ok(f.Advance(f.ctx, time.Second))
	f.want(f.post(f.ctx, "k1", bodyOf("order-3", "pm_ok")), 200)
}

func TestPercentIsDrawnBySeedAndKey(t *testing.T) {
	draw := func(seed int64) string {
		f := start(t)
		f.ok(f.SetFaults(f.ctx, seed, Rule{Fault: "503_once", Percent: 50}))
		var pattern strings.Builder
		for i := range 40 {
			g := f.post(f.ctx, "k"+string(rune('A'+i)), bodyOf("order-1", "pm_ok"))
			pattern.WriteByte("1234567890"[g.status%10])
		}
		return pattern.String()
	}
	one, again, other := draw(7), draw(7), draw(8)
	if one != again {
		t.Errorf("one seed, two patterns: %s and %s", one, again)
	}
	if one == other || strings.Count(one, "4") < 8 || strings.Count(one, "4") > 32 {
		t.Errorf("patterns %s and %s", one, other)
	}
}

func TestEffectsAddUp(t *testing.T) {
	f := start(t)
	f.ok(f.SetFaults(f.ctx, 0, Rule{Fault: "hold_after", Gate: "booked", Times: 1}, Rule{Fault: "reset_executed", Times: 1},
		Rule{Fault: "forget_key", Times: 1}))
	answers := f.async(f.ctx, "k1", bodyOf("order-1", "pm_ok"))
	f.ok(f.WaitWaiting(f.ctx, "booked", 1))
	f.moved(1)
	f.release("booked", 1)
	f.want(f.await(answers), 0)
	f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_ok")), 200)
	f.moved(2)
}

func TestDarkExecutesAndCannotBeAsked(t *testing.T) {
	f := start(t)
	f.ok(f.SetFaults(f.ctx, 0, Rule{Fault: "dark", ForMS: 60_000}))
	f.lostOnPurpose("k1", bodyOf("order-1", "pm_ok"))
	f.moved(1)
	asked := make(chan got, 1)
	go func() { asked <- f.get("/charges?idempotency_key=k1") }()
	f.ok(f.WaitWaiting(f.ctx, silentGate, 1))
	f.ok(f.Advance(f.ctx, time.Minute))
	f.release(silentGate, 1) // the late answer
	f.want(f.await(asked), 200)
	f.want(f.get("/charges?idempotency_key=k1"), 200)
}

func TestLookupFaults(t *testing.T) {
	f := start(t)
	f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_ok")), 200)
	for fault, status := range map[string]int{"lookup_not_found": 404, "lookup_down": 503, "lookup_reset": 0, "lookup_slow_1": 200} {
		f.ok(f.SetFaults(f.ctx, 0, Rule{Fault: fault}))              // no limit: Go repeats a GET by itself
		f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_ok")), 200) // not met
		f.want(f.get("/charges?reference=order-1"), status)
		f.ok(f.SetFaults(f.ctx, 0))
		f.want(f.get("/charges?reference=order-1"), 200)
	}
	f.ok(f.SetFaults(f.ctx, 0, Rule{Fault: "lookup_silent"}))
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	asked := make(chan got, 1)
	go func() {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.Base+"/movements", nil)
		if err != nil {
			asked <- got{err: err}
			return
		}
		asked <- f.do(request)
	}()
	f.ok(f.WaitWaiting(f.ctx, silentGate, 1))
	cancel()
	f.want(f.await(asked), 0)
}

func TestLookupIsAnsweredAsOfBetweenItsGates(t *testing.T) {
	for fault, status := range map[string]int{"lookup_hold_before": 200, "lookup_hold_after": 404} {
		f := start(t)
		f.ok(f.SetFaults(f.ctx, 0, Rule{Fault: fault, Gate: "g"}))
		asked := make(chan got, 1)
		go func() { asked <- f.get("/charges?reference=order-1") }()
		f.ok(f.WaitWaiting(f.ctx, "g", 1))
		f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_ok")), 200)
		f.release("g", 0)
		f.want(f.await(asked), status)
	}
}

// Go's own transport repeats a POST with an idempotency key when a kept
// connection dies: the reason why adapters must close that off.
func TestDropOfAKeptConnectionMakesGosTransportRepeat(t *testing.T) {
	f := start(t)
	f.ok(f.SetContract(f.ctx, neither()))
	f.ok(f.SetFaults(f.ctx, 0, Rule{Fault: "drop_kept_executed", Times: 1}))
	f.want(f.post(f.ctx, "k0", bodyOf("order-0", "pm_ok")), 200) // a new connection is not met
	request, err := http.NewRequestWithContext(f.ctx, http.MethodPost, f.Base+"/charges", strings.NewReader(bodyOf("order-1", "pm_ok")))
	f.ok(err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", "k1")
	f.want(f.do(request), 200)
	if twice := f.moved(3); twice[1].Reference != "order-1" || twice[2].Reference != "order-1" {
		t.Errorf("the register: %+v", twice)
	}
}

func TestDropOfAKeptConnectionWithoutRepeat(t *testing.T) {
	f := start(t)
	f.ok(f.SetFaults(f.ctx, 0, Rule{Fault: "drop_kept_executed", Times: 1}))
	f.want(f.post(f.ctx, "k0", bodyOf("order-0", "pm_ok")), 200)
	f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_ok")), 0)
	f.moved(2)
}

func TestPlanIsChecked(t *testing.T) {
	f := start(t)
	for _, rule := range []Rule{
		{Fault: "nothing_known"}, {Fault: "hold_after"}, {Fault: "reset_executed", Gate: "g"}, {Fault: "slow_x"}, {Fault: "slow_0"},
		{Fault: "slow_99999999999"}, {Fault: "418_once"}, {Fault: "declined_"}, {Fault: "dark", Percent: 101}, {Fault: "dark", Times: -1},
	} {
		if err := f.SetFaults(f.ctx, 0, rule); err == nil || !strings.Contains(err.Error(), "422") {
			t.Errorf("accepted %+v: %v", rule, err)
		}
	}
	f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_ok")), 200)
}

func TestDocumentNamesEveryFault(t *testing.T) {
	text, err := os.ReadFile("../../docs/sandbox.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range faultList {
		name := "`" + row.name + "`"
		if row.method {
			name = "`pm_" + row.name + "`"
		}
		if !strings.Contains(string(text), "| "+name+" |") {
			t.Errorf("docs/sandbox.md has no row for %s", name)
		}
	}
}
