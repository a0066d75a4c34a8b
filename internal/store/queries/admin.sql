-- name: CreateMerchant :exec
INSERT INTO merchant (merchant_id, name, mode, pair_id, rate_limit) VALUES (@merchant_id, @name, @mode, @pair_id, @rate_limit);

-- name: Merchants :many
SELECT * FROM merchant ORDER BY merchant_id;

-- name: Policies :many
SELECT merchant_id, cancel_code, compensate FROM merchant WHERE merchant_id = ANY(@merchants::uuid[]) ORDER BY merchant_id;

-- name: SetPolicy :execrows
UPDATE merchant SET cancel_code = @cancel_code, compensate = @compensate WHERE merchant_id = @merchant_id;

-- name: AddAPIKey :exec
INSERT INTO api_key (merchant_id, key_hash, id, name) VALUES (@merchant_id, @key_hash, @id, @name);

-- name: ExpireAPIKey :execrows
-- An earlier end that was set before stays.
UPDATE api_key SET expires_at = LEAST(expires_at, now() + sqlc.arg(overlap_us)::bigint * interval '1 microsecond')
 WHERE merchant_id = @merchant_id AND id = @id AND revoked_at IS NULL;

-- name: RevokeAPIKey :execrows
UPDATE api_key SET revoked_at = now() WHERE merchant_id = @merchant_id AND id = @id AND revoked_at IS NULL;

-- name: FindAPIKey :one
SELECT k.id, k.expires_at, k.revoked_at, m.mode, m.rate_limit, now()::timestamptz AS read_at
  FROM api_key k JOIN merchant m ON m.merchant_id = k.merchant_id
 WHERE k.merchant_id = @merchant_id AND k.key_hash = @key_hash;

-- name: APIKeys :many
SELECT * FROM api_key WHERE merchant_id = @merchant_id ORDER BY id;

-- name: Backlog :one
-- From the index of unfinished operations alone: the table of payments is never scanned.
SELECT count(*) FILTER (WHERE o.due_at <= now()) AS due,
       COALESCE(extract(epoch FROM now() - min(o.due_at) FILTER (WHERE o.due_at <= now())), 0)::float8 AS oldest_due_seconds,
       count(*) FILTER (WHERE o.state = 'in_progress') AS in_progress,
       count(*) FILTER (WHERE p.status = 'unknown') AS unknown,
       COALESCE(extract(epoch FROM now() - min(p.created_at) FILTER (WHERE p.status = 'unknown')), 0)::float8 AS oldest_unknown_seconds
  FROM operation o LEFT JOIN payment p ON p.merchant_id = o.merchant_id AND p.id = o.payment_id AND o.follows_id IS NULL
 WHERE o.state <> 'completed';

-- name: ReviewBacklog :one
SELECT count(*) AS open, COALESCE(extract(epoch FROM now() - min(opened_at)), 0)::float8 AS oldest_seconds
  FROM review WHERE decided_at IS NULL;

-- name: ChangeBacklog :one
-- From the index of unfinished operations; disputes are few.
SELECT count(*) FILTER (WHERE m.type = 'refund') AS refunds,
       COALESCE(extract(epoch FROM now() - min(m.created_at) FILTER (WHERE m.type = 'refund')), 0)::float8 AS oldest_refund_seconds,
       count(*) FILTER (WHERE m.status = 'unknown') AS unknown,
       COALESCE(extract(epoch FROM now() - min(m.created_at) FILTER (WHERE m.status = 'unknown')), 0)::float8 AS oldest_unknown_seconds,
       count(*) FILTER (WHERE m.type = 'compensation') AS compensations,
       COALESCE(extract(epoch FROM now() - min(m.created_at) FILTER (WHERE m.type = 'compensation')), 0)::float8 AS oldest_compensation_seconds,
       (SELECT count(*) FROM dispute WHERE status = 'opened') AS disputes
  FROM operation o JOIN modification m ON m.merchant_id = o.merchant_id AND m.id = o.modification_id
 WHERE o.state <> 'completed' AND o.follows_id IS NULL;

-- name: Facts :one
SELECT current_setting('server_version')::text AS server_version, current_setting('fsync')::text AS fsync,
       current_setting('full_page_writes')::text AS full_page_writes,
       current_setting('synchronous_commit')::text AS synchronous_commit,
       current_setting('synchronous_standby_names')::text AS synchronous_standbys,
       current_setting('max_connections')::int AS max_connections,
       pg_is_in_recovery()::boolean AS in_recovery, current_setting('transaction_read_only')::text AS read_only,
       current_user::text AS role, now()::timestamptz AS now,
       (SELECT COALESCE(max(version), 0) FROM schema_migration)::int AS schema_version;
