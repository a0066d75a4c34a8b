-- name: FeedHead :one
SELECT position FROM feed_head WHERE merchant_id = @merchant_id;

-- name: Feed :many
SELECT f.position, e.payload
  FROM feed f JOIN event e ON e.merchant_id = f.merchant_id AND e.id = f.event_id
 WHERE f.merchant_id = @merchant_id AND f.position > @after::bigint
 ORDER BY f.position LIMIT @max_rows::int;

-- name: FeedOfSubject :many
-- The narrowest filter has the statement of its own, and with it the index; the others are conditions in it.
SELECT f.position, e.payload
  FROM feed f JOIN event e ON e.merchant_id = f.merchant_id AND e.id = f.event_id
 WHERE f.merchant_id = @merchant_id AND f.subject_id = @subject_id AND f.position > @after::bigint
   AND (@type::text = '' OR f.type = @type::text) AND (@customer::text = '' OR f.customer = @customer::text)
 ORDER BY f.position LIMIT @max_rows::int;

-- name: FeedOfCustomer :many
SELECT f.position, e.payload
  FROM feed f JOIN event e ON e.merchant_id = f.merchant_id AND e.id = f.event_id
 WHERE f.merchant_id = @merchant_id AND f.customer = @customer::text AND f.position > @after::bigint
   AND (@type::text = '' OR f.type = @type::text)
 ORDER BY f.position LIMIT @max_rows::int;

-- name: FeedOfType :many
SELECT f.position, e.payload
  FROM feed f JOIN event e ON e.merchant_id = f.merchant_id AND e.id = f.event_id
 WHERE f.merchant_id = @merchant_id AND f.type = @type::text AND f.position > @after::bigint
 ORDER BY f.position LIMIT @max_rows::int;

-- name: LockFeed :exec
-- Who hears of events changes while nobody numbers them.
SELECT h.position FROM feed_head h WHERE h.merchant_id = @merchant_id FOR UPDATE;

-- name: LockEndpoint :one
SELECT sqlc.embed(w), now()::timestamptz AS now FROM webhook_endpoint w WHERE w.merchant_id = @merchant_id AND w.id = @id FOR UPDATE;

-- name: EndpointByID :one
SELECT sqlc.embed(w), now()::timestamptz AS now FROM webhook_endpoint w WHERE w.merchant_id = @merchant_id AND w.id = @id;

-- name: EndpointsOf :many
-- Bounded by payment.MaxEndpoints.
SELECT * FROM webhook_endpoint WHERE merchant_id = @merchant_id ORDER BY id DESC;

-- name: InsertEndpoint :exec
INSERT INTO webhook_endpoint (merchant_id, id, url, description, types, key_seed, event_version)
VALUES (@merchant_id, @id, @url, @description, @types::text[], @key_seed, @event_version);

-- name: SaveEndpoint :execrows
UPDATE webhook_endpoint
   SET url = @url, description = @description, types = @types::text[], enabled = @enabled, disabled_why = @disabled_why,
       failing_since = @failing_since, event_version = @event_version, version = version + 1,
       updated_at = CASE WHEN @changed::boolean THEN now() ELSE updated_at END
 WHERE merchant_id = @merchant_id AND id = @id AND version = @version;

-- name: LiveSecrets :many
-- The newest first; one that is retired stays good until its end.
SELECT * FROM webhook_secret
 WHERE merchant_id = @merchant_id AND endpoint_id = @endpoint_id AND (expires_at IS NULL OR expires_at > now())
 ORDER BY ordinal DESC;

-- name: InsertSecret :exec
INSERT INTO webhook_secret (merchant_id, endpoint_id, ordinal, sealed) VALUES (@merchant_id, @endpoint_id, @ordinal, @sealed);

-- name: RetireSecrets :execrows
-- A secret never lives longer than it was told to.
UPDATE webhook_secret SET expires_at = LEAST(expires_at, @expires_at::timestamptz)
 WHERE merchant_id = @merchant_id AND endpoint_id = @endpoint_id;

-- name: DeleteDeadSecrets :execrows
DELETE FROM webhook_secret WHERE merchant_id = @merchant_id AND endpoint_id = @endpoint_id AND expires_at <= now();

-- name: InsertEndpointCommand :exec
INSERT INTO endpoint_command (merchant_id, kind, idempotency_key, fingerprint, fingerprint_version, endpoint_id, answered_status, event_id, sends, more)
VALUES (@merchant_id, @kind, @idempotency_key, @fingerprint, @fingerprint_version, @endpoint_id, @answered_status, @event_id, @sends, @more);

-- name: EndpointCommand :one
SELECT * FROM endpoint_command WHERE merchant_id = @merchant_id AND kind = @kind AND idempotency_key = @idempotency_key;

-- name: NumberedEvent :one
SELECT * FROM feed WHERE merchant_id = @merchant_id AND event_id = @event_id;

-- name: SendAgain :execrows
-- Whatever became of it: it waits again, holds back no other, and its tries are counted anew. A try that is under way has no say
-- about them, unless it succeeds.
UPDATE delivery
   SET state = 'waiting', ended_at = NULL, due_at = now(), since = now(), attempts = 0, claim_id = NULL, error = NULL,
       resends = resends + 1
 WHERE merchant_id = @merchant_id AND sink = @sink AND event_id = @event_id;

-- name: SendFirst :execrows
INSERT INTO delivery (merchant_id, sink, event_id, subject_id, position, resends)
VALUES (@merchant_id, @sink, @event_id, @subject_id, @position, 1)
ON CONFLICT (merchant_id, sink, event_id) DO NOTHING;

-- name: SendFailedAgain :execrows
-- What was given up, and what is failing; the oldest first. since is the least id that an event of that time can have.
WITH t AS (
  SELECT d.merchant_id, d.sink, d.event_id FROM delivery d
   WHERE d.merchant_id = @merchant_id AND d.sink = @sink AND d.event_id >= @since::uuid
     AND (d.state = 'abandoned' OR d.state = 'waiting' AND d.error IS NOT NULL)
   ORDER BY d.position LIMIT @max_rows::int
), locked AS (
  SELECT d.merchant_id, d.sink, d.event_id
    FROM t JOIN delivery d ON d.merchant_id = t.merchant_id AND d.sink = t.sink AND d.event_id = t.event_id
   ORDER BY d.merchant_id, d.sink, d.event_id
     FOR UPDATE OF d
)
UPDATE delivery d
   SET state = 'waiting', ended_at = NULL, due_at = now(), since = now(), attempts = 0, claim_id = NULL, error = NULL,
       resends = CASE WHEN d.state = 'waiting' THEN d.resends ELSE d.resends + 1 END
  FROM locked l
 WHERE d.merchant_id = l.merchant_id AND d.sink = l.sink AND d.event_id = l.event_id AND d.state <> 'delivered';

-- name: SendMissed :execrows
-- What the endpoint would have got, had it been enabled: in order, like anything new.
INSERT INTO delivery (merchant_id, sink, event_id, subject_id, position)
SELECT f.merchant_id, @sink, f.event_id, f.subject_id, f.position FROM feed f
 WHERE f.merchant_id = @merchant_id AND f.event_id >= @since::uuid AND f.type <> 'webhook_endpoint.test'
   AND (@types::text[] = '{}' OR f.type = ANY(@types::text[]))
   AND NOT EXISTS (SELECT FROM delivery d WHERE d.merchant_id = f.merchant_id AND d.sink = @sink AND d.event_id = f.event_id)
 ORDER BY f.event_id LIMIT @max_rows::int
ON CONFLICT (merchant_id, sink, event_id) DO NOTHING;

-- name: DeliveriesOf :many
SELECT d.*, e.type FROM delivery d JOIN event e ON e.merchant_id = d.merchant_id AND e.id = d.event_id
 WHERE d.merchant_id = @merchant_id AND d.sink = @sink AND (@before::uuid IS NULL OR d.event_id < @before::uuid)
   AND (@state::text = '' OR d.state = @state::text)
 ORDER BY d.event_id DESC LIMIT @max_rows::int;

-- name: DeliveryOf :many
SELECT d.*, e.type FROM delivery d JOIN event e ON e.merchant_id = d.merchant_id AND e.id = d.event_id
 WHERE d.merchant_id = @merchant_id AND d.sink = @sink AND d.event_id = @event_id AND (@state::text = '' OR d.state = @state::text);

-- name: AttemptsOf :many
-- Of each event the last ones, the newest first.
SELECT a.*
  FROM (SELECT unnest(@events::uuid[]) AS event_id) t
  CROSS JOIN LATERAL (
    SELECT x.* FROM delivery_attempt x
     WHERE x.merchant_id = @merchant_id AND x.sink = @sink AND x.event_id = t.event_id
     ORDER BY x.id DESC LIMIT @per_event::int) a
 ORDER BY a.id DESC;
