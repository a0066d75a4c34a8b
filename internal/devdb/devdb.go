// Package devdb runs a private PostgreSQL for `hapax dev`, `demo` and tests.
//
// Owns finding the binaries, the cluster's folder, its start, stop, backup and restore, and Hapax's roles in it.
// Never listens beyond loopback, never turns fsync off by itself, never ends a server that it did not start.
// Read next: internal/dbtest, which leases databases of such a cluster to tests.
package devdb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Superuser is the bootstrap role of a private cluster.
const Superuser = "postgres"

// Roles of Hapax, made in every cluster by Start.
const (
	RoleOwner   = "hapax_owner"   // owns the schema and migrates
	RoleService = "hapax_service" // runs the application
	RoleConsole = "hapax_console" // reads
)

// Database is the database that Start makes, owned by RoleOwner.
const Database = "hapax"

// Limits of waiting for the server.
const (
	startLimit = 2 * time.Minute // includes crash recovery
	stopLimit  = time.Minute     // after it a fast stop becomes an immediate one
)

// ErrNotOurs is returned by Stop's relatives for a server that was already
// running when Start met it: whoever started it ends it.
var ErrNotOurs = errors.New("this PostgreSQL was started by another process")

// ErrStopped says that the server is not running.
var ErrStopped = errors.New("this PostgreSQL is stopped")

// Config says which cluster to run.
type Config struct {
	// Dir is the cluster's folder. It is made when missing and reused when
	// present; a copy of a stopped one is a cluster as well.
	Dir string
	// Port on 127.0.0.1; 0 takes a free one.
	Port int
	// Archive keeps every WAL segment in Dir/archive, which RestoreTo needs.
	Archive bool
	// Settings are written to the server's configuration, over the defaults.
	Settings map[string]string
	// Binaries to use; the zero value means Find.
	Binaries Binaries
}

// DefaultDir is where a private cluster lives when nothing else is configured:
// below the user's data folder, and for root, whose home the server's account
// cannot enter, below /var/lib.
func DefaultDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/hapax/postgres", nil
	}
	if data := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(data) {
		return filepath.Join(data, "hapax", "postgres"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "share", "hapax", "postgres"), nil
}

// Server is a running (or stopped) private cluster.
type Server struct {
	cfg      Config
	acct     *account
	secret   string
	attached bool

	mu   sync.Mutex
	proc *process // nil while stopped, and for an attached server
}

// Start runs the cluster of cfg.Dir, making it first when the folder is empty:
// fsync and synchronous_commit on, 127.0.0.1 only, every role with a password
// of its own (scram-sha-256) derived from a random secret kept in Dir with mode
// 0600. As root the server runs as the user "postgres". A server that already
// runs on the folder is joined: Stop then leaves it alone. The context bounds
// the start only. An error wraps ErrNoPostgres when binaries are missing, and
// otherwise quotes the server's last log lines; nothing is left running.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	s, unlock, err := open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := s.initCluster(ctx); err != nil {
		return nil, fmt.Errorf("make cluster in %s: %w", s.cfg.Dir, err)
	}
	if err := s.join(ctx); err != nil {
		return nil, err
	}
	if !s.attached {
		if err := s.launch(ctx); err != nil {
			return nil, err
		}
	}
	if err := EnsureRoles(ctx, s.URL(Superuser, "postgres")); err != nil {
		return nil, errors.Join(fmt.Errorf("make roles: %w", err), s.Kill())
	}
	return s, nil
}

// open checks the folder and the binaries and takes the folder's lock, so that
// two processes never start one cluster at the same time.
func open(ctx context.Context, cfg Config) (*Server, func(), error) {
	if cfg.Dir == "" {
		return nil, nil, errors.New("devdb: Config.Dir is empty")
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, nil, err
	}
	cfg.Dir = dir
	if cfg.Binaries.Dir == "" {
		if cfg.Binaries, err = Find(ctx); err != nil {
			return nil, nil, err
		}
	}
	acct, err := serverAccount()
	if err != nil {
		return nil, nil, err
	}
	if err := acct.mkdir(dir); err != nil {
		return nil, nil, err
	}
	// Server and /proc speak of the folder's real path.
	if cfg.Dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, nil, err
	}
	if err := acct.reachable(cfg.Dir); err != nil {
		return nil, nil, err
	}
	unlock, err := lockFolder(ctx, filepath.Join(cfg.Dir, "lock"))
	if err != nil {
		return nil, nil, err
	}
	cfg.Settings = maps.Clone(cfg.Settings)
	return &Server{cfg: cfg, acct: acct}, unlock, nil
}

func (s *Server) dataDir() string    { return filepath.Join(s.cfg.Dir, "data") }
func (s *Server) archiveDir() string { return filepath.Join(s.cfg.Dir, "archive") }
func (s *Server) secretFile() string { return filepath.Join(s.cfg.Dir, "secret") }
func (s *Server) logFile() string    { return filepath.Join(s.cfg.Dir, "server.log") }

// Dir is the cluster's folder.
func (s *Server) Dir() string { return s.cfg.Dir }

// Port is the server's port on 127.0.0.1.
func (s *Server) Port() int { return s.cfg.Port }

// Attached tells whether another process had started the server.
func (s *Server) Attached() bool { return s.attached }

// PID is the postmaster's process id, 0 while stopped or when attached.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return 0
	}
	return s.proc.pid
}

// URL is the connection string of a role for a database. It holds the role's
// password: never log it.
func (s *Server) URL(role, db string) string {
	password := s.secret
	if role != Superuser {
		password = RolePassword(s.secret, role)
	}
	return connURL(role, password, s.cfg.Port, db)
}

// Settings are the settings of the next start, defaults included.
func (s *Server) Settings() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.effectiveSettings()
}

// Configure changes settings for the next start; an empty value removes one.
func (s *Server) Configure(settings map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg.Settings == nil {
		s.cfg.Settings = map[string]string{}
	}
	for name, value := range settings {
		if value == "" {
			delete(s.cfg.Settings, name)
			continue
		}
		s.cfg.Settings[name] = value
	}
}

// Stop ends the server cleanly: open transactions are rolled back, a checkpoint
// is written. When ctx or a minute is over first, the server is killed and an
// error returned. An attached server is left alone; a stopped one is no error.
func (s *Server) Stop(ctx context.Context) error {
	if s.attached {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	err := s.proc.stop(ctx)
	s.proc = nil
	return err
}

// Kill ends the server at once, as a crash would: no checkpoint, recovery at
// the next start. ErrNotOurs for an attached server.
func (s *Server) Kill() error {
	if s.attached {
		return ErrNotOurs
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return nil
	}
	err := s.proc.kill()
	s.proc = nil
	return err
}

// Restart stops the server if it runs and starts it on the same port with the
// present Settings. ErrNotOurs for an attached server.
func (s *Server) Restart(ctx context.Context) error {
	if s.attached {
		return ErrNotOurs
	}
	if err := s.Stop(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	unlock, err := lockFolder(ctx, filepath.Join(s.cfg.Dir, "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	return s.launch(ctx)
}

// Remove deletes the cluster's folder. The server must be stopped.
func (s *Server) Remove() error {
	if s.attached {
		return ErrNotOurs
	}
	if s.PID() != 0 {
		return errors.New("devdb: Remove of a running cluster")
	}
	return os.RemoveAll(s.cfg.Dir)
}
