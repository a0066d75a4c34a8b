-- name: Guard :one
-- One look at the server and at what is known about it (PROTOCOL K9, A8). A replica has no timeline and no position.
SELECT now()::timestamptz AS now, e.epoch, e.system_identifier, e.timeline, e.held, e.lost_from, e.lost_to,
       pg_is_in_recovery()::boolean AS in_recovery,
       current_setting('fsync')::text AS fsync,
       current_setting('synchronous_commit')::text AS synchronous_commit,
       current_setting('transaction_read_only')::text AS read_only,
       (SELECT c.system_identifier FROM pg_control_system() c)::text AS server_identifier,
       CASE WHEN pg_is_in_recovery() THEN '' ELSE pg_walfile_name(pg_current_wal_lsn()) END::text AS wal_file,
       CASE WHEN pg_is_in_recovery() THEN 0 ELSE pg_current_wal_flush_lsn() - '0/0'::pg_lsn END::bigint AS wal_flushed
  FROM database_epoch e WHERE e.singleton;

-- name: CreateEpoch :exec
INSERT INTO database_epoch (epoch, system_identifier, timeline)
VALUES (1, @system_identifier::text, @timeline::int)
ON CONFLICT (singleton) DO NOTHING;

-- name: AdvanceEpoch :execrows
-- lint: across merchants: one row for the whole database
UPDATE database_epoch
   SET epoch = epoch + 1, held = true, held_why = @why::text,
       lost_from = LEAST(seen_at - sqlc.arg(margin_us)::bigint * interval '1 microsecond', CASE WHEN held THEN lost_from END),
       lost_to = GREATEST(seen_at, now()), seen_at = now(), changed_at = now(),
       system_identifier = @system_identifier::text, timeline = @timeline::int
 WHERE singleton AND epoch = @old_epoch AND system_identifier = @old_system_identifier AND timeline = @old_timeline;

-- name: AdoptServer :execrows
-- lint: across merchants: one row for the whole database
UPDATE database_epoch
   SET seen_at = now(), changed_at = now(), system_identifier = @system_identifier::text, timeline = @timeline::int
 WHERE singleton AND epoch = @old_epoch AND system_identifier = @old_system_identifier AND timeline = @old_timeline;

-- name: Heartbeat :exec
-- lint: across merchants: one row for the whole database
UPDATE database_epoch SET seen_at = now()
 WHERE singleton AND epoch = @epoch AND seen_at < now() - sqlc.arg(every_us)::bigint * interval '1 microsecond';

-- name: LockEpoch :one
SELECT * FROM database_epoch WHERE singleton FOR UPDATE;

-- name: ReleaseEpoch :execrows
-- lint: across merchants: one row for the whole database
UPDATE database_epoch SET held = false, changed_at = now()
 WHERE singleton AND held AND epoch = @epoch
   AND NOT EXISTS (SELECT FROM acquirer_account a WHERE a.compared_epoch < @epoch);

-- name: ReadEpoch :one
SELECT * FROM database_epoch WHERE singleton;

-- name: RestoreEpoch :execrows
-- A copy knows only the epochs from before it was made: the clock makes the new one later than all that came after.
-- lint: across merchants: one row for the whole database
UPDATE database_epoch
   SET epoch = GREATEST(epoch + 1, extract(epoch FROM now())::bigint), held = true, held_why = @why::text,
       lost_from = LEAST(seen_at - sqlc.arg(margin_us)::bigint * interval '1 microsecond', CASE WHEN held THEN lost_from END),
       lost_to = GREATEST(seen_at, now()), seen_at = now(), changed_at = now(),
       system_identifier = @system_identifier::text, timeline = @timeline::int
 WHERE singleton;

-- name: HoldEpoch :execrows
-- lint: across merchants: one row for the whole database
UPDATE database_epoch
   SET epoch = epoch + 1, held = true, held_why = @why::text, changed_at = now(),
       lost_from = LEAST(@lost_from::timestamptz, CASE WHEN held THEN lost_from END), lost_to = now()
 WHERE singleton;

-- name: AcknowledgeEpoch :execrows
-- lint: across merchants: one row for the whole database
UPDATE database_epoch SET held = false, held_why = @why::text, changed_at = now()
 WHERE singleton AND held AND epoch = @epoch;

-- name: SchemaVersion :one
SELECT COALESCE(max(version), 0)::int FROM schema_migration;

-- name: ClientPort :one
-- The port from which the server sees us; 0: a socket in the file system.
SELECT COALESCE(inet_client_port(), 0)::int;
