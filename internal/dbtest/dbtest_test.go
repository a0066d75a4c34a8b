package dbtest_test

import (
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func TestOpenGivesEachTestItsOwnDatabase(t *testing.T) {
	names := make(chan string, 8)
	t.Run("leases", func(t *testing.T) {
		for range cap(names) {
			t.Run("one", func(t *testing.T) {
				t.Parallel()
				begin := time.Now()
				db := dbtest.Open(t)
				t.Logf("database after %v", time.Since(begin))
				// Fails if the table is there already: somebody else's database.
				if _, err := db.OwnerPool(t).Exec(t.Context(), "CREATE TABLE lease_probe (x int)"); err != nil {
					t.Error(err)
				}
				if _, err := db.ServicePool(t).Exec(t.Context(), "SELECT 1"); err != nil {
					t.Error(err)
				}
				names <- db.Name()
			})
		}
	})
	close(names)
	db := dbtest.Open(t)
	for name := range names {
		var exists bool
		err := db.OwnerPool(t).QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&exists)
		if err != nil {
			t.Fatal(err)
		}
		if exists {
			t.Errorf("database %s outlived its test", name)
		}
	}
}

func TestServiceRunsOnADurableServer(t *testing.T) {
	pool := dbtest.Open(t).ServicePool(t)
	for _, name := range []string{"fsync", "synchronous_commit"} {
		var value string
		if err := pool.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&value); err != nil {
			t.Fatal(err)
		}
		if value != "on" {
			t.Errorf("%s is %s", name, value)
		}
	}
}

func TestWaitBlockedSeesWaitersOfALock(t *testing.T) {
	db := dbtest.Open(t)
	pool := db.OwnerPool(t)
	if _, err := pool.Exec(t.Context(), "CREATE TABLE lease_probe (x int)"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "LOCK TABLE lease_probe"); err != nil {
			return err
		}
		for range cap(done) {
			go func() {
				_, err := pool.Exec(t.Context(), "INSERT INTO lease_probe VALUES (1)")
				done <- err
			}()
		}
		db.WaitBlocked(t, cap(done))
		if len(done) != 0 {
			t.Error("an insert passed the lock")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	n := 0
	dbtest.Eventually(t, func() bool {
		return pool.QueryRow(t.Context(), "SELECT count(*) FROM lease_probe").Scan(&n) == nil && n == cap(done)
	})
}

func TestOpenIsMigratedAndOpenEmptyIsNot(t *testing.T) {
	for db, want := range map[*dbtest.DB]bool{dbtest.Open(t): true, dbtest.OpenEmpty(t): false} {
		var tables bool
		err := db.OwnerPool(t).QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = 'public')").Scan(&tables)
		if err != nil || tables != want {
			t.Errorf("tables: %v, want %v (%v)", tables, want, err)
		}
	}
}
