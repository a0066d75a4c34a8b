package flow_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/rig"
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

// Case 37: authorised, captured, partially refunded and refunded, each told twice by webhooks, in all 24 orders, a dispute anywhere among
// them, on a real database: one state, one ledger, and every event once. The answer to the hold itself was lost.
func TestCase037_OrdersOfDeliveryOnADatabase(t *testing.T) {
	l := newLife(t, once)
	n := 0
	orders(4, func(order []int) {
		order = slices.Insert(order, n%5, 4)
		n++
		key := fmt.Sprintf("key-%d", n)
		status(t, "hold", 202)(l.p.Hold(key, rig.Order{Reference: "order-" + key, Minor: 1000, Method: "pm_reset_executed"}))
		pay := l.r.PaymentOf(key)
		words := l.lived(pay)
		for _, i := range append(order, order...) {
			l.told(pay, words[i])
		}
		l.is(key, "paid")
	})
	l.count("payments that went another way", 0, `SELECT count(*) FROM payment WHERE NOT (status = 'paid' AND captured_amount = 1000
		AND refunded_amount = 700 AND disputed_amount = 300 AND dispute = 'opened' AND NOT conflict AND NOT early)`)
	l.count("ledgers", 1, `SELECT count(DISTINCT lines) FROM (SELECT payment_id, string_agg(split_part(account, ':', 1) || ' ' || amount, ', '
		ORDER BY account, amount) AS lines FROM ledger_entry GROUP BY payment_id) p`)
	l.count("events of each payment", 5, `SELECT count(*) / count(DISTINCT payment_id) FROM event`)
	l.count("open operations", 0, "SELECT count(*) FROM operation WHERE state <> 'completed'")
	l.sound()
}

// lived lets a held payment be captured, refunded in two parts and disputed at the acquirer, and gives what webhooks say of that.
func (l life) lived(pay id.ID) []acquirer.Reply {
	l.t.Helper()
	l.waitCharges(pay)
	charge, key := l.r.ChargeOf(pay).ID, l.r.Text("SELECT acquirer_key FROM payment WHERE id = $1", pay)
	all := []acquirer.Reply{{About: acquirer.ActionCharge, Class: "webhook", Outcome: acquirer.OutcomeHeld, Reference: charge, OurReference: key,
		Amount: money.Must(1000, "KZT")}}
	for _, step := range []struct {
		about acquirer.Action
		do    func(context.Context, string, int64) (sandbox.Act, error)
		minor int64
		code  string
	}{
		{acquirer.ActionCapture, l.r.Acquirer.CaptureByHand, 1000, ""}, {acquirer.ActionRefund, l.r.Acquirer.RefundByHand, 300, ""},
		{acquirer.ActionRefund, l.r.Acquirer.RefundByHand, 400, ""}, {acquirer.ActionChargeback, l.r.Acquirer.OpenChargeback, 300, "opened"},
	} {
		act, err := step.do(l.t.Context(), charge, step.minor)
		if err != nil {
			l.t.Fatal(err)
		}
		all = append(all, acquirer.Reply{About: step.about, Class: "webhook", Outcome: acquirer.OutcomeSucceeded, Code: step.code, Reference: act.ID,
			Object: charge, Amount: money.Must(step.minor, "KZT"), Final: act.Final})
	}
	return all
}

// orders visits every order of n things.
func orders(n int, visit func([]int)) {
	var grow func(order []int)
	grow = func(order []int) {
		if len(order) == n {
			visit(slices.Clone(order))
			return
		}
		for i := range n {
			if !slices.Contains(order, i) {
				grow(append(order, i))
			}
		}
	}
	grow(nil)
}
