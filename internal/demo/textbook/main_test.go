package textbook

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hapaxpay/hapax/internal/devdb"
)

// databaseLimit bounds starting and stopping the private PostgreSQL of these tests.
const databaseLimit = 2 * time.Minute

// pool is shared by the package's tests, each of which begins with empty tables.
var pool *pgxpool.Pool

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), databaseLimit)
	defer cancel()
	url := os.Getenv("HAPAX_TEST_DATABASE_URL")
	if url == "" {
		// Not os.MkdirTemp: as root, PostgreSQL runs as a user who could not enter that folder.
		dir := filepath.Join(os.TempDir(), fmt.Sprintf("hapax-textbook-test-%d", os.Getpid()))
		server, err := devdb.Start(ctx, devdb.Config{Dir: dir})
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, server.Stop(context.Background()), server.Remove()) }()
		url = server.URL(devdb.RoleOwner, devdb.Database)
	}
	if pool, err = pgxpool.New(ctx, url); err != nil {
		return 0, err
	}
	defer pool.Close()
	svc, err := New(Config{Pool: pool})
	if err != nil {
		return 0, err
	}
	if err := svc.Migrate(ctx); err != nil {
		return 0, err
	}
	return m.Run(), nil
}
