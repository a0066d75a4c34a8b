package devdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
)

const archivePoll = 20 * time.Millisecond

// ColdCopy stops the server, copies its folder to dst, which must not exist,
// and starts the server again on the same port. The copy is a cluster: Start
// runs it, with the same system identifier, timeline and passwords.
// ErrNotOurs for an attached server. When the copy fails the server is started
// all the same and both errors are returned.
func (s *Server) ColdCopy(ctx context.Context, dst string) error {
	if s.attached {
		return ErrNotOurs
	}
	if err := s.Stop(ctx); err != nil {
		return err
	}
	err := s.copyCluster(filepath.Join(s.cfg.Dir, "data"), dst)
	return errors.Join(err, s.Restart(ctx))
}

// copyCluster makes dst a cluster's folder out of a data folder and our secret.
func (s *Server) copyCluster(data, dst string) error {
	if err := s.newFolder(dst); err != nil {
		return err
	}
	if err := copyTree(data, filepath.Join(dst, "data")); err != nil {
		return fmt.Errorf("copy cluster: %w", err)
	}
	return s.acct.ownTree(dst)
}

// newFolder makes a cluster's folder that holds only our secret.
func (s *Server) newFolder(dst string) error {
	if _, err := os.Lstat(dst); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", dst, errors.Join(err, fs.ErrExist))
	}
	if err := s.acct.mkdir(dst); err != nil {
		return err
	}
	return s.writeFile(filepath.Join(dst, "secret"), s.secret+"\n")
}

// BaseBackup takes a base backup of the running server into the new folder dst,
// from which RestoreTo starts.
func (s *Server) BaseBackup(ctx context.Context, dst string) error {
	if s.PID() == 0 && !s.attached {
		return ErrStopped
	}
	dst, err := filepath.Abs(dst)
	if err != nil {
		return err
	}
	if err := s.newFolder(dst); err != nil {
		return err
	}
	return s.run(ctx, "pg_basebackup", "--pgdata="+filepath.Join(dst, "data"), "--host=127.0.0.1",
		fmt.Sprintf("--port=%d", s.cfg.Port), "--username="+Superuser, "--no-password",
		"--wal-method=stream", "--checkpoint=fast")
}

// LSN is the present write position, for Target.LSN.
func (s *Server) LSN(ctx context.Context) (string, error) {
	var lsn string
	err := s.query(ctx, &lsn, "SELECT pg_current_wal_lsn()::text")
	return lsn, err
}

// ArchiveWAL closes the present WAL segment and waits until it is archived, so
// that everything committed before it can be restored. Needs Config.Archive.
func (s *Server) ArchiveWAL(ctx context.Context) error {
	if !s.cfg.Archive {
		return errors.New("devdb: the cluster does not archive WAL (Config.Archive)")
	}
	var segment string
	// Without a record in it a segment is not switched; the restore point is one.
	err := s.query(ctx, &segment, "SELECT pg_walfile_name(pg_create_restore_point('hapax'))")
	if err != nil {
		return err
	}
	var lsn string
	if err := s.query(ctx, &lsn, "SELECT pg_switch_wal()::text"); err != nil {
		return err
	}
	tick := time.NewTicker(archivePoll)
	defer tick.Stop()
	for {
		if _, err := os.Stat(filepath.Join(s.archiveDir(), segment)); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("segment %s was not archived: %w\n%s", segment, ctx.Err(), s.lastLog())
		case <-tick.C:
		}
	}
}

func (s *Server) query(ctx context.Context, into any, sql string) (err error) {
	conn, err := pgx.Connect(ctx, s.URL(Superuser, "postgres"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	return conn.QueryRow(ctx, sql).Scan(into)
}

// Target says where a restore ends. Exactly one field is set.
type Target struct {
	LSN  string    // ends before the first record after this position
	Time time.Time // ends before the first commit after this time
}

// RestoreTo makes cfg.Dir a cluster from the base backup in folder backup and
// the WAL that archived (a running or stopped server with Config.Archive) has
// archived, replays it up to the target, and starts it. What was committed
// later is gone, and the server is on a new timeline. It has the passwords of
// the original; with cfg.Port the port of a stopped original as well, so that
// clients meet it under the same URL. cfg.Dir must not exist.
func RestoreTo(ctx context.Context, cfg Config, backup string, archived *Server, target Target) (*Server, error) {
	var recovery map[string]string
	switch {
	case target.LSN != "" && target.Time.IsZero():
		recovery = map[string]string{"recovery_target_lsn": target.LSN}
	case target.LSN == "" && !target.Time.IsZero():
		recovery = map[string]string{"recovery_target_time": target.Time.UTC().Format("2006-01-02 15:04:05.999999-07")}
	default:
		return nil, errors.New("devdb: a restore needs an LSN or a time")
	}
	if !archived.cfg.Archive {
		return nil, errors.New("devdb: the cluster does not archive WAL (Config.Archive)")
	}
	recovery["restore_command"] = fmt.Sprintf(`cp "%s/%%f" "%%p"`, archived.archiveDir())
	recovery["recovery_target_action"] = "promote"
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if err := archived.copyCluster(filepath.Join(backup, "data"), dir); err != nil {
		return nil, err
	}
	signal := filepath.Join(dir, "data", "recovery.signal")
	if err := archived.writeFile(signal, ""); err != nil {
		return nil, err
	}
	return startRecovered(ctx, cfg, recovery)
}

func startRecovered(ctx context.Context, cfg Config, recovery map[string]string) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	s, unlock, err := open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := s.initCluster(ctx); err != nil {
		return nil, err
	}
	s.Configure(recovery)
	if err := s.launch(ctx); err != nil {
		return nil, err
	}
	if err := s.waitPromoted(ctx); err != nil {
		return nil, errors.Join(err, s.Kill())
	}
	// The next start must not look for the old archive again.
	for name := range recovery {
		s.Configure(map[string]string{name: ""})
	}
	return s, nil
}

func (s *Server) waitPromoted(ctx context.Context) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		inRecovery := true
		err := s.query(ctx, &inRecovery, "SELECT pg_is_in_recovery()")
		if err == nil && !inRecovery {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("restore did not end: %w\n%s", ctx.Err(), s.lastLog()), err)
		case <-s.proc.done:
			return fmt.Errorf("restore failed, PostgreSQL ended: %w\n%s", s.proc.err, s.lastLog())
		case <-tick.C:
		}
	}
}

// copyTree copies a folder with modes and symbolic links; sockets and the pid
// file of the source are left out.
func copyTree(src, dst string) error {
	return filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		to := filepath.Join(dst, rel)
		switch {
		case rel == "postmaster.pid" || rel == "postmaster.opts":
			return nil
		case d.IsDir():
			return os.Mkdir(to, info.Mode().Perm())
		case info.Mode()&fs.ModeSymlink != 0:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, to)
		case info.Mode().IsRegular():
			return copyFile(path, to, info.Mode().Perm())
		}
		return nil
	})
}

func copyFile(src, dst string, mode fs.FileMode) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer closeReadOnly(in)
	out, err := os.OpenFile(dst, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
