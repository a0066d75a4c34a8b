-- 0000: what migrations need to know about themselves.
-- Why: applied before every run, so it must change nothing the second time. Locks: none; the tables are new.

CREATE TABLE IF NOT EXISTS schema_migration (
  version    int         PRIMARY KEY CHECK (version > 0),
  name       text        NOT NULL,
  hash       bytea       NOT NULL CHECK (length(hash) = 32), -- of the file: what was applied is never edited
  applied_at timestamptz NOT NULL DEFAULT now()
);

-- The lease: whoever holds this row's lock migrates. It ends with its transaction, so a crash leaves nothing behind.
CREATE TABLE IF NOT EXISTS migration_lease (
  singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton)
);
INSERT INTO migration_lease (singleton) VALUES (true) ON CONFLICT (singleton) DO NOTHING;
