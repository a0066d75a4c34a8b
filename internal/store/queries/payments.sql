-- name: InsertPayments :many
-- One payment per intent that is not finally refused: the partial index decides (PROTOCOL P1).
INSERT INTO payment (merchant_id, id, intent_id, n, flow, status, amount, currency, payment_method, account_id, acquirer_key,
                     failure_code, failure_message, refused_at, gate_open, due_at, version,
                     kind, idempotency_key, fingerprint, fingerprint_version,
                     capture_method, return_url, redirect_url, session_reference, expires_at, authorized_amount, answered_status)
SELECT t.merchant_id, t.id, t.intent_id, t.n, t.flow, t.status, t.amount, t.currency, t.payment_method, t.account_id, t.acquirer_key,
       NULLIF(t.failure_code, ''), NULLIF(t.failure_message, ''), t.refused_at, t.gate_open, t.due_at, t.version,
       t.kind, t.idempotency_key, t.fingerprint, t.fingerprint_version, t.capture_method, NULLIF(t.return_url, ''),
       NULLIF(t.redirect_url, ''), NULLIF(t.session_reference, ''), t.expires_at, t.authorized_amount, NULLIF(t.answered_status, 0)
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@ids::uuid[]) AS id, unnest(@intents::uuid[]) AS intent_id,
               unnest(@ns::int[]) AS n, unnest(@flows::text[]) AS flow, unnest(@statuses::text[]) AS status,
               unnest(@amounts::bigint[]) AS amount, unnest(@currencies::text[]) AS currency, unnest(@methods::text[]) AS payment_method,
               unnest(@accounts::uuid[]) AS account_id, unnest(@acquirer_keys::text[]) AS acquirer_key,
               unnest(@failure_codes::text[]) AS failure_code, unnest(@failure_messages::text[]) AS failure_message,
               unnest(@refused::timestamptz[]) AS refused_at, unnest(@gates::boolean[]) AS gate_open,
               unnest(@due::timestamptz[]) AS due_at, unnest(@versions::bigint[]) AS version,
               unnest(@kinds::text[]) AS kind, unnest(@keys::text[]) AS idempotency_key, unnest(@fingerprints::bytea[]) AS fingerprint,
               unnest(@fingerprint_versions::smallint[]) AS fingerprint_version, unnest(@capture_methods::text[]) AS capture_method,
               unnest(@return_urls::text[]) AS return_url, unnest(@redirect_urls::text[]) AS redirect_url,
               unnest(@sessions::text[]) AS session_reference, unnest(@expires::timestamptz[]) AS expires_at,
               unnest(@authorized::bigint[]) AS authorized_amount, unnest(@answered_statuses::smallint[]) AS answered_status) t
ON CONFLICT (merchant_id, intent_id) WHERE refused_at IS NULL DO NOTHING
RETURNING id;

-- name: LockPayments :many
SELECT p.*
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@ids::uuid[]) AS id) t
  JOIN payment p ON p.merchant_id = t.merchant_id AND p.id = t.id
 ORDER BY p.merchant_id, p.id
   FOR UPDATE OF p;

-- name: ReadPayments :many
SELECT sqlc.embed(p), sqlc.embed(i)
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@ids::uuid[]) AS id) t
  JOIN payment p ON p.merchant_id = t.merchant_id AND p.id = t.id
  JOIN payment_intent i ON i.merchant_id = p.merchant_id AND i.id = p.intent_id;

-- name: SavePayments :execrows
-- A transition names the state and the version that it expects (PROTOCOL P2, K4).
UPDATE payment p
   SET status = t.status, conflict = t.conflict, captured_amount = t.captured, refunded_amount = t.refunded,
       authorized_amount = t.authorized, capturing_amount = t.capturing, refunding_amount = t.refunding, disputed_amount = t.disputed,
       dispute = NULLIF(t.dispute, ''), redirect_url = NULLIF(t.redirect_url, ''), session_reference = NULLIF(t.session_reference, ''),
       expires_at = t.expires_at, answered_status = NULLIF(t.answered_status, 0), early = t.early,
       acquirer_reference = NULLIF(t.acquirer_reference, ''), failure_code = NULLIF(t.failure_code, ''),
       failure_message = NULLIF(t.failure_message, ''), refused_at = t.refused_at, gate_open = t.gate_open, due_at = t.due_at,
       version = t.version, updated_at = now()
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@ids::uuid[]) AS id,
               unnest(@expected_statuses::text[]) AS expected_status, unnest(@expected_versions::bigint[]) AS expected_version,
               unnest(@statuses::text[]) AS status, unnest(@conflicts::boolean[]) AS conflict,
               unnest(@captured::bigint[]) AS captured, unnest(@refunded::bigint[]) AS refunded,
               unnest(@acquirer_references::text[]) AS acquirer_reference, unnest(@failure_codes::text[]) AS failure_code,
               unnest(@failure_messages::text[]) AS failure_message, unnest(@refused::timestamptz[]) AS refused_at,
               unnest(@gates::boolean[]) AS gate_open, unnest(@due::timestamptz[]) AS due_at, unnest(@versions::bigint[]) AS version,
               unnest(@authorized::bigint[]) AS authorized, unnest(@capturing::bigint[]) AS capturing,
               unnest(@refunding::bigint[]) AS refunding, unnest(@disputed::bigint[]) AS disputed, unnest(@disputes::text[]) AS dispute,
               unnest(@redirect_urls::text[]) AS redirect_url, unnest(@sessions::text[]) AS session_reference,
               unnest(@expires::timestamptz[]) AS expires_at, unnest(@answered_statuses::smallint[]) AS answered_status,
               unnest(@early::boolean[]) AS early) t
 WHERE p.merchant_id = t.merchant_id AND p.id = t.id AND p.status = t.expected_status AND p.version = t.expected_version;

-- name: InsertJoined :exec
-- The identity of a command that met a live payment is kept for ever (PROTOCOL K8).
INSERT INTO joined_command (merchant_id, kind, idempotency_key, fingerprint, fingerprint_version, payment_id, modification_id, answered_status)
SELECT unnest(@merchants::uuid[]), unnest(@kinds::text[]), unnest(@keys::text[]), unnest(@fingerprints::bytea[]),
       unnest(@fingerprint_versions::smallint[]), unnest(@payments::uuid[]), unnest(@modifications::uuid[]), NULLIF(unnest(@answered::int[]), 0)::smallint
ON CONFLICT (merchant_id, kind, idempotency_key) DO NOTHING;

-- name: PaymentsByCommand :many
-- By the command that made it, or by one that joined it; ModificationsByCommand knows those that joined a change to it.
WITH t AS (
  SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@kinds::text[]) AS kind, unnest(@keys::text[]) AS idempotency_key
), c AS (
  SELECT x.merchant_id, x.id, x.kind, x.idempotency_key, x.fingerprint, x.fingerprint_version, x.answered_status
    FROM t JOIN payment x ON x.merchant_id = t.merchant_id AND x.kind = t.kind AND x.idempotency_key = t.idempotency_key
   UNION ALL
  SELECT j.merchant_id, j.payment_id, j.kind, j.idempotency_key, j.fingerprint, j.fingerprint_version, j.answered_status
    FROM t JOIN joined_command j ON j.merchant_id = t.merchant_id AND j.kind = t.kind AND j.idempotency_key = t.idempotency_key
   WHERE j.modification_id IS NULL
)
SELECT sqlc.embed(p), c.kind, c.idempotency_key, c.fingerprint, c.fingerprint_version,
       COALESCE(c.answered_status, p.answered_status, 0)::int AS answered
  FROM c JOIN payment p ON p.merchant_id = c.merchant_id AND p.id = c.id;

-- name: DuePayments :many
-- lint: skip locked: across merchants, on one plain PostgreSQL only: Config.Distributed uses DuePaymentsWaiting
-- Merchant by merchant, so that one with many due rows does not starve the rest (PROTOCOL S2).
WITH RECURSIVE m AS (
  (SELECT p.merchant_id FROM payment p WHERE p.due_at IS NOT NULL ORDER BY p.merchant_id LIMIT 1)
  UNION ALL
  SELECT (SELECT p.merchant_id FROM payment p WHERE p.due_at IS NOT NULL AND p.merchant_id > m.merchant_id
           ORDER BY p.merchant_id LIMIT 1)
    FROM m WHERE m.merchant_id IS NOT NULL
), due AS (
  SELECT d.merchant_id, d.id
    FROM m CROSS JOIN LATERAL (
      SELECT p.merchant_id, p.id, p.due_at FROM payment p
       WHERE p.merchant_id = m.merchant_id AND p.due_at <= now()
       ORDER BY p.due_at LIMIT @per_merchant::int) d
   ORDER BY d.due_at LIMIT @max_rows::int
)
SELECT p.*
  FROM due d JOIN payment p ON p.merchant_id = d.merchant_id AND p.id = d.id
 WHERE p.due_at <= now()
 ORDER BY p.merchant_id, p.id
   FOR UPDATE OF p SKIP LOCKED;

-- name: DuePaymentsWaiting :many
-- DuePayments where SKIP LOCKED across merchants is not to be had.
WITH RECURSIVE m AS (
  (SELECT p.merchant_id FROM payment p WHERE p.due_at IS NOT NULL ORDER BY p.merchant_id LIMIT 1)
  UNION ALL
  SELECT (SELECT p.merchant_id FROM payment p WHERE p.due_at IS NOT NULL AND p.merchant_id > m.merchant_id
           ORDER BY p.merchant_id LIMIT 1)
    FROM m WHERE m.merchant_id IS NOT NULL
), due AS (
  SELECT d.merchant_id, d.id
    FROM m CROSS JOIN LATERAL (
      SELECT p.merchant_id, p.id, p.due_at FROM payment p
       WHERE p.merchant_id = m.merchant_id AND p.due_at <= now()
       ORDER BY p.due_at LIMIT @per_merchant::int) d
   ORDER BY d.due_at LIMIT @max_rows::int
)
SELECT p.*
  FROM due d JOIN payment p ON p.merchant_id = d.merchant_id AND p.id = d.id
 WHERE p.due_at <= now()
 ORDER BY p.merchant_id, p.id
   FOR UPDATE OF p;

-- name: PostponePayments :exec
UPDATE payment p SET due_at = now() + sqlc.arg(postpone_us)::bigint * interval '1 microsecond'
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@ids::uuid[]) AS id) t
 WHERE p.merchant_id = t.merchant_id AND p.id = t.id;

-- name: PaymentsOfIntents :many
SELECT sqlc.embed(p), sqlc.embed(i)
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@intents::uuid[]) AS intent_id) t
  JOIN payment_intent i ON i.merchant_id = t.merchant_id AND i.id = t.intent_id
  JOIN payment p ON p.merchant_id = i.merchant_id AND p.intent_id = i.id
 ORDER BY p.intent_id, p.n;

-- name: PaymentsByReference :many
-- As the others below: what names the payments is found first, then they are read by their keys.
WITH f AS MATERIALIZED (
  SELECT p.merchant_id, p.id
    FROM (SELECT i.merchant_id, i.id FROM payment_intent i WHERE i.merchant_id = @merchant_id AND i.client_reference = @client_reference::text OFFSET 0) i
    JOIN payment p ON p.merchant_id = i.merchant_id AND p.intent_id = i.id
   WHERE (@before::uuid IS NULL OR p.id < @before::uuid)
   ORDER BY p.id DESC LIMIT @max_rows::int
)
SELECT sqlc.embed(p), sqlc.embed(i)
  FROM f JOIN payment p ON p.merchant_id = f.merchant_id AND p.id = f.id
  JOIN payment_intent i ON i.merchant_id = p.merchant_id AND i.id = p.intent_id
 ORDER BY p.id DESC;

-- name: PaymentsByIntent :many
WITH f AS MATERIALIZED (
  SELECT p.merchant_id, p.id
    FROM (SELECT i.merchant_id, i.id FROM payment_intent i WHERE i.merchant_id = @merchant_id AND i.id = @intent_id OFFSET 0) i
    JOIN payment p ON p.merchant_id = i.merchant_id AND p.intent_id = i.id
   WHERE (@before::uuid IS NULL OR p.id < @before::uuid)
   ORDER BY p.id DESC LIMIT @max_rows::int
)
SELECT sqlc.embed(p), sqlc.embed(i)
  FROM f JOIN payment p ON p.merchant_id = f.merchant_id AND p.id = f.id
  JOIN payment_intent i ON i.merchant_id = p.merchant_id AND i.id = p.intent_id
 ORDER BY p.id DESC;

-- name: PaymentsByCustomer :many
WITH f AS MATERIALIZED (
  SELECT p.merchant_id, p.id
    FROM (SELECT i.merchant_id, i.id FROM payment_intent i WHERE i.merchant_id = @merchant_id AND i.customer = @customer::text OFFSET 0) i
    JOIN payment p ON p.merchant_id = i.merchant_id AND p.intent_id = i.id
   WHERE (@before::uuid IS NULL OR p.id < @before::uuid)
   ORDER BY p.id DESC LIMIT @max_rows::int
)
SELECT sqlc.embed(p), sqlc.embed(i)
  FROM f JOIN payment p ON p.merchant_id = f.merchant_id AND p.id = f.id
  JOIN payment_intent i ON i.merchant_id = p.merchant_id AND i.id = p.intent_id
 ORDER BY p.id DESC;

-- name: PaymentsByKey :many
-- By the command that made it, or by one that joined it, whose operation may still follow it.
WITH f AS MATERIALIZED (
  SELECT x.merchant_id, x.id FROM payment x
   WHERE x.merchant_id = @merchant_id AND x.kind = 'create_payment' AND x.idempotency_key = @idempotency_key::text
     AND (@before::uuid IS NULL OR x.id < @before::uuid)
   UNION
  SELECT o.merchant_id, o.payment_id FROM operation o
   WHERE o.merchant_id = @merchant_id AND o.kind = 'create_payment' AND o.idempotency_key = @idempotency_key::text
     AND o.payment_id IS NOT NULL AND (@before::uuid IS NULL OR o.payment_id < @before::uuid)
   UNION
  SELECT j.merchant_id, j.payment_id FROM joined_command j
   WHERE j.merchant_id = @merchant_id AND j.kind = 'create_payment' AND j.idempotency_key = @idempotency_key::text
     AND (@before::uuid IS NULL OR j.payment_id < @before::uuid)
   ORDER BY 2 DESC LIMIT @max_rows::int
)
SELECT sqlc.embed(p), sqlc.embed(i)
  FROM f JOIN payment p ON p.merchant_id = f.merchant_id AND p.id = f.id
  JOIN payment_intent i ON i.merchant_id = p.merchant_id AND i.id = p.intent_id
 ORDER BY p.id DESC;

-- name: PaymentsByAcquirerReference :many
-- By the money that moved: movement_once finds it account by account.
WITH f AS MATERIALIZED (
  SELECT DISTINCT m.merchant_id, m.payment_id AS id
    FROM (SELECT a.merchant_id, a.id FROM acquirer_account a WHERE a.merchant_id = @merchant_id OFFSET 0) a
    JOIN movement m ON m.merchant_id = a.merchant_id AND m.account_id = a.id AND m.reference = @acquirer_reference::text
   WHERE m.payment_id IS NOT NULL AND (@before::uuid IS NULL OR m.payment_id < @before::uuid)
   ORDER BY m.payment_id DESC LIMIT @max_rows::int
)
SELECT sqlc.embed(p), sqlc.embed(i)
  FROM f JOIN payment p ON p.merchant_id = f.merchant_id AND p.id = f.id
  JOIN payment_intent i ON i.merchant_id = p.merchant_id AND i.id = p.intent_id
 ORDER BY p.id DESC;

-- name: AllPayments :many
WITH f AS MATERIALIZED (
  SELECT p.merchant_id, p.id FROM payment p
   WHERE p.merchant_id = @merchant_id AND (@before::uuid IS NULL OR p.id < @before::uuid)
   ORDER BY p.id DESC LIMIT @max_rows::int
)
SELECT sqlc.embed(p), sqlc.embed(i)
  FROM f JOIN payment p ON p.merchant_id = f.merchant_id AND p.id = f.id
  JOIN payment_intent i ON i.merchant_id = p.merchant_id AND i.id = p.intent_id
 ORDER BY p.id DESC;

-- name: PaymentsByAcquirerKey :many
SELECT * FROM payment WHERE merchant_id = @merchant_id AND acquirer_key = ANY(@acquirer_keys::text[]);

-- name: PaymentsByCharge :many
SELECT m.reference, sqlc.embed(p)
  FROM movement m JOIN payment p ON p.merchant_id = m.merchant_id AND p.id = m.payment_id
 WHERE m.merchant_id = @merchant_id AND m.account_id = @account_id AND m.reference = ANY(@charges::text[]) AND m.kind IN ('hold', 'charge');
