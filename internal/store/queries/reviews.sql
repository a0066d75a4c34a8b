-- name: OpenPaymentReviews :many
-- An entry is written once (PROTOCOL K6).
INSERT INTO review (merchant_id, id, intent_id, payment_id, operation_id, reason, detail)
SELECT t.merchant_id, t.id, t.intent_id, t.payment_id, t.operation_id, t.reason, t.detail
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@ids::uuid[]) AS id, unnest(@intents::uuid[]) AS intent_id,
               unnest(@payments::uuid[]) AS payment_id, unnest(@operations::uuid[]) AS operation_id,
               unnest(@reasons::text[]) AS reason, unnest(@details::text[]) AS detail) t
ON CONFLICT (merchant_id, payment_id, operation_id, reason) WHERE decided_at IS NULL AND movement_id IS NULL DO NOTHING
RETURNING id;

-- name: OpenMovementReviews :many
INSERT INTO review (merchant_id, id, intent_id, payment_id, operation_id, movement_id, reason, detail)
SELECT t.merchant_id, t.id, t.intent_id, t.payment_id, t.operation_id, t.movement_id, t.reason, t.detail
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@ids::uuid[]) AS id, unnest(@intents::uuid[]) AS intent_id,
               unnest(@payments::uuid[]) AS payment_id, unnest(@operations::uuid[]) AS operation_id, unnest(@movements::uuid[]) AS movement_id,
               unnest(@reasons::text[]) AS reason, unnest(@details::text[]) AS detail) t
ON CONFLICT (merchant_id, movement_id, reason) WHERE decided_at IS NULL AND movement_id IS NOT NULL DO NOTHING
RETURNING id;

-- name: LockReview :one
SELECT * FROM review WHERE merchant_id = @merchant_id AND id = @id FOR UPDATE;

-- name: ReviewsOf :many
-- Open entries of the intents, and of the movements.
SELECT r.*
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@intents::uuid[]) AS intent_id) t
  JOIN review r ON r.merchant_id = t.merchant_id AND r.intent_id = t.intent_id
 WHERE r.decided_at IS NULL
UNION
SELECT r.*
  FROM (SELECT unnest(@movement_merchants::uuid[]) AS merchant_id, unnest(@movements::uuid[]) AS movement_id) t
  JOIN review r ON r.merchant_id = t.merchant_id AND r.movement_id = t.movement_id
 WHERE r.decided_at IS NULL;

-- name: CloseReviews :execrows
UPDATE review r SET decided_at = now(), decision = t.decision
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@ids::uuid[]) AS id, unnest(@decisions::text[]) AS decision) t
 WHERE r.merchant_id = t.merchant_id AND r.id = t.id AND r.decided_at IS NULL;

-- name: ReviewByID :one
SELECT * FROM review WHERE merchant_id = @merchant_id AND id = @id;

-- name: OpenReviewsOfMerchant :many
-- The oldest first: ids grow with time.
SELECT * FROM review
 WHERE merchant_id = @merchant_id AND decided_at IS NULL AND (@after::uuid IS NULL OR id > @after::uuid)
 ORDER BY id LIMIT @max_rows::int;

-- name: InsertDecision :exec
INSERT INTO decision (merchant_id, id, review_id, kind, idempotency_key, fingerprint, fingerprint_version, verdict, reference,
                      person, second_person, reason)
VALUES (@merchant_id, @id, @review_id, @kind, @idempotency_key, @fingerprint, @fingerprint_version, @verdict, @reference,
        @person, @second_person, @reason);

-- name: DecisionByCommand :one
SELECT * FROM decision WHERE merchant_id = @merchant_id AND kind = @kind AND idempotency_key = @idempotency_key;

-- name: DecisionsOfReview :many
SELECT * FROM decision WHERE merchant_id = @merchant_id AND review_id = @review_id ORDER BY id;
