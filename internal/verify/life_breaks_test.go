package verify_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
	"github.com/hapaxpay/hapax/internal/verify"
)

// lifeBreak does one wrong thing to a lived life, as nobody but the owner or the acquirer could, and names what must be found.
type lifeBreak struct {
	want, check string // the invariant, and which part of it
	story       func(lived)
	sql         string
	hand        func(lived) // at the acquirer, and nobody is told
}

// of names a change by the key of its command.
func of(key string) string { return ` WHERE idempotency_key = '` + key + `'` }

// again copies a row with other members.
func again(table, members, where string) string {
	return `INSERT INTO ` + table + ` SELECT (jsonb_populate_record(r, '` + members + `'::jsonb)).* FROM ` + table + ` r ` + where + ` LIMIT 1`
}

const someID = "00000000-0000-7000-8000-000000000999"

var changeBreaks = []lifeBreak{
	{want: "I-3", check: "a change that was told as done, and stands otherwise", story: lived.captured,
		sql: `UPDATE modification SET status = 'failed', failure_code = 'declined'` + of("capture-1")},
	{want: "I-3", check: "a change that was told as failed, and stands otherwise", story: lived.givenUp,
		sql: `UPDATE modification SET status = 'succeeded', failure_code = NULL` + of("cancel-3")},
	{want: "I-3", check: "a change that moved after its end", story: lived.captured,
		sql: `UPDATE evidence SET effect = 'moved', created_at = now() + interval '1 hour' WHERE modification_id = (SELECT id FROM modification` + of("capture-1") + `)`},
	{want: "I-5", check: "a hold that nobody will look at when it should be over", story: lived.underWay, sql: `UPDATE payment SET due_at = NULL WHERE status = 'authorized'`},
	{want: "I-5", check: "a hold that nobody will look at when it should be over", story: lived.underWay,
		sql: `UPDATE payment SET due_at = 'infinity' WHERE status = 'authorized'`},
	{want: "I-5", check: "in review without a review", story: lived.underWay, sql: `UPDATE operation SET state = 'in_review'` + of("refund-3")},
	{want: "I-5", check: "a change that is open, and nobody will look", story: lived.underWay, sql: `DELETE FROM operation` + of("refund-3")},
	{want: "I-5", check: "money that was long given back, and whose compensation still waits to be sent", story: func(l lived) {
		l.told(202)(l.p.Pay("stray", rig.Order{Reference: "order-stray", Minor: 1000, Method: "pm_wrong_amount"}))
		l.decide("decide-1", flow.VerdictCompensate)
	}, sql: `UPDATE movement SET state = 'returned', cause = NULL, updated_at = now() - interval '2 days'`},
	{want: "I-6", check: "a change has its result, and no event tells it", story: lived.captured, sql: `DELETE FROM event WHERE type = 'refund.succeeded'`},
	{want: "I-6", check: "a change has its result, and no event tells it", story: lived.givenUp, sql: `DELETE FROM event WHERE type = 'payment.cancel_failed'`},
	{want: "I-6", check: "a change has its result, but its operation is not completed", story: lived.underWay,
		sql: `UPDATE modification SET status = 'succeeded'` + of("refund-3")},
	{want: "I-6", check: "a change's operation is completed, but it has no result", story: lived.captured,
		sql: `UPDATE modification SET status = 'unknown'` + of("refund-1")},
	{want: "I-16", check: "canceled without the acquirer's word", story: lived.givenUp, sql: `UPDATE evidence SET outcome = 'unknown' WHERE about IN ('reverse', 'close')`},
	{want: "I-16", check: "a change that failed without a listed proof", story: lived.givenUp, sql: `UPDATE evidence SET outcome = 'unknown' WHERE outcome = 'declined'`},
	{want: "I-17", check: "an answer that is not what became of the change", story: lived.captured, sql: `UPDATE modification SET answered_status = 422` + of("refund-1")},
	{want: "I-17", check: "told that the change failed, and the money moved", story: lived.captured,
		sql: `UPDATE modification SET status = 'failed', failure_code = 'declined', answered_status = 422` + of("refund-1")},
	{want: "I-17", check: "told that the change failed, and the money moved", story: lived.paidOnPage, sql: `DELETE FROM movement WHERE kind = 'reverse'`},
}

var moneyBreaks = []lifeBreak{
	{want: "I-6", check: "the books credit another sum than was applied to the payment", story: lived.captured, sql: `DELETE FROM ledger_entry WHERE tx_key LIKE '%:refund:%'`},
	{want: "I-6", check: "the books credit another sum than was applied to the payment", story: lived.disputed, sql: `DELETE FROM ledger_entry WHERE tx_key LIKE '%:chargeback:%'`},
	{want: "I-6", check: "the books credit another sum than was applied to the payment", story: lived.disputed, sql: `DELETE FROM ledger_entry WHERE tx_key LIKE '%:chargeback_won:%'`},
	{want: "I-6", check: "the books credit another sum than was applied to the payment", story: lived.paidOnPage, sql: `DELETE FROM ledger_entry WHERE tx_key LIKE '%:refund_failed:%'`},
	{want: "I-6", check: "the books keep aside another sum than the movements", story: lived.compensated, sql: `DELETE FROM ledger_entry WHERE tx_key LIKE '%:compensate:%'`},
	{want: "I-6", check: "the books mirror another sum than is held", story: lived.captured, sql: `DELETE FROM ledger_entry WHERE tx_key LIKE '%:release'`},
	{want: "I-7", check: "captured another sum or currency than was applied", story: lived.captured, sql: `UPDATE movement SET state = 'returned' WHERE kind = 'capture' AND amount = 300`},
	{want: "I-7", check: "captured another sum or currency than was applied", story: lived.captured, sql: `DELETE FROM movement WHERE kind = 'capture'`},
	{want: "I-7", check: "a change that is done, and whose money was kept aside and does not count", story: lived.captured,
		sql: `UPDATE movement SET state = 'returned', cause = 'excess_given_back' WHERE kind = 'refund'`},
	{want: "I-7", check: "a hold that stands although its payment is over, or does not stand although it should", story: lived.captured,
		sql: `UPDATE movement SET state = 'applied' WHERE kind = 'hold'`},
	{want: "I-7", check: "held without a hold of the acquirer", story: lived.captured, sql: `DELETE FROM movement WHERE kind = 'hold'`},
	{want: "I-7", check: "refunded or disputed with another sum than went back", story: lived.captured, sql: `UPDATE payment SET refunded_amount = refunded_amount - 1`},
	{want: "I-7", check: "refunded or disputed with another sum than went back", story: lived.paidOnPage, sql: `UPDATE payment SET refunded_amount = 200`},
	{want: "I-7", check: "refunded or disputed with another sum than went back", story: lived.disputed, sql: `UPDATE payment SET disputed_amount = disputed_amount - 1`},
	{want: "I-9", check: "reserved for another sum than the open changes", story: lived.underWay, sql: `UPDATE payment SET refunding_amount = 500 WHERE refunding_amount = 600`},
	{want: "I-9", check: "reserved for a capture that is not open", story: lived.captured, sql: `UPDATE payment SET capturing_amount = 1`},
	{want: "I-9", check: "more captured than held", story: lived.captured,
		sql: `ALTER TABLE payment DROP CONSTRAINT payment_authorized; UPDATE payment SET authorized_amount = 600`},
	{want: "I-14", check: "money in the acquirer's register that nothing of ours accounts for", story: lived.captured, sql: `DELETE FROM movement WHERE kind = 'refund'`},
	{want: "I-14", check: "money in the acquirer's register that nothing of ours accounts for", story: lived.paidOnPage, sql: `DELETE FROM movement WHERE kind = 'reverse'`},
	{want: "I-14", check: "money in the acquirer's register that nothing of ours accounts for", story: lived.disputed, sql: `DELETE FROM movement WHERE kind = 'chargeback'`},
	{want: "I-14", check: "booked with another sum or currency than in the acquirer's register", story: lived.captured, sql: `UPDATE movement SET amount = 99 WHERE kind = 'refund'`},
	{want: "I-14", check: "money kept aside without an open review", story: lived.underWay, sql: `UPDATE review SET decided_at = now(), decision = 'x'`},
	{want: "I-14", check: "money in the acquirer's register that nothing of ours accounts for", story: lived.captured, hand: func(l lived) {
		l.must(l.Acquirer.RefundByHand(l.T.Context(), l.ChargeOf(l.PaymentOf("held")).ID, 50))
	}},
	{want: "I-1", check: "more than one net movement", story: lived.captured, hand: func(l lived) {
		c := l.ChargeOf(l.PaymentOf("held"))
		l.must(l.Acquirer.ChargeByMistake(l.T.Context(), sandbox.HandCharge{Reference: c.Reference, Amount: 1000, Currency: c.Currency}))
	}},
}

var onceBreaks = []lifeBreak{
	{want: "I-11", check: "one ordinal twice among the changes of a payment", story: lived.captured, sql: `UPDATE modification SET k = 1`},
	{want: "I-11", check: "one command made two changes", story: lived.captured,
		sql: `ALTER TABLE modification DROP CONSTRAINT modification_merchant_id_kind_idempotency_key_key;` +
			again("modification", `{"id": "`+someID+`", "acquirer_key": "x", "k": 9}`, of("refund-1"))},
	{want: "I-11", check: "one movement given back twice by us", story: lived.compensated,
		sql: `DROP INDEX modification_compensates;` +
			again("modification", `{"id": "`+someID+`", "acquirer_key": "x", "idempotency_key": "x", "k": 9}`, `WHERE type = 'compensation'`)},
	{want: "I-11", check: "one dispute written twice", story: lived.disputed,
		sql: `ALTER TABLE dispute DROP CONSTRAINT dispute_merchant_id_account_id_reference_key;` + again("dispute", `{"id": "`+someID+`"}`, "")},
	{want: "I-11", check: "one command issued two one-time codes", story: lived.givenUp,
		sql: `ALTER TABLE cancel_code DROP CONSTRAINT cancel_code_merchant_id_kind_idempotency_key_key;` + again("cancel_code", `{"ordinal": 2}`, "")},
	{want: "I-13", check: "sent under another key than the change's", story: lived.captured, sql: `UPDATE modification SET acquirer_key = 'x'` + of("refund-1")},
	{want: "I-13", check: "another body on the wire than was stored", story: lived.captured, sql: `UPDATE operation SET request_body = 'x'` + of("refund-1")},
	{want: "I-13", check: "another body on the wire than was stored", story: lived.givenUp, sql: `UPDATE operation SET request_body = 'x'` + of("cancel-1")},
	{want: "I-13", check: "more requests on the wire than permits", story: lived.captured, sql: `UPDATE operation SET unsent = sends` + of("capture-1")},
	{want: "I-13", check: "one acquirer key of two payments", story: lived.captured,
		sql: `ALTER TABLE modification DROP CONSTRAINT modification_merchant_id_acquirer_key_key; UPDATE modification SET acquirer_key = 'x'`},
	{want: "I-13", check: "permits and history differ", story: lived.compensated, sql: `DELETE FROM history WHERE kind = 'compensate' AND what = 'permit_granted'`},
	{want: "I-15", check: "operation points out of its merchant", story: lived.captured, sql: `UPDATE operation SET modification_id = '` + someID + `'` + of("refund-1")},
	{want: "I-15", check: "evidence points out of its merchant", story: lived.captured, sql: `UPDATE evidence SET modification_id = '` + someID + `' WHERE about = 'refund'`},
	{want: "I-15", check: "an acquirer account of two merchants", story: lived.captured,
		sql: `INSERT INTO merchant (merchant_id, name, mode) VALUES ('` + someID + `', 'other', 'test');` +
			again("evidence", `{"merchant_id": "`+someID+`", "intent_id": null, "payment_id": null, "operation_id": null, "modification_id": null}`, "")},
}

var messageBreaks = []lifeBreak{
	{want: "I-5", check: "a message that is neither applied nor due", story: lived.toldByWebhook,
		sql: `ALTER TABLE inbox_message DROP CONSTRAINT inbox_message_due; UPDATE inbox_message SET due_at = NULL WHERE state = 'parked'`},
	{want: "I-5", check: "a message that is neither applied nor due", story: lived.toldByWebhook,
		sql: `UPDATE inbox_message SET due_at = now() + interval '2 days' WHERE state = 'parked'`},
	{want: "I-4", check: "a message that is said to be applied, and no evidence came of it", story: lived.toldByWebhook,
		sql: `UPDATE inbox_message SET state = 'applied', due_at = NULL, ended_at = now() WHERE state = 'parked'`},
	{want: "I-4", check: "a message that is said to be applied, and no evidence came of it", story: lived.toldByWebhook, sql: `DELETE FROM evidence WHERE source = 'webhook'`},
	{want: "I-4", check: "evidence of a message that was not stored before, or is not said to be applied", story: lived.toldByWebhook,
		sql: `DELETE FROM inbox_message WHERE state = 'applied'`},
	{want: "I-4", check: "evidence of a message that was not stored before, or is not said to be applied", story: lived.toldByWebhook,
		sql: `UPDATE inbox_message SET state = 'received', due_at = now(), ended_at = NULL WHERE state = 'applied'`},
}

// TestEachCheckOfALifeCanFail breaks one thing after another: an auditor that cannot fail is worth nothing.
func TestEachCheckOfALifeCanFail(t *testing.T) {
	for n, b := range slices.Concat(changeBreaks, moneyBreaks, onceBreaks, messageBreaks) {
		t.Run(fmt.Sprint(n, " ", b.want, " ", b.check), func(t *testing.T) {
			l := live(t)
			b.story(l)
			if b.sql != "" {
				l.must(l.Owner.Exec(t.Context(), b.sql))
			}
			if b.hand != nil {
				b.hand(l)
			}
			report, err := verify.Run(t.Context(), l.DB.ServicePool(t), verify.Options{SandboxURL: l.Server.URL()})
			l.must(nil, err)
			if got := found(report); !slices.Contains(got, b.want+" "+b.check) {
				t.Errorf("found %q, want %q", got, b.want+" "+b.check)
			}
		})
	}
}

// found lists what a report calls broken, with its parts.
func found(r verify.Report) (all []string) {
	for _, i := range r.Invariants {
		for _, row := range i.Rows {
			all = append(all, fmt.Sprint(i.ID, " ", row.Check))
		}
	}
	return all
}
