package verify

var bookInvariants = []invariant{
	{id: "I-8", statement: "ledger: debits equal credits per transaction and currency; balances equal the sum of rows; no key twice", checks: []check{
		{"a transaction that does not balance", `
SELECT merchant_id, NULL::uuid, NULL::uuid, tx_key || ': ' || sum(amount) || ' ' || currency || ' too much'
  FROM ledger_entry GROUP BY merchant_id, tx_key, currency HAVING sum(amount) <> 0`},
		{"a ledger key twice", `
SELECT merchant_id, NULL::uuid, NULL::uuid, tx_key || ', line ' || line
  FROM ledger_entry GROUP BY merchant_id, tx_key, line HAVING count(*) > 1`},
	}},
	{id: "I-9", statement: "captured ≤ authorized; refunded + in flight + disputed ≤ captured", checks: []check{
		{"more captured than asked", `
SELECT merchant_id, intent_id, id, captured_amount || ' of ' || amount || ' ' || currency FROM payment WHERE captured_amount > amount`},
		{"more refunded than captured", `
SELECT merchant_id, intent_id, id, refunded_amount || ' of ' || captured_amount || ' ' || currency FROM payment WHERE refunded_amount > captured_amount`},
		{"more captured than held", `
SELECT merchant_id, intent_id, id, captured_amount || ' and ' || capturing_amount || ' of ' || authorized_amount || ' ' || currency
  FROM payment WHERE authorized_amount > 0 AND captured_amount + capturing_amount > authorized_amount`},
		{"more given back, in flight and disputed than captured", `
SELECT merchant_id, intent_id, id, refunded_amount || ', ' || refunding_amount || ' and ' || disputed_amount || ' of ' || captured_amount || ' ' || currency
  FROM payment WHERE refunded_amount + refunding_amount + disputed_amount > captured_amount`},
		{"reserved for another sum than the open changes", `
SELECT p.merchant_id, p.intent_id, p.id, 'refunding ' || p.refunding_amount || ', open ' || coalesce(sum(m.amount), 0) || ' ' || p.currency
  FROM payment p LEFT JOIN modification m ON m.merchant_id = p.merchant_id AND m.payment_id = p.id AND m.type = 'refund' AND m.status IN ('pending', 'unknown')
 WHERE p.captured_amount > 0 GROUP BY p.merchant_id, p.id
HAVING least(coalesce(sum(m.amount), 0), p.captured_amount - p.refunded_amount - p.disputed_amount) <> p.refunding_amount`},
		{"reserved for a capture that is not open", `
SELECT p.merchant_id, p.intent_id, p.id, 'capturing ' || p.capturing_amount || ', open ' || coalesce(sum(m.amount), 0) || ' ' || p.currency
  FROM payment p LEFT JOIN modification m ON m.merchant_id = p.merchant_id AND m.payment_id = p.id AND m.type = 'capture' AND m.status IN ('pending', 'unknown')
 WHERE p.capturing_amount > 0 GROUP BY p.merchant_id, p.id HAVING coalesce(sum(m.amount), 0) < p.capturing_amount`},
	}},
	{id: "I-11", statement: "a second run over any input (request, webhook, file, journal) adds nothing (asked is that no derived key and no command is there twice)", checks: []check{
		{"one movement booked twice", `
SELECT merchant_id, NULL::uuid, NULL::uuid, kind || ' ' || reference
  FROM movement GROUP BY merchant_id, account_id, reference, kind HAVING count(*) > 1`},
		{"one event written twice", `
SELECT merchant_id, NULL::uuid, NULL::uuid, event_key FROM event GROUP BY merchant_id, event_key HAVING count(*) > 1`},
		{"one command made two payments", `
SELECT merchant_id, NULL::uuid, NULL::uuid, string_agg(id::text, ', ') FROM payment GROUP BY merchant_id, kind, idempotency_key HAVING count(*) > 1`},
		{"one command made two changes", `
SELECT merchant_id, NULL::uuid, NULL::uuid, string_agg(id::text, ', ') FROM modification GROUP BY merchant_id, kind, idempotency_key HAVING count(*) > 1`},
		{"one ordinal twice among the changes of a payment", `
SELECT merchant_id, intent_id, payment_id, type || ' ' || k FROM modification GROUP BY merchant_id, intent_id, payment_id, type, k HAVING count(*) > 1`},
		{"one dispute written twice", `
SELECT merchant_id, NULL::uuid, NULL::uuid, reference FROM dispute GROUP BY merchant_id, account_id, reference HAVING count(*) > 1`},
		{"one command issued two one-time codes", `
SELECT merchant_id, NULL::uuid, NULL::uuid, string_agg(payment_id || ' ' || ordinal, ', ') FROM cancel_code
 GROUP BY merchant_id, kind, idempotency_key HAVING count(*) > 1`},
		{"one movement given back twice by us", `
SELECT merchant_id, NULL::uuid, NULL::uuid, string_agg(id::text, ', ') FROM modification
 WHERE movement_id IS NOT NULL AND status <> 'failed' GROUP BY merchant_id, movement_id HAVING count(*) > 1`},
		{"one command made two versions of intents", `
SELECT merchant_id, NULL::uuid, NULL::uuid, string_agg(intent_id || ' version ' || version, ', ')
  FROM payment_intent_version GROUP BY merchant_id, kind, idempotency_key HAVING count(*) > 1`},
		{"one ordinal twice in an intent", `
SELECT merchant_id, intent_id, NULL::uuid, 'payment ' || n FROM payment GROUP BY merchant_id, intent_id, n HAVING count(*) > 1`},
		{"two intents of one client reference", `
SELECT merchant_id, NULL::uuid, NULL::uuid, string_agg(id::text, ', ') FROM payment_intent
 WHERE client_reference IS NOT NULL GROUP BY merchant_id, client_reference HAVING count(*) > 1`},
		{"two intents of one key seed", `
SELECT merchant_id, NULL::uuid, NULL::uuid, string_agg(id::text, ', ') FROM payment_intent GROUP BY merchant_id, key_seed HAVING count(*) > 1`},
		{"one decision taken twice", `
SELECT merchant_id, NULL::uuid, NULL::uuid, string_agg(id::text, ', ') FROM decision GROUP BY merchant_id, kind, idempotency_key HAVING count(*) > 1`},
	}},
	{id: "I-14", statement: "every money movement in the acquirer's register is matched by a payment, or by an unapplied entry with a review",
		register: unmatched, without: "the register itself: say --sandbox URL; asked is that all money kept aside has a review",
		checks: []check{
			{"money kept aside without an open review", `
SELECT m.merchant_id, m.intent_id, m.payment_id, m.amount || ' ' || m.currency || ', reference ' || m.reference
  FROM movement m
 WHERE m.state = 'unapplied' AND NOT EXISTS (SELECT FROM review r
       WHERE r.merchant_id = m.merchant_id AND r.movement_id = m.id AND r.decided_at IS NULL)
   AND NOT EXISTS (SELECT FROM modification c WHERE c.merchant_id = m.merchant_id AND c.movement_id = m.id AND c.status IN ('pending', 'unknown'))`},
		}},
}
