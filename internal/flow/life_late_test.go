package flow_test

import (
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// refusedPayments end a payment of 1000 in each final refusal, with the events that this makes.
var refusedPayments = map[string]struct {
	make   func(l life) id.ID
	events []string
}{
	"declined": {func(l life) id.ID {
		status(l.t, "charge", 402)(l.p.Pay("key-1", rig.Order{Reference: "order-1", Minor: 1000, Method: "pm_declined_do_not_honor"}))
		return l.r.PaymentOf("key-1")
	}, []string{"payment.declined"}},
	"failed": {func(l life) id.ID {
		l.faults(sandbox.Rule{Fault: "timeout_not_executed"})
		status(l.t, "charge", 202)(l.p.Pay("key-1", rig.Order{Reference: "order-1", Minor: 1000}))
		l.faults()
		l.r.Later(time.Hour)
		l.p.Settle(time.Hour)
		return l.r.PaymentOf("key-1")
	}, []string{"payment.failed"}},
	"canceled": {func(l life) id.ID {
		status(l.t, "hold", 201)(l.p.Hold("key-1", rig.Order{Reference: "order-1", Minor: 1000}))
		status(l.t, "cancel", 201)(l.p.Cancel("can-1", l.r.PaymentOf("key-1"), ""))
		return l.r.PaymentOf("key-1")
	}, []string{"payment.authorized", "payment.canceled"}},
}

// Money for a payment that was finally refused: kept aside, told, in review; each verdict ends it, and the state stays (E2).
func TestMoneyAfterARefusal(t *testing.T) {
	for state, refused := range refusedPayments {
		for _, verdict := range []string{flow.VerdictCompensate, flow.VerdictApply, flow.VerdictReturned} {
			t.Run(state+"/"+verdict, func(t *testing.T) {
				l := newLife(t, nil)
				pay := refused.make(l)
				l.is("key-1", state)
				stray := mistake(t, l, pay, 1000)
				for range 2 {
					status(t, "check", 200)(l.p.Check(pay))
				}
				l.is("key-1", state)
				l.count("kept aside", 1000, "SELECT sum(amount) FROM movement WHERE state = 'unapplied'")
				l.count("reviews", 1, "SELECT count(*) FROM review WHERE reason = 'money_after_refusal' AND decided_at IS NULL")
				l.refused("another payment", problem.PaymentConflict)(l.p.Pay("key-2", rig.Order{Reference: "order-1", Minor: 1000}))
				events := append(append([]string{}, refused.events...), "payment.conflict")
				if verdict == flow.VerdictReturned { // a person gave it back first
					if _, err := l.r.Acquirer.RefundByHand(t.Context(), stray.ID, 0); err != nil {
						t.Fatal(err)
					}
				}
				if err := decide(t, l.r, l.p, "click", verdict, ""); err != nil {
					t.Fatal(err)
				}
				l.p.Settle(time.Hour)
				status(t, "check", 200)(l.p.Check(pay))
				l.is("key-1", state)
				l.count("open reviews", 0, "SELECT count(*) FROM review WHERE decided_at IS NULL")
				switch verdict {
				case flow.VerdictApply:
					l.money(1000, append(events, "payment.conflict_resolved")...)
					l.refused("another payment", problem.AlreadyPaid)(l.p.Pay("key-2", rig.Order{Reference: "order-1", Minor: 1000}))
					status(t, "refund", 201)(l.p.Refund("ref-1", pay, 0))
				case flow.VerdictCompensate:
					events = append(events, "compensation.succeeded")
					fallthrough
				default:
					l.money(0, append(events, "payment.conflict_resolved")...)
					status(t, "another payment", 201)(l.p.Pay("key-2", rig.Order{Reference: "order-1", Minor: 1000}))
				}
				l.sound()
			})
		}
	}
}

// A second charge by the acquirer's own mistake, beside the good one. What is given back of it by hand, before or after we learn of
// it, never touches the good one; what is given back of the good one is a refund that somebody else made.
func TestSecondChargeByMistake(t *testing.T) {
	for _, seen := range []bool{true, false} { // whether we learn of the stray charge before it is given back
		t.Run(map[bool]string{true: "known first", false: "given back first"}[seen], func(t *testing.T) {
			l := newLife(t, nil)
			pay := l.sale("key-1")
			good := l.r.ChargeOf(pay).ID
			stray := mistake(t, l, pay, 1000)
			if seen {
				status(t, "check", 200)(l.p.Check(pay))
				l.count("reviews", 1, "SELECT count(*) FROM review WHERE reason = 'second_movement' AND decided_at IS NULL")
			}
			if _, err := l.r.Acquirer.RefundByHand(t.Context(), stray.ID, 0); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				status(t, "check", 200)(l.p.Check(pay))
			}
			l.count("refunded", 0, "SELECT refunded_amount FROM payment")
			l.count("open reviews", 0, "SELECT count(*) FROM review WHERE decided_at IS NULL")
			l.count("in conflict", 0, "SELECT count(*) FROM payment WHERE conflict")
			l.count("returned", 1, "SELECT count(*) FROM movement WHERE reference = $1 AND state = 'returned'", stray.ID)
			l.money(1000, "payment.paid", "payment.conflict", "payment.conflict_resolved")

			if _, err := l.r.Acquirer.RefundByHand(t.Context(), good, 300); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				status(t, "check", 200)(l.p.Check(pay))
			}
			l.count("external refunds", 1, "SELECT count(*) FROM modification WHERE external AND amount = 300 AND status = 'succeeded'")
			l.count("refunded", 300, "SELECT refunded_amount FROM payment")
			l.money(700, "payment.paid", "payment.conflict", "payment.conflict_resolved", "refund.succeeded")
		})
	}
}

// Each verdict about a second movement; the good one stays.
func TestSecondMovementDecided(t *testing.T) {
	for _, verdict := range []string{flow.VerdictCompensate, flow.VerdictApply, flow.VerdictReturned} {
		t.Run(verdict, func(t *testing.T) {
			l := newLife(t, nil)
			pay := l.sale("key-1")
			stray := mistake(t, l, pay, 1000)
			status(t, "check", 200)(l.p.Check(pay))
			if verdict == flow.VerdictReturned {
				if _, err := l.r.Acquirer.RefundByHand(t.Context(), stray.ID, 0); err != nil {
					t.Fatal(err)
				}
			}
			err := decide(t, l.r, l.p, "click", verdict, "")
			if verdict == flow.VerdictApply { // one receipt: the order is paid already
				if !problem.Is(err, problem.InvalidValue) {
					t.Errorf("applied beside the good one: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			l.p.Settle(time.Hour)
			status(t, "check", 200)(l.p.Check(pay))
			events := []string{"payment.paid", "payment.conflict", "payment.conflict_resolved"}
			if verdict == flow.VerdictCompensate {
				events = []string{"payment.paid", "payment.conflict", "compensation.succeeded", "payment.conflict_resolved"}
			}
			l.money(1000, events...)
			l.count("refunded", 0, "SELECT refunded_amount FROM payment")
		})
	}
}

// A hold that is found after its payment failed: told and in review; released by us, by hand, or by time.
func TestHoldAfterARefusal(t *testing.T) {
	for _, end := range []string{flow.VerdictCompensate, flow.VerdictReturned, "by itself"} {
		t.Run(end, func(t *testing.T) {
			// The acquirer breaks its word: what it says is not there arrives later.
			l := newLife(t, rig.Terms{"max_flight": "1us", "lookup_lag": "0s", "repeat_budget": 1})
			status(t, "hold", 202)(l.p.Hold("key-1", rig.Order{Reference: "order-1", Minor: 1000, Method: "pm_arrives_after_3600s"}))
			l.r.Later(time.Minute)
			l.p.Settle(time.Minute)
			l.is("key-1", "failed")
			pay := l.r.PaymentOf("key-1")
			l.r.Later(2 * time.Hour)
			l.waitCharges(pay)
			status(t, "check", 200)(l.p.Check(pay))
			l.count("reviews", 1, "SELECT count(*) FROM review WHERE reason = 'stray_hold' AND decided_at IS NULL")
			charge := l.r.ChargeOf(pay).ID
			switch end {
			case "by itself":
				l.r.Later(8 * 24 * time.Hour)
			case flow.VerdictReturned:
				if _, err := l.r.Acquirer.ReverseByHand(t.Context(), charge); err != nil {
					t.Fatal(err)
				}
				fallthrough
			default:
				if err := decide(t, l.r, l.p, "click", end, ""); err != nil {
					t.Fatal(err)
				}
				l.p.Settle(time.Hour)
			}
			status(t, "check", 200)(l.p.Check(pay))
			l.count("open reviews", 0, "SELECT count(*) FROM review WHERE decided_at IS NULL")
			events := []string{"payment.failed", "payment.conflict", "payment.conflict_resolved"}
			if end == flow.VerdictCompensate {
				events = []string{"payment.failed", "payment.conflict", "compensation.succeeded", "payment.conflict_resolved"}
			}
			if got := l.r.ChargeOf(pay).Status; got != "reversed" && got != "expired" {
				t.Errorf("the charge is %s", got)
			}
			l.money(0, events...)
		})
	}
}

// waitCharges returns once the acquirer has a charge of the payment.
func (l life) waitCharges(pay id.ID) {
	l.t.Helper()
	key := l.r.Text("SELECT acquirer_key FROM payment WHERE id = $1", pay)
	eventually(l.t, func() bool {
		all, err := l.r.Acquirer.Charges(l.t.Context(), key)
		return err == nil && len(all) > 0
	})
}

// automatic lets stray money go back at once.
func (l life) automatic() {
	l.t.Helper()
	if _, err := l.r.Owner.Exec(l.t.Context(), "UPDATE merchant SET compensate = 'automatic'"); err != nil {
		l.t.Fatal(err)
	}
}

// Stray money that is told together with its giving back is compensated by nobody.
func TestCompensationByPolicyOfWhatIsBack(t *testing.T) {
	l := newLife(t, nil)
	l.automatic()
	pay := l.sale("key-1")
	if _, err := l.r.Acquirer.RefundByHand(t.Context(), mistake(t, l, pay, 1000).ID, 0); err != nil {
		t.Fatal(err)
	}
	status(t, "check", 200)(l.p.Check(pay))
	l.p.Settle(time.Hour)
	l.count("compensations", 0, "SELECT count(*) FROM modification")
	l.money(1000, "payment.paid", "payment.conflict", "payment.conflict_resolved")
}

// By the merchant's policy stray money goes back at once, by one call; a person still sees it in the list.
func TestCompensationByPolicy(t *testing.T) {
	l := newLife(t, nil)
	l.automatic()
	pay := l.sale("key-1")
	mistake(t, l, pay, 1000)
	for range 3 {
		status(t, "check", 200)(l.p.Check(pay))
	}
	l.p.Settle(time.Hour)
	if got := l.calls("/refund"); got != 1 {
		t.Errorf("%d refund calls, want 1", got)
	}
	l.count("compensations", 1, "SELECT count(*) FROM modification WHERE type = 'compensation' AND status = 'succeeded'")
	l.count("reviews", 1, "SELECT count(*) FROM review WHERE reason = 'second_movement' AND decision = 'settled by evidence'")
	l.money(1000, "payment.paid", "payment.conflict", "compensation.succeeded", "payment.conflict_resolved")
}

// The answer to a compensation is lost: it is asked about; where refunds have no keys nothing is ever sent twice, and what is
// proven not to have been done opens a review, from which another try has another key.
func TestCompensationWithoutAnAnswer(t *testing.T) {
	for _, keys := range []bool{true, false} {
		for _, fault := range []string{"timeout_executed", "timeout_not_executed", "500_executed", "500_not_executed", "reset_executed", "reset_not_executed"} {
			t.Run(map[bool]string{true: "keys/", false: "no keys/"}[keys]+fault, func(t *testing.T) {
				terms := rig.Terms{"repeat_budget": 1}
				if !keys {
					terms = rig.Terms{"refund": map[string]any{"identity": "none"}}
				}
				l := newLife(t, terms)
				offered := sandbox.DefaultContract()
				offered.RefundKeys = keys
				if err := l.r.Acquirer.SetContract(t.Context(), offered); err != nil {
					t.Fatal(err)
				}
				l.automatic()
				pay := l.sale("key-1")
				mistake(t, l, pay, 1000)
				l.faults(sandbox.Rule{Fault: fault, Call: "refund", Times: 1})
				status(t, "check", 200)(l.p.Check(pay))
				l.p.Settle(3 * time.Hour)
				if got := l.calls("/refund"); got != 1 {
					t.Errorf("%d refund calls, want 1", got)
				}
				events := []string{"payment.paid", "payment.conflict"}
				if l.r.Moved("refund") == 0 {
					l.count("reviews", 1, "SELECT count(*) FROM review WHERE reason = 'compensation_failed' AND decided_at IS NULL")
					if err := decide(t, l.r, l.p, "click", flow.VerdictCompensate, ""); err != nil {
						t.Fatal(err)
					}
					l.p.Settle(time.Hour)
					l.count("keys", 2, "SELECT count(DISTINCT acquirer_key) FROM modification WHERE type = 'compensation'")
					events = append(events, "compensation.failed", "payment.conflict")
				}
				l.count("open reviews", 0, "SELECT count(*) FROM review WHERE decided_at IS NULL")
				l.money(1000, append(events, "compensation.succeeded", "payment.conflict_resolved")...)
			})
		}
	}
}

// A compensation fails at the payer's bank, and the next one too: each time the money is with us again and a person is asked.
func TestCompensationFailsAtTheBank(t *testing.T) {
	l := newLife(t, nil)
	pay := l.sale("key-1")
	mistake(t, l, pay, 1000)
	status(t, "check", 200)(l.p.Check(pay))
	for n := range 3 {
		verdict := flow.VerdictCompensate
		if n == 2 { // a person gives it back in another way
			verdict = flow.VerdictReturned
		}
		if err := decide(t, l.r, l.p, []string{"one", "two", "three"}[n], verdict, ""); err != nil {
			t.Fatalf("time %d: %v", n+1, err)
		}
		l.p.Settle(time.Hour)
		l.count("open reviews", 0, "SELECT count(*) FROM review WHERE decided_at IS NULL")
		l.sound("I-1") // the acquirer took twice
		if n == 2 {
			break
		}
		l.r.Later(time.Hour)
		refund := l.r.Text("SELECT acquirer_reference FROM modification WHERE type = 'compensation' AND status = 'succeeded'")
		if _, err := l.r.Acquirer.FailRefund(t.Context(), refund, "account_closed"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			status(t, "check", 200)(l.p.Check(pay))
		}
		l.count("reviews", 1, "SELECT count(*) FROM review WHERE reason = 'compensation_failed' AND decided_at IS NULL")
		l.count("in conflict", 1, "SELECT count(*) FROM payment WHERE conflict")
		l.sound("I-1") // the acquirer took twice
	}
	l.count("compensations", 2, "SELECT count(*) FROM modification WHERE type = 'compensation' AND status = 'failed'")
	l.count("applied", 1000, "SELECT captured_amount - refunded_amount FROM payment")
}
