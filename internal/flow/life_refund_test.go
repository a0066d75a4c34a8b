package flow_test

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
	"github.com/hapaxpay/hapax/money"
)

// Case 28: twenty refunds of 600 of a payment of 1000 at once, on three replicas: one succeeds.
func TestCase028_TwentyRefundsAtOnce(t *testing.T) {
	l := newLife(t, nil)
	pay := l.sale("key-1")
	replicas := []*rig.Replica{l.r.Replica(), l.r.Replica(), l.r.Replica()}
	var mu sync.Mutex
	done := 0
	together(20, func(n int) {
		a, err := replicas[n%3].Refund(fmt.Sprintf("ref-%d", n), pay, 600)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil && a.Status == 201:
			done++
		case problem.Is(err, problem.ExceedsRemaining), problem.Is(err, problem.RefundUnsettled):
		default:
			t.Errorf("told %d %s, %v", a.Status, a.Body, err)
		}
	})
	if done != 1 || l.calls("/refund") != 1 {
		t.Errorf("%d refunds succeeded with %d calls, want 1 with 1", done, l.calls("/refund"))
	}
	l.count("refunded", 600, "SELECT refunded_amount FROM payment")
	l.money(400, "payment.paid", "refund.succeeded")
}

// Case 29: the answer to a refund is lost; the client repeats, then support presses refund again: one refund, and the press is
// refused while the first one is unknown.
func TestCase029_RefundRepeatedByTwoPeople(t *testing.T) {
	l := newLife(t, once)
	pay := l.sale("key-1")
	l.faults(sandbox.Rule{Fault: "timeout_executed", Call: "refund"})
	status(t, "refund", 202)(l.p.Refund("ref-1", pay, 400))
	l.faults()
	status(t, "the client's repeat", 202)(l.p.Refund("ref-1", pay, 400))
	l.refused("support's press", problem.RefundUnsettled)(l.p.Refund("support-1", pay, 400))
	l.count("kept for the refund", 400, "SELECT refunding_amount FROM payment")
	l.p.Settle(time.Hour)
	status(t, "the client's repeat", 201)(l.p.Refund("ref-1", pay, 400))
	if got := l.calls("/refund"); got != 1 {
		t.Errorf("%d refund calls, want 1", got)
	}
	l.money(600, "payment.paid", "refund.succeeded")
}

// Case 30: the process dies between the refund's call and its save; a day later its age proves nothing: it is asked about, and
// keeps its amount while the acquirer cannot answer.
func TestCase030_AgeEndsNoRefund(t *testing.T) {
	l := newLife(t, nil)
	pay := l.sale("key-1")
	crash := rig.CrashAt(operation.PointAfterWrite, 1)
	if _, err := l.r.Replica(rig.WithFaults(crash), rig.WithDoer(crash.Doer(client(t, l.r)))).Refund("ref-1", pay, 600); err == nil {
		t.Fatal("the process was to vanish")
	}
	l.faults(sandbox.Rule{Fault: "lookup_down", Call: "any"})
	l.r.Later(25 * time.Hour)
	l.p.Sweep.Pass(t.Context())
	l.mod("ref-1", "unknown")
	l.count("kept for the refund", 600, "SELECT refunding_amount FROM payment")
	l.refused("refund again", problem.RefundUnsettled)(l.p.Refund("ref-2", pay, 300))
	l.faults()
	l.r.Later(13 * time.Hour)
	l.p.Settle(time.Hour)
	l.mod("ref-1", "succeeded")
	l.count("open reviews", 0, "SELECT count(*) FROM review WHERE decided_at IS NULL")
	if got := l.calls("/refund"); got != 1 {
		t.Errorf("%d refund calls, want 1", got)
	}
	l.money(400, "payment.paid", "payment.in_review", "refund.succeeded")
}

// Case 31: the acquirer tells of our own refund before we have saved it, and twice after: one refund, none of them external.
func TestCase031_OurRefundIsToldBeforeItIsSaved(t *testing.T) {
	l := newLife(t, nil)
	pay := l.sale("key-1")
	l.faults(sandbox.Rule{Fault: "hold_after", Gate: "booked", Call: "refund", Times: 1})
	slow := l.r.Replica(patient)
	told := make(chan operation.Answer, 1)
	go func() { told <- status(t, "refund", 201)(slow.Refund("ref-1", pay, 300)) }()
	if err := l.r.Acquirer.WaitWaiting(t.Context(), "booked", 1); err != nil {
		t.Fatal(err)
	}
	status(t, "told early", 200)(l.p.Check(pay))
	if _, err := l.r.Acquirer.Release(t.Context(), "booked", 0); err != nil {
		t.Fatal(err)
	}
	<-told
	for range 2 {
		status(t, "told late", 200)(l.p.Check(pay))
	}
	l.count("refunds", 1, "SELECT count(*) FROM modification WHERE type = 'refund' AND NOT external")
	l.count("external refunds", 0, "SELECT count(*) FROM modification WHERE external")
	l.count("refunded", 300, "SELECT refunded_amount FROM payment")
	l.money(700, "payment.paid", "refund.succeeded")
}

// Case 32: a refund that succeeded fails at the payer's bank days later: booked back once, and the amount can be refunded again.
func TestCase032_BankReturnsTheRefund(t *testing.T) {
	for _, code := range []string{"account_closed", "canceled"} {
		t.Run(code, func(t *testing.T) {
			l := newLife(t, nil)
			pay := l.sale("key-1")
			status(t, "refund", 201)(l.p.Refund("ref-1", pay, 1000))
			l.refused("refund of what is gone", problem.ExceedsRemaining)(l.p.Refund("ref-2", pay, 1))
			l.r.Later(5 * 24 * time.Hour)
			if _, err := l.r.Acquirer.FailRefund(t.Context(), l.r.Text("SELECT acquirer_reference FROM modification"), code); err != nil {
				t.Fatal(err)
			}
			for range 3 { // told again and again
				status(t, "check", 200)(l.p.Check(pay))
			}
			l.mod("ref-1", "failed")
			l.count("refunded", 0, "SELECT refunded_amount FROM payment")
			status(t, "refund again", 201)(l.p.Refund("ref-3", pay, 0))
			l.count("refunds that support sees", 2, "SELECT count(*) FROM modification WHERE type = 'refund'")
			l.money(0, "payment.paid", "refund.succeeded", "refund.failed", "refund.succeeded")
		})
	}
}

// Case 33: nobody ever tells that a refund succeeded: the sweep asks until it is done, and "processing" is never shown as done.
func TestCase033_SweepClosesTheRefund(t *testing.T) {
	for _, tc := range []struct {
		name   string
		terms  rig.Terms
		events []string
	}{
		{"as long as the contract says", rig.Terms{"refund": map[string]any{"max_processing": "72h"}}, []string{"payment.paid", "refund.succeeded"}},
		{"longer than the contract says", nil, []string{"payment.paid", "payment.in_review", "refund.succeeded"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLife(t, tc.terms)
			pay := l.sale("key-1")
			l.faults(sandbox.Rule{Fault: "processing_86400000", Call: "refund"})
			status(t, "refund", 202)(l.p.Refund("ref-1", pay, 0))
			l.r.Later(23 * time.Hour)
			l.p.Sweep.Pass(t.Context())
			l.mod("ref-1", "pending")
			status(t, "repeat", 202)(l.p.Refund("ref-1", pay, 0))
			l.count("refunded", 0, "SELECT refunded_amount FROM payment")
			l.r.Later(2 * 24 * time.Hour)
			l.p.Settle(time.Hour)
			status(t, "repeat", 201)(l.p.Refund("ref-1", pay, 0))
			l.money(0, tc.events...)
		})
	}
}

// Case 34: a refund of money that is disputed is refused; after a refund a dispute takes no more than what is left; a dispute that
// is won can be refunded.
func TestCase034_RefundAndDispute(t *testing.T) {
	l := newLife(t, nil)
	pay := l.sale("key-1")
	charge := l.r.ChargeOf(pay).ID
	status(t, "refund", 201)(l.p.Refund("ref-1", pay, 300))
	dispute, err := l.r.Acquirer.OpenChargeback(t.Context(), charge, 0) // all that is left
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		status(t, "check", 200)(l.p.Check(pay))
	}
	l.count("disputed", 700, "SELECT disputed_amount FROM payment WHERE dispute = 'opened'")
	l.refused("refund while disputed", problem.ExceedsRemaining)(l.p.Refund("ref-2", pay, 1))
	if _, err := l.r.Acquirer.WinChargeback(t.Context(), dispute.ID); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		status(t, "check", 200)(l.p.Check(pay))
	}
	l.count("disputed", 0, "SELECT disputed_amount FROM payment WHERE dispute = 'won'")
	status(t, "refund after it was won", 201)(l.p.Refund("ref-2", pay, 0))
	l.money(0, "payment.paid", "refund.succeeded", "dispute.opened", "dispute.won", "refund.succeeded")
}

// A dispute that is lost is gone for good; a part of a payment can be disputed and the rest refunded (X5).
func TestDisputeOfAPartIsLost(t *testing.T) {
	l := newLife(t, nil)
	pay := l.sale("key-1")
	dispute, err := l.r.Acquirer.OpenChargeback(t.Context(), l.r.ChargeOf(pay).ID, 400)
	if err != nil {
		t.Fatal(err)
	}
	status(t, "check", 200)(l.p.Check(pay))
	l.refused("refund of more than is left", problem.ExceedsRemaining)(l.p.Refund("ref-1", pay, 601))
	if _, err := l.r.Acquirer.LoseChargeback(t.Context(), dispute.ID); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		status(t, "check", 200)(l.p.Check(pay))
	}
	l.count("disputed and lost", 400, "SELECT disputed_amount FROM payment WHERE dispute = 'lost'")
	l.refused("refund of what was lost", problem.ExceedsRemaining)(l.p.Refund("ref-2", pay, 601))
	status(t, "refund of the rest", 201)(l.p.Refund("ref-3", pay, 0))
	l.money(0, "payment.paid", "dispute.opened", "dispute.lost", "refund.succeeded")
}

// Opened and decided between two questions: both are told, in their order.
func TestDisputeIsToldWhenItIsOver(t *testing.T) {
	l := newLife(t, nil)
	won, lost := l.sale("key-1"), l.sale("key-2")
	for _, x := range []struct {
		key   string
		close func(string) (sandbox.Act, error)
	}{
		{"key-1", func(c string) (sandbox.Act, error) { return l.r.Acquirer.WinChargeback(t.Context(), c) }},
		{"key-2", func(c string) (sandbox.Act, error) { return l.r.Acquirer.LoseChargeback(t.Context(), c) }},
	} {
		dispute, err := l.r.Acquirer.OpenChargeback(t.Context(), l.r.ChargeOf(l.r.PaymentOf(x.key)).ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.close(dispute.ID); err != nil {
			t.Fatal(err)
		}
	}
	status(t, "check", 200)(l.p.Check(won))
	status(t, "check", 200)(l.p.Check(lost))
	l.money(1000, "payment.paid", "dispute.opened", "dispute.won", "payment.paid", "dispute.opened", "dispute.lost")
}

// A dispute takes the room of a refund whose outcome is not known: the bank's taking is counted, the refund keeps what is left, and is
// proven not to have been done. Nothing is contradicted.
func TestDisputeTakesTheRoomOfARefund(t *testing.T) {
	l := newLife(t, once)
	pay := l.sale("key-1")
	l.faults(sandbox.Rule{Fault: "timeout_not_executed", Call: "refund"})
	status(t, "refund", 202)(l.p.Refund("ref-1", pay, 600))
	l.faults()
	dispute, err := l.r.Acquirer.OpenChargeback(t.Context(), l.r.ChargeOf(pay).ID, 700)
	if err != nil {
		t.Fatal(err)
	}
	status(t, "check", 200)(l.p.Check(pay))
	l.count("reserved", 300, "SELECT refunding_amount FROM payment")
	l.sound()
	l.p.Settle(time.Hour)
	l.mod("ref-1", "failed")
	l.refused("refund of what the bank took", problem.ExceedsRemaining)(l.p.Refund("ref-2", pay, 301))
	if _, err := l.r.Acquirer.WinChargeback(t.Context(), dispute.ID); err != nil {
		t.Fatal(err)
	}
	status(t, "check", 200)(l.p.Check(pay))
	status(t, "refund", 201)(l.p.Refund("ref-3", pay, 0))
	l.money(0, "payment.paid", "dispute.opened", "refund.failed", "dispute.won", "refund.succeeded")
}

// A dispute that takes more than is left, as far as is known: kept aside, with a review. It ends when the dispute is won, or when a
// refund by hand is known to have failed, which made the room; or a person decides that the merchant bears it, and it is won after all.
func TestDisputeBeyondWhatIsLeft(t *testing.T) {
	for end, told := range map[string][]string{
		"won":             {"refund.failed", "dispute.won", "payment.conflict_resolved"},
		"room":            {"refund.failed", "payment.conflict_resolved", "dispute.won"},
		flow.VerdictApply: {"payment.conflict_resolved", "refund.failed", "dispute.won"},
	} {
		t.Run(end, func(t *testing.T) {
			l := newLife(t, nil)
			pay := l.sale("key-1")
			charge := l.r.ChargeOf(pay).ID
			gone, err := l.r.Acquirer.RefundByHand(t.Context(), charge, 600)
			if err != nil {
				t.Fatal(err)
			}
			status(t, "check", 200)(l.p.Check(pay))
			if _, err := l.r.Acquirer.FailRefund(t.Context(), gone.ID, "account_closed"); err != nil {
				t.Fatal(err)
			}
			dispute, err := l.r.Acquirer.OpenChargeback(t.Context(), charge, 0)
			if err != nil {
				t.Fatal(err)
			}
			l.told(pay, acquirer.Reply{About: acquirer.ActionChargeback, Class: "webhook", Outcome: acquirer.OutcomeSucceeded, Code: "opened",
				Reference: dispute.ID, Object: charge, Amount: money.Must(1000, "KZT")})
			l.count("kept aside", 1000, "SELECT amount FROM movement WHERE state = 'unapplied'")
			l.count("reviews", 1, "SELECT count(*) FROM review WHERE reason = 'excess_given_back' AND decided_at IS NULL")
			l.refused("refund while it is not decided who bears it", problem.ExceedsRemaining)(l.p.Refund("ref-1", pay, 0))
			switch end {
			case "room":
				status(t, "check", 200)(l.p.Check(pay))
				l.count("in conflict", 0, "SELECT count(*) FROM payment WHERE conflict")
				l.count("disputed", 1000, "SELECT disputed_amount FROM payment")
				l.sound()
			case flow.VerdictApply:
				if err := decide(t, l.r, l.p, "click", flow.VerdictApply, ""); err != nil {
					t.Fatal(err)
				}
				status(t, "check", 200)(l.p.Check(pay))
				l.sound()
			}
			l.refused("refund of what the bank took", problem.ExceedsRemaining)(l.p.Refund("ref-2", pay, 0))
			if _, err := l.r.Acquirer.WinChargeback(t.Context(), dispute.ID); err != nil {
				t.Fatal(err)
			}
			status(t, "check", 200)(l.p.Check(pay))
			status(t, "refund", 201)(l.p.Refund("ref-3", pay, 0))
			l.money(0, slices.Concat([]string{"payment.paid", "refund.succeeded", "payment.conflict", "dispute.opened"}, told, []string{"refund.succeeded"})...)
		})
	}
}

// The acquirer gives back another amount than it was asked for: kept aside until a person has looked, however often it is told, and
// nothing of it can be refunded once more.
func TestRefundOfAnotherAmount(t *testing.T) {
	l := newLife(t, nil)
	pay := l.sale("key-1")
	l.faults(sandbox.Rule{Fault: "wrong_amount", Call: "refund"}) // one minor unit more
	status(t, "refund", 202)(l.p.Refund("ref-1", pay, 600))
	for range 3 {
		l.r.Later(7 * time.Hour)
		l.p.Sweep.Pass(t.Context())
		status(t, "check", 200)(l.p.Check(pay))
	}
	l.mod("ref-1", "pending")
	l.count("kept for the refund", 600, "SELECT refunding_amount FROM payment")
	l.count("reviews", 1, "SELECT count(*) FROM review WHERE decided_at IS NULL")
	l.sound()
	if err := decide(t, l.r, l.p, "click", flow.VerdictApply, ""); err != nil {
		t.Fatal(err)
	}
	l.sound()
	l.p.Settle(time.Hour)
	l.mod("ref-1", "succeeded")
	l.refused("refund of more than is left", problem.ExceedsRemaining)(l.p.Refund("ref-2", pay, 400))
	l.count("unapplied money in the books", 0, "SELECT COALESCE(sum(amount), 0) FROM ledger_entry WHERE account = 'unapplied'")
	l.money(399, "payment.paid", "payment.conflict", "payment.conflict_resolved", "refund.succeeded")
	gone := l.r.Text("SELECT reference FROM movement WHERE kind = 'refund'")
	if _, err := l.r.Acquirer.FailRefund(t.Context(), gone, "account_closed"); err != nil { // after a person decided that the merchant bears it
		t.Fatal(err)
	}
	status(t, "check", 200)(l.p.Check(pay))
	l.mod("ref-1", "failed")
	l.money(1000, "payment.paid", "payment.conflict", "payment.conflict_resolved", "refund.succeeded", "refund.failed")
	l.faults()
	status(t, "refund of all", 201)(l.p.Refund("ref-3", pay, 0))
	l.sound()
}

// Case 50: a part of an amount with three decimals goes back to the last digit.
func TestCase050_PartialRefundOfThreeDecimals(t *testing.T) {
	l := newLife(t, nil)
	status(t, "sale", 201)(l.p.Pay("key-1", rig.Order{Reference: "order-1", Minor: 18_600, Currency: "KWD"}))
	status(t, "refund", 201)(l.p.Refund("ref-1", l.r.PaymentOf("key-1"), 5))
	for _, m := range l.r.Movements() {
		if m.Kind == "refund" && (m.Amount != 5 || m.Currency != "KWD") {
			t.Errorf("%d %s went back, want 5 KWD", m.Amount, m.Currency)
		}
	}
	l.count("refunded", 5, "SELECT refunded_amount FROM payment")
	l.sound()
}

// Case 53: amounts at the end of the range are refused, and no sum wraps around.
func TestCase053_SumsOfCapturesAndRefunds(t *testing.T) {
	l := newLife(t, nil)
	sold, held := l.sale("key-1"), l.held("key-2")
	status(t, "refund of a part", 201)(l.p.Refund("ref-1", sold, 1))
	status(t, "capture of a part", 201)(l.p.Capture("cap-1", held, 1, nil))
	for n, minor := range []int64{math.MaxInt64, math.MaxInt64 - 1, 1 << 31, -1, math.MinInt64} {
		l.refused("refund", problem.ExceedsRemaining)(l.p.Refund(fmt.Sprintf("big-%d", n), sold, minor))
		l.refused("capture", problem.ExceedsRemaining)(l.p.Capture(fmt.Sprintf("big-%d", n), held, minor, nil))
	}
	l.sound()
}
