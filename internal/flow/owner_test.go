package flow_test

import (
	"context"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/config"
	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/pgproxy"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// K3: what a stale owner infers is not recorded, and it does not touch the lease of the owner after it.
func TestStaleInferenceIsNotRecorded(t *testing.T) {
	r := rig.New(t, nil)
	gate := rig.HoldAt(operation.PointBeforeRecord)
	stale := r.Replica(rig.WithFaults(gate))
	told := make(chan error, 1)
	go func() {
		_, err := stale.Pay("key-1", rig.Order{Reference: "1", Method: "pm_500_executed"})
		told <- err
	}()
	<-gate.Reached()
	r.Later(31 * time.Second)
	faults(t, r, sandbox.Rule{Fault: "lookup_hold_before", Gate: "asked"})
	second := r.Replica(patient)
	swept := make(chan struct{})
	go func() { second.Sweep.Pass(t.Context()); close(swept) }()
	if err := r.Acquirer.WaitWaiting(t.Context(), "asked", 1); err != nil {
		t.Fatal(err)
	}
	gate.Open()
	if err := <-told; !problem.Is(err, problem.OperationInProgress) {
		t.Errorf("the stale owner's client was told %v, want operation_in_progress", err)
	}
	if got := r.Text("SELECT state || ' ' || (due_at = lease_until) FROM operation"); got != "in_progress true" {
		t.Errorf("the operation of the second owner is %q, want in_progress with its lease", got)
	}
	if got := r.Text("SELECT effect FROM evidence WHERE source = 'call'"); got != "stale_owner" {
		t.Errorf("the stale owner's evidence had the effect %q", got)
	}
	if _, err := r.Acquirer.Release(t.Context(), "asked", 0); err != nil {
		t.Fatal(err)
	}
	<-swept
	settled(t, r, 1)
}

// A3, O1: no permit sent a byte: failed, and the intent is free.
func TestNothingLeftMeansUnreachable(t *testing.T) {
	r := rig.New(t, nil)
	p := r.Replica(rig.WithDoer(nowhere{}))
	a := p.PayHTTP("key-1", rig.Order{Reference: "1"})
	if a.Status != 422 || a.Member("status") != "failed" {
		t.Errorf("told %d %s", a.Status, a.Body)
	}
	if got := r.Text("SELECT sends || ' ' || unsent FROM operation"); got != "2 2" {
		t.Errorf("sends and unsent %q, want 2 2", got)
	}
	if a := r.Replica().PayHTTP("key-2", rig.Order{Reference: "1"}); a.Status != 201 {
		t.Errorf("the intent is not free: %d %s", a.Status, a.Body)
	}
	settled(t, r, 1)
}

type nowhere struct{}

func (nowhere) Do(context.Context, wire.Call) wire.Result {
	return wire.Result{Sent: wire.NotSent, Phase: wire.PhaseConnect, Err: wire.ErrConnectTimeout}
}

// E2, I-1: money that arrives for an open payment whose intent has applied money is a second movement.
func TestMoneyBesideAppliedMoney(t *testing.T) {
	r, p := lateMoney(t)
	if a := p.PayHTTP("card-1", rig.Order{Reference: "1", Method: "pm_arrives_after_60s|pm_declined_do_not_honor"}); a.Status != 402 {
		t.Fatalf("told %d %s", a.Status, a.Body)
	}
	r.Later(2 * time.Minute)
	if _, err := r.Acquirer.WaitMovements(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	faults(t, r, sandbox.Rule{Fault: "hold_before", Gate: "there", Times: 1})
	slow := r.Replica(patient)
	told := make(chan rig.Response, 1)
	go func() { told <- slow.PayHTTP("card-2", rig.Order{Reference: "1"}) }()
	if err := r.Acquirer.WaitWaiting(t.Context(), "there", 1); err != nil {
		t.Fatal(err)
	}
	if err := p.Store.HoldEpoch(t.Context(), "a test", time.Now().Add(-24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	r.DB.Age(t, 11*time.Second)
	if _, err := p.Flow.CompareLost(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := verdict(t, r, p, "click", "true", flow.VerdictApply, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Acquirer.Release(t.Context(), "there", 0); err != nil {
		t.Fatal(err)
	}
	a := <-told
	if got := r.Receipts(); got != 1 {
		t.Errorf("%d receipts for one intent; told %d %s", got, a.Status, a.Body)
	}
}

type atPoint struct {
	point string
	do    func()
}

func (f atPoint) Hit(_ context.Context, point string) error {
	if point == f.point {
		f.do()
	}
	return nil
}

type secondNotSent struct {
	real wire.Doer
	n    *int
}

func (d secondNotSent) Do(ctx context.Context, c wire.Call) wire.Result {
	if c.Permit != nil {
		if *d.n++; *d.n == 2 {
			return nowhere{}.Do(ctx, c)
		}
	}
	return d.real.Do(ctx, c)
}

// K10, O1: a record whose COMMIT got no answer runs again and counts nothing twice: else the second run would see "no send
// left us" and tell a refusal for money that moved.
func TestRecordRunAgainCountsOnce(t *testing.T) {
	r := rig.New(t, nil)
	proxy, url := pgproxy.New(t, r.DB.Service())
	r.Through(url)
	once := false
	n := 0
	p := r.Replica(rig.Hasty, rig.WithFaults(atPoint{operation.PointInRecord, func() {
		if !once {
			once = true
			proxy.Once(pgproxy.SwallowReply, 0)
		}
	}}), rig.WithDoer(secondNotSent{client(t, r), &n}))
	a := p.PayHTTP("key-1", rig.Order{Reference: "1", Method: "pm_timeout_executed"})
	if a.Status != 202 {
		t.Errorf("told %d %s, want 202", a.Status, a.Body)
	}
	if got := r.Text("SELECT sends || ' ' || unsent || ' ' || checks FROM operation"); got != "2 1 1" {
		t.Errorf("sends, unsent, checks: %q, want 2 1 1", got)
	}
	p.Settle(time.Hour)
	settled(t, r, 1)
}

// K11: a client that goes away cancels nothing: the work goes on and is recorded.
func TestTheClientGoesAway(t *testing.T) {
	r := rig.New(t, nil)
	p := r.Replica(patient)
	faults(t, r, sandbox.Rule{Fault: "hold_before", Gate: "there", Times: 1})
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if _, err := p.Flow.CreatePayment(ctx, r.Command("key-1", rig.Order{Reference: "1"})); err != nil {
			t.Error(err)
		}
	}()
	if err := r.Acquirer.WaitWaiting(t.Context(), "there", 1); err != nil {
		t.Fatal(err)
	}
	leave()
	<-gone
	if _, err := r.Acquirer.Release(t.Context(), "there", 0); err != nil {
		t.Fatal(err)
	}
	dbtest.Eventually(t, func() bool { return r.Status("key-1") == "paid" })
	settled(t, r, 1)
}

// A3: an answer that was read is not repeated in the same request, whatever it says.
func TestAnAnswerIsNotRepeated(t *testing.T) {
	r := rig.New(t, nil)
	p := r.Replica()
	for _, method := range []string{"pm_500_executed", "pm_409_in_flight", "pm_429_once", "pm_502_executed"} {
		before := len(r.Charges())
		p.PayHTTP("key-"+method, rig.Order{Reference: method, Method: method})
		if got := len(r.Charges()) - before; got != 1 {
			t.Errorf("%s: %d charge calls arrived, want 1", method, got)
		}
	}
}

// A5: a permit is fresh from before its claim was sent to the database: a pause inside the claim uses it up, no byte leaves
// under it, and the request goes out under a permit of its own.
func TestAPauseInTheClaimUsesUpThePermit(t *testing.T) {
	r := rig.New(t, nil)
	gate := rig.HoldAt(operation.PointInClaim)
	const fresh = time.Second
	p := r.Replica(rig.WithFaults(gate), rig.With(func(c *config.Config) { c.Fresh = fresh }))
	told := make(chan rig.Response, 1)
	begun := time.Now()
	go func() { told <- p.PayHTTP("key-1", rig.Order{Reference: "1"}) }()
	<-gate.Reached()
	dbtest.Eventually(t, func() bool { return time.Since(begun) > fresh+fresh/4 })
	gate.Open()
	if a := <-told; a.Status != 201 {
		t.Errorf("told %d %s", a.Status, a.Body)
	}
	if got := r.Text("SELECT sends || ' ' || unsent FROM operation"); got != "2 1" {
		t.Errorf("sends and unsent %q, want 2 1: nothing left under the first permit", got)
	}
	settled(t, r, 1)
}
