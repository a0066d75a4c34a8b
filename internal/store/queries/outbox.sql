-- name: MerchantsToNumber :many
-- Merchant by merchant: one with many events does not hide the others. The order goes on behind the last one of the pass before.
WITH RECURSIVE m AS (
  (SELECT o.merchant_id FROM outbox o WHERE o.merchant_id > @after::uuid ORDER BY o.merchant_id LIMIT 1)
  UNION ALL
  SELECT (SELECT o.merchant_id FROM outbox o WHERE o.merchant_id > m.merchant_id ORDER BY o.merchant_id LIMIT 1)
    FROM m WHERE m.merchant_id IS NOT NULL
)
SELECT m.merchant_id::uuid AS merchant_id FROM m WHERE m.merchant_id IS NOT NULL LIMIT @max_rows::int;

-- name: InsertFeedHeads :exec
INSERT INTO feed_head (merchant_id) SELECT unnest(@merchants::uuid[]) ON CONFLICT (merchant_id) DO NOTHING;

-- name: LockFeedHeads :many
-- lint: skip locked: across merchants, on one plain PostgreSQL only: Config.Distributed uses LockFeedHeadsWaiting
-- The lock is the right to number: who does not get it leaves the merchant to the other relay.
SELECT h.merchant_id, h.position FROM feed_head h WHERE h.merchant_id = ANY(@merchants::uuid[])
 ORDER BY h.merchant_id FOR UPDATE OF h SKIP LOCKED;

-- name: LockFeedHeadsWaiting :many
-- LockFeedHeads where SKIP LOCKED across merchants is not to be had.
SELECT h.merchant_id, h.position FROM feed_head h WHERE h.merchant_id = ANY(@merchants::uuid[])
 ORDER BY h.merchant_id FOR UPDATE OF h;

-- name: NumberEvents :one
-- A statement of its own behind the lock, so that it sees all that was numbered before. Within a subject the order is the
-- version: a later one is never committed before an earlier one, since both are written under the subject's lock (PROTOCOL V2).
WITH h AS (
  SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@positions::bigint[]) AS position
), taken AS (
  SELECT h.merchant_id, h.position + row_number() OVER (PARTITION BY h.merchant_id ORDER BY o.subject_id, o.version) AS position,
         o.subject_id, o.version, o.event_id
    FROM h CROSS JOIN LATERAL (
      SELECT x.subject_id, x.version, x.event_id FROM outbox x WHERE x.merchant_id = h.merchant_id
       ORDER BY x.subject_id, x.version LIMIT @per_merchant::int) o
), gone AS (
  DELETE FROM outbox o USING taken t
   WHERE o.merchant_id = t.merchant_id AND o.subject_id = t.subject_id AND o.version = t.version
), told AS (
  SELECT t.merchant_id, t.position, t.subject_id, t.event_id, e.type, i.customer, i.receipt_email IS NOT NULL AS addressed
    FROM taken t JOIN event e ON e.merchant_id = t.merchant_id AND e.id = t.event_id
    LEFT JOIN payment_intent i ON i.merchant_id = e.merchant_id AND i.id = e.intent_id
), numbered AS (
  INSERT INTO feed (merchant_id, position, event_id, subject_id, type, customer)
  SELECT t.merchant_id, t.position, t.event_id, t.subject_id, t.type, t.customer FROM told t
), sent AS (
  -- Behind an earlier row of its subject that failed a row is not due before that one: nobody could try it.
  INSERT INTO delivery (merchant_id, sink, event_id, subject_id, position, due_at)
  SELECT t.merchant_id, s.sink, t.event_id, t.subject_id, t.position,
         -- In the order of positions, so that no planner takes the index of due times for it and reads all that waits at the sink.
         GREATEST(now(), (SELECT b.due_at FROM delivery b
                           WHERE b.merchant_id = t.merchant_id AND b.sink = s.sink AND b.subject_id = t.subject_id
                             AND b.state = 'waiting' AND b.resends = 0 AND b.error IS NOT NULL ORDER BY b.position LIMIT 1))
    FROM told t CROSS JOIN LATERAL (
      SELECT k.name AS sink FROM event_sink k WHERE k.name <> 'mail' AND t.type <> 'webhook_endpoint.test'
      UNION ALL
      SELECT w.id::text FROM webhook_endpoint w
       WHERE w.merchant_id = t.merchant_id AND w.enabled
         AND CASE t.type WHEN 'webhook_endpoint.test' THEN w.id = t.subject_id ELSE w.types = '{}' OR t.type = ANY(w.types) END
      UNION ALL
      SELECT 'mail' FROM mail_template m
       WHERE m.merchant_id = t.merchant_id AND m.enabled AND EXISTS (SELECT FROM event_sink k WHERE k.name = 'mail') AND t.addressed
         AND (m.kind = 'receipt' AND t.type = 'payment.paid' OR m.kind = 'cancel_code' AND t.type = 'payment.cancel_code_issued')) s
), moved AS (
  UPDATE feed_head f SET position = n.position
    FROM (SELECT t.merchant_id, max(t.position) AS position FROM taken t GROUP BY t.merchant_id) n
   WHERE f.merchant_id = n.merchant_id
)
SELECT count(*)::int AS numbered FROM taken;

-- name: PickDeliveries :many
-- lint: skip locked: across merchants, on one plain PostgreSQL only: Config.Distributed uses PickDeliveriesWaiting
-- For the named sink, else for the endpoints. Each merchant and endpoint in turn: one with many rows does not starve the rest,
-- however old they are. Only the first waiting row of a subject may be tried: order within it, and a row that cannot be delivered
-- holds back no other subject. The pick itself puts the row off, longer each time, so that one that brings its relay down is not
-- tried at once again and again. Rows that another relay picks at this moment are passed over, and those behind them are taken.
WITH RECURSIVE p AS (
  (SELECT d.merchant_id, d.sink FROM delivery d WHERE d.state = 'waiting' ORDER BY d.merchant_id, d.sink LIMIT 1)
  UNION ALL
  SELECT n.merchant_id, n.sink
    FROM p CROSS JOIN LATERAL (
      SELECT d.merchant_id, d.sink FROM delivery d
       WHERE d.state = 'waiting' AND (d.merchant_id, d.sink) > (p.merchant_id, p.sink)
       ORDER BY d.merchant_id, d.sink LIMIT 1) n
), lane AS (
  -- Those where something can be tried, the longest waiting first; lanes counts them all.
  SELECT p.merchant_id, p.sink, count(*) OVER () AS lanes
    FROM p CROSS JOIN LATERAL (
      SELECT d.due_at FROM delivery d
       WHERE d.merchant_id = p.merchant_id AND d.sink = p.sink AND d.state = 'waiting' AND d.due_at <= now()
         AND d.position <= COALESCE((SELECT e.position FROM delivery e
                                      WHERE e.merchant_id = d.merchant_id AND e.sink = d.sink AND e.subject_id = d.subject_id
                                        AND e.state = 'waiting' AND e.resends = 0 ORDER BY e.position LIMIT 1), d.position)
       ORDER BY d.due_at, d.position LIMIT 1) n
   WHERE CASE WHEN @sink::text <> '' THEN p.sink = @sink::text
              ELSE p.sink <> ALL(@busy::text[]) AND EXISTS (SELECT FROM webhook_endpoint w
                    WHERE w.merchant_id = p.merchant_id AND w.id::text = p.sink AND w.enabled) END
   ORDER BY n.due_at LIMIT @max_rows::int
), due AS (
  SELECT x.merchant_id, x.sink, x.event_id
    FROM lane p CROSS JOIN LATERAL (
      SELECT f.merchant_id, f.sink, f.event_id, f.due_at, row_number() OVER (ORDER BY f.due_at, f.position) AS turn FROM (
      SELECT d.merchant_id, d.sink, d.event_id, d.due_at, d.position FROM delivery d
       WHERE d.merchant_id = p.merchant_id AND d.sink = p.sink AND d.state = 'waiting' AND d.due_at <= now()
         -- Written so that no planner, however little it knows of the table, takes another index than that of the order.
         AND d.position <= COALESCE((SELECT e.position FROM delivery e
                                      WHERE e.merchant_id = d.merchant_id AND e.sink = d.sink AND e.subject_id = d.subject_id
                                        AND e.state = 'waiting' AND e.resends = 0 ORDER BY e.position LIMIT 1), d.position)
       -- A few times its share of what is taken at most: with many lanes, only a few rows of each are read and locked.
       ORDER BY d.due_at, d.position LIMIT LEAST(@per_lane::int, 1 + 4 * sqlc.arg(max_rows)::int / p.lanes)
         FOR UPDATE OF d SKIP LOCKED) f) x
   ORDER BY x.turn, x.due_at LIMIT @max_rows::int
), picked AS (
  UPDATE delivery d
     SET attempts = d.attempts + 1, claim_id = @claim_id,
         due_at = now() + LEAST(d.attempts + 1, 10) * sqlc.arg(lease_us)::bigint * interval '1 microsecond'
    FROM due l
   WHERE d.merchant_id = l.merchant_id AND d.sink = l.sink AND d.event_id = l.event_id
  RETURNING d.merchant_id, d.sink, d.event_id, d.subject_id, d.position, d.attempts, d.since
)
SELECT k.merchant_id, k.sink, k.event_id, k.subject_id, k.position, k.attempts, k.since,
       e.payment_id, e.type, e.event_key, e.version, e.payload, e.created_at
  FROM picked k JOIN event e ON e.merchant_id = k.merchant_id AND e.id = k.event_id
 ORDER BY k.position;

-- name: PickDeliveriesWaiting :many
-- PickDeliveries where SKIP LOCKED across merchants is not to be had.
WITH RECURSIVE p AS (
  (SELECT d.merchant_id, d.sink FROM delivery d WHERE d.state = 'waiting' ORDER BY d.merchant_id, d.sink LIMIT 1)
  UNION ALL
  SELECT n.merchant_id, n.sink
    FROM p CROSS JOIN LATERAL (
      SELECT d.merchant_id, d.sink FROM delivery d
       WHERE d.state = 'waiting' AND (d.merchant_id, d.sink) > (p.merchant_id, p.sink)
       ORDER BY d.merchant_id, d.sink LIMIT 1) n
), lane AS (
  -- Those where something can be tried, the longest waiting first; lanes counts them all.
  SELECT p.merchant_id, p.sink, count(*) OVER () AS lanes
    FROM p CROSS JOIN LATERAL (
      SELECT d.due_at FROM delivery d
       WHERE d.merchant_id = p.merchant_id AND d.sink = p.sink AND d.state = 'waiting' AND d.due_at <= now()
         AND d.position <= COALESCE((SELECT e.position FROM delivery e
                                      WHERE e.merchant_id = d.merchant_id AND e.sink = d.sink AND e.subject_id = d.subject_id
                                        AND e.state = 'waiting' AND e.resends = 0 ORDER BY e.position LIMIT 1), d.position)
       ORDER BY d.due_at, d.position LIMIT 1) n
   WHERE CASE WHEN @sink::text <> '' THEN p.sink = @sink::text
              ELSE p.sink <> ALL(@busy::text[]) AND EXISTS (SELECT FROM webhook_endpoint w
                    WHERE w.merchant_id = p.merchant_id AND w.id::text = p.sink AND w.enabled) END
   ORDER BY n.due_at LIMIT @max_rows::int
), due AS (
  SELECT x.merchant_id, x.sink, x.event_id
    FROM lane p CROSS JOIN LATERAL (
      SELECT f.merchant_id, f.sink, f.event_id, f.due_at, row_number() OVER (ORDER BY f.due_at, f.position) AS turn FROM (
      SELECT d.merchant_id, d.sink, d.event_id, d.due_at, d.position FROM delivery d
       WHERE d.merchant_id = p.merchant_id AND d.sink = p.sink AND d.state = 'waiting' AND d.due_at <= now()
         -- Written so that no planner, however little it knows of the table, takes another index than that of the order.
         AND d.position <= COALESCE((SELECT e.position FROM delivery e
                                      WHERE e.merchant_id = d.merchant_id AND e.sink = d.sink AND e.subject_id = d.subject_id
                                        AND e.state = 'waiting' AND e.resends = 0 ORDER BY e.position LIMIT 1), d.position)
       ORDER BY d.due_at, d.position LIMIT LEAST(@per_lane::int, 1 + 4 * sqlc.arg(max_rows)::int / p.lanes)) f) x
   ORDER BY x.turn, x.due_at LIMIT @max_rows::int
), locked AS (
  SELECT d.merchant_id, d.sink, d.event_id
    FROM due u JOIN delivery d ON d.merchant_id = u.merchant_id AND d.sink = u.sink AND d.event_id = u.event_id
   WHERE d.state = 'waiting' AND d.due_at <= now()
   ORDER BY d.merchant_id, d.sink, d.event_id
     FOR UPDATE OF d
), picked AS (
  UPDATE delivery d
     SET attempts = d.attempts + 1, claim_id = @claim_id,
         due_at = now() + LEAST(d.attempts + 1, 10) * sqlc.arg(lease_us)::bigint * interval '1 microsecond'
    FROM locked l
   WHERE d.merchant_id = l.merchant_id AND d.sink = l.sink AND d.event_id = l.event_id
  RETURNING d.merchant_id, d.sink, d.event_id, d.subject_id, d.position, d.attempts, d.since
)
SELECT k.merchant_id, k.sink, k.event_id, k.subject_id, k.position, k.attempts, k.since,
       e.payment_id, e.type, e.event_key, e.version, e.payload, e.created_at
  FROM picked k JOIN event e ON e.merchant_id = k.merchant_id AND e.id = k.event_id
 ORDER BY k.position;

-- name: DeliveriesDone :execrows
-- That a sink has acknowledged is a fact: whoever brings it, and however late.
WITH t AS (
  SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@sinks::text[]) AS sink, unnest(@events::uuid[]) AS event_id
), locked AS (
  SELECT d.merchant_id, d.sink, d.event_id
    FROM t JOIN delivery d ON d.merchant_id = t.merchant_id AND d.sink = t.sink AND d.event_id = t.event_id
   WHERE d.state = 'waiting'
   ORDER BY d.merchant_id, d.sink, d.event_id
     FOR UPDATE OF d
)
UPDATE delivery d SET state = 'delivered', ended_at = now(), error = NULL, claim_id = NULL
  FROM locked l
 WHERE d.merchant_id = l.merchant_id AND d.sink = l.sink AND d.event_id = l.event_id;

-- name: DeliveriesFailed :many
-- That a try failed is an inference: it holds only for whoever still has the claim. What does not come back was not written. A
-- try in which nothing was asked of the sink does not count: it says nothing about the sink, and must not use up its patience.
WITH t AS (
  SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@sinks::text[]) AS sink, unnest(@events::uuid[]) AS event_id,
         unnest(@errors::text[]) AS error, unnest(@delays_us::bigint[]) AS delay_us, unnest(@abandoned::boolean[]) AS abandoned,
         unnest(@unasked::boolean[]) AS unasked
), locked AS (
  SELECT d.merchant_id, d.sink, d.event_id, t.error, t.delay_us, t.abandoned, t.unasked
    FROM t JOIN delivery d ON d.merchant_id = t.merchant_id AND d.sink = t.sink AND d.event_id = t.event_id
   WHERE d.state = 'waiting' AND d.claim_id = @claim_id
   ORDER BY d.merchant_id, d.sink, d.event_id
     FOR UPDATE OF d
)
UPDATE delivery d
   SET error = l.error, claim_id = NULL, due_at = now() + l.delay_us * interval '1 microsecond',
       attempts = d.attempts - CASE WHEN l.unasked THEN 1 ELSE 0 END,
       state = CASE WHEN l.abandoned THEN 'abandoned' ELSE 'waiting' END, ended_at = CASE WHEN l.abandoned THEN now() END
  FROM locked l
 WHERE d.merchant_id = l.merchant_id AND d.sink = l.sink AND d.event_id = l.event_id
RETURNING d.merchant_id, d.sink, d.event_id, d.resends;

-- name: InsertAttempts :exec
INSERT INTO delivery_attempt (merchant_id, id, sink, event_id, attempt, url, status, answer, error, duration_ms)
SELECT unnest(@merchants::uuid[]), unnest(@ids::uuid[]), unnest(@sinks::text[]), unnest(@events::uuid[]), unnest(@attempts::int[]),
       unnest(@urls::text[]), NULLIF(unnest(@statuses::int[]), 0)::smallint, NULLIF(unnest(@answers::text[]), ''),
       NULLIF(unnest(@errors::text[]), ''), unnest(@durations_ms::int[]);

-- name: PurgeDeliveries :execrows
DELETE FROM delivery d
 USING (SELECT x.merchant_id, x.sink, x.event_id FROM delivery x
         WHERE x.state <> 'waiting' AND x.ended_at < now() - sqlc.arg(retention_us)::bigint * interval '1 microsecond'
         ORDER BY x.ended_at LIMIT @max_rows::int) t
 WHERE d.merchant_id = t.merchant_id AND d.sink = t.sink AND d.event_id = t.event_id AND d.state <> 'waiting';

-- name: PurgeAttempts :execrows
DELETE FROM delivery_attempt a
 USING (SELECT x.merchant_id, x.id FROM delivery_attempt x
         WHERE x.created_at < now() - sqlc.arg(retention_us)::bigint * interval '1 microsecond'
         ORDER BY x.created_at LIMIT @max_rows::int) t
 WHERE a.merchant_id = t.merchant_id AND a.id = t.id;

-- name: HoldBackDeliveries :execrows
-- What waits behind a row that failed is not looked at before that one is due again: a sink that is away stays cheap.
WITH t AS (
  SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@sinks::text[]) AS sink, unnest(@subjects::uuid[]) AS subject_id,
         unnest(@positions::bigint[]) AS position, unnest(@delays_us::bigint[]) AS delay_us
), locked AS (
  SELECT d.merchant_id, d.sink, d.event_id, t.delay_us
    FROM t CROSS JOIN LATERAL (
      SELECT x.merchant_id, x.sink, x.event_id FROM delivery x
       WHERE x.merchant_id = t.merchant_id AND x.sink = t.sink AND x.subject_id = t.subject_id AND x.position > t.position
         AND x.state = 'waiting' AND x.resends = 0
       ORDER BY x.position LIMIT @max_rows::int) b
    JOIN delivery d ON d.merchant_id = b.merchant_id AND d.sink = b.sink AND d.event_id = b.event_id
   WHERE d.state = 'waiting' AND d.due_at < now() + t.delay_us * interval '1 microsecond'
   ORDER BY d.merchant_id, d.sink, d.event_id
     FOR UPDATE OF d
)
UPDATE delivery d SET due_at = now() + l.delay_us * interval '1 microsecond'
  FROM locked l
 WHERE d.merchant_id = l.merchant_id AND d.sink = l.sink AND d.event_id = l.event_id;

-- name: ReleaseDeliveries :execrows
-- The next one behind a row that is over is due now, and the one behind that when it is over itself.
WITH t AS (
  SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@sinks::text[]) AS sink, unnest(@subjects::uuid[]) AS subject_id
), locked AS (
  SELECT d.merchant_id, d.sink, d.event_id
    FROM t CROSS JOIN LATERAL (
      SELECT x.merchant_id, x.sink, x.event_id FROM delivery x
       WHERE x.merchant_id = t.merchant_id AND x.sink = t.sink AND x.subject_id = t.subject_id AND x.state = 'waiting' AND x.resends = 0
       ORDER BY x.position LIMIT 1) b
    JOIN delivery d ON d.merchant_id = b.merchant_id AND d.sink = b.sink AND d.event_id = b.event_id
   WHERE d.state = 'waiting' AND d.attempts = 0 AND d.due_at > now()
   ORDER BY d.merchant_id, d.sink, d.event_id
     FOR UPDATE OF d
)
UPDATE delivery d SET due_at = now()
  FROM locked l
 WHERE d.merchant_id = l.merchant_id AND d.sink = l.sink AND d.event_id = l.event_id;

-- name: OutboxBacklog :one
SELECT count(*) AS unnumbered, COALESCE(extract(epoch FROM now() - min(e.created_at)), 0)::float8 AS oldest_seconds
  FROM outbox o JOIN event e ON e.merchant_id = o.merchant_id AND e.id = o.event_id;

-- name: DeliveryBacklog :many
-- From the indexes of rows that wait and of rows that were given up. Endpoints are counted together.
SELECT CASE WHEN d.sink IN ('kafka', 'nats', 'mail') THEN d.sink ELSE 'endpoint' END AS sink,
       (count(*) FILTER (WHERE d.state = 'waiting'))::bigint AS waiting,
       COALESCE(extract(epoch FROM now() - min(d.created_at) FILTER (WHERE d.state = 'waiting')), 0)::float8 AS oldest_seconds,
       (count(*) FILTER (WHERE d.state = 'waiting' AND d.error IS NOT NULL))::bigint AS failing,
       (count(*) FILTER (WHERE d.state = 'abandoned'))::bigint AS abandoned
  FROM (SELECT w.sink, w.state, w.created_at, w.error FROM delivery w WHERE w.state = 'waiting'
        UNION ALL
        SELECT a.sink, a.state, a.created_at, a.error FROM delivery a WHERE a.state = 'abandoned') d
 GROUP BY 1;

-- name: AddEventSinks :exec
INSERT INTO event_sink (name) SELECT unnest(@names::text[]) ON CONFLICT (name) DO NOTHING;

-- name: DeleteEventSink :execrows
-- lint: across merchants: the sink takes the events of every merchant
DELETE FROM event_sink WHERE name = @name;

-- name: AbandonDeliveries :execrows
-- lint: across merchants: a person has said that nobody takes the events of this sink any more
UPDATE delivery d SET state = 'abandoned', ended_at = now(), error = @error, claim_id = NULL
  FROM (SELECT w.merchant_id, w.sink, w.event_id FROM delivery w WHERE w.sink = @sink AND w.state = 'waiting' LIMIT @max_rows::int) t
 WHERE d.merchant_id = t.merchant_id AND d.sink = t.sink AND d.event_id = t.event_id AND d.state = 'waiting';

-- name: EventSinks :many
SELECT name FROM event_sink ORDER BY name;

-- name: RetryDelivery :many
-- Due now, with what must go before it. What has ended is sent anew: it holds back nothing, and its tries count from now. What
-- somebody tries at this moment is left to him.
UPDATE delivery d
   SET due_at = now(), state = 'waiting', ended_at = NULL,
       attempts = CASE d.state WHEN 'waiting' THEN d.attempts ELSE 0 END, since = CASE d.state WHEN 'waiting' THEN d.since ELSE now() END,
       resends = CASE d.state WHEN 'waiting' THEN d.resends ELSE d.resends + 1 END
  FROM delivery a
 WHERE a.merchant_id = @merchant_id AND a.sink = @sink AND a.event_id = @event_id
   AND d.merchant_id = a.merchant_id AND d.sink = a.sink AND d.subject_id = a.subject_id
   AND (d.event_id = a.event_id OR d.state = 'waiting' AND d.position < a.position)
   AND (d.state <> 'waiting' OR d.claim_id IS NULL OR d.due_at <= now())
RETURNING d.event_id;

-- name: ListOutbox :many
-- lint: across merchants: operators look at everything that is not delivered, the oldest first
SELECT d.merchant_id, d.sink, d.event_id, d.subject_id, d.position, d.state, d.attempts, d.resends, d.due_at, d.created_at,
       COALESCE(d.error, '')::text AS error, f.type
  FROM delivery d JOIN feed f ON f.merchant_id = d.merchant_id AND f.position = d.position
 WHERE d.state = @state::text AND d.state <> 'delivered' AND (@sink::text = '' OR d.sink = @sink::text) AND (NOT @failing::boolean OR d.error IS NOT NULL)
 ORDER BY d.created_at, d.merchant_id, d.position, d.sink LIMIT @max_rows::int;

-- name: HasDelivery :one
SELECT EXISTS (SELECT FROM delivery WHERE merchant_id = @merchant_id AND sink = @sink AND event_id = @event_id)::boolean AS there;
