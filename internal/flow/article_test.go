package flow_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/app"
	"github.com/hapaxpay/hapax/internal/config"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// The five tests of the article that took a double charge apart, on the real parts: PostgreSQL, transport, acquirer.

// together calls f n times at once and returns when all are done.
func together(n int, f func(n int)) {
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	all.Wait()
}

func settled(t *testing.T, r *rig.Rig, movements int) {
	t.Helper()
	if got := len(r.Movements()); got != movements {
		t.Errorf("the register shows %d movements, want %d", got, movements)
	}
	if got := r.Receipts(); got != movements {
		t.Errorf("the ledger shows %d receipts, want %d", got, movements)
	}
	paid := 0
	for _, e := range r.Events() {
		if e == "payment.paid" {
			paid++
		}
	}
	if paid != movements {
		t.Errorf("the outbox shows %d paid events, want %d", paid, movements)
	}
	r.Verify()
}

func TestTwentyCallersOnOneKeyMakeOneCall(t *testing.T) {
	r := rig.New(t, nil)
	p := r.Replica()
	var mu sync.Mutex
	var finals, others int
	together(20, func(int) {
		a, err := p.Pay("key-1", rig.Order{Reference: "order-784512"})
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil && a.Status == 201:
			finals++
		case problem.Is(err, problem.OperationInProgress), err == nil && a.Status == 202:
			others++
		default:
			t.Errorf("answer %d %s, error %v", a.Status, a.Body, err)
		}
	})
	if finals == 0 || finals+others != 20 {
		t.Errorf("%d final answers and %d others, want 20 with at least one final", finals, others)
	}
	if got := len(r.Charges()); got != 1 {
		t.Errorf("%d charge calls arrived, want 1", got)
	}
	settled(t, r, 1)
}

func TestRepeatAfterReadTimeoutCarriesTheSameKey(t *testing.T) {
	r := rig.New(t, nil)
	p := r.Replica(rig.Hasty)
	a, err := p.Pay("key-1", rig.Order{Reference: "order-1", Method: "pm_timeout_executed"})
	if err != nil || a.Status != 201 {
		t.Fatalf("answer %d %s, error %v; want 201", a.Status, a.Body, err)
	}
	calls := r.Charges()
	if len(calls) != 2 {
		t.Fatalf("%d charge calls arrived, want 2: the first one and its repeat", len(calls))
	}
	if calls[0].IdempotencyKey == "" || calls[0].IdempotencyKey != calls[1].IdempotencyKey || calls[0].BodySHA256 != calls[1].BodySHA256 {
		t.Errorf("the repeat differs: key %q then %q, body %s then %s", calls[0].IdempotencyKey, calls[1].IdempotencyKey, calls[0].BodySHA256, calls[1].BodySHA256)
	}
	settled(t, r, 1)
}

func TestCrashBetweenChargeAndRecordIsSettledBySweep(t *testing.T) {
	r := rig.New(t, nil)
	crash := rig.CrashAt(operation.PointBeforeRecord, 1)
	if _, err := r.Replica(rig.WithFaults(crash)).Pay("key-1", rig.Order{Reference: "order-1"}); err == nil {
		t.Fatal("the process was to vanish")
	}
	if got := r.Status("key-1"); got != "pending" {
		t.Fatalf("status %s, want pending", got)
	}
	p := r.Replica()
	p.Settle(time.Hour)
	if got := r.Status("key-1"); got != "paid" {
		t.Errorf("status %s, want paid", got)
	}
	if got := r.Text("SELECT state FROM operation"); got != "completed" {
		t.Errorf("operation %s, want completed", got)
	}
	if got := len(r.Charges()); got != 1 {
		t.Errorf("%d charge calls arrived, want 1", got)
	}
	settled(t, r, 1)
}

func TestTwoSweepsAndRepeatMakeOneLookup(t *testing.T) {
	r := rig.New(t, nil)
	crash := rig.CrashAt(operation.PointBeforeRecord, 1)
	if _, err := r.Replica(rig.WithFaults(crash)).Pay("key-1", rig.Order{Reference: "order-1"}); err == nil {
		t.Fatal("the process was to vanish")
	}
	r.Later(31 * time.Second)
	// Whoever takes over stands at the acquirer until the others had their turn.
	if err := r.Acquirer.SetFaults(t.Context(), 0, sandbox.Rule{Fault: "lookup_hold_before", Gate: "asked"}); err != nil {
		t.Fatal(err)
	}
	one, two, three := r.Replica(patient), r.Replica(patient), r.Replica(patient)
	done := make(chan struct{}, 3)
	for _, f := range []func(){
		func() { one.Sweep.Pass(t.Context()) },
		func() { two.Sweep.Pass(t.Context()) },
		func() {
			a, err := three.Pay("key-1", rig.Order{Reference: "order-1"})
			if err != nil && !problem.Is(err, problem.OperationInProgress) || err == nil && a.Status != 201 && a.Status != 202 {
				t.Errorf("answer %d %s, error %v", a.Status, a.Body, err)
			}
		},
	} {
		go func() { f(); done <- struct{}{} }()
	}
	if err := r.Acquirer.WaitWaiting(t.Context(), "asked", 1); err != nil {
		t.Fatal(err)
	}
	<-done
	<-done // two of three found nothing to do while the third one asks
	if _, err := r.Acquirer.Release(t.Context(), "asked", 0); err != nil {
		t.Fatal(err)
	}
	<-done
	if got := len(r.Lookups()); got != 1 {
		t.Errorf("%d lookups arrived, want 1", got)
	}
	if got := r.Status("key-1"); got != "paid" {
		t.Errorf("status %s, want paid", got)
	}
	settled(t, r, 1)
}

func TestWindowOverGoesToReviewInsteadOfNewCharge(t *testing.T) {
	r := rig.New(t, rig.Terms{"not_found_final": false})
	p := r.Replica(rig.Hasty)
	// The acquirer goes dark while it takes the request; what became of it is not known.
	if err := r.Acquirer.SetFaults(t.Context(), 0, sandbox.Rule{Fault: "timeout_not_executed"}, sandbox.Rule{Fault: "lookup_down"}); err != nil {
		t.Fatal(err)
	}
	a, err := p.Pay("key-1", rig.Order{Reference: "order-1"})
	if err != nil || a.Status != 202 {
		t.Fatalf("answer %d %s, error %v; want 202", a.Status, a.Body, err)
	}
	sent := len(r.Charges())
	r.Later(25 * time.Hour) // past the cut-off and past the acquirer's window
	if err := r.Acquirer.SetFaults(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	p.Settle(48 * time.Hour)
	if got := len(r.Charges()); got != sent {
		t.Errorf("%d charge calls arrived after the window, want none", got-sent)
	}
	if got := r.Status("key-1"); got != "unknown" {
		t.Errorf("status %s, want unknown: only evidence or a person ends it", got)
	}
	if got := r.Text("SELECT reason FROM review WHERE decided_at IS NULL"); got != "window_over" {
		t.Errorf("review %q, want window_over", got)
	}
	settled(t, r, 0)
}

func TestThreeReplicas(t *testing.T) {
	t.Run("200 callers on one key", func(t *testing.T) {
		r := rig.New(t, nil)
		replicas := []*rig.Replica{r.Replica(), r.Replica(), r.Replica()}
		together(200, func(n int) {
			a, err := replicas[n%3].Pay("key-1", rig.Order{Reference: "order-1"})
			if err != nil && !problem.Is(err, problem.OperationInProgress) && !problem.Is(err, problem.TryAgain) || err == nil && a.Status != 201 && a.Status != 202 {
				t.Errorf("answer %d %s, error %v", a.Status, a.Body, err)
			}
		})
		if got := len(r.Charges()); got != 1 {
			t.Errorf("%d charge calls arrived, want 1", got)
		}
		settled(t, r, 1)
	})
	t.Run("200 keys on one intent", func(t *testing.T) {
		r := rig.New(t, nil)
		replicas := []*rig.Replica{r.Replica(), r.Replica(), r.Replica()}
		var mu sync.Mutex
		var seen []int
		together(200, func(n int) {
			a, err := replicas[n%3].Pay(fmt.Sprintf("key-%d", n), rig.Order{Reference: "order-1"})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case problem.Is(err, problem.AlreadyPaid):
				seen = append(seen, 409)
			case problem.Is(err, problem.TryAgain): // a busy machine: this request did nothing, and says so
			case err == nil:
				seen = append(seen, a.Status)
			default:
				t.Errorf("answer %d %s, error %v", a.Status, a.Body, err)
			}
		})
		slices.Sort(seen)
		for _, status := range slices.Compact(seen) {
			if status != 201 && status != 202 && status != 409 {
				t.Errorf("a caller was told %d", status)
			}
		}
		if got := len(r.Charges()); got != 1 {
			t.Errorf("%d charge calls arrived, want 1", got)
		}
		settled(t, r, 1)
		// Every key that joined the payment was finished with it.
		if got := r.Count("SELECT count(*) FROM operation WHERE state <> 'completed'"); got != 0 {
			t.Errorf("%d operations are unfinished", got)
		}
	})
}

// patient makes a replica wait longer for the acquirer than a test holds it.
func patient(c *config.Config, _ *app.Options) {
	c.Connect, c.Read = 5*time.Second, 6*time.Second
}
