-- name: InsertModifications :many
-- Two rules decide, each by an index of its own: one open capture or cancel for each payment (PROTOCOL X2), one compensation
-- for each movement that did not fail (X4). A refund meets neither: how much may be given back is the payment's (X3).
WITH t AS (
  SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@ids::uuid[]) AS id, unnest(@intents::uuid[]) AS intent_id,
         unnest(@payments::uuid[]) AS payment_id, unnest(@types::text[]) AS type, unnest(@actions::text[]) AS action,
         unnest(@ks::int[]) AS k, unnest(@statuses::text[]) AS status, unnest(@amounts::bigint[]) AS amount,
         unnest(@currencies::text[]) AS currency, unnest(@finals::boolean[]) AS final, unnest(@externals::boolean[]) AS external,
         unnest(@movements::uuid[]) AS movement_id, unnest(@accounts::uuid[]) AS account_id,
         unnest(@acquirer_keys::text[]) AS acquirer_key, NULLIF(unnest(@acquirer_references::text[]), '') AS acquirer_reference,
         NULLIF(unnest(@reasons::text[]), '') AS reason, NULLIF(unnest(@failure_codes::text[]), '') AS failure_code,
         NULLIF(unnest(@failure_messages::text[]), '') AS failure_message,
         NULLIF(unnest(@answered_statuses::smallint[]), 0) AS answered_status, unnest(@versions::bigint[]) AS version,
         unnest(@kinds::text[]) AS kind, unnest(@keys::text[]) AS idempotency_key, unnest(@fingerprints::bytea[]) AS fingerprint,
         unnest(@fingerprint_versions::smallint[]) AS fingerprint_version
), alone AS (
  INSERT INTO modification (merchant_id, id, intent_id, payment_id, type, action, k, status, amount, currency, final, external, movement_id,
                            account_id, acquirer_key, acquirer_reference, reason, failure_code, failure_message, answered_status, version,
                            kind, idempotency_key, fingerprint, fingerprint_version)
  SELECT t.* FROM t WHERE t.type IN ('capture', 'cancel')
  ON CONFLICT (merchant_id, payment_id) WHERE type IN ('capture', 'cancel') AND status IN ('pending', 'unknown') DO NOTHING
  RETURNING id
), once AS (
  INSERT INTO modification (merchant_id, id, intent_id, payment_id, type, action, k, status, amount, currency, final, external, movement_id,
                            account_id, acquirer_key, acquirer_reference, reason, failure_code, failure_message, answered_status, version,
                            kind, idempotency_key, fingerprint, fingerprint_version)
  SELECT t.* FROM t WHERE t.type NOT IN ('capture', 'cancel')
  ON CONFLICT (merchant_id, movement_id) WHERE movement_id IS NOT NULL AND status <> 'failed' DO NOTHING
  RETURNING id
)
SELECT alone.id FROM alone UNION ALL SELECT once.id FROM once;

-- name: SaveModifications :execrows
-- A change names the state and the version that it expects (PROTOCOL P2, K4).
UPDATE modification m
   SET status = t.status, action = t.action, acquirer_reference = NULLIF(t.acquirer_reference, ''),
       failure_code = NULLIF(t.failure_code, ''), failure_message = NULLIF(t.failure_message, ''),
       answered_status = NULLIF(t.answered_status, 0), version = t.version, updated_at = now()
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@ids::uuid[]) AS id,
               unnest(@expected_statuses::text[]) AS expected_status, unnest(@expected_versions::bigint[]) AS expected_version,
               unnest(@statuses::text[]) AS status, unnest(@actions::text[]) AS action,
               unnest(@acquirer_references::text[]) AS acquirer_reference, unnest(@failure_codes::text[]) AS failure_code,
               unnest(@failure_messages::text[]) AS failure_message, unnest(@answered_statuses::smallint[]) AS answered_status,
               unnest(@versions::bigint[]) AS version) t
 WHERE m.merchant_id = t.merchant_id AND m.id = t.id AND m.status = t.expected_status AND m.version = t.expected_version;

-- name: ModificationsOf :many
SELECT m.*
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@payments::uuid[]) AS payment_id) t
  JOIN modification m ON m.merchant_id = t.merchant_id AND m.payment_id = t.payment_id
 ORDER BY m.merchant_id, m.id;

-- name: ModificationByID :one
SELECT * FROM modification WHERE merchant_id = @merchant_id AND id = @id;

-- name: ModificationsByCommand :many
-- By the command that made it, or by one that joined it.
WITH t AS (
  SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@kinds::text[]) AS kind, unnest(@keys::text[]) AS idempotency_key
), c AS (
  SELECT x.merchant_id, x.id, x.kind, x.idempotency_key, x.fingerprint, x.fingerprint_version
    FROM t JOIN modification x ON x.merchant_id = t.merchant_id AND x.kind = t.kind AND x.idempotency_key = t.idempotency_key
   UNION ALL
  SELECT j.merchant_id, j.modification_id, j.kind, j.idempotency_key, j.fingerprint, j.fingerprint_version
    FROM t JOIN joined_command j ON j.merchant_id = t.merchant_id AND j.kind = t.kind AND j.idempotency_key = t.idempotency_key
)
SELECT sqlc.embed(m), c.kind, c.idempotency_key, c.fingerprint, c.fingerprint_version
  FROM c JOIN modification m ON m.merchant_id = c.merchant_id AND m.id = c.id;

-- name: Refunds :many
-- What was given back, or is being: of one payment, or of all; the newest first.
SELECT * FROM modification
 WHERE merchant_id = @merchant_id AND type IN ('refund', 'compensation') AND (@before::uuid IS NULL OR id < @before::uuid)
 ORDER BY id DESC LIMIT @max_rows::int;

-- name: RefundsOfPayment :many
SELECT * FROM modification
 WHERE merchant_id = @merchant_id AND payment_id = @payment_id AND type IN ('refund', 'compensation')
   AND (@before::uuid IS NULL OR id < @before::uuid)
 ORDER BY id DESC LIMIT @max_rows::int;

-- name: DisputesOf :many
SELECT d.*
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@payments::uuid[]) AS payment_id) t
  JOIN dispute d ON d.merchant_id = t.merchant_id AND d.payment_id = t.payment_id
 ORDER BY d.merchant_id, d.id;

-- name: InsertDisputes :many
-- A dispute is known by the acquirer's id; one that is there already is left to UpdateDisputes.
INSERT INTO dispute (merchant_id, id, intent_id, payment_id, account_id, reference, amount, currency, status, aside, opened_at, decided_at)
SELECT t.merchant_id, t.id, t.intent_id, t.payment_id, t.account_id, t.reference, t.amount, t.currency, t.status, t.aside,
       COALESCE(t.opened_at, now()), CASE WHEN t.status <> 'opened' THEN COALESCE(t.decided_at, now()) END
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@ids::uuid[]) AS id, unnest(@intents::uuid[]) AS intent_id,
               unnest(@payments::uuid[]) AS payment_id, unnest(@accounts::uuid[]) AS account_id, unnest(@refs::text[]) AS reference,
               unnest(@amounts::bigint[]) AS amount, unnest(@currencies::text[]) AS currency, unnest(@statuses::text[]) AS status,
               unnest(@asides::boolean[]) AS aside, unnest(@opened::timestamptz[]) AS opened_at,
               unnest(@decided::timestamptz[]) AS decided_at) t
ON CONFLICT (merchant_id, account_id, reference) DO NOTHING
RETURNING id;

-- name: UpdateDisputes :execrows
-- Only of the payment whose lock the caller holds.
UPDATE dispute d SET status = t.status, aside = t.aside, decided_at = CASE WHEN t.status <> 'opened' THEN COALESCE(t.decided_at, now()) END
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@payments::uuid[]) AS payment_id, unnest(@accounts::uuid[]) AS account_id,
               unnest(@refs::text[]) AS reference, unnest(@statuses::text[]) AS status, unnest(@asides::boolean[]) AS aside,
               unnest(@decided::timestamptz[]) AS decided_at) t
 WHERE d.merchant_id = t.merchant_id AND d.account_id = t.account_id AND d.reference = t.reference AND d.payment_id = t.payment_id;

-- name: InsertCancelCode :exec
INSERT INTO cancel_code (merchant_id, payment_id, ordinal, amount, expires_at, kind, idempotency_key, fingerprint, fingerprint_version)
VALUES (@merchant_id, @payment_id, @ordinal, @amount, @expires_at, @kind, @idempotency_key, @fingerprint, @fingerprint_version);

-- name: LatestCancelCode :one
SELECT * FROM cancel_code WHERE merchant_id = @merchant_id AND payment_id = @payment_id ORDER BY ordinal DESC LIMIT 1;

-- name: SaveCancelCode :execrows
-- A code is consumed once, and a try that was counted stays counted (PROTOCOL X1).
UPDATE cancel_code SET tries = @tries, consumed_at = @consumed_at
 WHERE merchant_id = @merchant_id AND payment_id = @payment_id AND ordinal = @ordinal AND consumed_at IS NULL AND tries <= @tries;

-- name: CancelCodeByCommand :one
SELECT * FROM cancel_code WHERE merchant_id = @merchant_id AND kind = @kind AND idempotency_key = @idempotency_key;
