-- name: Mailboxes :many
-- Accounts with the mode of their merchants: test news never touches live payments, nor the reverse.
SELECT sqlc.embed(a), m.mode
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@ids::uuid[]) AS id) t
  JOIN acquirer_account a ON a.merchant_id = t.merchant_id AND a.id = t.id
  JOIN merchant m ON m.merchant_id = t.merchant_id;

-- name: InsertMessage :execrows
-- Stored raw before anything else; the same bytes again are no second row (PROTOCOL V3).
INSERT INTO inbox_message (merchant_id, id, account_id, message_id, raw, raw_hash, trust, due_at)
VALUES (@merchant_id, @id, @account_id, @message_id, @raw, @raw_hash, @trust, now())
ON CONFLICT (merchant_id, account_id, message_id, raw_hash) DO NOTHING;

-- name: RepeatMessage :execrows
UPDATE inbox_message SET repeats = LEAST(repeats, 2147483646) + 1
 WHERE merchant_id = @merchant_id AND account_id = @account_id AND message_id = @message_id AND raw_hash = @raw_hash;

-- name: RenewHint :execrows
-- A hint says that something changed and not what: the same bytes again may be about another change. It is asked about anew,
-- also where an older question about it is under way, whose answer may be from before.
UPDATE inbox_message
   SET state = 'received', due_at = now(), received_at = now(), ended_at = NULL, claim_id = NULL, attempts = 0
 WHERE merchant_id = @merchant_id AND account_id = @account_id AND message_id = @message_id AND raw_hash = @raw_hash AND trust = 'hint';

-- name: DueMessages :many
-- lint: skip locked: across merchants, on one plain PostgreSQL only: Config.Distributed uses DueMessagesWaiting
-- Merchant by merchant, and the first of each before the second of any: however many messages others have, none starves
-- (PROTOCOL S2).
WITH RECURSIVE m AS (
  (SELECT i.merchant_id FROM inbox_message i WHERE i.due_at IS NOT NULL ORDER BY i.merchant_id LIMIT 1)
  UNION ALL
  SELECT (SELECT i.merchant_id FROM inbox_message i WHERE i.due_at IS NOT NULL AND i.merchant_id > m.merchant_id
           ORDER BY i.merchant_id LIMIT 1)
    FROM m WHERE m.merchant_id IS NOT NULL
), due AS (
  SELECT d.merchant_id, d.id
    FROM m CROSS JOIN LATERAL (
      SELECT i.merchant_id, i.id, i.due_at, row_number() OVER (ORDER BY i.due_at) AS turn FROM inbox_message i
       WHERE i.merchant_id = m.merchant_id AND i.due_at <= now()
       ORDER BY i.due_at LIMIT @per_merchant::int) d
   ORDER BY d.turn, d.due_at LIMIT @max_rows::int
)
SELECT i.merchant_id, i.id, i.attempts
  FROM due d JOIN inbox_message i ON i.merchant_id = d.merchant_id AND i.id = d.id
 WHERE i.due_at <= now()
 ORDER BY i.merchant_id, i.id
   FOR UPDATE OF i SKIP LOCKED;

-- name: DueMessagesWaiting :many
-- DueMessages where SKIP LOCKED across merchants is not to be had.
WITH RECURSIVE m AS (
  (SELECT i.merchant_id FROM inbox_message i WHERE i.due_at IS NOT NULL ORDER BY i.merchant_id LIMIT 1)
  UNION ALL
  SELECT (SELECT i.merchant_id FROM inbox_message i WHERE i.due_at IS NOT NULL AND i.merchant_id > m.merchant_id
           ORDER BY i.merchant_id LIMIT 1)
    FROM m WHERE m.merchant_id IS NOT NULL
), due AS (
  SELECT d.merchant_id, d.id
    FROM m CROSS JOIN LATERAL (
      SELECT i.merchant_id, i.id, i.due_at, row_number() OVER (ORDER BY i.due_at) AS turn FROM inbox_message i
       WHERE i.merchant_id = m.merchant_id AND i.due_at <= now()
       ORDER BY i.due_at LIMIT @per_merchant::int) d
   ORDER BY d.turn, d.due_at LIMIT @max_rows::int
)
SELECT i.merchant_id, i.id, i.attempts
  FROM due d JOIN inbox_message i ON i.merchant_id = d.merchant_id AND i.id = d.id
 WHERE i.due_at <= now()
 ORDER BY i.merchant_id, i.id
   FOR UPDATE OF i;

-- name: TakeMessages :many
-- A pick: the due time moves by a lease, which doubles with each try that did not end the message.
UPDATE inbox_message i
   SET claim_id = t.claim_id, attempts = i.attempts + 1,
       due_at = now() + sqlc.arg(lease_us)::bigint * (1 << LEAST(i.attempts, @doublings::int)) * interval '1 microsecond'
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@ids::uuid[]) AS id, unnest(@attempts::int[]) AS attempts,
               unnest(@claim_ids::uuid[]) AS claim_id) t
 WHERE i.merchant_id = t.merchant_id AND i.id = t.id AND i.attempts = t.attempts AND i.due_at <= now()
RETURNING i.*;

-- name: SaveMessage :execrows
-- Only by whoever picked it last: another one has its own result (PROTOCOL K3).
UPDATE inbox_message
   SET state = @state, why = @why, type = @type, intent_id = @intent_id, payment_id = @payment_id, due_at = @due_at,
       ended_at = CASE WHEN sqlc.narg(due_at)::timestamptz IS NULL THEN now() END
 WHERE merchant_id = @merchant_id AND id = @id AND claim_id = @claim_id AND due_at IS NOT NULL;

-- name: PaymentsBySession :many
SELECT * FROM payment WHERE merchant_id = @merchant_id AND account_id = @account_id AND session_reference = ANY(@sessions::text[]);

-- name: RetryMessage :execrows
-- Also one that has ended: a person knows better by now.
UPDATE inbox_message
   SET state = CASE WHEN ended_at IS NULL THEN state ELSE 'received' END, due_at = now(), ended_at = NULL, claim_id = NULL, attempts = 0
 WHERE merchant_id = @merchant_id AND id = @id AND state <> 'applied';

-- name: Messages :many
SELECT merchant_id, id, account_id, message_id, raw_hash, trust, type, state, why, intent_id, payment_id,
       attempts, repeats, due_at, received_at, ended_at
  FROM inbox_message
 WHERE merchant_id = @merchant_id AND (@state::text = '' OR state = @state) AND (sqlc.narg(before_id)::uuid IS NULL OR id < @before_id)
 ORDER BY id DESC LIMIT @max_rows::int;

-- name: PurgeMessages :execrows
-- lint: across merchants: the retention loop
-- What is applied or ignored is not needed any more; what nobody could read or place stays until somebody looked.
DELETE FROM inbox_message d
 USING (SELECT i.merchant_id, i.id FROM inbox_message i
         WHERE i.state IN ('applied', 'ignored') AND i.ended_at < now() - sqlc.arg(retention_us)::bigint * interval '1 microsecond'
         ORDER BY i.ended_at LIMIT @max_rows::int) t
 WHERE d.merchant_id = t.merchant_id AND d.id = t.id;

-- name: InboxBacklog :one
SELECT (SELECT count(*) FROM inbox_message WHERE due_at IS NOT NULL AND state = 'received') AS waiting,
       (SELECT count(*) FROM inbox_message WHERE due_at IS NOT NULL AND state = 'parked') AS parked,
       (SELECT COALESCE(EXTRACT(EPOCH FROM now() - min(received_at)), 0)::double precision
          FROM inbox_message WHERE due_at IS NOT NULL AND state = 'received') AS oldest_seconds,
       (SELECT count(*) FROM inbox_message WHERE state = 'unreadable') AS unreadable;
