package flow_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// decide gives a person's verdict about the one open review.
func decide(t *testing.T, r *rig.Rig, p *rig.Replica, key, verdict, reference string) error {
	t.Helper()
	review, err := id.ParseUUID(r.Text("SELECT id::text FROM review ORDER BY decided_at NULLS FIRST LIMIT 1"))
	if err != nil {
		t.Fatalf("no review: %v", err)
	}
	a, err := p.Flow.DecideReview(t.Context(), flow.DecideReviewCommand{Merchant: r.Merchant.ID, Key: key, RequestID: "req_person",
		Review: review, Verdict: verdict, Reference: reference, Person: "support", Reason: "seen at the acquirer"})
	if err == nil && a.Status != 201 {
		t.Errorf("decision answered %d %s", a.Status, a.Body)
	}
	return err
}

// inReview makes a payment whose outcome only a person can tell; moved says whether the acquirer took the money.
func inReview(t *testing.T, moved bool) (*rig.Rig, *rig.Replica) {
	t.Helper()
	r := rig.New(t, rig.Terms{"not_found_final": false, "max_flight": "1us", "lookup_lag": "0s"})
	p := r.Replica(rig.Hasty)
	fault := "timeout_not_executed"
	if moved {
		fault = "timeout_executed"
	}
	faults(t, r, sandbox.Rule{Fault: fault}, sandbox.Rule{Fault: "lookup_down"})
	if a, err := p.Pay("key-1", rig.Order{Reference: "order-1"}); err != nil || a.Status != 202 {
		t.Fatalf("told %d, %v", a.Status, err)
	}
	r.Later(13 * time.Hour)
	p.Settle(time.Minute)
	if got := r.Text("SELECT state FROM operation"); got != "in_review" {
		t.Fatalf("operation %s, want in_review", got)
	}
	return r, p
}

func TestReviewDecidedPaid(t *testing.T) {
	r, p := inReview(t, true)
	reference := r.Text("SELECT 'ch_unknown'")
	if m := r.Movements(); len(m) == 1 {
		reference = m[0].Charge
	}
	if err := decide(t, r, p, "click", flow.VerdictPaid, ""); !problem.Is(err, problem.InvalidValue) {
		t.Errorf("paid without a reference: %v", err)
	}
	for range 2 { // a double click is one decision
		if err := decide(t, r, p, "click", flow.VerdictPaid, reference); err != nil {
			t.Error(err)
		}
	}
	if err := decide(t, r, p, "other", flow.VerdictNotExecuted, ""); !problem.Is(err, problem.InvalidValue) {
		t.Errorf("a second decision of a decided review: %v", err)
	}
	if got := r.Count("SELECT count(*) FROM decision"); got != 1 {
		t.Errorf("%d decisions, want 1", got)
	}
	if got := r.Status("key-1"); got != "paid" {
		t.Errorf("status %s, want paid", got)
	}
	faults(t, r)
	p.Settle(time.Hour)
	settled(t, r, 1)
}

func TestReviewDecidedNotExecuted(t *testing.T) {
	r, p := inReview(t, false)
	if err := decide(t, r, p, "click", flow.VerdictNotExecuted, ""); err != nil {
		t.Fatal(err)
	}
	if got := r.Status("key-1"); got != "failed" {
		t.Errorf("status %s, want failed", got)
	}
	a := p.PayHTTP("key-1", rig.Order{Reference: "order-1"})
	if a.Status != 422 || a.Member("status") != "failed" {
		t.Errorf("the client was told %d %s", a.Status, a.Body)
	}
	settled(t, r, 0)
}

func TestReviewDecidedWronglyBecomesAConflict(t *testing.T) {
	r, p := inReview(t, true)
	if err := decide(t, r, p, "click", flow.VerdictNotExecuted, ""); err != nil {
		t.Fatal(err)
	}
	// What the acquirer says later contradicts the decision: the books show the money, and a person is asked again.
	faults(t, r)
	if err := r.CompareAll(p); err != nil {
		t.Fatal(err)
	}
	if got := r.Text("SELECT reason FROM review WHERE decided_at IS NULL"); got != "money_after_refusal" {
		t.Errorf("review %q, want money_after_refusal", got)
	}
	a := p.PayHTTP("key-2", rig.Order{Reference: "order-1"})
	if a.Member("code") != string(problem.PaymentConflict) {
		t.Errorf("told %d %s, want payment_conflict", a.Status, a.Body)
	}
	if err := decide(t, r, p, "again", flow.VerdictApply, ""); err != nil {
		t.Fatal(err)
	}
	a = p.PayHTTP("key-2", rig.Order{Reference: "order-1"})
	if a.Member("code") != string(problem.AlreadyPaid) {
		t.Errorf("after the money was applied: told %d %s, want already_paid", a.Status, a.Body)
	}
	if got := r.Receipts(); got != 1 {
		t.Errorf("%d receipts, want 1", got)
	}
	r.Verify()
}

func TestReviewAskAgain(t *testing.T) {
	r, p := inReview(t, true)
	faults(t, r)
	if err := decide(t, r, p, "click", flow.VerdictAskAgain, ""); err != nil {
		t.Fatal(err)
	}
	p.Sweep.Pass(t.Context())
	if got := r.Status("key-1"); got != "paid" {
		t.Errorf("status %s, want paid", got)
	}
	settled(t, r, 1)
}

func TestReviewIsFinishedByEvidence(t *testing.T) {
	r, p := inReview(t, true)
	faults(t, r)
	p.Settle(time.Minute)
	r.Later(13 * time.Hour)
	p.Sweep.Pass(t.Context())
	if got := r.Status("key-1"); got != "paid" {
		t.Errorf("status %s, want paid", got)
	}
	if got := r.Count("SELECT count(*) FROM review WHERE decided_at IS NULL"); got != 0 {
		t.Errorf("%d reviews are open", got)
	}
	settled(t, r, 1)
}

func TestReviewOfAnotherAmount(t *testing.T) {
	for _, c := range []struct {
		verdict, status string
		receipts        int
		err             problem.Code
	}{
		{flow.VerdictApply, "unknown", 0, problem.InvalidValue}, // one minor unit more than was asked
		{flow.VerdictReturned, "failed", 0, ""},
	} {
		t.Run(c.verdict, func(t *testing.T) {
			r := rig.New(t, nil)
			p := r.Replica()
			for range 2 { // the first answer and a repeat
				a, err := p.Pay("key-1", rig.Order{Reference: "order-1", Method: "pm_wrong_amount"})
				if err != nil || a.Status != 202 || !strings.Contains(string(a.Body), "kept aside") || a.RetryAfter < time.Minute {
					t.Fatalf("told %d %s, again after %s, %v", a.Status, a.Body, a.RetryAfter, err)
				}
			}
			if got := r.Count("SELECT count(*) FROM movement WHERE state = 'unapplied'"); got != 1 {
				t.Errorf("%d unapplied movements, want 1", got)
			}
			err := decide(t, r, p, "click", c.verdict, "")
			if c.err == "" && err != nil || c.err != "" && !problem.Is(err, c.err) {
				t.Errorf("decision: %v", err)
			}
			if got := r.Status("key-1"); got != c.status {
				t.Errorf("status %s, want %s", got, c.status)
			}
			if got := r.Receipts(); got != c.receipts {
				t.Errorf("%d receipts, want %d", got, c.receipts)
			}
			r.Verify()
			if c.verdict != flow.VerdictReturned {
				return
			}
			if a := p.PayHTTP("key-2", rig.Order{Reference: "order-1"}); a.Status != 201 {
				t.Errorf("the money was given back, and a new payment was told %d %s", a.Status, a.Body)
			}
		})
	}
}

// Two people decide at the same moment: one decision, and the other one is told.
func TestTwoPeopleDecideAtOnce(t *testing.T) {
	r, _ := inReview(t, false)
	gate := rig.HoldAt(operation.PointInClaim)
	first, second := r.Replica(rig.WithFaults(gate)), r.Replica()
	told := make(chan error, 2)
	go func() { told <- decide(t, r, first, "one", flow.VerdictNotExecuted, "") }()
	<-gate.Reached()
	go func() { told <- decide(t, r, second, "two", flow.VerdictNotExecuted, "") }()
	r.DB.WaitBlocked(t, 1)
	gate.Open()
	refused := 0
	for range 2 {
		if err := <-told; problem.Is(err, problem.InvalidValue) {
			refused++
		} else if err != nil {
			t.Error(err)
		}
	}
	if got := r.Count("SELECT count(*) FROM decision"); got != 1 || refused != 1 {
		t.Errorf("%d decisions, %d people refused; want 1 and 1", got, refused)
	}
	r.Verify()
}
