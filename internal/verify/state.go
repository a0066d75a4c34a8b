package verify

import "time"

// dueHorizon is further away than anything is ever put off: reviews are looked up every 15 hours at most (PROTOCOL K6).
const dueHorizon = 24 * time.Hour

// finalEvents are the events that say that a payment has ended.
const finalEvents = `('payment.paid', 'payment.declined', 'payment.failed', 'payment.canceled')`

// finalStates are left by nothing (PROTOCOL section 4).
const finalStates = `('paid', 'declined', 'failed', 'canceled')`

// toldOfChanges are the events that tell the result of a change. A cancel that is done is told as the end of its payment.
const toldOfChanges = `
       ('capture', 'succeeded', ARRAY['payment.captured', 'payment.paid']), ('capture', 'failed', ARRAY['payment.capture_failed']),
       ('refund', 'succeeded', ARRAY['refund.succeeded']), ('refund', 'failed', ARRAY['refund.failed']),
       ('compensation', 'failed', ARRAY['compensation.failed']), ('cancel', 'failed', ARRAY['payment.cancel_failed'])`

var stateInvariants = []invariant{
	{id: "I-2", statement: "an intent has at most one payment that is not finally refused", checks: []check{
		{"several live payments", `
SELECT merchant_id, intent_id, NULL::uuid, count(*) || ' payments that are not refused'
  FROM payment WHERE status NOT IN ('declined', 'failed', 'canceled')
 GROUP BY merchant_id, intent_id HAVING count(*) > 1`},
		{"the mark of refusal disagrees with the status", `
SELECT merchant_id, intent_id, id, 'status ' || status || CASE WHEN refused_at IS NULL THEN ', not marked' ELSE ', marked' END
  FROM payment WHERE (refused_at IS NOT NULL) <> (status IN ('declined', 'failed', 'canceled'))`},
	}},
	{id: "I-3", statement: "a payment that is final is never changed again, except by refund, dispute and compensation amounts and the conflict mark", checks: []check{
		{"ended twice", `
SELECT merchant_id, intent_id, payment_id, string_agg(type, ', ' ORDER BY version)
  FROM event WHERE type IN ` + finalEvents + ` GROUP BY merchant_id, intent_id, payment_id HAVING count(*) > 1`},
		{"ended as one thing, stands as another", `
SELECT p.merchant_id, p.intent_id, p.id, e.type || ' was told, the status is ' || p.status
  FROM event e JOIN payment p ON p.merchant_id = e.merchant_id AND p.id = e.payment_id
 WHERE e.type IN ` + finalEvents + ` AND e.type <> 'payment.' || p.status`},
		{"moved after its end", `
SELECT v.merchant_id, v.intent_id, v.payment_id, v.outcome || ' by ' || v.source || ' at ' || v.created_at
  FROM event e JOIN evidence v ON v.merchant_id = e.merchant_id AND v.intent_id = e.intent_id AND v.payment_id = e.payment_id
 WHERE e.type IN ` + finalEvents + ` AND v.effect = 'moved' AND v.modification_id IS NULL
   AND v.created_at > e.created_at + @margin_us::bigint * interval '1 microsecond'`},
		{"a change that was told as done, and stands otherwise", `
SELECT m.merchant_id, m.intent_id, m.payment_id, m.type || ' ' || m.id || ' answered 201, stands ' || m.status
  FROM modification m
 WHERE m.answered_status = 201 AND m.status <> 'succeeded'
   AND NOT (m.status = 'failed' AND EXISTS (SELECT FROM movement b -- it came back from the payer's bank
       WHERE b.merchant_id = m.merchant_id AND b.payment_id = m.payment_id AND b.kind = 'reverse' AND b.reference = m.acquirer_reference))`},
		{"a change that was told as failed, and stands otherwise", `
SELECT m.merchant_id, m.intent_id, m.payment_id, m.type || ' ' || m.id || ' answered 422, stands ' || m.status
  FROM modification m
 WHERE m.answered_status = 422 AND m.status <> 'failed'
   AND NOT (m.status = 'succeeded' AND EXISTS (SELECT FROM movement b -- it turned out that it had been done
       WHERE b.merchant_id = m.merchant_id AND b.payment_id = m.payment_id AND b.reference = m.acquirer_reference))`},
		{"a change that moved after its end", `
SELECT m.merchant_id, m.intent_id, m.payment_id, m.type || ' ' || m.id || ': ' || v.outcome || ' by ' || v.source || ' at ' || v.created_at
  FROM modification m
  JOIN operation o ON o.merchant_id = m.merchant_id AND o.modification_id = m.id AND o.follows_id IS NULL AND o.state = 'completed'
  JOIN evidence v ON v.merchant_id = m.merchant_id AND v.intent_id = m.intent_id AND v.modification_id = m.id
 WHERE m.type <> 'compensation' AND v.effect = 'moved' -- of a compensation it may be the payment that moves
   AND v.created_at > o.completed_at + @margin_us::bigint * interval '1 microsecond'`},
	}},
	{id: "I-5", statement: "every operation is completed, or is due at a stated time, or has an open review; every payment that is not final is due at a stated time", checks: []check{
		{"in review without a review", `
SELECT o.merchant_id, o.intent_id, o.payment_id, 'operation ' || o.id
  FROM operation o
 WHERE o.state = 'in_review' AND o.follows_id IS NULL
   AND NOT EXISTS (SELECT FROM review r WHERE r.merchant_id = o.merchant_id AND r.payment_id = o.payment_id AND r.decided_at IS NULL
                      AND (o.modification_id IS NULL OR r.operation_id = o.id))`},
		{"put off for longer than anything may be", `
SELECT merchant_id, intent_id, payment_id, 'operation ' || id || ' is due at ' || due_at
  FROM operation
 WHERE state <> 'completed' AND (due_at IS NULL OR due_at > now() + @horizon_us::bigint * interval '1 microsecond')`},
		{"not final and nobody will look", `
SELECT p.merchant_id, p.intent_id, p.id, 'status ' || p.status
  FROM payment p
 WHERE p.status NOT IN ` + finalStates + ` AND p.due_at IS NULL
   AND NOT EXISTS (SELECT FROM operation o WHERE o.merchant_id = p.merchant_id AND o.payment_id = p.id
                      AND o.state <> 'completed' AND o.follows_id IS NULL)`},
		{"a hold that nobody will look at when it should be over", `
SELECT merchant_id, intent_id, id, 'due at ' || coalesce(due_at::text, 'no time') || ', the hold ends at ' || coalesce(expires_at::text, 'a time that was not told')
  FROM payment
 WHERE status = 'authorized' AND (due_at IS NULL OR due_at > greatest(expires_at, now()) + @horizon_us::bigint * interval '1 microsecond')`},
		{"refused, its gate closed, and nobody will look", `
SELECT merchant_id, intent_id, id, 'status ' || status
  FROM payment WHERE refused_at IS NOT NULL AND NOT gate_open AND due_at IS NULL`},
		{"refused, its gate put off for longer than anything may be", `
SELECT merchant_id, intent_id, id, 'due at ' || due_at
  FROM payment WHERE refused_at IS NOT NULL AND NOT gate_open AND due_at > now() + @horizon_us::bigint * interval '1 microsecond'`},
		{"locked by a conflict that nobody is asked to decide", `
SELECT i.merchant_id, i.id, NULL::uuid, 'intent version ' || i.version
  FROM payment_intent i
 WHERE i.conflict AND NOT EXISTS (SELECT FROM review r WHERE r.merchant_id = i.merchant_id AND r.intent_id = i.id AND r.decided_at IS NULL)
   AND NOT EXISTS (SELECT FROM modification c WHERE c.merchant_id = i.merchant_id AND c.intent_id = i.id AND c.type = 'compensation'
                      AND c.status IN ('pending', 'unknown'))`},
		{"a change that is open, and nobody will look", `
SELECT m.merchant_id, m.intent_id, m.payment_id, m.type || ' ' || m.id || ' is ' || m.status
  FROM modification m
 WHERE m.status IN ('pending', 'unknown') AND NOT EXISTS (SELECT FROM operation o WHERE o.merchant_id = m.merchant_id
       AND o.modification_id = m.id AND o.state <> 'completed' AND o.follows_id IS NULL)`},
		{"money that was long given back, and whose compensation still waits to be sent", `
SELECT c.merchant_id, c.intent_id, c.payment_id, 'compensation ' || c.id || ' of ' || m.reference || ', given back at ' || m.updated_at
  FROM modification c JOIN movement m ON m.merchant_id = c.merchant_id AND m.id = c.movement_id
  JOIN operation o ON o.merchant_id = c.merchant_id AND o.modification_id = c.id AND o.sends = 0
 WHERE c.status IN ('pending', 'unknown') AND m.state <> 'unapplied' AND m.updated_at < now() - @horizon_us::bigint * interval '1 microsecond'`},
		{"a message that is neither applied nor due", `
SELECT merchant_id, intent_id, payment_id, 'message ' || id || ' ' || state
  FROM inbox_message WHERE state IN ('received', 'parked') AND (due_at IS NULL OR due_at > now() + @horizon_us::bigint * interval '1 microsecond')`},
		{"being canceled without a cancel", `
SELECT p.merchant_id, p.intent_id, p.id, NULL
  FROM payment p
 WHERE p.status = 'canceling' AND NOT EXISTS (SELECT FROM modification m WHERE m.merchant_id = p.merchant_id AND m.payment_id = p.id
       AND m.type = 'cancel' AND m.status IN ('pending', 'unknown'))`},
	}},
	{id: "I-6", statement: "state, ledger, events and stored answer of an operation exist together or not at all", checks: []check{
		{"final without its event", `
SELECT p.merchant_id, p.intent_id, p.id, 'status ' || p.status
  FROM payment p
 WHERE p.status IN ` + finalStates + ` AND NOT EXISTS (SELECT FROM event e
       WHERE e.merchant_id = p.merchant_id AND e.intent_id = p.intent_id AND e.payment_id = p.id AND e.type IN ` + finalEvents + `)`},
		{"final, but its operation is not completed", `
SELECT p.merchant_id, p.intent_id, p.id, 'operation ' || o.id || ' is ' || o.state
  FROM operation o JOIN payment p ON p.merchant_id = o.merchant_id AND p.id = o.payment_id
 WHERE o.kind = 'create_payment' AND o.state <> 'completed' AND p.status IN ` + finalStates},
		{"completed, but its payment is not final", `
SELECT p.merchant_id, p.intent_id, p.id, 'operation ' || o.id || ' answered ' || o.answer_status || ', the status is ' || p.status
  FROM operation o JOIN payment p ON p.merchant_id = o.merchant_id AND p.id = o.payment_id
 WHERE o.kind = 'create_payment' AND o.state = 'completed' AND p.authorized_amount = 0 AND p.status NOT IN ` + finalStates},
		{"a change has its result, but its operation is not completed", `
SELECT m.merchant_id, m.intent_id, m.payment_id, m.type || ' ' || m.id || ' ' || m.status || ', operation ' || o.id || ' is ' || o.state
  FROM operation o JOIN modification m ON m.merchant_id = o.merchant_id AND m.id = o.modification_id
 WHERE o.state <> 'completed' AND m.status IN ('succeeded', 'failed')`},
		{"a change's operation is completed, but it has no result", `
SELECT m.merchant_id, m.intent_id, m.payment_id, m.type || ' ' || m.id || ' ' || m.status || ', operation ' || o.id
  FROM operation o JOIN modification m ON m.merchant_id = o.merchant_id AND m.id = o.modification_id
 WHERE o.state = 'completed' AND m.status IN ('pending', 'unknown')`},
		{"a change has its result, and no event tells it", `
SELECT m.merchant_id, m.intent_id, m.payment_id, m.type || ' ' || m.status || ': ' || m.n || ', told ' || e.n
  FROM (SELECT merchant_id, intent_id, payment_id, type, status, count(*) AS n FROM modification WHERE status IN ('succeeded', 'failed') GROUP BY 1, 2, 3, 4, 5) m
  JOIN (VALUES ` + toldOfChanges + `) AS t(type, status, events) ON t.type = m.type AND t.status = m.status
 CROSS JOIN LATERAL (SELECT count(*) AS n FROM event e WHERE e.merchant_id = m.merchant_id AND e.intent_id = m.intent_id
                        AND e.payment_id = m.payment_id AND e.type = ANY(t.events)) e
 WHERE e.n < m.n`},
		{"completed without a stored answer", `
SELECT merchant_id, intent_id, payment_id, 'operation ' || id
  FROM operation WHERE state = 'completed' AND (answer_status IS NULL OR answer_body IS NULL OR length(answer_body) = 0)`},
		{"the books credit another sum than was applied to the payment", payableDiffers},
		{"the books keep aside another sum than the movements", unappliedDiffers},
		{"the books' claim on the acquirer differs from the movements", receivableDiffers},
		{"the books mirror another sum than is held", heldDiffers},
	}},
}

// posted gives what each movement should have left in the books, by the rules of internal/ledger: for the merchant, aside, on the
// acquirer, and in the payment's own figures. Money that was taken and given back has left the books, and so has what gave it
// back; what gave back money that the merchant had is a refund or a dispute of its payment.
const posted = `(
SELECT m.merchant_id, m.intent_id, m.payment_id, m.account_id, m.currency, m.kind, m.state, m.amount::numeric AS amount,
       CASE WHEN m.kind IN ('charge', 'capture') AND m.state = 'applied' THEN m.amount
            WHEN m.kind IN ('refund', 'reverse', 'chargeback') AND m.cause IN ('excess_given_back', 'unattributed_money')
              THEN CASE WHEN m.state = 'applied' THEN -m.amount ELSE 0 END
            ELSE coalesce(d.lost, 0) - coalesce(r.given, 0) END::numeric AS payable,
       CASE WHEN m.state <> 'unapplied' OR m.kind = 'hold' THEN 0
            WHEN m.kind IN ('charge', 'capture') OR m.cause = 'compensation_failed' THEN m.amount ELSE -m.amount END::numeric AS aside,
       CASE WHEN m.kind IN ('refund', 'reverse') AND m.cause IS NULL THEN coalesce(r.given, 0) ELSE 0 END::numeric AS refunded,
       CASE WHEN m.cause IS NULL THEN -coalesce(d.lost, 0) ELSE 0 END::numeric AS disputed
  FROM movement m
  LEFT JOIN LATERAL (SELECT CASE WHEN m.kind = 'reverse' AND x.action <> 'reverse' THEN -m.amount ELSE m.amount END AS given
                       FROM modification x
                      WHERE m.kind IN ('refund', 'reverse') AND x.merchant_id = m.merchant_id AND x.payment_id = m.payment_id
                        AND x.type = 'refund' AND x.acquirer_reference = m.reference LIMIT 1) r ON true
  LEFT JOIN LATERAL (SELECT CASE m.kind WHEN 'chargeback' THEN -m.amount ELSE m.amount END AS lost
                       FROM dispute x
                      WHERE m.kind IN ('chargeback', 'reverse') AND x.merchant_id = m.merchant_id AND x.account_id = m.account_id
                        AND x.reference = m.reference AND NOT x.aside LIMIT 1) d ON true
)`

// The ledger against the movements that it mirrors.
const (
	payableDiffers = `
SELECT x.merchant_id, p.intent_id, x.payment_id, 'movements ' || sum(x.moved) || ', ledger ' || sum(x.booked) || ' ' || x.currency
  FROM (SELECT merchant_id, payment_id, currency, payable AS moved, 0::numeric AS booked FROM ` + posted + ` q WHERE payable <> 0
        UNION ALL
        SELECT merchant_id, payment_id, currency, 0, -amount FROM ledger_entry WHERE account = 'merchant_payable') x
  LEFT JOIN payment p ON p.merchant_id = x.merchant_id AND p.id = x.payment_id
 GROUP BY x.merchant_id, p.intent_id, x.payment_id, x.currency HAVING sum(x.moved) <> sum(x.booked)`

	unappliedDiffers = `
SELECT merchant_id, NULL::uuid, NULL::uuid, 'movements ' || sum(moved) || ', ledger ' || sum(booked) || ' ' || currency
  FROM (SELECT merchant_id, currency, aside AS moved, 0::numeric AS booked FROM ` + posted + ` q
        UNION ALL
        SELECT merchant_id, currency, 0, -amount FROM ledger_entry WHERE account = 'unapplied') x
 GROUP BY merchant_id, currency HAVING sum(moved) <> sum(booked)`

	receivableDiffers = `
SELECT merchant_id, NULL::uuid, NULL::uuid, account || ': movements ' || sum(moved) || ', ledger ' || sum(booked) || ' ' || currency
  FROM (SELECT merchant_id, 'acquirer_receivable:' || account_id AS account, currency, payable + aside AS moved, 0::numeric AS booked FROM ` + posted + ` q
        UNION ALL
        SELECT merchant_id, account, currency, 0, amount FROM ledger_entry WHERE account LIKE 'acquirer\_receivable:%') x
 GROUP BY merchant_id, account, currency HAVING sum(moved) <> sum(booked)`

	heldDiffers = `
SELECT merchant_id, NULL::uuid, NULL::uuid, account || ': holds ' || sum(moved) || ', ledger ' || sum(booked) || ' ' || currency
  FROM (SELECT merchant_id, 'authorized:' || account_id AS account, currency, amount::numeric AS moved, 0::numeric AS booked FROM movement
         WHERE kind = 'hold' AND state = 'applied'
        UNION ALL
        SELECT merchant_id, account, currency, 0, amount FROM ledger_entry WHERE account LIKE 'authorized:%') x
 GROUP BY merchant_id, account, currency HAVING sum(moved) <> sum(booked)`
)
