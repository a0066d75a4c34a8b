package verify

// permits counts what the history says of an operation: its claim granted the first permit, unless it began with nothing to
// send, and each note one more.
const permits = `
SELECT h.merchant_id, h.operation_id, count(*) FILTER (WHERE h.what IN ('claimed', 'permit_granted')) AS granted,
       bool_or(h.what IN ('claimed', 'begun')) AS claimed
  FROM history h WHERE h.what IN ('claimed', 'begun', 'permit_granted') AND h.operation_id IS NOT NULL
 GROUP BY h.merchant_id, h.operation_id`

var sendInvariants = []invariant{
	{id: "I-12", statement: "no transaction or pooled connection is held during a call to an acquirer (asked is that no transaction of the service stands idle now; a pooled connection held without one cannot be seen from here)",
		blind: func(s sight) string {
			if s.activity {
				return ""
			}
			return "this role does not see the service's sessions: run as the service's role, or one with pg_read_all_stats"
		},
		checks: []check{{"idle in a transaction", `
SELECT NULL::uuid, NULL::uuid, NULL::uuid, 'backend ' || pid || ' has been ' || state || ' since ' || state_change
  FROM pg_stat_activity
 WHERE datname = current_database() AND usename = 'hapax_service' AND pid <> pg_backend_pid()
   AND state IN ('idle in transaction', 'idle in transaction (aborted)')
   AND clock_timestamp() - state_change > @idle_us::bigint * interval '1 microsecond'`}}},
	{id: "I-13", statement: "requests on the wire ≤ permits; no acquirer key is sent with two bodies or by two payments; no permit after settlement or cut-off (freshness at the socket is held by the transport and tested there)",
		register: overSent, without: "the acquirer's wire log: say --sandbox URL; asked is what was permitted",
		checks: []check{
			{"permits and history differ", `
SELECT o.merchant_id, o.intent_id, o.payment_id, 'operation ' || o.id || ': ' || o.sends || ' counted, ' || h.granted || ' in the history'
  FROM (` + permits + `) h JOIN operation o ON o.merchant_id = h.merchant_id AND o.id = h.operation_id
 WHERE h.claimed AND o.action IS NOT NULL AND o.sends <> h.granted`},
			{"more permits unused than granted", `
SELECT merchant_id, intent_id, payment_id, 'operation ' || id || ': ' || unsent || ' of ' || sends FROM operation WHERE unsent > sends`},
			{"a permit without a stored request", `
SELECT merchant_id, intent_id, payment_id, 'operation ' || id FROM operation
 WHERE sends > 0 AND (acquirer_key IS NULL OR request_body IS NULL OR account_id IS NULL)`},
			{"a permit after the payment had ended", `
SELECT h.merchant_id, h.intent_id, h.payment_id, 'permit at ' || h.created_at || ', ' || e.type || ' at ' || e.created_at
  FROM history h JOIN event e ON e.merchant_id = h.merchant_id AND e.intent_id = h.intent_id AND e.payment_id = h.payment_id
 WHERE h.what = 'permit_granted' AND h.kind = 'create_payment' AND e.type IN ` + finalEvents + `
   AND h.created_at > e.created_at + @margin_us::bigint * interval '1 microsecond'`},
			{"a permit after the operation was completed", `
SELECT merchant_id, intent_id, payment_id, 'operation ' || id || ': permit at ' || last_permit_at || ', completed at ' || completed_at
  FROM operation WHERE last_permit_at > completed_at + @margin_us::bigint * interval '1 microsecond'`},
			{"a permit after the cut-off", `
SELECT merchant_id, intent_id, payment_id, 'operation ' || id || ': first permit at ' || first_permit_at || ', last at ' || last_permit_at
  FROM operation
 WHERE @cut_off_us::bigint > 0 AND last_permit_at > first_permit_at + @cut_off_us::bigint * interval '1 microsecond'`},
			{"one acquirer key of two payments", `
SELECT min(merchant_id::text)::uuid, NULL::uuid, NULL::uuid, acquirer_key || ': ' || string_agg(id::text, ', ')
  FROM (SELECT merchant_id, acquirer_key, id FROM payment
        UNION ALL
        SELECT merchant_id, acquirer_key, id FROM modification WHERE NOT external) k
 GROUP BY acquirer_key HAVING count(*) > 1`},
			{"one acquirer key sent for two payments", `
SELECT min(merchant_id::text)::uuid, NULL::uuid, NULL::uuid, acquirer_key || ': ' || string_agg(DISTINCT payment_id::text, ', ')
  FROM operation WHERE acquirer_key IS NOT NULL AND action IS NOT NULL GROUP BY acquirer_key HAVING count(DISTINCT (merchant_id, payment_id)) > 1`},
			{"one acquirer key with two bodies", `
SELECT min(merchant_id::text)::uuid, NULL::uuid, NULL::uuid, acquirer_key
  FROM operation WHERE acquirer_key IS NOT NULL AND action IS NOT NULL GROUP BY acquirer_key HAVING count(DISTINCT (action, request_body)) > 1`},
			{"sent under another key than the payment's", `
SELECT p.merchant_id, p.intent_id, p.id, o.acquirer_key || ' instead of ' || p.acquirer_key
  FROM operation o JOIN payment p ON p.merchant_id = o.merchant_id AND p.id = o.payment_id
 WHERE o.kind = 'create_payment' AND o.sends > 0 AND o.acquirer_key <> p.acquirer_key`},
			{"sent under another key than the change's", `
SELECT m.merchant_id, m.intent_id, m.payment_id, o.acquirer_key || ' instead of ' || m.acquirer_key
  FROM operation o JOIN modification m ON m.merchant_id = o.merchant_id AND m.id = o.modification_id
 WHERE o.sends > 0 AND o.acquirer_key <> m.acquirer_key`},
		}},
	{id: "I-17", statement: "all final answers to one key are equal in status and code; nobody was told \"refused\" for money that moved and was not given back, unless told of the conflict", checks: []check{
		{"two answers for one payment", `
SELECT merchant_id, min(intent_id::text)::uuid, payment_id, string_agg(DISTINCT answer_status || ' ' || said, ', ')
  FROM (SELECT merchant_id, intent_id, payment_id, answer_status, ` + said + ` AS said FROM operation
         WHERE kind = 'create_payment' AND state = 'completed' AND payment_id IS NOT NULL AND answer_status <> 200 AND length(answer_body) > 0) a
 GROUP BY merchant_id, payment_id HAVING count(DISTINCT (answer_status, said)) > 1`},
		{"an answer that is not what the payment is", `
SELECT p.merchant_id, p.intent_id, p.id, 'answered ' || o.answer_status || ' ' || ` + said + ` || ', the status is ' || p.status
  FROM operation o JOIN payment p ON p.merchant_id = o.merchant_id AND p.id = o.payment_id
 WHERE o.kind = 'create_payment' AND o.state = 'completed' AND length(o.answer_body) > 0 AND p.status IN ` + finalStates + `
   AND NOT (p.authorized_amount > 0 AND o.answer_status IN (200, 201) AND split_part(` + said + `, ' ', 1) = 'authorized')
   AND (o.answer_status <> CASE p.status WHEN 'paid' THEN 201 WHEN 'declined' THEN 402 ELSE 422 END
        OR split_part(` + said + `, ' ', 1) <> p.status)`},
		{"an answer that is not what became of the change", `
SELECT m.merchant_id, m.intent_id, m.payment_id, m.type || ' ' || m.id || ' answered ' || o.answer_status || ', first ' || m.answered_status
  FROM operation o JOIN modification m ON m.merchant_id = o.merchant_id AND m.id = o.modification_id
 WHERE o.state = 'completed' AND (o.answer_status NOT IN (201, 422) OR o.answer_status <> m.answered_status)`},
		{"told that the change failed, and the money moved", `
SELECT m.merchant_id, m.intent_id, m.payment_id, m.type || ' ' || m.id || ', ' || b.amount || ' ' || b.currency || ' moved, reference ' || b.reference
  FROM modification m
  JOIN movement b ON b.merchant_id = m.merchant_id AND b.payment_id = m.payment_id AND b.reference = m.acquirer_reference AND b.state = 'applied'
   AND b.kind = CASE WHEN m.action = 'reverse' THEN 'reverse' WHEN m.type = 'capture' THEN 'capture' ELSE 'refund' END
  JOIN payment p ON p.merchant_id = m.merchant_id AND p.id = m.payment_id
 WHERE m.status = 'failed' AND NOT p.conflict AND NOT EXISTS (SELECT FROM movement x
       WHERE x.merchant_id = b.merchant_id AND x.account_id = b.account_id AND x.kind = 'reverse' AND x.reference = b.reference)`},
		{"told that it was refused, and the money moved", `
SELECT p.merchant_id, p.intent_id, p.id, 'status ' || p.status || ', ' || m.amount || ' ' || m.currency || ' moved, reference ' || m.reference
  FROM movement m JOIN payment p ON p.merchant_id = m.merchant_id AND p.id = m.payment_id
 WHERE m.state <> 'returned' AND m.kind IN ('charge', 'capture') AND p.refused_at IS NOT NULL AND NOT p.conflict
   AND NOT EXISTS (SELECT FROM event e WHERE e.merchant_id = p.merchant_id AND e.intent_id = p.intent_id AND e.payment_id = p.id
                      AND e.type = 'payment.conflict')`},
	}},
	{id: "I-18", statement: "after a failover or restore nothing is sent that A8 holds; every movement of the lost interval is attributed or in review (the movements: I-14)",
		blind: func(s sight) string {
			if s.accounts {
				return ""
			}
			return "this role does not see which accounts were compared: run as the service's role"
		},
		checks: []check{
			{"sent while it was on hold", `
SELECT o.merchant_id, o.intent_id, o.payment_id, 'operation ' || o.id || ' of epoch ' || o.epoch || ': permit at ' || o.last_permit_at
  FROM operation o
  JOIN database_epoch e ON e.held AND o.epoch < e.epoch AND o.last_permit_at > e.changed_at + @margin_us::bigint * interval '1 microsecond'
 WHERE NOT EXISTS (SELECT FROM acquirer_account a WHERE a.merchant_id = o.merchant_id AND a.id = o.account_id AND a.compared_epoch >= e.epoch)`},
			{"an operation from a history that this database does not know", `
SELECT o.merchant_id, o.intent_id, o.payment_id, 'operation ' || o.id || ' of epoch ' || o.epoch || ', the database is in ' || e.epoch
  FROM operation o JOIN database_epoch e ON o.epoch > e.epoch`},
		}},
}

// said is what a stored answer told: the status, and the code of a refusal. The bytes are read as text, not as JSON, so
// that one damaged answer is a finding and not the end of the question.
const said = `concat_ws(' ', substring(encode(answer_body, 'escape') FROM '"status":"([a-z_]+)"'),
              substring(encode(answer_body, 'escape') FROM '"failure":\{"code":"([a-z_]+)"'))`
