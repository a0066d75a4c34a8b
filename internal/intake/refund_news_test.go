package intake_test

import (
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// TestCase031_NewsOfOurRefundBeforeItIsSaved: the acquirer tells of our refund before our own commit, and twice after: it is known
// by our reference, and is one refund with one debit, none of it external.
func TestCase031_NewsOfOurRefundBeforeItIsSaved(t *testing.T) {
	for _, point := range []string{operation.PointAfterReply, operation.PointBeforeRecord} {
		t.Run(point, func(t *testing.T) {
			r, p := wired(t, nil)
			pay := sale(r, p, "key-1")
			r.During(point, func(slow *rig.Replica) {
				if a, err := slow.Refund("ref-1", pay, 300); err != nil || a.Status != 201 {
					t.Errorf("the refund is told %d %s, %v", a.Status, a.Body, err)
				}
			}, func() {
				tells(r, p, only(r, "refund.succeeded"))
				is(r, "succeeded", "SELECT status FROM modification")
			})
			late := only(r, "refund.succeeded")
			tells(r, p, late, late)
			took(r, p.Deliver(again(r, late)))
			pass(r, p)
			is(r, "succeeded false 300", "SELECT string_agg(status || ' ' || external || ' ' || amount, ', ') FROM modification")
			is(r, "300 0", "SELECT refunded_amount || ' ' || refunding_amount FROM payment")
			counts(r, 1, "SELECT count(*) FROM movement WHERE kind = 'refund'")
			counts(r, 1, "SELECT count(*) FROM ledger_entry WHERE account = 'merchant_payable' AND amount > 0")
			told(r, 201)(p.Refund("ref-1", pay, 300))
			money(r, 700, "payment.paid", "refund.succeeded")
		})
	}
}

// TestCase032_NewsThatTheBankReturnedARefund: it succeeded, and fails days later, when nobody asks any more: booked back once,
// however often it is told and whatever is told late, and the amount can be refunded again.
func TestCase032_NewsThatTheBankReturnedARefund(t *testing.T) {
	for _, code := range []string{"account_closed", "canceled"} {
		t.Run(code, func(t *testing.T) {
			r, p := wired(t, nil)
			pay := sale(r, p, "key-1")
			told(r, 201)(p.Refund("ref-1", pay, 0))
			r.Later(5 * 24 * time.Hour)
			done[sandbox.Act](r)(r.Acquirer.FailRefund(t.Context(), r.Text("SELECT acquirer_reference FROM modification"), code))
			failed := only(r, "refund.failed")
			tells(r, p, failed, failed, only(r, "refund.succeeded"))
			took(r, p.Deliver(again(r, failed)))
			pass(r, p)
			if len(r.Lookups()) != 0 {
				t.Errorf("%d questions, want none", len(r.Lookups()))
			}
			is(r, "failed failed_at_bank "+code, "SELECT m.status || ' ' || m.failure_code || ' ' || e.code FROM modification m, evidence e WHERE e.class = 'refund_failed' AND e.effect = 'booked'")
			is(r, "0 0", "SELECT refunded_amount || ' ' || refunding_amount FROM payment")
			told(r, 201)(p.Refund("ref-2", pay, 0))
			tells(r, p, r.Told()...)
			is(r, "failed, succeeded", "SELECT string_agg(status, ', ' ORDER BY idempotency_key) FROM modification")
			is(r, "1000", "SELECT refunded_amount::text FROM payment")
			money(r, 0, "payment.paid", "refund.succeeded", "refund.failed", "refund.succeeded")
		})
	}
}

// TestCase034_NewsOfADispute: what the payer's bank took is refunded to nobody, until it comes back.
func TestCase034_NewsOfADispute(t *testing.T) {
	r, p := wired(t, nil)
	pay := sale(r, p, "key-1")
	dispute := done[sandbox.Act](r)(r.Acquirer.OpenChargeback(t.Context(), r.ChargeOf(pay).ID, 0))
	opened := only(r, "chargeback.opened")
	tells(r, p, opened, opened)
	is(r, "opened 1000", "SELECT dispute || ' ' || disputed_amount FROM payment")
	if _, err := p.Refund("ref-1", pay, 0); !problem.Is(err, problem.ExceedsRemaining) {
		t.Errorf("the refund is told %v", err)
	}
	done[sandbox.Act](r)(r.Acquirer.WinChargeback(t.Context(), dispute.ID))
	won := only(r, "chargeback.won")
	tells(r, p, won, opened, won)
	took(r, p.Deliver(again(r, opened)))
	pass(r, p)
	is(r, "won 0", "SELECT dispute || ' ' || disputed_amount FROM payment")
	told(r, 201)(p.Refund("ref-1", pay, 0))
	tells(r, p, r.Told()...)
	is(r, "1000", "SELECT refunded_amount::text FROM payment")
	money(r, 0, "payment.paid", "dispute.opened", "dispute.won", "refund.succeeded")
}

// TestCase034_NewsOfADisputeAfterARefund: the other order: first a refund, then a dispute of the rest, each told first.
func TestCase034_NewsOfADisputeAfterARefund(t *testing.T) {
	for _, first := range []string{"refund", "dispute"} {
		t.Run(first, func(t *testing.T) {
			r, p := wired(t, nil)
			pay := sale(r, p, "key-1")
			charge := r.ChargeOf(pay).ID
			done[sandbox.Act](r)(r.Acquirer.RefundByHand(t.Context(), charge, 300))
			dispute := done[sandbox.Act](r)(r.Acquirer.OpenChargeback(t.Context(), charge, 0))
			refunded, opened := only(r, "refund.succeeded"), only(r, "chargeback.opened")
			events := []string{"payment.paid", "refund.succeeded", "dispute.opened"}
			if first == "refund" {
				tells(r, p, refunded, opened)
			} else {
				tells(r, p, opened, refunded)
				events[1], events[2] = events[2], events[1]
			}
			is(r, "opened 700 300", "SELECT dispute || ' ' || disputed_amount || ' ' || refunded_amount FROM payment")
			if _, err := p.Refund("ref-1", pay, 1); !problem.Is(err, problem.ExceedsRemaining) {
				t.Errorf("the refund is told %v", err)
			}
			done[sandbox.Act](r)(r.Acquirer.WinChargeback(t.Context(), dispute.ID))
			tells(r, p, r.Told()...)
			told(r, 201)(p.Refund("ref-1", pay, 700))
			tells(r, p, r.Told()...)
			is(r, "won 0 1000", "SELECT dispute || ' ' || disputed_amount || ' ' || refunded_amount FROM payment")
			money(r, 0, append(events, "dispute.won", "refund.succeeded")...)
		})
	}
}

// TestCase034_NewsOfADisputeOfMoneyThatIsGone: all of it was refunded, and the payer's bank takes it once more: no total goes below
// zero; the money is kept aside for a person, and comes back when the dispute is won.
func TestCase034_NewsOfADisputeOfMoneyThatIsGone(t *testing.T) {
	r, p := wired(t, nil)
	pay, other := sale(r, p, "key-1"), sale(r, p, "key-2")
	told(r, 201)(p.Refund("ref-1", pay, 0))
	// The sandbox takes back no more than there is, so its message is made from that of another charge.
	done[sandbox.Act](r)(r.Acquirer.OpenChargeback(t.Context(), r.ChargeOf(other).ID, 0))
	beyond := rewritten(r, only(r, "chargeback.opened"), "evt_beyond", func(_, data map[string]any) {
		data["charge"], data["charge_reference"] = r.ChargeOf(pay).ID, r.Text("SELECT acquirer_key FROM payment WHERE id = $1", pay)
	})
	took(r, p.Deliver(beyond))
	pass(r, p)
	is(r, "1000 0 true", "SELECT refunded_amount || ' ' || disputed_amount || ' ' || conflict FROM payment WHERE id = $1", pay)
	is(r, "excess_given_back", "SELECT reason FROM review WHERE decided_at IS NULL")
	is(r, "unapplied 1000", "SELECT state || ' ' || amount FROM movement WHERE kind = 'chargeback'")
	if _, err := p.Refund("ref-2", pay, 1); !problem.Is(err, problem.ExceedsRemaining) {
		t.Errorf("the refund is told %v", err)
	}
	back := rewritten(r, beyond, "evt_back", func(body, data map[string]any) {
		body["type"], data["status"] = "chargeback.won", "won"
	})
	for range 2 {
		took(r, p.Deliver(back))
		pass(r, p)
	}
	is(r, "1000 0 false", "SELECT refunded_amount || ' ' || disputed_amount || ' ' || conflict FROM payment WHERE id = $1", pay)
	counts(r, 0, "SELECT count(*) FROM review WHERE decided_at IS NULL")
	r.Verify("I-14") // the register has a dispute of the other charge, of which nothing was told
}
