-- name: MovementsOf :many
-- Of the intents, and those that fit no payment yet but carry one of the keys. An intent without id names its merchant.
SELECT m.*
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@intents::uuid[]) AS intent_id) t
  JOIN movement m ON m.merchant_id = t.merchant_id AND m.intent_id = t.intent_id
UNION
SELECT m.*
  FROM movement m
 WHERE m.merchant_id = ANY(@merchants::uuid[]) AND m.acquirer_key = ANY(@acquirer_keys::text[]) AND m.payment_id IS NULL;

-- name: MovementByID :one
SELECT * FROM movement WHERE merchant_id = @merchant_id AND id = @id;

-- name: InsertMovements :many
-- Money that moved is booked once by the acquirer's reference (PROTOCOL E5).
INSERT INTO movement (merchant_id, id, account_id, reference, kind, acquirer_key, intent_id, payment_id, amount, currency, state, cause, moved_at, object)
SELECT t.merchant_id, t.id, t.account_id, t.reference, t.kind, NULLIF(t.acquirer_key, ''), t.intent_id, t.payment_id,
       t.amount, t.currency, t.state, NULLIF(t.cause, ''), t.moved_at, NULLIF(t.object, '')
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@ids::uuid[]) AS id, unnest(@accounts::uuid[]) AS account_id,
               unnest(@refs::text[]) AS reference, unnest(@kinds::text[]) AS kind, unnest(@acquirer_keys::text[]) AS acquirer_key,
               unnest(@intents::uuid[]) AS intent_id, unnest(@payments::uuid[]) AS payment_id, unnest(@amounts::bigint[]) AS amount,
               unnest(@currencies::text[]) AS currency, unnest(@states::text[]) AS state, unnest(@causes::text[]) AS cause,
               unnest(@moved::timestamptz[]) AS moved_at, unnest(@objects::text[]) AS object) t
ON CONFLICT (merchant_id, account_id, reference, kind) DO NOTHING
RETURNING id;

-- name: SaveMovements :execrows
-- Money is attributed once and given back once: what somebody decided meanwhile is not decided again.
UPDATE movement m SET state = t.state, cause = NULLIF(t.cause, ''), intent_id = t.intent_id, payment_id = t.payment_id, updated_at = now()
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@ids::uuid[]) AS id, unnest(@states::text[]) AS state,
               unnest(@causes::text[]) AS cause, unnest(@intents::uuid[]) AS intent_id, unnest(@payments::uuid[]) AS payment_id) t
 WHERE m.merchant_id = t.merchant_id AND m.id = t.id
   AND (m.state = 'unapplied' OR m.state = 'applied' AND t.state = 'returned');

-- name: InsertEntries :exec
-- Without ON CONFLICT: a key that exists already is a defect upstream (PROTOCOL section 11).
INSERT INTO ledger_entry (merchant_id, tx_key, line, id, intent_id, payment_id, account, amount, currency)
SELECT unnest(@merchants::uuid[]), unnest(@tx_keys::text[]), unnest(@lines::smallint[]), unnest(@ids::uuid[]), unnest(@intents::uuid[]),
       unnest(@payments::uuid[]), unnest(@accounts::text[]), unnest(@amounts::bigint[]), unnest(@currencies::text[]);

-- name: InsertEvents :exec
-- With each event its row of the outbox, in one statement: what is committed is told (PROTOCOL V1).
WITH t AS (
  SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@intents::uuid[]) AS intent_id, unnest(@endpoints::uuid[]) AS endpoint_id,
         unnest(@versions::bigint[]) AS version, unnest(@ids::uuid[]) AS id, unnest(@payments::uuid[]) AS payment_id,
         unnest(@event_keys::text[]) AS event_key, unnest(@types::text[]) AS type, unnest(@payloads::bytea[]) AS payload,
         unnest(@at::timestamptz[]) AS created_at
), told AS (
  INSERT INTO event (merchant_id, intent_id, endpoint_id, version, id, payment_id, event_key, type, payload, created_at)
  SELECT t.merchant_id, t.intent_id, t.endpoint_id, t.version, t.id, t.payment_id, t.event_key, t.type, t.payload, COALESCE(t.created_at, now())
    FROM t
  RETURNING merchant_id, COALESCE(intent_id, endpoint_id) AS subject_id, version, id
)
INSERT INTO outbox (merchant_id, subject_id, version, event_id)
SELECT merchant_id, subject_id, version, id FROM told;

-- name: EventsOfIntent :many
SELECT * FROM event
 WHERE merchant_id = @merchant_id AND intent_id = @intent_id AND version > @after::bigint
 ORDER BY version LIMIT @max_rows::int;

-- name: Events :many
SELECT * FROM event
 WHERE merchant_id = @merchant_id AND (@before::uuid IS NULL OR id < @before::uuid)
 ORDER BY id DESC LIMIT @max_rows::int;

-- name: EventByID :one
SELECT * FROM event WHERE merchant_id = @merchant_id AND id = @id;

-- name: InsertEvidence :many
INSERT INTO evidence (merchant_id, id, intent_id, payment_id, operation_id, account_id, source, outcome, class, code, failure, message,
                      reference, our_reference, amount, currency, acquirer_request_id, raw_hash, bytes_written, asked_at, moved_at,
                      fence, inference, effect, why, person, note, request_id, modification_id, about, object, session, final, expires_at)
SELECT t.merchant_id, t.id, t.intent_id, t.payment_id, t.operation_id, t.account_id, t.source, t.outcome, t.class,
       NULLIF(t.code, ''), NULLIF(t.failure, ''), NULLIF(t.message, ''), NULLIF(t.reference, ''), NULLIF(t.our_reference, ''),
       CASE WHEN t.currency <> '' THEN t.amount END, NULLIF(t.currency, ''), NULLIF(t.acquirer_request_id, ''), t.raw_hash,
       t.bytes_written, t.asked_at, t.moved_at, t.fence, t.inference, t.effect, t.why,
       NULLIF(t.person, ''), NULLIF(t.note, ''), NULLIF(t.request_id, ''),
       t.modification_id, COALESCE(NULLIF(t.about, ''), 'charge'), NULLIF(t.object, ''), NULLIF(t.session, ''), t.final, t.expires_at
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@ids::uuid[]) AS id, unnest(@intents::uuid[]) AS intent_id,
               unnest(@payments::uuid[]) AS payment_id, unnest(@operations::uuid[]) AS operation_id, unnest(@accounts::uuid[]) AS account_id,
               unnest(@sources::text[]) AS source, unnest(@outcomes::text[]) AS outcome, unnest(@classes::text[]) AS class,
               unnest(@codes::text[]) AS code, unnest(@failures::text[]) AS failure, unnest(@messages::text[]) AS message,
               unnest(@refs::text[]) AS reference, unnest(@our_refs::text[]) AS our_reference,
               unnest(@amounts::bigint[]) AS amount, unnest(@currencies::text[]) AS currency,
               unnest(@acquirer_request_ids::text[]) AS acquirer_request_id, unnest(@raw_hashes::bytea[]) AS raw_hash,
               unnest(@bytes_written::bigint[]) AS bytes_written, unnest(@asked::timestamptz[]) AS asked_at,
               unnest(@moved::timestamptz[]) AS moved_at, unnest(@fences::bigint[]) AS fence, unnest(@inferences::text[]) AS inference,
               unnest(@effects::text[]) AS effect, unnest(@whys::text[]) AS why, unnest(@persons::text[]) AS person,
               unnest(@notes::text[]) AS note, unnest(@request_ids::text[]) AS request_id,
               unnest(@modifications::uuid[]) AS modification_id, unnest(@abouts::text[]) AS about, unnest(@objects::text[]) AS object,
               unnest(@sessions::text[]) AS session, unnest(@finals::boolean[]) AS final, unnest(@expires::timestamptz[]) AS expires_at) t
ON CONFLICT (merchant_id, id) DO NOTHING
RETURNING id;

-- name: EarlyEvidence :many
-- What waited for something that must come before it (PROTOCOL E1), the oldest first.
SELECT e.*
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@payments::uuid[]) AS payment_id) t
  JOIN evidence e ON e.merchant_id = t.merchant_id AND e.payment_id = t.payment_id
 WHERE e.effect = 'early'
 ORDER BY e.created_at, e.id LIMIT @max_rows::int;
