// Package dbtest gives each test a migrated PostgreSQL database of its own.
//
// Owns the cluster of a test process, the migrated template, the databases made from it, and waiting without sleeping.
// Never hands one database to two tests, never mocks PostgreSQL, never turns fsync off.
// Read next: internal/devdb, which runs the cluster; internal/store, which migrates it.
package dbtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/devdb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// EnvURL names the variable with a superuser's URL of a cluster for tests. When
// it is set no private cluster is started.
const EnvURL = "HAPAX_TEST_DATABASE_URL"

// setupLimit bounds making a database, the first of a process included.
const setupLimit = 3 * time.Minute

// superuser is devdb.RoleURL's name for whoever EnvURL names.
const superuser = ""

// DB is one database, leased to one test and dropped at its end.
type DB struct {
	name string
	urls map[string]string // role → URL
}

// Open gives the test a fresh, migrated database of its own (about 40 ms). Tests
// may run in parallel. It is dropped, connections and all, when the test ends.
func Open(t testing.TB) *DB {
	t.Helper()
	return open(t, (*cluster).template)
}

// OpenEmpty gives a database without any table, for a service with a schema of its own.
func OpenEmpty(t testing.TB) *DB {
	t.Helper()
	return open(t, func(*cluster, context.Context) (string, error) { return empty, nil })
}

func open(t testing.TB, template func(*cluster, context.Context) (string, error)) *DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), setupLimit)
	defer cancel()
	c, err := current(ctx)
	if err != nil {
		t.Fatalf("test database: %v", err)
	}
	source, err := template(c, ctx)
	if err != nil {
		t.Fatalf("test database: %v", err)
	}
	name := fmt.Sprintf("%s_%d", c.prefix, c.count.Add(1))
	if err := c.create(ctx, name, source); err != nil {
		t.Fatalf("test database: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), setupLimit)
		defer cancel()
		if err := c.drop(ctx, name); err != nil {
			t.Errorf("drop test database: %v", err)
		}
	})
	db := &DB{name: name, urls: map[string]string{}}
	for _, role := range []string{superuser, devdb.RoleOwner, devdb.RoleService, devdb.RoleConsole} {
		if db.urls[role], err = devdb.RoleURL(c.superuser, role, name); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

// Name is the database's name.
func (db *DB) Name() string { return db.name }

// Service is the URL of the application's role: what code under test gets.
func (db *DB) Service() string { return db.urls[devdb.RoleService] }

// Owner is the URL of the schema's owner, for arranging what the service may not do.
func (db *DB) Owner() string { return db.urls[devdb.RoleOwner] }

// Console is the URL of the reading role.
func (db *DB) Console() string { return db.urls[devdb.RoleConsole] }

// Superuser is the URL of a superuser for this database.
func (db *DB) Superuser() string { return db.urls[superuser] }

// ServicePool opens a pool as the application's role, closed at the test's end.
func (db *DB) ServicePool(t testing.TB) *pgxpool.Pool { return pool(t, db.Service()) }

// OwnerPool opens a pool as the schema's owner, closed at the test's end.
func (db *DB) OwnerPool(t testing.TB) *pgxpool.Pool { return pool(t, db.Owner()) }

func pool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	p, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Age moves every stored time of the named tables (of all, when none is named)
// back by that much: "four days later" without waiting.
func (db *DB) Age(t testing.TB, by time.Duration, tables ...string) {
	t.Helper()
	err := withConn(t.Context(), db.Owner(), func(conn *pgx.Conn) error {
		return devdb.Age(t.Context(), conn, by, tables...)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// withConn runs fn on a connection of its own.
func withConn(ctx context.Context, url string, fn func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return errors.Join(fn(conn), conn.Close(context.WithoutCancel(ctx)))
}

// Main runs a package's tests and stops the process's private cluster, if any:
//
//	func TestMain(m *testing.M) { dbtest.Main(m) }
//
// A package without it works too: the cluster ends with the process and its
// folder is removed by the next one.
func Main(m *testing.M) {
	code := m.Run()
	if err := shutdown(); err != nil {
		fmt.Fprintln(os.Stderr, "stop test cluster:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// The cluster is shared by all tests of the process and made by the first.
var shared struct {
	sync.Mutex
	cluster *cluster
	err     error
}

func current(ctx context.Context) (*cluster, error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster == nil && shared.err == nil {
		shared.cluster, shared.err = openCluster(ctx)
	}
	return shared.cluster, shared.err
}

func shutdown() error {
	shared.Lock()
	defer shared.Unlock()
	c := shared.cluster
	if c == nil {
		return nil
	}
	shared.cluster, shared.err = nil, errors.New("the test cluster is shut down")
	return c.close()
}
