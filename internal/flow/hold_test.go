package flow_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/app"
	"github.com/hapaxpay/hapax/internal/config"
	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// quick terms: what left us arrives at once, so that a comparison need not wait.
var quick = rig.Terms{"max_flight": "1us", "lookup_lag": "0s"}

func hold(t *testing.T, r *rig.Rig, p *rig.Replica) {
	t.Helper()
	if err := p.Store.HoldEpoch(t.Context(), "a test", time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
}

func compared(t *testing.T, p *rig.Replica) {
	t.Helper()
	// The comparison waits until what left before can have arrived: freshness of a permit, and flight.
	dbtest.Eventually(t, func() bool {
		n, err := p.Flow.CompareLost(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return n > 0
	})
}

// fleeting makes permits short-lived, so that a comparison need not wait long.
func fleeting(c *config.Config, o *app.Options) {
	c.Fresh = time.Second
	rig.Hasty(c, o)
}

func TestHoldAtAnAcquirerWithKeys(t *testing.T) {
	r := rig.New(t, quick)
	x := table{t, r, r.Replica(fleeting)}
	hold(t, r, x.p)
	x.want(x.p.PayHTTP("key-1", rig.Order{Reference: "1"}), 201, "paid") // a lost twin would be replayed
	compared(t, x.p)
	if got := r.Count("SELECT count(*) FROM database_epoch WHERE held"); got != 0 {
		t.Error("the hold goes on after everything was compared")
	}
	settled(t, r, 1)
}

func TestHoldBeyondTheCutOff(t *testing.T) {
	r := rig.New(t, rig.Terms{"max_flight": "1us", "lookup_lag": "0s", "key_window": "90m"})
	x := table{t, r, r.Replica(fleeting)}
	hold(t, r, x.p) // one hour may be lost, the cut-off is 45 minutes
	x.want(x.p.PayHTTP("key-1", rig.Order{Reference: "1"}), 503, string(problem.SendsOnHold))
	if got := r.Count("SELECT count(*) FROM operation"); got != 0 {
		t.Errorf("%d operations were claimed during the hold", got)
	}
	compared(t, x.p)
	x.want(x.p.PayHTTP("key-1", rig.Order{Reference: "1"}), 201, "paid")
	settled(t, r, 1)
}

func TestHoldAtAnAcquirerWithNeither(t *testing.T) {
	r := rig.New(t, rig.Terms{"identity": "none", "max_flight": "1us", "lookup_lag": "0s"})
	x := table{t, r, r.Replica(fleeting)}
	hold(t, r, x.p)
	x.want(x.p.PayHTTP("key-1", rig.Order{Reference: "1"}), 503, string(problem.SendsOnHold))
	compared(t, x.p)
	x.want(x.p.PayHTTP("key-1", rig.Order{Reference: "1"}), 201, "paid")
	settled(t, r, 1)
}

func TestHoldKeepsRowsFromBefore(t *testing.T) {
	r := rig.New(t, rig.Terms{"max_flight": "10m", "lookup_lag": "0s"})
	x := table{t, r, r.Replica(fleeting)}
	faults(t, r, sandbox.Rule{Fault: "timeout_not_executed"})
	x.want(x.p.PayHTTP("key-1", rig.Order{Reference: "1"}), 202, "unknown")
	sent := len(r.Charges())
	faults(t, r)
	if err := x.p.Store.EpochRestored(t.Context(), "a test"); err != nil {
		t.Fatal(err)
	}
	r.Later(time.Minute)
	x.p.Sweep.Pass(t.Context())
	if got := len(r.Charges()); got != sent {
		t.Errorf("%d requests were sent for a row from before the hold", got-sent)
	}
	if got := r.Count("SELECT count(*) FROM history WHERE what = 'permit_denied' AND why = 'hold'"); got == 0 {
		t.Error("the permit was not denied because of the hold")
	}
	r.Verify()
}

// A restored database that lost a paid order: the acquirer's movement is found, kept aside, and finds its order again
// when the client repeats its request; nothing moves a second time.
func TestRestoredDatabaseFindsItsMoney(t *testing.T) {
	r := rig.New(t, quick)
	x := table{t, r, r.Replica(fleeting)}
	x.want(x.p.PayHTTP("key-1", rig.Order{Reference: "1"}), 201, "paid")
	wipe(t, r)
	if err := x.p.Store.EpochRestored(t.Context(), "the last commits are lost"); err != nil {
		t.Fatal(err)
	}
	compared(t, x.p)
	if got := r.Text("SELECT reason FROM review WHERE decided_at IS NULL"); got != "unattributed_money" {
		t.Errorf("review %q, want unattributed_money", got)
	}
	x.want(x.p.PayHTTP("key-1", rig.Order{Reference: "1"}), 201, "paid")
	if got := r.Count("SELECT count(*) FROM review WHERE decided_at IS NULL"); got != 0 {
		t.Errorf("%d reviews are still open", got)
	}
	settled(t, r, 1)
}

func TestLateRepeatOfAPurgedKey(t *testing.T) {
	r := rig.New(t, nil)
	x := table{t, r, r.Replica(fleeting)}
	first := x.want(x.p.PayHTTP("key-1", rig.Order{Reference: "1"}), 201, "paid")
	x.want(x.p.PayHTTP("key-2", rig.Order{Reference: "2", Method: "pm_declined_do_not_honor"}), 402, "declined")
	intent := func(key, body string) rig.Response {
		a, err := x.p.Do(t.Context(), r.Merchant, http.MethodPost, "/v1/payment_intents", key, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	made := intent("key-3", `{"amount":5,"currency":"KZT"}`)
	r.Later(31 * 24 * time.Hour)
	if n, err := x.p.Store.PurgeExpired(t.Context(), 100); err != nil || n != 3 {
		t.Fatalf("purged %d, %v; want 3", n, err)
	}
	again := x.want(x.p.PayHTTP("key-1", rig.Order{Reference: "1"}), 201, "paid")
	if again.Member("id") != first.Member("id") || again.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("the late repeat was told %s, replayed %q", again.Body, again.Header.Get("Idempotency-Replayed"))
	}
	x.want(x.p.PayHTTP("key-1", rig.Order{Reference: "1", Minor: 3}), 422, string(problem.KeyReuse))
	x.want(x.p.PayHTTP("key-2", rig.Order{Reference: "2", Method: "pm_declined_do_not_honor"}), 402, "declined")
	if b := intent("key-3", `{"amount":5,"currency":"KZT"}`); b.Status != 201 || b.Member("id") != made.Member("id") {
		t.Errorf("the late repeat of an intent: %d %s", b.Status, b.Body)
	}
	x.want(intent("key-3", `{"amount":6,"currency":"KZT"}`), 422, string(problem.KeyReuse))
	if got := r.Count("SELECT count(*) FROM payment_intent"); got != 3 {
		t.Errorf("%d intents, want 3", got)
	}
	if got := len(r.Charges()); got != 2 {
		t.Errorf("%d charge calls arrived, want 2", got)
	}
	settled(t, r, 1)
}

// What left before a failover may still arrive: the comparison waits for flight and freshness, and the hold with it.
func TestTheComparisonWaitsForFlight(t *testing.T) {
	r := rig.New(t, rig.Terms{"max_flight": "10m"})
	p := r.Replica(fleeting)
	hold(t, r, p)
	if n, err := p.Flow.CompareLost(t.Context()); err != nil || n != 0 {
		t.Errorf("compared %d accounts at once, %v", n, err)
	}
	if got := r.Count("SELECT count(*) FROM database_epoch WHERE held"); got != 1 {
		t.Error("the hold ended before the comparison")
	}
	r.Later(11 * time.Minute)
	if n, err := p.Flow.CompareLost(t.Context()); err != nil || n != 1 {
		t.Errorf("compared %d accounts after flight, %v", n, err)
	}
}

// A payment claimed during a hold may have a lost twin: a rejection of its only send proves nothing (O1, A8).
func TestARejectionDuringAHoldProvesNothing(t *testing.T) {
	r := rig.New(t, quick)
	x := table{t, r, r.Replica(fleeting)}
	hold(t, r, x.p)
	x.want(x.p.PayHTTP("key-1", rig.Order{Reference: "1", Method: "pm_401_once"}), 202, "unknown")
	compared(t, x.p)
	x.p.Settle(48 * time.Hour)
	if got := r.Status("key-1"); got == "failed" {
		t.Error("failed, by a rejection that may be the answer to a second send")
	}
	r.Verify()
}
