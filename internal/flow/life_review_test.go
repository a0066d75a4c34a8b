package flow_test

import (
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// changes are the changes to a payment of 1000 whose outcome is lost at the acquirer.
var changes = []struct {
	name, call string
	begin      func(l life) (operation.Answer, error) // key-1 is the payment, mod-1 the change
	again      func(l life) (operation.Answer, error) // after a person said that it was not done
	reference  string                                 // of what was done, at the acquirer
	paid, not  string                                 // the payment after "paid", after "not executed"
}{
	{"capture", "capture",
		func(l life) (operation.Answer, error) { return l.p.Capture("mod-1", l.held("key-1"), 0, nil) },
		func(l life) (operation.Answer, error) { return l.p.Capture("mod-2", l.r.PaymentOf("key-1"), 0, nil) },
		"cp_", "paid", "authorized"},
	{"cancel of a hold", "reverse",
		func(l life) (operation.Answer, error) { return l.p.Cancel("mod-1", l.held("key-1"), "") },
		func(l life) (operation.Answer, error) { return l.p.Cancel("mod-2", l.r.PaymentOf("key-1"), "") },
		"rv_", "canceled", "authorized"},
	{"cancel of a page", "close",
		func(l life) (operation.Answer, error) {
			status(l.t, "page", 201)(l.p.Hosted("key-1", rig.Order{Reference: "order-1", Minor: 1000}))
			return l.p.Cancel("mod-1", l.r.PaymentOf("key-1"), "")
		},
		func(l life) (operation.Answer, error) { return l.p.Cancel("mod-2", l.r.PaymentOf("key-1"), "") },
		"cs_", "canceled", "registered"},
	{"refund", "refund",
		func(l life) (operation.Answer, error) { return l.p.Refund("mod-1", l.sale("key-1"), 0) },
		func(l life) (operation.Answer, error) { return l.p.Refund("mod-2", l.r.PaymentOf("key-1"), 0) },
		"rf_", "paid", "paid"},
}

// changeInReview brings a change to a person: its answer is lost, it cannot be asked about, and its key's window is over.
func changeInReview(t *testing.T, n int, done bool) life {
	t.Helper()
	l := newLife(t, rig.Terms{"repeat_budget": 1, "not_found_final": false})
	fault := map[bool]string{true: "timeout_executed", false: "timeout_not_executed"}[done]
	l.faults(sandbox.Rule{Fault: fault, Call: changes[n].call}, sandbox.Rule{Fault: "lookup_down", Call: "any"})
	status(t, "begin", 202)(changes[n].begin(l))
	l.r.Later(13 * time.Hour)
	l.p.Settle(time.Minute)
	if got := l.r.Text("SELECT state FROM operation JOIN modification m ON m.id = operation.modification_id"); got != "in_review" {
		t.Fatalf("the operation is %s, want in_review", got)
	}
	l.mod("mod-1", "unknown")
	l.sound()
	return l
}

// referenceOf is the acquirer's id of what was done.
func referenceOf(l life, n int) string {
	switch changes[n].call {
	case "close":
		return l.r.SessionOf(l.r.PaymentOf("key-1")).ID
	default:
		for _, a := range l.r.ChargeOf(l.r.PaymentOf("key-1")).Acts {
			return a.ID
		}
	}
	return ""
}

// reviewOfChange is the open review of the change; its payment may wait for a person beside it.
func reviewOfChange(l life) string {
	return l.r.Text("SELECT id::text FROM review WHERE decided_at IS NULL AND operation_id IN (SELECT id FROM operation WHERE modification_id IS NOT NULL)")
}

// A person's verdict about a change acts on the change: "paid" says that it was done, and its payment follows.
func TestReviewOfAChangeDecidedDone(t *testing.T) {
	for n, tc := range changes {
		t.Run(tc.name, func(t *testing.T) {
			l := changeInReview(t, n, true)
			reference := referenceOf(l, n)
			if len(reference) < 3 || reference[:3] != tc.reference {
				t.Fatalf("the acquirer did %q", reference)
			}
			review := reviewOfChange(l)
			for range 2 { // a double click is one decision
				if err := decideOne(t, l, review, flow.VerdictPaid, reference); err != nil {
					t.Fatal(err)
				}
			}
			l.mod("mod-1", "succeeded")
			l.is("key-1", tc.paid)
			l.sound()
			l.faults()
			if tc.call == "refund" || tc.call == "capture" { // what the acquirer says later is the same
				status(t, "check", 200)(l.p.Check(l.r.PaymentOf("key-1")))
			}
			l.p.Settle(time.Hour)
			l.mod("mod-1", "succeeded")
			l.count("conflicts", 0, "SELECT count(*) FROM payment WHERE conflict")
			l.count("decisions", 1, "SELECT count(*) FROM decision")
			l.sound()
		})
	}
}

// "not executed" says that it was not done: what it had reserved is free, the payment goes on, and it can be asked for again.
func TestReviewOfAChangeDecidedNotDone(t *testing.T) {
	for n, tc := range changes {
		t.Run(tc.name, func(t *testing.T) {
			l := changeInReview(t, n, false)
			if err := decideOne(t, l, reviewOfChange(l), flow.VerdictNotExecuted, ""); err != nil {
				t.Fatal(err)
			}
			l.mod("mod-1", "failed")
			l.is("key-1", tc.not)
			l.count("kept for the change", 0, "SELECT refunding_amount + capturing_amount FROM payment")
			l.sound()
			l.faults()
			status(t, "again", 201)(tc.again(l))
			l.is("key-1", tc.paid)
			l.sound()
		})
	}
}

// "ask again" asks, and sends nothing; what is learned ends the review and the change.
func TestReviewOfAChangeAskAgain(t *testing.T) {
	for n, tc := range changes {
		t.Run(tc.name, func(t *testing.T) {
			l := changeInReview(t, n, true)
			l.faults()
			if err := decideOne(t, l, reviewOfChange(l), flow.VerdictAskAgain, ""); err != nil {
				t.Fatal(err)
			}
			l.p.Settle(time.Minute)
			l.mod("mod-1", "succeeded")
			l.is("key-1", tc.paid)
			if got := l.calls("/" + tc.call); got != 1 {
				t.Errorf("%d calls, want 1", got)
			}
			l.sound()
		})
	}
}

// A person said that a refund was not done, and it was: what the acquirer tells later is booked, and the amount is not given back
// a second time.
func TestReviewOfARefundDecidedWrongly(t *testing.T) {
	l := changeInReview(t, 3, true)
	if err := decideOne(t, l, reviewOfChange(l), flow.VerdictNotExecuted, ""); err != nil {
		t.Fatal(err)
	}
	l.mod("mod-1", "failed")
	l.faults()
	pay := l.r.PaymentOf("key-1")
	status(t, "check", 200)(l.p.Check(pay))
	l.mod("mod-1", "succeeded")
	l.count("refunded", 1000, "SELECT refunded_amount FROM payment")
	l.refused("refund again", problem.ExceedsRemaining)(l.p.Refund("ref-2", pay, 0))
	l.money(0, "payment.paid", "payment.in_review", "refund.failed", "refund.succeeded")
}

// A compensation in review: the verdict is about it, although its payment is final.
func TestReviewOfACompensation(t *testing.T) {
	for verdict, want := range map[string]string{flow.VerdictPaid: "succeeded", flow.VerdictNotExecuted: "failed"} {
		t.Run(verdict, func(t *testing.T) {
			l := newLife(t, rig.Terms{"repeat_budget": 1, "not_found_final": false})
			l.automatic()
			pay := l.sale("key-1")
			stray := mistake(t, l, pay, 1000)
			fault := map[string]string{flow.VerdictPaid: "timeout_executed", flow.VerdictNotExecuted: "timeout_not_executed"}[verdict]
			status(t, "check", 200)(l.p.Check(pay))
			l.faults(sandbox.Rule{Fault: fault, Call: "refund"}, sandbox.Rule{Fault: "lookup_down", Call: "any"})
			l.p.Sweep.Pass(t.Context())
			l.r.Later(13 * time.Hour)
			l.p.Settle(time.Minute)
			reference := ""
			for _, c := range l.strayCharges(pay, stray) {
				for _, a := range c.Acts {
					reference = a.ID
				}
			}
			review := l.r.Text("SELECT id::text FROM review WHERE reason = 'window_over' AND decided_at IS NULL")
			if err := decideOne(t, l, review, verdict, reference); err != nil {
				t.Fatal(err)
			}
			l.count("compensations", 1, "SELECT count(*) FROM modification WHERE type = 'compensation' AND status = $1", want)
			l.sound("I-1") // the acquirer took twice
			l.faults()
			status(t, "check", 200)(l.p.Check(pay))
			if want == "failed" {
				if err := decideOne(t, l, l.r.Text("SELECT id::text FROM review WHERE reason = 'compensation_failed' AND decided_at IS NULL"), flow.VerdictCompensate, ""); err != nil {
					t.Fatal(err)
				}
				l.p.Settle(time.Hour)
			}
			l.count("open reviews", 0, "SELECT count(*) FROM review WHERE decided_at IS NULL")
			l.count("in conflict", 0, "SELECT count(*) FROM payment WHERE conflict")
			l.sound()
		})
	}
}

func (l life) strayCharges(pay id.ID, stray sandbox.Charge) (all []sandbox.Charge) {
	l.t.Helper()
	found, err := l.r.Acquirer.Charges(l.t.Context(), l.r.Text("SELECT acquirer_key FROM payment WHERE id = $1", pay))
	if err != nil {
		l.t.Fatal(err)
	}
	for _, c := range found {
		if c.ID == stray.ID {
			all = append(all, c)
		}
	}
	return all
}

// decideOne gives a person's verdict about one review.
func decideOne(t *testing.T, l life, review, verdict, reference string) error {
	t.Helper()
	row, err := id.ParseUUID(review)
	if err != nil {
		t.Fatalf("no review: %v", err)
	}
	_, err = l.p.Flow.DecideReview(t.Context(), flow.DecideReviewCommand{Merchant: l.r.Merchant.ID, Key: review + verdict, RequestID: "req_person",
		Review: row, Verdict: verdict, Reference: reference, Person: "support", Reason: "seen at the acquirer"})
	return err
}

// "paid" about a payment in two steps says that the funds are held.
func TestReviewOfAHoldDecidedDone(t *testing.T) {
	l := newLife(t, rig.Terms{"repeat_budget": 1, "not_found_final": false})
	l.faults(sandbox.Rule{Fault: "timeout_executed"}, sandbox.Rule{Fault: "lookup_down", Call: "any"})
	status(t, "hold", 202)(l.p.Hold("key-1", rig.Order{Reference: "order-1", Minor: 1000}))
	l.r.Later(13 * time.Hour)
	l.p.Settle(time.Minute)
	l.faults()
	pay := l.r.PaymentOf("key-1")
	if err := decide(t, l.r, l.p, "click", flow.VerdictPaid, l.r.ChargeOf(pay).ID); err != nil {
		t.Fatal(err)
	}
	l.is("key-1", "authorized")
	status(t, "capture", 201)(l.p.Capture("cap-1", pay, 0, nil))
	l.money(1000, "payment.in_review", "payment.authorized", "payment.paid")
}
