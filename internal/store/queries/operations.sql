-- name: InsertOperations :many
-- A claim: the primary key decides (PROTOCOL K1). What is not returned exists already.
INSERT INTO operation (merchant_id, kind, idempotency_key, id, fingerprint, fingerprint_version, request_id, state, claim_id,
                       lease_until, due_at, intent_id, payment_id, modification_id, follows_id, send_until, epoch, lost)
SELECT t.merchant_id, t.kind, t.idempotency_key, t.id, t.fingerprint, t.fingerprint_version, t.request_id, 'in_progress', t.claim_id,
       now() + sqlc.arg(lease_us)::bigint * interval '1 microsecond', now() + sqlc.arg(lease_us)::bigint * interval '1 microsecond',
       t.intent_id, t.payment_id, t.modification_id, t.follows_id, COALESCE(t.send_until, now()), t.epoch, t.lost
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@kinds::text[]) AS kind, unnest(@keys::text[]) AS idempotency_key,
               unnest(@ids::uuid[]) AS id, unnest(@fingerprints::bytea[]) AS fingerprint,
               unnest(@fingerprint_versions::smallint[]) AS fingerprint_version, unnest(@request_ids::text[]) AS request_id,
               unnest(@claim_ids::uuid[]) AS claim_id, unnest(@intents::uuid[]) AS intent_id, unnest(@payments::uuid[]) AS payment_id,
               unnest(@follows::uuid[]) AS follows_id, unnest(@send_until::timestamptz[]) AS send_until,
               unnest(@epochs::bigint[]) AS epoch, unnest(@lost::boolean[]) AS lost, unnest(@modifications::uuid[]) AS modification_id) t
ON CONFLICT (merchant_id, kind, idempotency_key) DO NOTHING
RETURNING id;

-- name: DeleteOperations :execrows
-- Only rows that this very transaction made: the time of creation is that of the transaction.
DELETE FROM operation o
 USING (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@kinds::text[]) AS kind, unnest(@keys::text[]) AS idempotency_key) t
 WHERE o.merchant_id = t.merchant_id AND o.kind = t.kind AND o.idempotency_key = t.idempotency_key
   AND o.created_at = now() AND o.fence = 1;

-- name: ReadOperations :many
SELECT o.*
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@kinds::text[]) AS kind, unnest(@keys::text[]) AS idempotency_key) t
  JOIN operation o ON o.merchant_id = t.merchant_id AND o.kind = t.kind AND o.idempotency_key = t.idempotency_key;

-- name: LockOperations :many
SELECT o.*
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@kinds::text[]) AS kind, unnest(@keys::text[]) AS idempotency_key) t
  JOIN operation o ON o.merchant_id = t.merchant_id AND o.kind = t.kind AND o.idempotency_key = t.idempotency_key
 ORDER BY o.merchant_id, o.kind, o.idempotency_key
   FOR UPDATE OF o;

-- name: TakeOver :many
-- The lock comes first, in order (PROTOCOL P4); who waited for it sees the other's fence and gets no row (K2).
WITH t AS (
  SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@kinds::text[]) AS kind, unnest(@keys::text[]) AS idempotency_key,
         unnest(@fences::bigint[]) AS fence, unnest(@claim_ids::uuid[]) AS claim_id, unnest(@leases_us::bigint[]) AS lease_us
), locked AS (
  SELECT o.merchant_id, o.kind, o.idempotency_key, t.claim_id, now() + t.lease_us * interval '1 microsecond' AS lease_until
    FROM t JOIN operation o ON o.merchant_id = t.merchant_id AND o.kind = t.kind AND o.idempotency_key = t.idempotency_key
   WHERE o.fence = t.fence AND o.state <> 'completed' AND o.due_at <= now() AND (o.follows_id IS NULL OR @followers::boolean)
   ORDER BY o.merchant_id, o.kind, o.idempotency_key
     FOR UPDATE OF o
)
UPDATE operation o
   SET fence = o.fence + 1, claim_id = l.claim_id, claimed_at = now(), lease_until = l.lease_until, due_at = l.lease_until
  FROM locked l
 WHERE o.merchant_id = l.merchant_id AND o.kind = l.kind AND o.idempotency_key = l.idempotency_key
RETURNING o.*;

-- name: DueOperations :many
-- lint: skip locked: across merchants, on one plain PostgreSQL only: Config.Distributed uses DueOperationsWaiting
-- Merchant by merchant, so that one with many due rows does not starve the rest (PROTOCOL S2).
WITH RECURSIVE m AS (
  (SELECT o.merchant_id FROM operation o WHERE o.state <> 'completed' ORDER BY o.merchant_id LIMIT 1)
  UNION ALL
  SELECT (SELECT o.merchant_id FROM operation o WHERE o.state <> 'completed' AND o.merchant_id > m.merchant_id
           ORDER BY o.merchant_id LIMIT 1)
    FROM m WHERE m.merchant_id IS NOT NULL
), due AS (
  SELECT d.merchant_id, d.kind, d.idempotency_key
    FROM m CROSS JOIN LATERAL (
      SELECT o.merchant_id, o.kind, o.idempotency_key, o.due_at FROM operation o
       WHERE o.merchant_id = m.merchant_id AND o.state <> 'completed' AND o.due_at <= now()
       ORDER BY o.due_at LIMIT @per_merchant::int) d
   ORDER BY d.due_at LIMIT @max_rows::int
)
SELECT o.*
  FROM due d JOIN operation o ON o.merchant_id = d.merchant_id AND o.kind = d.kind AND o.idempotency_key = d.idempotency_key
 WHERE o.state <> 'completed' AND o.due_at <= now()
 ORDER BY o.merchant_id, o.kind, o.idempotency_key
   FOR UPDATE OF o SKIP LOCKED;

-- name: DueOperationsWaiting :many
-- DueOperations where SKIP LOCKED across merchants is not to be had.
WITH RECURSIVE m AS (
  (SELECT o.merchant_id FROM operation o WHERE o.state <> 'completed' ORDER BY o.merchant_id LIMIT 1)
  UNION ALL
  SELECT (SELECT o.merchant_id FROM operation o WHERE o.state <> 'completed' AND o.merchant_id > m.merchant_id
           ORDER BY o.merchant_id LIMIT 1)
    FROM m WHERE m.merchant_id IS NOT NULL
), due AS (
  SELECT d.merchant_id, d.kind, d.idempotency_key
    FROM m CROSS JOIN LATERAL (
      SELECT o.merchant_id, o.kind, o.idempotency_key, o.due_at FROM operation o
       WHERE o.merchant_id = m.merchant_id AND o.state <> 'completed' AND o.due_at <= now()
       ORDER BY o.due_at LIMIT @per_merchant::int) d
   ORDER BY d.due_at LIMIT @max_rows::int
)
SELECT o.*
  FROM due d JOIN operation o ON o.merchant_id = d.merchant_id AND o.kind = d.kind AND o.idempotency_key = d.idempotency_key
 WHERE o.state <> 'completed' AND o.due_at <= now()
 ORDER BY o.merchant_id, o.kind, o.idempotency_key
   FOR UPDATE OF o;

-- name: SaveOperations :many
-- Guarded by the fence: a stale owner writes nothing (PROTOCOL K3).
WITH t AS (
  SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@kinds::text[]) AS kind, unnest(@keys::text[]) AS idempotency_key,
         unnest(@fences::bigint[]) AS fence, unnest(@states::text[]) AS state, unnest(@due::timestamptz[]) AS due_at,
         unnest(@checks::int[]) AS checks, unnest(@unsent::int[]) AS unsent,
         unnest(@answer_statuses::int[]) AS answer_status, unnest(@answer_bodies::bytea[]) AS answer_body,
         unnest(@intents::uuid[]) AS intent_id, unnest(@payments::uuid[]) AS payment_id, unnest(@follows::uuid[]) AS follows_id,
         unnest(@modifications::uuid[]) AS modification_id
), locked AS (
  SELECT o.merchant_id, o.kind, o.idempotency_key,
         t.state, t.due_at, t.checks, t.unsent, t.answer_status, t.answer_body, t.intent_id, t.payment_id, t.modification_id, t.follows_id
    FROM t JOIN operation o ON o.merchant_id = t.merchant_id AND o.kind = t.kind AND o.idempotency_key = t.idempotency_key
   WHERE o.fence = t.fence AND o.state <> 'completed'
   ORDER BY o.merchant_id, o.kind, o.idempotency_key
     FOR UPDATE OF o
)
UPDATE operation o
   SET state = l.state, due_at = COALESCE(l.due_at, o.due_at), checks = l.checks, unsent = l.unsent,
       answer_status = NULLIF(l.answer_status, 0)::smallint, answer_body = l.answer_body,
       intent_id = l.intent_id, payment_id = l.payment_id, modification_id = l.modification_id, follows_id = l.follows_id,
       completed_at = CASE WHEN l.state = 'completed' THEN now() END,
       expires_at = CASE WHEN l.state = 'completed' THEN now() + sqlc.arg(retention_us)::bigint * interval '1 microsecond' END
  FROM locked l
 WHERE o.merchant_id = l.merchant_id AND o.kind = l.kind AND o.idempotency_key = l.idempotency_key
RETURNING o.id;

-- name: BindOperations :execrows
-- Stores what will be sent before it is sent (PROTOCOL A1) and counts the first permit (A0).
UPDATE operation o
   SET intent_id = t.intent_id, payment_id = t.payment_id, modification_id = t.modification_id, follows_id = t.follows_id,
       account_id = t.account_id, action = NULLIF(t.action, ''), acquirer_key = NULLIF(t.acquirer_key, ''), object = NULLIF(t.object, ''),
       request_body = t.request_body,
       send_until = COALESCE(t.send_until, o.send_until),
       sends = CASE WHEN t.action <> '' THEN 1 ELSE 0 END, permit_id = CASE WHEN t.action <> '' THEN t.permit_id END,
       first_permit_at = CASE WHEN t.action <> '' THEN now() END, last_permit_at = CASE WHEN t.action <> '' THEN now() END
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@kinds::text[]) AS kind, unnest(@keys::text[]) AS idempotency_key,
               unnest(@claim_ids::uuid[]) AS claim_id, unnest(@intents::uuid[]) AS intent_id, unnest(@payments::uuid[]) AS payment_id,
               unnest(@follows::uuid[]) AS follows_id, unnest(@accounts::uuid[]) AS account_id, unnest(@actions::text[]) AS action,
               unnest(@acquirer_keys::text[]) AS acquirer_key, unnest(@bodies::bytea[]) AS request_body,
               unnest(@send_until::timestamptz[]) AS send_until, unnest(@permit_ids::uuid[]) AS permit_id,
               unnest(@modifications::uuid[]) AS modification_id, unnest(@objects::text[]) AS object) t
 WHERE o.merchant_id = t.merchant_id AND o.kind = t.kind AND o.idempotency_key = t.idempotency_key
   AND o.fence = 1 AND o.claim_id = t.claim_id AND o.state = 'in_progress' AND o.sends = 0;

-- name: BindCalls :many
-- Stores what will be sent (PROTOCOL A1) once it is known; the permit comes later.
WITH t AS (
  SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@kinds::text[]) AS kind, unnest(@keys::text[]) AS idempotency_key,
         unnest(@fences::bigint[]) AS fence, unnest(@accounts::uuid[]) AS account_id, unnest(@actions::text[]) AS action,
         unnest(@acquirer_keys::text[]) AS acquirer_key, unnest(@objects::text[]) AS object, unnest(@bodies::bytea[]) AS request_body
), locked AS (
  SELECT o.merchant_id, o.kind, o.idempotency_key, t.account_id, t.action, t.acquirer_key, t.object, t.request_body
    FROM t JOIN operation o ON o.merchant_id = t.merchant_id AND o.kind = t.kind AND o.idempotency_key = t.idempotency_key
   WHERE o.fence = t.fence AND o.state <> 'completed' AND o.action IS NULL
   ORDER BY o.merchant_id, o.kind, o.idempotency_key
     FOR UPDATE OF o
)
UPDATE operation o
   SET account_id = l.account_id, action = l.action, acquirer_key = l.acquirer_key, object = NULLIF(l.object, ''),
       request_body = l.request_body
  FROM locked l
 WHERE o.merchant_id = l.merchant_id AND o.kind = l.kind AND o.idempotency_key = l.idempotency_key
RETURNING o.id;

-- name: OpenOperations :many
SELECT o.*
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@payments::uuid[]) AS payment_id) t
  JOIN operation o ON o.merchant_id = t.merchant_id AND o.payment_id = t.payment_id
 WHERE o.state <> 'completed'
 ORDER BY o.merchant_id, o.kind, o.idempotency_key
   FOR UPDATE OF o;

-- name: PurgeOperations :execrows
-- lint: across merchants: the retention loop removes what nobody may ask for any more (PROTOCOL K8)
DELETE FROM operation o
 USING (SELECT p.merchant_id, p.kind, p.idempotency_key FROM operation p
         WHERE p.state = 'completed' AND p.expires_at <= now() ORDER BY p.expires_at LIMIT @max_rows::int) t
 WHERE o.merchant_id = t.merchant_id AND o.kind = t.kind AND o.idempotency_key = t.idempotency_key
   AND o.state = 'completed' AND o.expires_at <= now();
