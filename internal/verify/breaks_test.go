package verify_test

import (
	"context"
	"testing"
	"time"
)

// breakage does one wrong thing to a good world, as nobody but the owner could, and names what must turn red.
type breakage struct {
	want string
	name string
	idle time.Duration
	do   func(*world)
}

func breakOf(t testing.TB, want string) breakage {
	t.Helper()
	for _, b := range breaks {
		if b.want == want {
			return b
		}
	}
	t.Fatalf("nothing breaks %s", want)
	return breakage{}
}

func sql(text string, args ...any) func(*world) {
	return func(w *world) { w.exec(text, args...) }
}

func all(steps ...func(*world)) func(*world) {
	return func(w *world) {
		for _, step := range steps {
			step(w)
		}
	}
}

// unplaced takes the place of an intent's first event away, and what hangs on it: it waits for one.
func unplaced(intent int) func(*world) {
	const first = `(SELECT id FROM event WHERE intent_id = $1 AND version = 1)`
	return all(sql(`INSERT INTO outbox (merchant_id, subject_id, version, event_id) SELECT merchant_id, intent_id, version, id FROM event WHERE intent_id = $1 AND version = 1`, u(intent)),
		sql(`ALTER TABLE delivery DROP CONSTRAINT IF EXISTS delivery_merchant_id_position_fkey`),
		sql(`DELETE FROM delivery WHERE event_id = `+first, u(intent)), sql(`DELETE FROM feed WHERE event_id = `+first, u(intent)))
}

// swapped turns the two places of one intent's events round.
func swapped(w *world) {
	w.exec(`ALTER TABLE delivery DROP CONSTRAINT delivery_merchant_id_position_fkey`)
	for _, table := range []string{"feed", "delivery"} { // places 1 and 2 of their merchant
		w.exec(`UPDATE `+table+` SET position = position + 100 WHERE merchant_id = $1`, u(two))
		w.exec(`UPDATE `+table+` SET position = 103 - position WHERE merchant_id = $1`, u(two))
	}
}

var breaks = []breakage{
	{want: "I-1", name: "a second charge of one intent, both booked", do: func(w *world) {
		p := try{merchant: one, account: accountOne, key: "k101x"}
		w.money(p, 401, "unapplied", "unapplied")
		w.review(try{merchant: one, intent: paid, payment: 101}, 402, 401, "second_movement")
		w.register[len(w.register)-1]["reference"], w.register[len(w.register)-1]["idempotency_key"] = "k101", "k101"
	}},
	{want: "I-2", name: "two live payments", do: all(sql(`DROP INDEX payment_one_live`), func(w *world) {
		w.try(try{one, accountOne, pending, 135, 2, "pending", "k135", "in_progress", 0, 1, 0, "1 second"})
	})},
	{want: "I-2", name: "refused but not marked", do: all(sql(`DROP INDEX payment_one_live`),
		sql(`ALTER TABLE payment DROP CONSTRAINT payment_refused, DROP CONSTRAINT payment_gate`),
		sql(`UPDATE payment SET refused_at = NULL WHERE id = $1`, u(111)))},
	{want: "I-3 I-4", name: "moved after its end, by a message that nobody stored", do: func(w *world) {
		w.evidence(paidTry, "webhook", "unknown", "moved", "", "", "", 0, "-1 hour")
	}},
	{want: "I-3", name: "ended twice", do: all(func(w *world) { w.event(declinedTry, 3, "payment.declined") },
		sql(`UPDATE payment_intent SET event_version = 3 WHERE id = $1`, u(declined)))},
	{want: "I-3", name: "told paid, stands declined", do: sql(`UPDATE event SET type = 'payment.paid' WHERE payment_id = $1`, u(111))},
	{want: "I-4", name: "a taken-over owner concludes", do: func(w *world) {
		w.evidence(paidTry, "call", "unknown", "moved", "", "", "", 1, "49 minutes")
	}},
	{want: "I-4", name: "a fact is lost", do: func(w *world) {
		w.evidence(pendingTry, "call", "succeeded", "stale_owner", "", "", "ch-lost", 1, "0")
	}},
	{want: "I-5", name: "in review without a review", do: sql(`UPDATE review SET decided_at = now(), decision = 'x' WHERE id = $1`, u(118))},
	{want: "I-5", name: "put off for ever", do: sql(`UPDATE operation SET due_at = 'infinity' WHERE id = $1`, u(132))},
	{want: "I-5", name: "locked, and nobody is asked", do: sql(`UPDATE payment_intent SET conflict = true WHERE id = (SELECT intent_id FROM payment WHERE id = $1)`, u(101))},
	{want: "I-5", name: "nobody will look", do: sql(`DELETE FROM operation WHERE id = $1`, u(132))},
	{want: "I-6", name: "no ledger", do: sql(`DELETE FROM ledger_entry WHERE tx_key = 'tx-k101'`)},
	{want: "I-6", name: "no ledger for money kept aside", do: sql(`DELETE FROM ledger_entry WHERE tx_key = 'tx-k201'`)},
	{want: "I-6", name: "no stored answer", do: sql(`UPDATE operation SET answer_body = '' WHERE id = $1`, u(103))},
	{want: "I-6", name: "final, its operation open", do: sql(`UPDATE operation SET state = 'awaiting_result', completed_at = NULL, expires_at = NULL WHERE id = $1`, u(102))},
	{want: "I-5 I-6", name: "answered, its payment open", do: sql(`UPDATE operation SET state = 'completed', completed_at = now(), expires_at = now(),
		answer_status = 201, answer_body = 'x' WHERE id = $1`, u(132))},
	{want: "I-6 I-10", name: "no event", do: all(sql(`DELETE FROM delivery WHERE subject_id = $1`, u(paid)), sql(`DELETE FROM feed WHERE subject_id = $1`, u(paid)),
		sql(`DELETE FROM event WHERE payment_id = $1`, u(101)))},
	{want: "I-7", name: "no evidence", do: sql(`UPDATE evidence SET effect = 'noted' WHERE payment_id = $1`, u(inReview))},
	{want: "I-7", name: "another reference", do: sql(`UPDATE payment SET acquirer_reference = 'ch-other' WHERE id = $1`, u(101))},
	{want: "I-7", name: "another sum", do: sql(`UPDATE payment SET captured_amount = 100, amount = 100 WHERE id = $1`, u(101))},
	{want: "I-7", name: "less than asked", do: sql(`UPDATE payment SET amount = 20000 WHERE id = $1`, u(101))},
	{want: "I-7", name: "another currency", do: sql(`UPDATE payment SET currency = 'USD' WHERE id = $1`, u(101))},
	{want: "I-7", name: "paid by an answer that says nothing", do: sql(`UPDATE evidence SET effect = 'behind' WHERE payment_id = $1 AND source = 'lookup'`, u(101))},
	{want: "I-8", name: "one line alone", do: sql(`INSERT INTO ledger_entry (merchant_id, tx_key, line, id, account, amount, currency)
		VALUES ($1, 'tx-k101', 3, $2, 'fees', 5, 'KWD')`, u(one), u(400))},
	{want: "I-8", name: "two currencies that only together balance", do: sql(`INSERT INTO ledger_entry (merchant_id, tx_key, line, id, account, amount, currency)
		VALUES ($1, 'x', 1, $2, 'fees', 5, 'KWD'), ($1, 'x', 2, $2, 'costs', -5, 'USD')`, u(one), u(400))},
	{want: "I-8", name: "a key twice", do: all(sql(`ALTER TABLE ledger_entry DROP CONSTRAINT ledger_entry_pkey`),
		sql(`INSERT INTO ledger_entry (merchant_id, tx_key, line, id, account, amount, currency)
		VALUES ($1, 'x', 1, $2, 'fees', 5, 'KWD'), ($1, 'x', 1, $2, 'costs', -5, 'KWD')`, u(one), u(400)))},
	{want: "I-9", name: "more reserved for refunds than captured", do: all(sql(`ALTER TABLE payment DROP CONSTRAINT payment_given_back`),
		sql(`UPDATE payment SET refunding_amount = 18601 WHERE id = $1`, u(101)))},
	{want: "I-7 I-9", name: "more captured than asked", do: all(sql(`ALTER TABLE payment DROP CONSTRAINT payment_captured`),
		sql(`UPDATE payment SET captured_amount = 18601 WHERE id = $1`, u(131)))},
	{want: "I-5", name: "being canceled without a cancel", do: sql(`UPDATE payment SET status = 'canceling', due_at = now() WHERE id = (SELECT id FROM payment WHERE status = 'pending' LIMIT 1)`)},
	{want: "I-5", name: "an open change that nobody will look at", do: sql(`INSERT INTO modification (merchant_id, id, intent_id, payment_id, type, action,
		k, status, amount, currency, account_id, acquirer_key, kind, idempotency_key, fingerprint, fingerprint_version)
		SELECT merchant_id, gen_random_uuid(), intent_id, id, 'capture', 'capture', 1, 'unknown', 1, currency, account_id, 'kx', 'capture', 'kx',
		       fingerprint, 1 FROM payment WHERE status = 'paid' LIMIT 1`)},
	{want: "I-7", name: "refunded more than went back", do: sql(`UPDATE payment SET refunded_amount = 1 WHERE status = 'paid'`)},
	{want: "I-6", name: "a hold in the books that nobody holds", do: sql(`INSERT INTO ledger_entry (merchant_id, tx_key, line, id, account, amount, currency)
		SELECT merchant_id, 'seed:auth:1:hold', g.line, gen_random_uuid(), CASE g.line WHEN 1 THEN 'authorized:' || account_id ELSE 'held' END,
		       CASE g.line WHEN 1 THEN 5 ELSE -5 END, currency FROM payment, generate_series(1, 2) AS g(line) WHERE id = (SELECT id FROM payment WHERE status = 'paid' LIMIT 1)`)},
	{want: "I-10", name: "a gap", do: sql(`UPDATE payment_intent SET event_version = 3 WHERE id = $1`, u(declined))},
	{want: "I-10", name: "the first is missing", do: sql(`UPDATE event SET version = 3, event_key = 'seed110:event:3' WHERE payment_id = $1`, u(111))},
	{want: "I-10", name: "another key", do: sql(`UPDATE event SET event_key = 'seed999:event:1' WHERE payment_id = $1`, u(101))},
	{want: "I-10", name: "an event that nobody will number", do: all(unplaced(paid), sql(`DELETE FROM outbox`), sql(`UPDATE feed_head SET position = position - 1 WHERE merchant_id = $1`, u(one)),
		sql(`UPDATE feed SET position = position - 1 WHERE merchant_id = $1`, u(one)), sql(`UPDATE delivery SET position = position - 1 WHERE merchant_id = $1`, u(one)))},
	{want: "I-10", name: "a place and waiting for one", do: sql(`INSERT INTO outbox (merchant_id, subject_id, version, event_id)
		SELECT merchant_id, intent_id, version, id FROM event WHERE intent_id = $1`, u(paid))},
	{want: "I-10", name: "what waits is no event", do: sql(`INSERT INTO outbox (merchant_id, subject_id, version, event_id) VALUES ($1, $2, 1, $3)`, u(one), u(999), u(999))},
	{want: "I-10", name: "an endpoint's event is missing", do: sql(`INSERT INTO webhook_endpoint (merchant_id, id, url, key_seed, event_version) VALUES ($1, $2, 'https://x', 'x', 1)`, u(one), u(999))},
	{want: "I-10", name: "an endpoint's event under another key", do: all(
		sql(`INSERT INTO webhook_endpoint (merchant_id, id, url, key_seed, event_version) VALUES ($1, $2, 'https://x', 'x', 1)`, u(one), u(999)),
		sql(`INSERT INTO event (merchant_id, endpoint_id, version, id, event_key, type, payload) VALUES ($1, $2, 1, $2, 'y:event:1', 'webhook_endpoint.disabled', '{}')`, u(one), u(999)),
		sql(`INSERT INTO outbox (merchant_id, subject_id, version, event_id) VALUES ($1, $2, 1, $2)`, u(one), u(999)))},
	{want: "I-10", name: "a gap in the feed", do: sql(`UPDATE feed_head SET position = position + 1 WHERE merchant_id = $1`, u(one))},
	{want: "I-10", name: "the feed in another order than the intent", do: swapped},
	{want: "I-10", name: "numbered out of order", do: all(unplaced(conflict), sql(`UPDATE feed_head SET position = position - 1 WHERE merchant_id = $1`, u(two)),
		sql(`UPDATE feed SET position = position - 1 WHERE merchant_id = $1`, u(two)), sql(`UPDATE delivery SET position = position - 1 WHERE merchant_id = $1`, u(two)))},
	{want: "I-10", name: "a delivery at another place", do: sql(`UPDATE delivery SET subject_id = $1 WHERE subject_id = $2`, u(999), u(paid))},
	{want: "I-10", name: "not kept for a sink", do: sql(`DELETE FROM delivery WHERE subject_id = $1`, u(paid))},
	{want: "I-10", name: "overtaken", do: sql(`UPDATE delivery SET state = 'waiting', ended_at = NULL, created_at = now() - interval '1 minute'
		WHERE subject_id = $1 AND position = (SELECT min(position) FROM feed WHERE subject_id = $1)`, u(conflict))},
	{want: "I-10", name: "a delivery put off for ever", do: sql(`UPDATE delivery SET state = 'waiting', ended_at = NULL, due_at = 'infinity' WHERE subject_id = $1`, u(paid))},
	{want: "I-11", name: "a movement twice", do: all(sql(`ALTER TABLE movement DROP CONSTRAINT movement_once`),
		sql(`INSERT INTO movement (merchant_id, id, account_id, reference, kind, amount, currency, state) VALUES ($1, $2, $3, 'ch-k101', 'charge', 18600, 'KWD', 'returned')`,
			u(one), u(400), u(accountOne)))},
	{want: "I-11", name: "two intents of one seed", do: sql(`UPDATE payment_intent SET key_seed = 'seed100' WHERE id = $1`, u(pending))},
	{want: "I-11", name: "one command, two payments", do: all(sql(`ALTER TABLE payment DROP CONSTRAINT payment_merchant_id_kind_idempotency_key_key`),
		sql(`UPDATE payment SET idempotency_key = 'key-k101' WHERE id = $1`, u(131)))},
	{want: "I-12", name: "a transaction stands idle", idle: time.Microsecond, do: func(w *world) {
		tx, err := w.db.ServicePool(w.t).Begin(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		if _, err := tx.Exec(w.t.Context(), "SELECT 1"); err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { // before the pool closes, which waits for it
			if err := tx.Rollback(context.WithoutCancel(w.t.Context())); err != nil {
				w.t.Error(err)
			}
		})
	}},
	{want: "I-13", name: "more on the wire than permitted", do: func(w *world) { w.sent("k101", "body of k101") }},
	{want: "I-13", name: "sent although no byte should have left", do: func(w *world) { w.sent("k121", "body of k121") }},
	{want: "I-13", name: "sent without any payment", do: func(w *world) { w.sent("nobody", "x") }},
	{want: "I-13", name: "another body than stored", do: func(w *world) { w.sent("k131", "something else") }},
	{want: "I-13", name: "two bodies on the wire", do: all(sql(`DELETE FROM operation WHERE id = $1`, u(102)), func(w *world) {
		w.wire = nil
		w.sent("k101", "a")
		w.sent("k101", "b")
	})},
	{want: "I-13", name: "a purged operation, more than its history permits", do: all(sql(`DELETE FROM operation WHERE id = $1`, u(112)),
		func(w *world) { w.sent("k111", "body of k111") })},
	{want: "I-13", name: "counted less than the history", do: sql(`DELETE FROM history WHERE payment_id = $1 AND what = 'permit_granted'`, u(101))},
	{want: "I-13", name: "a permit after the end", do: func(w *world) {
		w.note(paidTry, "permit_granted", 2, "-1 hour")
		w.exec(`UPDATE operation SET sends = 3 WHERE id = $1`, u(102))
	}},
	{want: "I-13", name: "a permit after completion", do: sql(`UPDATE operation SET last_permit_at = now() + interval '1 hour' WHERE id = $1`, u(102))},
	{want: "I-13", name: "a permit after the cut-off", do: sql(`UPDATE operation SET first_permit_at = now() - interval '14 hours' WHERE id = $1`, u(102))},
	{want: "I-13", name: "one key of two merchants' payments", do: func(w *world) {
		w.exec(`UPDATE payment SET acquirer_key = 'k131' WHERE id = $1`, u(201))
		w.exec(`UPDATE operation SET acquirer_key = 'k131', request_body = 'body of k131' WHERE id = $1`, u(202))
		w.wire, w.register = nil, nil
	}},
	{want: "I-13", name: "sent under another key", do: all(sql(`UPDATE payment SET acquirer_key = 'k999' WHERE id = $1`, u(131)))},
	{want: "I-14", name: "money of nobody", do: func(w *world) { w.moved("nobody", "ch-nobody", "charge", 5) }},
	{want: "I-14", name: "a booked sum that the acquirer does not know", do: func(w *world) { w.register[0]["amount"] = 18601 }},
	{want: "I-14", name: "money after a refusal, the gate open", do: func(w *world) { w.moved("k121", "ch-k121", "charge", 18600) }},
	{want: "I-14", name: "money kept aside without a review", do: sql(`DELETE FROM review WHERE id = $1`, u(301))},
	{want: "I-15", name: "another merchant's payment", do: sql(`UPDATE evidence SET payment_id = $1 WHERE payment_id = $2 AND effect = 'conflict'`, u(121), u(201))},
	{want: "I-15", name: "a payment that does not exist", do: sql(`UPDATE history SET payment_id = $1 WHERE payment_id = $2 AND what = 'taken_over'`, u(999), u(101))},
	{want: "I-16", name: "failed by a rejection of one of two sends", do: all(sql(`UPDATE operation SET unsent = 0 WHERE id = $1`, u(122)))},
	{want: "I-16", name: "failed by silence", do: sql(`UPDATE evidence SET outcome = 'unknown' WHERE payment_id = $1 AND effect = 'moved'`, u(121))},
	{want: "I-16", name: "failed by a question that was asked too early", do: sql(`UPDATE evidence SET outcome = 'not_found', inference = 'not_executed',
		asked_at = now() - interval '2 hours' WHERE payment_id = $1 AND effect = 'moved'`, u(121))},
	{want: "I-16", name: "declined by nobody", do: sql(`UPDATE evidence SET outcome = 'rejected' WHERE payment_id = $1 AND effect = 'moved'`, u(111))},
	{want: "I-17", name: "two answers", do: sql(`UPDATE operation SET answer_status = 402, answer_body = '{"status":"declined","failure":{"code":"x"}}' WHERE id = $1`, u(103))},
	{want: "I-17", name: "another status code", do: sql(`UPDATE operation SET answer_status = 201 WHERE id = $1`, u(112))},
	{want: "I-17", name: "another status in the body", do: sql(`UPDATE operation SET answer_body = '{"status":"paid"}' WHERE id = $1`, u(112))},
	{want: "I-17", name: "told refused, and not of the conflict", do: all(sql(`UPDATE payment SET conflict = false WHERE id = $1`, u(201)),
		sql(`UPDATE event SET type = 'payment.in_review' WHERE payment_id = $1 AND version = 2`, u(201)))},
	{want: "I-18", name: "from a history that is not ours", do: sql(`UPDATE operation SET epoch = 7 WHERE id = $1`, u(132))},
	{want: "I-18", name: "sent during the hold", do: sql(`UPDATE database_epoch SET epoch = 2, held = true, lost_from = '2025-01-01', lost_to = '2025-01-02', changed_at = now() - interval '90 minutes'`)},
	{want: "I-19", name: "no class", do: sql(`UPDATE evidence SET class = 'unclassified' WHERE payment_id = $1 AND effect = 'repeat'`, u(101))},
	{want: "I-19", name: "an outcome of nobody's", do: sql(`UPDATE evidence SET outcome = 'perhaps' WHERE payment_id = $1 AND effect = 'noted'`, u(inReview))},
}
