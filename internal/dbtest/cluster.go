package dbtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/devdb"
	"github.com/hapaxpay/hapax/internal/store"
	"github.com/jackc/pgx/v5"
)

// empty is PostgreSQL's own template without anything in it.
const empty = "template0"

const closeLimit = time.Minute

// cluster is the PostgreSQL that this process's tests use.
type cluster struct {
	superuser string        // URL
	prefix    string        // of database names
	server    *devdb.Server // nil when the cluster came from EnvURL
	count     atomic.Int64

	once        sync.Once // makes the template
	templateErr error
}

func openCluster(ctx context.Context) (*cluster, error) {
	c := &cluster{
		superuser: os.Getenv(EnvURL),
		// Random, so that processes that share a cluster do not meet.
		prefix: "hapax_test_" + strings.ToLower(rand.Text()[:10]),
	}
	if c.superuser != "" {
		if err := devdb.EnsureRoles(ctx, c.superuser); err != nil {
			return nil, fmt.Errorf("%s: %w", EnvURL, err)
		}
		return c, nil
	}
	server, err := devdb.StartTemporary(ctx)
	if err != nil {
		return nil, err
	}
	c.server, c.superuser = server, server.URL(devdb.Superuser, "postgres")
	return c, nil
}

// template is the name of a migrated database, made by the first who asks.
func (c *cluster) template(ctx context.Context) (string, error) {
	name := c.prefix + "_template"
	c.once.Do(func() { c.templateErr = c.makeTemplate(ctx, name) })
	return name, c.templateErr
}

func (c *cluster) makeTemplate(ctx context.Context, name string) error {
	if err := c.create(ctx, name, empty); err != nil {
		return err
	}
	url, err := devdb.RoleURL(c.superuser, devdb.RoleOwner, name)
	if err != nil {
		return err
	}
	return store.Migrate(ctx, url)
}

func (c *cluster) create(ctx context.Context, name, template string) error {
	return withConn(ctx, c.superuser, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, fmt.Sprintf("CREATE DATABASE %s OWNER %s TEMPLATE %s", name, devdb.RoleOwner, template))
		return err
	})
}

func (c *cluster) drop(ctx context.Context, name string) error {
	return withConn(ctx, c.superuser, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, fmt.Sprintf("DROP DATABASE IF EXISTS %s WITH (FORCE)", name))
		return err
	})
}

func (c *cluster) close() error {
	if c.server != nil {
		// Nothing in it is needed again, so no time is spent on a clean stop.
		return errors.Join(c.server.Kill(), c.server.Remove())
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	return c.drop(ctx, c.prefix+"_template")
}

// Cluster starts a private cluster for one test that must stop, restore or
// misconfigure its PostgreSQL. It is ended and removed at the test's end.
func Cluster(t testing.TB, cfg devdb.Config) *devdb.Server {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = filepath.Join(Dir(t), "cluster")
	}
	s, err := devdb.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Dir is a folder for clusters, backups and copies that the server's account
// can enter, which t.TempDir is not when root runs the tests. It is removed at
// the test's end.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := devdb.TemporaryDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
