package store

import (
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/hapaxpay/hapax/internal/store/dbgen"
	"github.com/jackc/pgx/v5"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

const (
	bootstrapFile = "migrations/0000_bootstrap.sql"
	// maxBootstrap bounds tries to make the first two tables: replicas that start together may collide there.
	maxBootstrap = 10
	// migrationLockTimeout keeps a migration from queueing in front of everybody behind one long transaction.
	migrationLockTimeout = "5s"
)

// ErrOtherMigrations says that the database was made by migrations that this binary does not have: a released one was
// edited, or the data are of another version under development.
var ErrOtherMigrations = errors.New("a migration was changed after it had been applied")

var neededRoles = []string{"hapax_owner", "hapax_service", "hapax_console"}

// migration is one step of the schema.
type migration struct {
	version int
	name    string
	sql     string
	hash    [32]byte
}

var migrations = mustLoadMigrations(migrationFiles)

// mustLoadMigrations reads the embedded files; a wrong name there is a defect of the build.
func mustLoadMigrations(files fs.FS) []migration {
	names, err := fs.Glob(files, "migrations/*.sql") // sorted
	if err != nil {
		panic(err)
	}
	var all []migration
	for _, name := range names {
		if name == bootstrapFile {
			continue
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			panic(err)
		}
		base := strings.TrimSuffix(strings.TrimPrefix(name, "migrations/"), ".sql")
		number, _, _ := strings.Cut(base, "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != len(all)+1 {
			panic("store: migrations are not numbered 1, 2, 3 …: " + name)
		}
		all = append(all, migration{version, base, string(text), sha256.Sum256(text)})
	}
	return all
}

// LatestVersion is the version of the schema that this binary was built with.
func LatestVersion() int { return len(migrations) }

// SchemaVersion reads the version of a database's schema; 0: none yet.
func SchemaVersion(ctx context.Context, url string) (version int, err error) {
	err = withConn(ctx, url, func(conn *pgx.Conn) error {
		n, err := dbgen.New(conn).SchemaVersion(ctx)
		if isCode(err, undefinedTable) {
			return nil
		}
		version = int(n)
		return err
	})
	return version, err
}

// Migrate brings the database to LatestVersion as its owner, forward only, and notes which server it is. Any number of
// replicas may call it at once: each step is one transaction under the lock of the lease row, which ends with it. A
// schema newer than this binary is left as it is. The roles must exist.
func Migrate(ctx context.Context, ownerURL string) error {
	err := withConn(ctx, ownerURL, func(conn *pgx.Conn) error {
		if err := checkRoles(ctx, conn); err != nil {
			return err
		}
		if err := bootstrap(ctx, conn); err != nil {
			return err
		}
		for range len(migrations) + 1 {
			done, err := migrateOne(ctx, conn)
			if err != nil {
				return err
			}
			if done {
				return noteServer(ctx, conn)
			}
		}
		return errors.New("the migrations do not come to an end")
	})
	if err != nil {
		return fmt.Errorf("store: migrate: %w", err)
	}
	return nil
}

func withConn(ctx context.Context, url string, f func(conn *pgx.Conn) error) error {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return errors.New("the database URL cannot be read") // the parser quotes its input
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec // a pooler may stand in between
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	return errors.Join(f(conn), conn.Close(context.WithoutCancel(ctx)))
}

func checkRoles(ctx context.Context, conn *pgx.Conn) error {
	found, err := dbgen.New(conn).ExistingRoles(ctx, neededRoles)
	if err != nil {
		return err
	}
	if len(found) < len(neededRoles) {
		return fmt.Errorf("the roles %s must exist, found: %s", strings.Join(neededRoles, ", "), strings.Join(found, ", "))
	}
	return nil
}

// bootstrap makes the tables that migrations need. IF NOT EXISTS does not see what another session is just making.
func bootstrap(ctx context.Context, conn *pgx.Conn) error {
	text, err := migrationFiles.ReadFile(bootstrapFile)
	if err != nil {
		return err
	}
	for range maxBootstrap {
		_, err = conn.Exec(ctx, string(text))
		if !isCode(err, uniqueViolation, duplicateTable, duplicateObject) {
			return err
		}
	}
	return err
}

// migrateOne applies the next migration; done says that there is none.
func migrateOne(ctx context.Context, conn *pgx.Conn) (done bool, err error) {
	err = pgx.BeginFunc(ctx, conn, func(open pgx.Tx) error {
		q := dbgen.New(open)
		if _, err := q.LockMigrationLease(ctx); err != nil {
			return fmt.Errorf("lease: %w", err)
		}
		applied, err := q.AppliedMigrations(ctx)
		if err != nil {
			return err
		}
		for _, a := range applied {
			if known := int(a.Version); known <= len(migrations) && !slices.Equal(a.Hash, migrations[known-1].hash[:]) {
				return fmt.Errorf("%w: %s", ErrOtherMigrations, a.Name)
			}
		}
		if done = len(applied) >= len(migrations); done {
			return nil
		}
		next := migrations[len(applied)]
		if _, err := open.Exec(ctx, "set local lock_timeout = '"+migrationLockTimeout+"'"); err != nil {
			return err
		}
		if _, err := open.Exec(ctx, next.sql); err != nil {
			return fmt.Errorf("%s: %w", next.name, err)
		}
		return q.NoteMigration(ctx, dbgen.NoteMigrationParams{Version: int32(next.version), Name: next.name, Hash: next.hash[:]})
	})
	return done, err
}

// noteServer writes the first epoch (PROTOCOL A8); a later call changes nothing.
func noteServer(ctx context.Context, conn *pgx.Conn) error {
	q := dbgen.New(conn)
	server, err := q.ServerIdentity(ctx)
	if err != nil {
		return err
	}
	timeline, err := timelineOf(server.WalFile)
	if err != nil {
		return err
	}
	return q.CreateEpoch(ctx, dbgen.CreateEpochParams{SystemIdentifier: server.SystemIdentifier, Timeline: timeline})
}
