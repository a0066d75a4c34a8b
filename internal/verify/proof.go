package verify

// provesNotExecuted reads evidence v and the operation o that made the sends, which may be purged (PROTOCOL O1, section 7).
const provesNotExecuted = `coalesce(
       v.outcome = 'rejected' AND v.code IS NOT NULL AND coalesce(o.sends - o.unsent = 1, true)
    OR v.outcome = 'not_sent' AND coalesce(o.sends = o.unsent, true)
    OR v.outcome = 'not_found' AND v.inference = 'not_executed' AND coalesce(v.asked_at >= o.last_permit_at, true)
    OR v.outcome = 'declined' -- the payer's step, or the change, ended in a refusal
    OR v.source = 'person' AND v.inference = 'not_executed', false)`

var proofInvariants = []invariant{
	{id: "I-4", statement: "no inference is recorded by an owner whose fence is not current; no fact is lost, whoever brought it", checks: []check{
		// What only concludes, and does not say what the acquirer did, needs the fence (PROTOCOL K3).
		{"an inference of an owner that had been taken over", `
SELECT v.merchant_id, v.intent_id, v.payment_id, v.outcome || ' by ' || v.source || ' with fence ' || v.fence || ' after fence ' || h.fence || ' was given'
  FROM history h JOIN evidence v ON v.merchant_id = h.merchant_id AND v.intent_id = h.intent_id AND v.operation_id = h.operation_id
 WHERE h.what = 'taken_over' AND v.fence < h.fence AND v.created_at > h.created_at
   AND v.source IN ('call', 'lookup') AND v.effect = 'moved' AND v.outcome NOT IN ('succeeded', 'held', 'registered', 'declined', 'closed')`},
		{"money that the acquirer reported and nobody booked", `
SELECT v.merchant_id, v.intent_id, v.payment_id, v.effect || ': ' || coalesce(v.reference, 'no reference') || ' by ' || v.source
  FROM evidence v
 WHERE v.outcome = 'succeeded' AND v.about NOT IN ('reverse', 'close') AND v.effect <> 'early'
   AND NOT EXISTS (SELECT FROM movement m WHERE m.merchant_id = v.merchant_id AND m.account_id = v.account_id
                      AND (m.reference = v.reference OR v.reference IS NULL AND m.reference LIKE 'key:%' AND m.payment_id = v.payment_id))`},
		// What is said of a message and what it changed are one transaction (PROTOCOL V3).
		{"a message that is said to be applied, and no evidence came of it", `
SELECT m.merchant_id, m.intent_id, m.payment_id, 'message ' || m.id || ' ' || m.type
  FROM inbox_message m
 WHERE m.state = 'applied' AND NOT EXISTS (SELECT FROM evidence v
       WHERE v.merchant_id = m.merchant_id AND (v.intent_id = m.intent_id OR v.intent_id IS NULL AND m.intent_id IS NULL)
         AND (v.source = 'webhook' AND v.raw_hash = m.raw_hash OR v.source = 'lookup' AND v.payment_id = m.payment_id AND v.created_at >= m.received_at))`},
		{"evidence of a message that was not stored before, or is not said to be applied", `
SELECT v.merchant_id, v.intent_id, v.payment_id, v.outcome || ' ' || coalesce(v.reference, '')
  FROM evidence v
 WHERE v.source = 'webhook' AND v.created_at > now() - @horizon_us::bigint * interval '1 microsecond' -- later it may be purged
   AND NOT EXISTS (SELECT FROM inbox_message m WHERE m.merchant_id = v.merchant_id AND m.account_id = v.account_id
                      AND m.raw_hash = v.raw_hash AND m.state = 'applied')`},
	}},
	{id: "I-7", statement: "every transition has evidence; every paid has a matching acquirer reference, currency and sum", checks: []check{
		{"moved without evidence", `
SELECT p.merchant_id, p.intent_id, p.id, 'status ' || p.status
  FROM payment p
 WHERE p.status NOT IN ('pending', 'canceling') AND NOT EXISTS (SELECT FROM evidence v
       WHERE v.merchant_id = p.merchant_id AND v.intent_id = p.intent_id AND v.payment_id = p.id AND v.effect = 'moved')`},
		{"paid without the acquirer saying so", `
SELECT p.merchant_id, p.intent_id, p.id, NULL
  FROM payment p
 WHERE p.status = 'paid'
   AND EXISTS (SELECT FROM evidence v WHERE v.merchant_id = p.merchant_id AND v.intent_id = p.intent_id AND v.payment_id = p.id AND v.effect = 'moved')
   AND NOT EXISTS (SELECT FROM evidence v WHERE v.merchant_id = p.merchant_id AND v.intent_id = p.intent_id AND v.payment_id = p.id
                      AND v.effect IN ('moved', 'booked') AND v.outcome = 'succeeded')`},
		{"paid under a reference of which no money was booked", `
SELECT p.merchant_id, p.intent_id, p.id, coalesce(p.acquirer_reference, 'no reference')
  FROM payment p
 WHERE p.status = 'paid' AND NOT EXISTS (SELECT FROM movement m
       WHERE m.merchant_id = p.merchant_id AND m.intent_id = p.intent_id AND m.payment_id = p.id AND m.state = 'applied'
         AND coalesce(m.object, m.reference) = coalesce(p.acquirer_reference, 'key:' || p.acquirer_key))`},
		{"held without a hold of the acquirer", `
SELECT p.merchant_id, p.intent_id, p.id, p.authorized_amount || ' ' || p.currency
  FROM payment p
 WHERE p.authorized_amount > 0 AND NOT EXISTS (SELECT FROM movement m WHERE m.merchant_id = p.merchant_id AND m.payment_id = p.id
       AND m.kind = 'hold' AND m.amount = p.authorized_amount AND m.currency = p.currency)`},
		{"refunded or disputed with another sum than went back", `
SELECT p.merchant_id, p.intent_id, p.id, 'refunded ' || p.refunded_amount || ', went back ' || coalesce(sum(q.refunded), 0)
       || '; disputed ' || p.disputed_amount || ', taken back ' || coalesce(sum(q.disputed), 0) || ' ' || p.currency
  FROM payment p LEFT JOIN ` + posted + ` q ON q.merchant_id = p.merchant_id AND q.payment_id = p.id
 WHERE p.captured_amount > 0
 GROUP BY p.merchant_id, p.id
HAVING coalesce(sum(q.refunded), 0) <> p.refunded_amount OR coalesce(sum(q.disputed), 0) <> p.disputed_amount`},
		{"a change that is done, and whose money was kept aside and does not count", `
SELECT c.merchant_id, c.intent_id, c.payment_id, c.type || ' ' || c.id || ', ' || m.amount || ' ' || m.currency || ', reference ' || m.reference || ' is ' || m.state
  FROM modification c JOIN movement m ON m.merchant_id = c.merchant_id AND m.payment_id = c.payment_id AND m.reference = c.acquirer_reference
   AND m.kind IN ('capture', 'refund') AND m.state <> 'applied' AND m.cause IS NOT NULL
 WHERE c.type IN ('capture', 'refund') AND c.status = 'succeeded'`},
		{"captured another sum or currency than was applied", `
SELECT p.merchant_id, p.intent_id, p.id, 'captured ' || p.captured_amount || ' ' || p.currency || ', applied ' || coalesce(sum(m.amount), 0) || ' ' || coalesce(min(m.currency), p.currency)
  FROM payment p LEFT JOIN movement m ON m.merchant_id = p.merchant_id AND m.payment_id = p.id
   AND m.state = 'applied' AND m.kind IN ('charge', 'capture')
 GROUP BY p.merchant_id, p.id HAVING coalesce(sum(m.amount), 0) <> p.captured_amount OR bool_or(m.currency <> p.currency)`},
		{"a hold that stands although its payment is over, or does not stand although it should", `
SELECT p.merchant_id, p.intent_id, p.id, 'status ' || p.status || ', ' || count(m.id) || ' holds stand'
  FROM payment p LEFT JOIN movement m ON m.merchant_id = p.merchant_id AND m.payment_id = p.id AND m.kind = 'hold' AND m.state = 'applied'
 WHERE p.status IN ('authorized', 'paid', 'declined', 'failed', 'canceled')
 GROUP BY p.merchant_id, p.id HAVING (count(m.id) = 1) <> (p.status = 'authorized')`},
		{"paid with less than was asked, and no person decided it", `
SELECT p.merchant_id, p.intent_id, p.id, 'asked ' || p.amount || ', captured ' || p.captured_amount || ' ' || p.currency
  FROM payment p
 WHERE p.status = 'paid' AND p.authorized_amount = 0 AND p.captured_amount <> p.amount AND NOT EXISTS (SELECT FROM evidence v
       WHERE v.merchant_id = p.merchant_id AND v.intent_id = p.intent_id AND v.payment_id = p.id AND v.source = 'person')`},
	}},
	{id: "I-16", statement: "every failed rests on a listed rejection of the only send, or no byte of any send, or a final \"not found\" after lag and flight, or a session that the acquirer ended; every declined on an acquirer's refusal; else a conflict is open", checks: []check{
		{"failed without a listed proof", `
SELECT p.merchant_id, p.intent_id, p.id, coalesce(p.failure_code, '') || ': ' || string_agg(v.outcome || ' by ' || v.source, ', ' ORDER BY v.created_at, v.id)
       || coalesce('; ' || max(o.sends) || ' permits, ' || max(o.unsent) || ' of them unused', '')
  FROM payment p
  JOIN evidence v ON v.merchant_id = p.merchant_id AND v.intent_id = p.intent_id AND v.payment_id = p.id AND v.effect = 'moved'
  LEFT JOIN operation o ON o.merchant_id = p.merchant_id AND o.payment_id = p.id AND o.sends > 0 AND o.kind = 'create_payment'
 WHERE p.status = 'failed' AND NOT p.conflict AND p.failure_code <> 'given_back' -- the money moved, and went back
 GROUP BY p.merchant_id, p.id
HAVING NOT bool_or(` + provesNotExecuted + `)`},
		{"declined without the acquirer's refusal", `
SELECT p.merchant_id, p.intent_id, p.id, coalesce(p.failure_code, '')
  FROM payment p
 WHERE p.status = 'declined' AND NOT p.conflict
   AND EXISTS (SELECT FROM evidence v WHERE v.merchant_id = p.merchant_id AND v.intent_id = p.intent_id AND v.payment_id = p.id AND v.effect = 'moved')
   AND NOT EXISTS (SELECT FROM evidence v
       WHERE v.merchant_id = p.merchant_id AND v.intent_id = p.intent_id AND v.payment_id = p.id AND v.effect = 'moved' AND v.outcome = 'declined')`},
		{"canceled without the acquirer's word", `
SELECT p.merchant_id, p.intent_id, p.id, coalesce(p.failure_code, '')
  FROM payment p
 WHERE p.status = 'canceled' AND NOT p.conflict
   AND EXISTS (SELECT FROM evidence v WHERE v.merchant_id = p.merchant_id AND v.intent_id = p.intent_id AND v.payment_id = p.id AND v.effect = 'moved')
   AND NOT EXISTS (SELECT FROM evidence v LEFT JOIN operation o ON o.merchant_id = v.merchant_id AND o.id = v.operation_id AND o.sends > 0
       WHERE v.merchant_id = p.merchant_id AND v.intent_id = p.intent_id AND v.payment_id = p.id AND v.effect = 'moved'
         AND (v.outcome = 'closed' OR v.outcome = 'succeeded' AND v.about IN ('reverse', 'close') OR ` + provesNotExecuted + `))`},
		{"a change that failed without a listed proof", `
SELECT m.merchant_id, m.intent_id, m.payment_id, m.type || ' ' || m.id || ': ' || coalesce(m.failure_code, '')
  FROM modification m LEFT JOIN operation o ON o.merchant_id = m.merchant_id AND o.modification_id = m.id AND o.follows_id IS NULL AND o.sends > 0
 WHERE m.status = 'failed' AND m.action <> '' -- a cancel that came too late was never sent
   AND NOT (m.failure_code = 'given_back' AND EXISTS (SELECT FROM movement x -- its money moved, and went the other way again
       WHERE x.merchant_id = m.merchant_id AND x.payment_id = m.payment_id AND x.reference = m.acquirer_reference AND x.state = 'returned'))
   AND NOT EXISTS (SELECT FROM evidence v WHERE v.merchant_id = m.merchant_id AND v.intent_id = m.intent_id AND v.modification_id = m.id
                      AND v.effect IN ('moved', 'booked', 'conflict') AND ` + provesNotExecuted + `)`},
	}},
	{id: "I-19", statement: "every reply of an acquirer falls in a named class; unclassified = 0", checks: []check{
		{"a reply without a class", `
SELECT merchant_id, intent_id, payment_id, outcome || ' by ' || source
  FROM evidence WHERE class IS NULL OR btrim(class) IN ('', 'unclassified')`},
		{"an outcome that the protocol does not know", `
SELECT merchant_id, intent_id, payment_id, outcome
  FROM evidence WHERE outcome NOT IN ('unknown', 'not_sent', 'succeeded', 'held', 'registered', 'declined', 'rejected', 'pending',
                                      'not_found', 'duplicate', 'key_reused', 'closed')`},
	}},
}
