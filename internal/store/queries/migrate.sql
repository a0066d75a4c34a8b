-- name: ExistingRoles :many
SELECT r.name::text FROM (SELECT unnest(@names::text[]) AS name) r WHERE to_regrole(r.name) IS NOT NULL;

-- name: LockMigrationLease :one
SELECT singleton FROM migration_lease FOR UPDATE;

-- name: AppliedMigrations :many
SELECT version, name, hash FROM schema_migration ORDER BY version;

-- name: NoteMigration :exec
INSERT INTO schema_migration (version, name, hash) VALUES (@version, @name, @hash);

-- name: ServerIdentity :one
SELECT (SELECT c.system_identifier FROM pg_control_system() c)::text AS system_identifier,
       pg_walfile_name(pg_current_wal_lsn())::text AS wal_file;
