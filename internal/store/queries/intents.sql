-- name: InsertIntents :exec
-- A reference that exists already is left out: its intent is found by LockIntents (PROTOCOL W3).
WITH t AS (
  SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@ids::uuid[]) AS id, unnest(@refs::text[]) AS client_reference,
         unnest(@customers::text[]) AS customer, unnest(@descriptions::text[]) AS description, unnest(@metadata::text[]) AS metadata,
         unnest(@receipts::text[]) AS receipt_email,
         unnest(@amounts::bigint[]) AS amount, unnest(@currencies::text[]) AS currency, unnest(@captures::text[]) AS capture_method,
         unnest(@pay_before::timestamptz[]) AS pay_before, unnest(@seeds::text[]) AS key_seed, unnest(@versions::int[]) AS version,
         unnest(@kinds::text[]) AS kind, unnest(@keys::text[]) AS idempotency_key, unnest(@fingerprints::bytea[]) AS fingerprint,
         unnest(@fingerprint_versions::smallint[]) AS fingerprint_version
), made AS (
  INSERT INTO payment_intent (merchant_id, id, client_reference, customer, description, metadata, receipt_email, amount, currency,
                              capture_method, pay_before, key_seed, version)
  SELECT t.merchant_id, t.id, NULLIF(t.client_reference, ''), NULLIF(t.customer, ''), NULLIF(t.description, ''), NULLIF(t.metadata, ''),
         NULLIF(t.receipt_email, ''), t.amount, t.currency, t.capture_method, t.pay_before, t.key_seed, t.version
    FROM t
  ON CONFLICT (merchant_id, client_reference) WHERE client_reference IS NOT NULL DO NOTHING
  RETURNING merchant_id, id
)
INSERT INTO payment_intent_version (merchant_id, intent_id, version, kind, idempotency_key, fingerprint, fingerprint_version, amount, currency)
SELECT t.merchant_id, t.id, t.version, t.kind, t.idempotency_key, t.fingerprint, t.fingerprint_version, t.amount, t.currency
  FROM t JOIN made m ON m.merchant_id = t.merchant_id AND m.id = t.id;

-- name: LockIntents :many
SELECT i.*
  FROM payment_intent i
  JOIN (SELECT a.merchant_id, a.id FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@ids::uuid[]) AS id) a
         UNION
        SELECT p.merchant_id, p.id
          FROM (SELECT unnest(@ref_merchants::uuid[]) AS merchant_id, unnest(@refs::text[]) AS client_reference) b
          JOIN payment_intent p ON p.merchant_id = b.merchant_id AND p.client_reference = b.client_reference) k
    ON k.merchant_id = i.merchant_id AND k.id = i.id
 ORDER BY i.merchant_id, i.id
   FOR UPDATE OF i;

-- name: LockLatestPayments :many
SELECT p.*
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@intents::uuid[]) AS intent_id) t
 CROSS JOIN LATERAL (SELECT x.id FROM payment x WHERE x.merchant_id = t.merchant_id AND x.intent_id = t.intent_id
                      ORDER BY x.n DESC LIMIT 1) l
  JOIN payment p ON p.merchant_id = t.merchant_id AND p.id = l.id
 ORDER BY p.merchant_id, p.id
   FOR UPDATE OF p;

-- name: MoneyOnIntents :many
-- Money that was not given back, applied money first.
SELECT m.merchant_id, m.intent_id, m.payment_id
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@intents::uuid[]) AS intent_id) t
  JOIN movement m ON m.merchant_id = t.merchant_id AND m.intent_id = t.intent_id
 WHERE m.kind IN ('charge', 'capture') AND m.state <> 'returned'
 ORDER BY m.state, m.id;

-- name: AmendIntents :execrows
WITH t AS (
  SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@ids::uuid[]) AS id,
         unnest(@customers::text[]) AS customer, unnest(@descriptions::text[]) AS description, unnest(@metadata::text[]) AS metadata,
         unnest(@receipts::text[]) AS receipt_email,
         unnest(@amounts::bigint[]) AS amount, unnest(@currencies::text[]) AS currency, unnest(@captures::text[]) AS capture_method,
         unnest(@pay_before::timestamptz[]) AS pay_before, unnest(@versions::int[]) AS version,
         unnest(@kinds::text[]) AS kind, unnest(@keys::text[]) AS idempotency_key, unnest(@fingerprints::bytea[]) AS fingerprint,
         unnest(@fingerprint_versions::smallint[]) AS fingerprint_version
), amended AS (
  UPDATE payment_intent i
     SET customer = NULLIF(t.customer, ''), description = NULLIF(t.description, ''), metadata = NULLIF(t.metadata, ''),
         receipt_email = NULLIF(t.receipt_email, ''), amount = t.amount, currency = t.currency, capture_method = t.capture_method, pay_before = t.pay_before,
         version = t.version, updated_at = now()
    FROM t
   WHERE i.merchant_id = t.merchant_id AND i.id = t.id AND i.version = t.version - 1
  RETURNING i.merchant_id, i.id
)
INSERT INTO payment_intent_version (merchant_id, intent_id, version, kind, idempotency_key, fingerprint, fingerprint_version, amount, currency)
SELECT t.merchant_id, t.id, t.version, t.kind, t.idempotency_key, t.fingerprint, t.fingerprint_version, t.amount, t.currency
  FROM t JOIN amended a ON a.merchant_id = t.merchant_id AND a.id = t.id;

-- name: SaveIntents :execrows
UPDATE payment_intent i SET event_version = t.event_version, conflict = t.conflict, updated_at = now()
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@ids::uuid[]) AS id,
               unnest(@event_versions::bigint[]) AS event_version, unnest(@conflicts::boolean[]) AS conflict) t
 WHERE i.merchant_id = t.merchant_id AND i.id = t.id AND i.event_version <= t.event_version;

-- name: IntentsByCommand :many
-- The amount is that of the version which the command made.
SELECT sqlc.embed(i), v.version AS made_version, v.kind, v.idempotency_key, v.fingerprint, v.fingerprint_version,
       v.amount AS made_amount, v.currency AS made_currency, v.created_at AS made_at
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@kinds::text[]) AS kind, unnest(@keys::text[]) AS idempotency_key) t
  JOIN payment_intent_version v ON v.merchant_id = t.merchant_id AND v.kind = t.kind AND v.idempotency_key = t.idempotency_key
  JOIN payment_intent i ON i.merchant_id = v.merchant_id AND i.id = v.intent_id;

-- name: IntentByID :one
SELECT * FROM payment_intent WHERE merchant_id = @merchant_id AND id = @id;

-- name: IntentByReference :one
SELECT * FROM payment_intent WHERE merchant_id = @merchant_id AND client_reference = @client_reference::text;

-- name: IntentsByCustomer :many
SELECT * FROM payment_intent
 WHERE merchant_id = @merchant_id AND customer = @customer::text AND (@before::uuid IS NULL OR id < @before::uuid)
 ORDER BY id DESC LIMIT @max_rows::int;
