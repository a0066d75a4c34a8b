package flow_test

import (
	"testing"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/sandbox"
	"github.com/hapaxpay/hapax/money"
)

// A refund by hand of which the first news is that it failed at the payer's bank is told as failed, and that it had gone out is booked
// with both its ways when it is told late.
func TestRefundByHandIsToldAsFailed(t *testing.T) {
	l := newLife(t, nil)
	pay := l.sale("key-1")
	gone, err := l.r.Acquirer.RefundByHand(t.Context(), l.r.ChargeOf(pay).ID, 700)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.r.Acquirer.FailRefund(t.Context(), gone.ID, "account_closed"); err != nil {
		t.Fatal(err)
	}
	status(t, "check", 200)(l.p.Check(pay))
	l.told(pay, acquirer.Reply{About: acquirer.ActionRefund, Class: "webhook", Outcome: acquirer.OutcomeSucceeded,
		Reference: gone.ID, Object: gone.Charge, Amount: money.Must(700, "KZT")})
	l.count("movements of the refund", 2, "SELECT count(*) FROM movement WHERE reference = $1", gone.ID)
	l.money(1000, "payment.paid", "refund.failed")
}

// told brings what a webhook says of a payment.
func (l life) told(pay id.ID, word acquirer.Reply) {
	l.t.Helper()
	if err := l.p.Flow.Told(l.t.Context(), l.r.Merchant.ID, pay, word); err != nil {
		l.t.Fatal(err)
	}
}

// Refunds by hand that are too much until one of them is known to have failed at the payer's bank: then the conflict is over, without
// anybody's help.
func TestRefundByHandThatFailsMakesRoom(t *testing.T) {
	for _, first := range []string{"the one that failed is told first", "the one that failed is told as an excess"} {
		t.Run(first, func(t *testing.T) {
			l := newLife(t, nil)
			pay := l.sale("key-1")
			charge := l.r.ChargeOf(pay).ID
			fails, err := l.r.Acquirer.RefundByHand(t.Context(), charge, 700)
			if err != nil {
				t.Fatal(err)
			}
			if first == "the one that failed is told first" {
				status(t, "check", 200)(l.p.Check(pay))
			}
			if _, err := l.r.Acquirer.FailRefund(t.Context(), fails.ID, "account_closed"); err != nil {
				t.Fatal(err)
			}
			stays, err := l.r.Acquirer.RefundByHand(t.Context(), charge, 800)
			if err != nil {
				t.Fatal(err)
			}
			for _, gone := range []sandbox.Act{stays, fails} { // delayed news, in the other order
				l.told(pay, acquirer.Reply{About: acquirer.ActionRefund, Class: "webhook", Outcome: acquirer.OutcomeSucceeded,
					Reference: gone.ID, Object: charge, Amount: money.Must(gone.Amount, "KZT")})
			}
			l.count("kept aside", 1, "SELECT count(*) FROM movement WHERE state = 'unapplied'")
			status(t, "check", 200)(l.p.Check(pay))
			l.count("refunded", 800, "SELECT refunded_amount FROM payment")
			l.count("open reviews", 0, "SELECT count(*) FROM review WHERE decided_at IS NULL")
			l.count("in conflict", 0, "SELECT count(*) FROM payment WHERE conflict")
			if got := l.r.Count("SELECT -sum(amount) FROM ledger_entry WHERE account = 'merchant_payable'"); got != 200 {
				t.Errorf("the merchant is owed %d, want 200", got)
			}
			l.sound()
		})
	}
}
