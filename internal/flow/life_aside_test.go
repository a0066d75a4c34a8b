package flow_test

import (
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// What a compensation was to give back is given back by hand before anything is sent for it: nothing is sent, and it is over.
func TestCompensationIsForestalled(t *testing.T) {
	l := newLife(t, nil)
	l.automatic()
	pay := l.sale("key-1")
	stray := mistake(t, l, pay, 1000)
	status(t, "check", 200)(l.p.Check(pay))
	l.count("open compensations", 1, "SELECT count(*) FROM modification WHERE type = 'compensation' AND status = 'pending'")
	if _, err := l.r.Acquirer.RefundByHand(t.Context(), stray.ID, 0); err != nil {
		t.Fatal(err)
	}
	status(t, "check", 200)(l.p.Check(pay))
	l.p.Settle(time.Hour)
	l.count("compensations", 1, "SELECT count(*) FROM modification WHERE type = 'compensation' AND status = 'failed'")
	l.count("unfinished operations", 0, "SELECT count(*) FROM operation WHERE state <> 'completed'")
	if got := l.calls("/refund"); got != 0 {
		t.Errorf("%d refund calls, want none", got)
	}
	l.money(1000, "payment.paid", "payment.conflict", "compensation.failed", "payment.conflict_resolved")
}

// The same of a hold that was kept aside, released by hand or lapsed, while its release waits for the sweep.
func TestReleaseIsForestalled(t *testing.T) {
	for _, end := range []string{"released by hand", "lapsed"} {
		t.Run(end, func(t *testing.T) {
			l := newLife(t, rig.Terms{"max_flight": "1us", "lookup_lag": "0s", "repeat_budget": 1})
			l.automatic()
			status(t, "hold", 202)(l.p.Hold("key-1", rig.Order{Reference: "order-1", Minor: 1000, Method: "pm_arrives_after_3600s"}))
			l.r.Later(time.Minute)
			l.p.Settle(time.Minute)
			l.is("key-1", "failed")
			pay := l.r.PaymentOf("key-1")
			l.r.Later(2 * time.Hour)
			l.waitCharges(pay)
			status(t, "check", 200)(l.p.Check(pay))
			l.count("open compensations", 1, "SELECT count(*) FROM modification WHERE type = 'compensation' AND status = 'pending'")
			if end == "lapsed" {
				l.r.Later(8 * 24 * time.Hour)
			} else if _, err := l.r.Acquirer.ReverseByHand(t.Context(), l.r.ChargeOf(pay).ID); err != nil {
				t.Fatal(err)
			}
			status(t, "check", 200)(l.p.Check(pay))
			l.p.Settle(time.Hour)
			l.count("compensations", 1, "SELECT count(*) FROM modification WHERE type = 'compensation' AND status = 'failed'")
			if got := l.calls("/reverse"); got != 0 {
				t.Errorf("%d reversals, want none", got)
			}
			l.money(0, "payment.failed", "payment.conflict", "compensation.failed", "payment.conflict_resolved")
		})
	}
}

// A compensation that was sent and refused, because the money was given back by hand meanwhile, waits for nobody.
func TestCompensationIsRefusedAsItIsBack(t *testing.T) {
	l := newLife(t, rig.Terms{"repeat_budget": 1})
	l.automatic()
	pay := l.sale("key-1")
	stray := mistake(t, l, pay, 1000)
	status(t, "check", 200)(l.p.Check(pay))
	l.faults(sandbox.Rule{Fault: "timeout_not_executed", Call: "refund"})
	l.p.Sweep.Pass(t.Context())
	if _, err := l.r.Acquirer.RefundByHand(t.Context(), stray.ID, 0); err != nil {
		t.Fatal(err)
	}
	status(t, "check", 200)(l.p.Check(pay))
	l.faults()
	l.p.Settle(3 * time.Hour)
	l.count("compensations", 1, "SELECT count(*) FROM modification WHERE type = 'compensation' AND status = 'failed'")
	l.count("open reviews", 0, "SELECT count(*) FROM review WHERE decided_at IS NULL")
	l.count("in conflict", 0, "SELECT count(*) FROM payment WHERE conflict")
	l.money(1000, "payment.paid", "payment.conflict", "compensation.failed", "payment.conflict", "payment.conflict_resolved")
}

// A capture of another amount is kept aside. Applied, it is the capture that was asked for; given back, it counts for nothing.
func TestCaptureOfAnotherAmount(t *testing.T) {
	events := map[string][]string{
		flow.VerdictApply:      {"payment.paid"}, // an acquirer that takes what was not asked for is asked for nothing more
		flow.VerdictReturned:   {"payment.capture_failed"},
		flow.VerdictCompensate: {"compensation.succeeded", "payment.capture_failed"},
	}
	for verdict, told := range events {
		t.Run(verdict, func(t *testing.T) {
			l := newLife(t, nil)
			pay := l.held("key-1")
			l.faults(sandbox.Rule{Fault: "wrong_amount", Call: "capture"}) // one minor unit more
			more := false
			status(t, "capture", 202)(l.p.Capture("cap-1", pay, 600, &more))
			l.faults()
			l.count("kept aside", 601, "SELECT amount FROM movement WHERE kind = 'capture' AND state = 'unapplied'")
			l.count("kept for the capture", 600, "SELECT capturing_amount FROM payment")
			l.sound()
			if verdict == flow.VerdictReturned {
				if _, err := l.r.Acquirer.RefundByHand(t.Context(), l.r.ChargeOf(pay).ID, 601); err != nil {
					t.Fatal(err)
				}
			}
			if err := decide(t, l.r, l.p, "click", verdict, ""); err != nil {
				t.Fatal(err)
			}
			l.sound()
			for range 3 {
				l.p.Settle(time.Hour)
			}
			net, ended := int64(0), "failed"
			if verdict == flow.VerdictApply {
				net, ended = 601, "succeeded"
			}
			l.mod("cap-1", ended)
			l.count("captured", int(net), "SELECT captured_amount FROM payment")
			l.count("kept for the capture", 0, "SELECT capturing_amount FROM payment")
			l.count("open reviews", 0, "SELECT count(*) FROM review WHERE decided_at IS NULL")
			l.count("unfinished operations", 0, "SELECT count(*) FROM operation WHERE state <> 'completed'")
			l.money(net, append([]string{"payment.authorized", "payment.in_review"}, told...)...)
		})
	}
}

// A refund of another amount that came back to us counts for nothing, and its amount is free again.
func TestRefundOfAnotherAmountCameBack(t *testing.T) {
	l := newLife(t, nil)
	pay := l.sale("key-1")
	l.faults(sandbox.Rule{Fault: "wrong_amount", Call: "refund"}) // one minor unit more
	status(t, "refund", 202)(l.p.Refund("ref-1", pay, 600))
	l.faults()
	if err := decide(t, l.r, l.p, "click", flow.VerdictReturned, ""); err != nil {
		t.Fatal(err)
	}
	l.p.Settle(time.Hour)
	l.mod("ref-1", "failed")
	l.count("kept for the refund", 0, "SELECT refunding_amount FROM payment")
	l.count("refunded", 0, "SELECT refunded_amount FROM payment")
	l.count("unapplied money in the books", 0, "SELECT COALESCE(sum(amount), 0) FROM ledger_entry WHERE account = 'unapplied'")
	if got := l.r.Events(); len(got) == 0 || got[len(got)-1] != "refund.failed" {
		t.Errorf("told %v, want refund.failed at last", got)
	}
	l.sound()
}
