package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hapaxpay/hapax/internal/app"
	"github.com/hapaxpay/hapax/internal/devdb"
	"github.com/hapaxpay/hapax/internal/store"
)

// print writes one JSON object.
func (t *tool) print(v any) error {
	e := json.NewEncoder(t.out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// tell prints the object where a program reads, else the text.
func (t *tool) tell(object map[string]any, text string) error {
	if t.json {
		return t.print(object)
	}
	_, err := fmt.Fprintln(t.out, text)
	return err
}

// table prints rows under a header, for people.
func (t *tool) table(header string, rows [][]string) error {
	w := tabwriter.NewWriter(t.out, 0, 4, 2, ' ', 0)
	lines := header + "\n"
	for _, r := range rows {
		lines += strings.Join(r, "\t") + "\n"
	}
	if _, err := io.WriteString(w, lines); err != nil {
		return err
	}
	return w.Flush()
}

// tellList prints a named list of objects where a program reads, else a table.
func (t *tool) tellList(name string, objects []map[string]any, header string, rows [][]string) error {
	if t.json {
		return t.print(map[string]any{"ok": true, name: objects})
	}
	return t.table(header, rows)
}

// toolConns bounds the connections of a tool.
const toolConns = 2

// stopWithin bounds how long the end of a private server may take.
const stopWithin = 30 * time.Second

// database gives the URLs of owner and service. Without HAPAX_DATABASE_URL the private PostgreSQL that `hapax dev` made
// is started, or joined where it runs, and migrated; done must be called.
func (t *tool) database() (owner, service string, done func(), err error) {
	if t.cfg.DatabaseURL != "" {
		owner = t.cfg.OwnerURL
		if owner == "" {
			owner = t.cfg.DatabaseURL
		}
		return owner, t.cfg.DatabaseURL, func() {}, nil
	}
	dir, err := t.dataDir()
	if err != nil {
		return "", "", nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, clusterFolder)); errors.Is(err, fs.ErrNotExist) {
		return "", "", nil, fmt.Errorf("no data at %s; start `hapax dev` first, or set HAPAX_DATABASE_URL", dir)
	}
	server, err := t.private()
	if err != nil {
		return "", "", nil, err
	}
	owner, service = server.URL(devdb.RoleOwner, devdb.Database), server.URL(devdb.RoleService, devdb.Database)
	done = func() { t.stop(server) }
	if err := t.migratePrivate(server); err != nil {
		done()
		return "", "", nil, err
	}
	return owner, service, done, nil
}

// clusterFolder holds the private PostgreSQL, in the data folder.
const clusterFolder = "postgres"

// devEnvironment is the name under which the private database sends.
const devEnvironment = "dev"

// migratePrivate brings the private database up to this version, or says how to begin anew where that cannot be.
func (t *tool) migratePrivate(server *devdb.Server) error {
	err := store.Migrate(t.ctx, server.URL(devdb.RoleOwner, devdb.Database))
	if errors.Is(err, store.ErrOtherMigrations) {
		dir, dirErr := t.dataDir()
		return errors.Join(fmt.Errorf("the data in %s are of another development version: delete that folder, or set HAPAX_DATA_DIR to another one", dir), dirErr)
	}
	return err
}

// private starts or joins the private PostgreSQL.
func (t *tool) private() (server *devdb.Server, err error) {
	dir, err := t.dataDir()
	if err != nil {
		return nil, err
	}
	err = t.withPostgres(func() error {
		server, err = devdb.Start(t.ctx, devdb.Config{Dir: filepath.Join(dir, clusterFolder)})
		return err
	})
	t.cfg.Environment = devEnvironment
	return server, err
}

// withPostgres does what needs PostgreSQL's binaries; where they are missing it installs them where it may, and tries again.
func (t *tool) withPostgres(do func() error) error {
	err := do()
	if !errors.Is(err, devdb.ErrNoPostgres) || !devdb.CanInstall() {
		return err
	}
	fmt.Fprintln(t.err, "PostgreSQL is missing; installing it from Debian's packages.")
	if err := devdb.InstallDebian(t.ctx, t.err); err != nil {
		return err
	}
	return do()
}

func (t *tool) dataDir() (string, error) {
	if t.cfg.DataDir != "" {
		return t.cfg.DataDir, nil
	}
	postgres, err := devdb.DefaultDir()
	return filepath.Dir(postgres), err
}

func (t *tool) stop(server *devdb.Server) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), stopWithin)
	defer cancel()
	if err := server.Stop(ctx); err != nil {
		fmt.Fprintln(t.err, "hapax: private PostgreSQL:", err)
	}
}

// store opens the database for a tool; done must be called.
func (t *tool) store() (*store.Store, func(), error) {
	_, service, done, err := t.database()
	if err != nil {
		return nil, nil, err
	}
	s, err := t.open(service)
	if err != nil {
		done()
		return nil, nil, err
	}
	return s, func() { s.Close(); done() }, nil
}

func (t *tool) open(url string) (*store.Store, error) {
	cfg := t.cfg
	cfg.DatabaseURL, cfg.PoolSize = url, toolConns
	return store.Open(t.ctx, app.StoreConfig(cfg, t.log))
}

// secretKey is what seals acquirers' secrets: as configured, or what `hapax dev` keeps for the private database.
func (t *tool) secretKey() (string, error) {
	switch {
	case t.cfg.SecretKey != "":
		return t.cfg.SecretKey, nil
	case t.cfg.DatabaseURL != "":
		return "", errors.New("HAPAX_SECRET_KEY is needed: 32 random bytes in base64, such as `openssl rand -base64 32` makes")
	}
	dir, err := t.dataDir()
	if err != nil {
		return "", err
	}
	mem, err := recall(dir)
	if err != nil {
		return "", err
	}
	return mem.SecretKey, keep(dir, mem)
}
