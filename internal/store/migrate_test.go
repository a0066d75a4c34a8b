package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/store"
)

func TestReplicasMigrateAtOnce(t *testing.T) {
	db := dbtest.OpenEmpty(t)
	before, err := store.SchemaVersion(t.Context(), db.Owner())
	if err != nil || before != 0 {
		t.Fatalf("an empty database has version %d, %v", before, err)
	}
	const replicas = 6
	done := make(chan error, replicas)
	for range replicas {
		go func() { done <- store.Migrate(t.Context(), db.Owner()) }()
	}
	for range replicas {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	sh := &shop{t: t, db: db}
	if n := sh.count("schema_migration", "true"); n != store.LatestVersion() {
		t.Errorf("%d migrations were noted, want %d", n, store.LatestVersion())
	}
	if n := sh.count("database_epoch", "epoch = 1 AND NOT held AND timeline > 0 AND system_identifier <> ''"); n != 1 {
		t.Error("the server was not noted")
	}
	if after, err := store.SchemaVersion(t.Context(), db.Owner()); err != nil || after != store.LatestVersion() {
		t.Errorf("version %d after migrating, %v", after, err)
	}
}

func TestMigrateRefusesAnEditedMigration(t *testing.T) {
	sh := &shop{t: t, db: dbtest.Open(t)}
	sh.owner("UPDATE schema_migration SET hash = sha256('other') WHERE version = 1")
	if err := store.Migrate(t.Context(), sh.db.Owner()); !errors.Is(err, store.ErrOtherMigrations) || !strings.Contains(err.Error(), "0001_core") {
		t.Errorf("got %v", err)
	}
}

func TestMigrateLeavesANewerSchemaAlone(t *testing.T) {
	sh := &shop{t: t, db: dbtest.Open(t)}
	sh.owner("INSERT INTO schema_migration (version, name, hash) VALUES ($1, 'later', sha256('later'))", store.LatestVersion()+1)
	if err := store.Migrate(t.Context(), sh.db.Owner()); err != nil {
		t.Error(err)
	}
	again(t, sh.db) // old code runs on the new schema
}

func TestOpenRefuses(t *testing.T) {
	cfg := func(url string) store.Config { return store.Config{URL: url, MaxConns: 2} }
	t.Run("limits that do not nest", func(t *testing.T) {
		for _, c := range []store.Config{
			{URL: "x", LockTimeout: 5 * time.Second, StatementTimeout: 5 * time.Second},
			{URL: "x", StatementTimeout: 10 * time.Second, IdleInTxTimeout: 10 * time.Second},
			{URL: "x", IdleInTxTimeout: 30 * time.Second, Lease: 30 * time.Second},
			{URL: "x", PoolMode: "statement"}, {URL: "x", MaxConns: -1},
		} {
			if _, err := store.Open(t.Context(), c); err == nil || !strings.HasPrefix(err.Error(), "store: ") {
				t.Errorf("%+v: %v", c, err)
			}
		}
	})
	t.Run("a URL that cannot be read, without repeating it", func(t *testing.T) {
		_, err := store.Open(t.Context(), cfg("postgres://u:geheim@[::1"))
		if err == nil || strings.Contains(err.Error(), "geheim") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no schema", func(t *testing.T) {
		if _, err := store.Open(t.Context(), cfg(dbtest.OpenEmpty(t).Service())); err == nil || !strings.Contains(err.Error(), "hapax migrate") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("an older schema", func(t *testing.T) {
		sh := &shop{t: t, db: dbtest.Open(t)}
		sh.owner("DELETE FROM schema_migration")
		if _, err := store.Open(t.Context(), cfg(sh.db.Service())); err == nil || !strings.Contains(err.Error(), "hapax migrate") {
			t.Errorf("got %v", err)
		}
	})
	for _, setting := range []string{"synchronous_commit = off", "default_transaction_read_only = on"} {
		t.Run(setting, func(t *testing.T) {
			sh := &shop{t: t, db: dbtest.Open(t)}
			sh.exec(sh.db.Superuser(), "ALTER DATABASE "+sh.db.Name()+" SET "+setting)
			if _, err := store.Open(t.Context(), cfg(sh.db.Service())); !errors.Is(err, operation.ErrNotDurable) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestFacts(t *testing.T) {
	s, _ := open(t)
	facts, err := s.Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !facts.Fsync || facts.InRecovery || facts.ReadOnly || facts.SchemaVersion != facts.LatestSchemaVersion || facts.Role != "hapax_service" ||
		facts.PoolMode != store.PoolSession || time.Since(facts.Now).Abs() > time.Minute {
		t.Errorf("facts %+v", facts)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Facts(ctx); !errors.Is(err, operation.ErrNothingDone) || !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that is over: %v", err)
	}
}
