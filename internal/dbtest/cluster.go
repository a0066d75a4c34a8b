package dbtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/devdb"
	"github.com/jackc/pgx/v5"
)

const (
	// memoryDir is where clusters of tests live when it exists: fsync stays on,
	// because the service refuses to work without it, and costs nothing there.
	memoryDir = "/dev/shm"
	// dirPrefix is followed by the process id that owns the folder.
	dirPrefix = "hapax-test-"
	// maxConnections is enough for several test processes on one cluster.
	maxConnections = "500"
	closeLimit     = time.Minute
)

// Migrate brings an empty database to the present schema, as its owner.
// nil means that there is no schema yet: databases are then empty.
var Migrate func(ctx context.Context, ownerURL string) error

// cluster is the PostgreSQL that this process's tests use.
type cluster struct {
	superuser string        // URL
	prefix    string        // name of the template; databases append _<number>
	server    *devdb.Server // nil when the cluster came from EnvURL
	count     atomic.Int64
}

func openCluster(ctx context.Context) (*cluster, error) {
	c := &cluster{
		superuser: os.Getenv(EnvURL),
		// Random, so that processes that share a cluster do not meet.
		prefix: "hapax_test_" + strings.ToLower(rand.Text()[:10]),
	}
	if c.superuser == "" {
		server, err := StartPrivate(ctx)
		if err != nil {
			return nil, err
		}
		c.server, c.superuser = server, server.URL(devdb.Superuser, "postgres")
	} else if err := devdb.EnsureRoles(ctx, c.superuser); err != nil {
		return nil, fmt.Errorf("%s: %w", EnvURL, err)
	}
	if err := c.makeTemplate(ctx); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *cluster) makeTemplate(ctx context.Context) error {
	if err := c.create(ctx, c.prefix, "template0"); err != nil {
		return err
	}
	if Migrate == nil {
		return nil
	}
	url, err := devdb.RoleURL(c.superuser, devdb.RoleOwner, c.prefix)
	if err != nil {
		return err
	}
	if err := Migrate(ctx, url); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
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
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	if c.server == nil {
		return c.drop(ctx, c.prefix)
	}
	// Nothing in it is needed again, so no time is spent on a clean stop.
	return errors.Join(c.server.Kill(), c.server.Remove())
}

// StartPrivate starts a cluster for tests in memory where that is possible. It
// ends with this process; Stop or Kill and Remove end it earlier.
func StartPrivate(ctx context.Context) (*devdb.Server, error) {
	parent := os.TempDir()
	if info, err := os.Stat(memoryDir); err == nil && info.IsDir() {
		parent = memoryDir
	}
	if err := removeOrphans(parent); err != nil {
		return nil, err
	}
	dir := filepath.Join(parent, fmt.Sprintf("%s%d-%s", dirPrefix, os.Getpid(), strings.ToLower(rand.Text()[:6])))
	return devdb.Start(ctx, devdb.Config{Dir: dir, Settings: map[string]string{"max_connections": maxConnections}})
}

// removeOrphans deletes folders whose process is gone: their servers ended with it.
func removeOrphans(parent string) error {
	dirs, err := filepath.Glob(filepath.Join(parent, dirPrefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), dirPrefix), "-")
		pid, err := strconv.Atoi(number)
		if err != nil || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			continue
		}
		if err := os.RemoveAll(dir); err != nil && !errors.Is(err, os.ErrPermission) {
			return err // another user's folder is theirs to remove
		}
	}
	return nil
}

// Cluster starts a private cluster for one test that must stop, restore or
// misconfigure its PostgreSQL. It is stopped and removed at the test's end.
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
	parent := os.TempDir()
	if info, err := os.Stat(memoryDir); err == nil && info.IsDir() {
		parent = memoryDir
	}
	dir, err := os.MkdirTemp(parent, fmt.Sprintf("%s%d-*", dirPrefix, os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
