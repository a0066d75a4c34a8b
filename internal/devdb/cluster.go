package devdb

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// secretBytes is the length of a cluster's random secret.
const secretBytes = 32

// lockPoll is how often a taken folder lock is tried again.
const lockPoll = 50 * time.Millisecond

const (
	confName   = "hapax.conf"
	confHeader = "# Written at every start; settings of your own go to ALTER SYSTEM.\n"
	hba        = "# Written at every start: loopback with a password, nothing else.\n" +
		"host all         all 127.0.0.1/32 scram-sha-256\n" +
		"host replication all 127.0.0.1/32 scram-sha-256\n"
)

// defaults are the settings of every private cluster.
func defaults() map[string]string {
	return map[string]string{
		"fsync":                      "on",
		"synchronous_commit":         "on",
		"full_page_writes":           "on",
		"listen_addresses":           "127.0.0.1",
		"unix_socket_directories":    "",
		"password_encryption":        "scram-sha-256",
		"timezone":                   "UTC",
		"log_timezone":               "UTC",
		"max_connections":            "200",
		"log_min_messages":           "warning",
		"log_line_prefix":            "%m [%p] %u@%d ",
		"dynamic_shared_memory_type": "posix",
	}
}

func (s *Server) effectiveSettings() map[string]string {
	all := defaults()
	if s.cfg.Archive {
		all["archive_mode"] = "on"
		all["wal_level"] = "replica"
		// A segment already there is never overwritten: that would mix two histories.
		all["archive_command"] = fmt.Sprintf(`test ! -f "%s/%%f" && cp "%%p" "%s/%%f.part" && mv "%s/%%f.part" "%s/%%f"`,
			s.archiveDir(), s.archiveDir(), s.archiveDir(), s.archiveDir())
	}
	maps.Copy(all, s.cfg.Settings)
	return all
}

// lockFolder takes the exclusive lock of a cluster's folder, waiting while
// another process starts it. The kernel drops the lock if we die.
func lockFolder(ctx context.Context, path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			// Closing drops the lock; nothing was written, so nothing can be lost.
			return func() { closeReadOnly(f) }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("lock %s, held by another process: %w", path, ctx.Err()), f.Close())
		case <-tick.C:
		}
	}
}

// initCluster makes the cluster when the folder has none. It is built under
// another name and renamed when complete, so a crash leaves nothing half made.
func (s *Server) initCluster(ctx context.Context) error {
	if err := s.loadSecret(); err != nil {
		return err
	}
	version, err := os.ReadFile(filepath.Join(s.dataDir(), "PG_VERSION"))
	if err == nil {
		return s.checkVersion(strings.TrimSpace(string(version)))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	fresh := s.dataDir() + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	err = s.run(ctx, "initdb", "--pgdata="+fresh, "--username="+Superuser, "--pwfile="+s.secretFile(),
		"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--data-checksums")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(fresh, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "\ninclude '%s'\n", confName)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(fresh, s.dataDir())
}

func (s *Server) checkVersion(have string) error {
	if have == strconv.Itoa(s.cfg.Binaries.Major) {
		return nil
	}
	return fmt.Errorf("the folder was made by PostgreSQL %s, the binaries in %s are %d; "+
		"install that version, or remove the folder if nothing in it is needed", have, s.cfg.Binaries.Dir, s.cfg.Binaries.Major)
}

// loadSecret reads the cluster's secret or makes it. A secret without a cluster
// is what a crash during the first start leaves, and is used again.
func (s *Server) loadSecret() error {
	raw, err := os.ReadFile(s.secretFile())
	if err == nil {
		s.secret = strings.TrimSpace(string(raw))
		if len(s.secret) < hex.EncodedLen(secretBytes) {
			return fmt.Errorf("%s is damaged", s.secretFile())
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	buf := make([]byte, secretBytes)
	rand.Read(buf) // never fails: the runtime ends the process instead
	s.secret = hex.EncodeToString(buf)
	return s.writeFile(s.secretFile(), s.secret+"\n")
}

// writeFile replaces a file as a whole, readable by the server's account alone.
func (s *Server) writeFile(path, content string) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, []byte(content), 0o600); err != nil {
		return err
	}
	if err := s.acct.own(tmp); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

func (s *Server) writeConf() error {
	var b strings.Builder
	b.WriteString(confHeader)
	settings := s.effectiveSettings()
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
	if s.cfg.Archive {
		if err := s.acct.mkdir(s.archiveDir()); err != nil {
			return err
		}
	}
	if err := s.writeFile(filepath.Join(s.dataDir(), confName), b.String()); err != nil {
		return err
	}
	return s.writeFile(filepath.Join(s.dataDir(), "pg_hba.conf"), hba)
}

// run runs one of PostgreSQL's programs to its end, as the server's account.
func (s *Server) run(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, s.cfg.Binaries.path(name), args...)
	s.acct.apply(cmd)
	cmd.Dir = s.cfg.Dir
	cmd.Env = cleanEnv("PGPASSWORD=" + s.secret)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, lastLines(out.Bytes()))
	}
	return nil
}

// closeReadOnly closes a file that was not written to: its error means nothing.
func closeReadOnly(f *os.File) {
	if err := f.Close(); err != nil {
		return
	}
}
