package scene

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/hapaxpay/hapax/internal/devdb"
	"github.com/hapaxpay/hapax/internal/store"
)

// cluster is a private PostgreSQL that ends with the run; fsync is on, as everywhere.
type cluster struct {
	dir    string
	server *devdb.Server
	count  atomic.Int64

	position string // in the log, of keepPosition

	once        sync.Once // makes the template
	templateErr error
}

// connections is enough for all replicas of the scenarios that are played side by side.
const connections = "500"

// empty is PostgreSQL's own template without anything in it; template is Hapax's schema, migrated once.
const (
	empty    = "template0"
	template = "hapax_template"
)

func settings() map[string]string { return map[string]string{"max_connections": connections} }

func startCluster(ctx context.Context, archive bool) (*cluster, error) {
	dir, err := devdb.TemporaryDir()
	if err != nil {
		return nil, err
	}
	server, err := devdb.Start(ctx, devdb.Config{Dir: filepath.Join(dir, "cluster"), Archive: archive,
		Settings: settings()})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &cluster{dir: dir, server: server}, nil
}

// close ends the cluster. Nothing in it is needed again, so no time is spent on a clean stop; a folder that is left is
// removed by the next run.
func (c *cluster) close() error { return errors.Join(c.server.Kill(), os.RemoveAll(c.dir)) }

// migrated gives the name of the template with Hapax's schema.
func (c *cluster) migrated(ctx context.Context) (string, error) {
	c.once.Do(func() {
		if c.templateErr = c.create(ctx, template, empty); c.templateErr == nil {
			c.templateErr = store.Migrate(ctx, c.server.URL(devdb.RoleOwner, template))
		}
	})
	return template, c.templateErr
}

// database makes one more database from a template.
func (c *cluster) database(ctx context.Context, from string) (name string, err error) {
	name = fmt.Sprintf("demo_%d", c.count.Add(1))
	return name, c.create(ctx, name, from)
}

func (c *cluster) create(ctx context.Context, name, from string) error {
	return withConn(ctx, c.server.URL(devdb.Superuser, "postgres"), func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, fmt.Sprintf("CREATE DATABASE %s OWNER %s TEMPLATE %s", name, devdb.RoleOwner, from))
		return err
	})
}

// withConn runs fn on a connection of its own.
func withConn(ctx context.Context, url string, fn func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return errors.Join(fn(conn), conn.Close(context.WithoutCancel(ctx)))
}
