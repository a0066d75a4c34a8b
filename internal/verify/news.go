package verify

import "time"

// newsHorizon is further away than any try of a delivery is ever put off: a webhook endpoint may ask for a day.
const newsHorizon = 48 * time.Hour

// keptFor is how long a delivery is kept after its end, at least.
const keptFor = 23 * time.Hour

var newsInvariants = []invariant{
	{id: "I-10", statement: "every event is delivered at least once, in order within its intent, with one id and one set of bytes (that a sink took it is what its delivery says)", checks: []check{
		{"a gap in the order of an intent's events", `
SELECT i.merchant_id, i.id, NULL::uuid, 'last version ' || i.event_version || ', ' || count(e.version) || ' events up to ' || coalesce(max(e.version), 0)
  FROM payment_intent i LEFT JOIN event e ON e.merchant_id = i.merchant_id AND e.intent_id = i.id
 GROUP BY i.merchant_id, i.id
HAVING count(DISTINCT e.version) <> i.event_version OR coalesce(max(e.version), 0) <> i.event_version OR count(*) > greatest(i.event_version, 1)`},
		{"an event under another key than its intent and version give", `
SELECT e.merchant_id, e.intent_id, e.payment_id, e.event_key
  FROM event e JOIN payment_intent i ON i.merchant_id = e.merchant_id AND i.id = e.intent_id
 WHERE e.event_key <> i.key_seed || ':event:' || e.version`},
		{"a gap in the order of a webhook endpoint's events", `
SELECT w.merchant_id, NULL::uuid, NULL::uuid, 'endpoint ' || w.id || ': last version ' || w.event_version || ', ' || count(e.version) || ' events up to ' || coalesce(max(e.version), 0)
  FROM webhook_endpoint w LEFT JOIN event e ON e.merchant_id = w.merchant_id AND e.endpoint_id = w.id
 GROUP BY w.merchant_id, w.id, w.event_version HAVING count(e.version) <> w.event_version OR coalesce(max(e.version), 0) <> w.event_version`},
		{"an event of a webhook endpoint under another key than its version gives", `
SELECT e.merchant_id, NULL::uuid, NULL::uuid, e.event_key
  FROM event e JOIN webhook_endpoint w ON w.merchant_id = e.merchant_id AND w.id = e.endpoint_id
 WHERE e.event_key <> w.key_seed || ':event:' || e.version`},
		{"an event that neither has a place in the feed nor waits for one, or does both", `
SELECT e.merchant_id, e.intent_id, e.payment_id, 'event ' || e.id || CASE WHEN f.position IS NULL THEN ', neither' ELSE ', both' END
  FROM event e LEFT JOIN feed f ON f.merchant_id = e.merchant_id AND f.event_id = e.id
  LEFT JOIN outbox o ON o.merchant_id = e.merchant_id AND o.subject_id = coalesce(e.intent_id, e.endpoint_id) AND o.version = e.version AND o.event_id = e.id
 WHERE (f.position IS NULL) = (o.event_id IS NULL)`},
		{"something waits for a place that is no event", `
SELECT o.merchant_id, NULL::uuid, NULL::uuid, 'event ' || o.event_id
  FROM outbox o WHERE NOT EXISTS (SELECT FROM event e WHERE e.merchant_id = o.merchant_id AND e.id = o.event_id
                                     AND coalesce(e.intent_id, e.endpoint_id) = o.subject_id AND e.version = o.version)`},
		{"a feed with a gap: a reader who saw its end misses one", `
SELECT h.merchant_id, NULL::uuid, NULL::uuid, 'the head is at ' || h.position || ', ' || count(f.position) || ' places up to ' || coalesce(max(f.position), 0)
  FROM feed_head h LEFT JOIN feed f ON f.merchant_id = h.merchant_id
 GROUP BY h.merchant_id, h.position HAVING count(f.position) <> h.position OR coalesce(max(f.position), 0) <> h.position`},
		{"a later event of a subject before an earlier one in the feed", `
SELECT x.merchant_id, x.intent_id, x.payment_id, 'version ' || x.version || ' at ' || x.position || ', behind version ' || x.before
  FROM (SELECT e.merchant_id, e.intent_id, e.payment_id, e.version, f.position, max(e.version) OVER (PARTITION BY f.merchant_id, f.subject_id ORDER BY f.position
                 ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
          FROM feed f JOIN event e ON e.merchant_id = f.merchant_id AND e.id = f.event_id) x
 WHERE x.before > x.version`},
		{"a later event of a subject has a place, an earlier one waits for it", `
SELECT o.merchant_id, e.intent_id, e.payment_id, 'version ' || o.version
  FROM outbox o JOIN event e ON e.merchant_id = o.merchant_id AND e.id = o.event_id
 WHERE EXISTS (SELECT FROM event l JOIN feed f ON f.merchant_id = l.merchant_id AND f.event_id = l.id
                WHERE f.merchant_id = o.merchant_id AND f.subject_id = o.subject_id AND l.version > o.version)`},
		{"a delivery of another event than its place in the feed holds", `
SELECT d.merchant_id, NULL::uuid, NULL::uuid, d.sink || ': event ' || d.event_id || ' at ' || d.position
  FROM delivery d LEFT JOIN feed f ON f.merchant_id = d.merchant_id AND f.position = d.position
 WHERE f.event_id IS DISTINCT FROM d.event_id OR f.subject_id IS DISTINCT FROM d.subject_id`},
		{"an event that is not kept for a sink which takes every event", `
SELECT f.merchant_id, e.intent_id, e.payment_id, k.name || ': event ' || f.event_id || ' at ' || f.position
  FROM event_sink k JOIN feed f ON f.numbered_at > k.created_at + @margin_us::bigint * interval '1 microsecond'
  JOIN event e ON e.merchant_id = f.merchant_id AND e.id = f.event_id
 WHERE k.name <> 'mail' AND f.type <> 'webhook_endpoint.test' AND f.numbered_at > now() - @kept_us::bigint * interval '1 microsecond'
   AND NOT EXISTS (SELECT FROM delivery d WHERE d.merchant_id = f.merchant_id AND d.sink = k.name AND d.event_id = f.event_id)`},
		{"delivered before an earlier one of its subject that still waits", `
SELECT d.merchant_id, e.intent_id, e.payment_id, d.sink || ': position ' || d.position || ' before ' || w.position
  FROM delivery w JOIN delivery d ON d.merchant_id = w.merchant_id AND d.sink = w.sink AND d.subject_id = w.subject_id AND d.position > w.position
  JOIN event e ON e.merchant_id = d.merchant_id AND e.id = d.event_id
 WHERE w.state = 'waiting' AND w.resends = 0 AND d.state = 'delivered' AND d.resends = 0 AND d.ended_at > w.created_at`},
		{"a delivery put off for longer than anything may be", `
SELECT d.merchant_id, e.intent_id, e.payment_id, d.sink || ': event ' || d.event_id || ' is due at ' || d.due_at
  FROM delivery d JOIN event e ON e.merchant_id = d.merchant_id AND e.id = d.event_id
 WHERE d.state = 'waiting' AND d.due_at > now() + @news_us::bigint * interval '1 microsecond'`},
	}},
}
