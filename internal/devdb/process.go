package devdb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	readyPoll    = 20 * time.Millisecond // between two tries to connect
	portTries    = 5                     // a free port may be taken before the server binds it
	maxLog       = 8 << 20               // bytes; a longer server.log starts anew
	quotedLines  = 12                    // of the server's log in an error
	quotedBytes  = 4096
	maxPidFile   = 4096
	killWait     = 15 * time.Second // PostgreSQL itself kills its children after 5 s
	connectLimit = 5 * time.Second
)

// process is the postmaster that we started.
type process struct {
	pid  int
	done chan struct{} // closed when it has ended
	err  error         // valid after done
}

// startProcess starts cmd from a thread that lives until the process ends,
// because the kernel's "die with parent" means the parent thread.
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		p.pid = cmd.Process.Pid
		started <- nil
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) signal(sig syscall.Signal) error {
	if p.ended() {
		return nil
	}
	err := syscall.Kill(p.pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// stop asks for a fast shutdown (SIGINT) and falls back to kill.
func (p *process) stop(ctx context.Context) error {
	if err := p.signal(syscall.SIGINT); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("PostgreSQL did not stop in time, killed: %w", context.Cause(ctx)), p.kill())
	}
}

// kill is an immediate shutdown (SIGQUIT): the server's processes end without a
// checkpoint. SIGKILL of the postmaster alone would leave its children running.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGQUIT); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(killWait):
		return errors.Join(errors.New("PostgreSQL did not end after SIGQUIT"), p.signal(syscall.SIGKILL))
	}
}

// launch starts the server and waits until it takes connections.
func (s *Server) launch(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.writeConf(); err != nil {
		return err
	}
	fixed := s.cfg.Port != 0
	for try := 1; ; try++ {
		if !fixed {
			port, err := freePort()
			if err != nil {
				return err
			}
			s.cfg.Port = port
		}
		err := s.launchOnce(ctx)
		if err == nil {
			return nil
		}
		if fixed || try == portTries || ctx.Err() != nil || portFree(s.cfg.Port) {
			return err
		}
	}
}

func (s *Server) launchOnce(ctx context.Context) error {
	log, err := s.openLog()
	if err != nil {
		return err
	}
	defer closeReadOnly(log) // the server has its own descriptor
	cmd := exec.Command(s.cfg.Binaries.path("postgres"), "-D", s.dataDir(), "-p", strconv.Itoa(s.cfg.Port))
	s.acct.apply(cmd)
	// A group of its own: an interrupt typed at the terminal is ours to order.
	cmd.SysProcAttr.Setpgid = true
	dieWithParent(cmd)
	cmd.Dir = s.dataDir()
	cmd.Env = cleanEnv()
	cmd.Stdout, cmd.Stderr = log, log
	proc, err := startProcess(cmd)
	if err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	if err := s.waitReady(ctx, proc); err != nil {
		err = fmt.Errorf("start PostgreSQL in %s: %w\n%s", s.cfg.Dir, err, s.lastLog())
		return errors.Join(err, proc.kill())
	}
	s.proc = proc
	return nil
}

func (s *Server) waitReady(ctx context.Context, proc *process) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		err := s.ping(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-proc.done:
			return fmt.Errorf("it ended: %w", errors.Join(proc.err, errors.New("see its log")))
		case <-ctx.Done():
			return fmt.Errorf("no connection: %w (last try: %w)", ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// ping succeeds when the server on our port is the one of our folder.
func (s *Server) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL(Superuser, "postgres"))
	if err != nil {
		return err
	}
	var dir string
	err = conn.QueryRow(ctx, "SHOW data_directory").Scan(&dir)
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		return err
	}
	if dir != s.dataDir() {
		return fmt.Errorf("port %d belongs to another cluster", s.cfg.Port)
	}
	return nil
}

// join looks for a server that already runs on the folder. A live one is
// attached to; one that is ending is waited for; a stale pid file, which a
// crash leaves and whose number a stranger may carry by now, is removed.
func (s *Server) join(ctx context.Context) error {
	pidFile := filepath.Join(s.dataDir(), "postmaster.pid")
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		raw, err := os.ReadFile(pidFile)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		pid, port := parsePidFile(raw)
		if pid == 0 || !runsIn(pid, s.dataDir()) {
			return removeStale(pidFile)
		}
		if s.tryAttach(ctx, port) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("a PostgreSQL (process %d) holds %s and takes no connection: %w", pid, s.cfg.Dir, ctx.Err())
		case <-tick.C:
		}
	}
}

func (s *Server) tryAttach(ctx context.Context, port int) bool {
	if port == 0 {
		return false
	}
	asked := s.cfg.Port
	s.cfg.Port = port
	if s.ping(ctx) == nil {
		s.attached = true
		return true
	}
	s.cfg.Port = asked
	return false
}

func removeStale(pidFile string) error {
	if err := os.Remove(pidFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// parsePidFile reads the first and the fourth line: process id and port.
func parsePidFile(raw []byte) (pid, port int) {
	if len(raw) > maxPidFile {
		return 0, 0
	}
	lines := strings.Split(string(raw), "\n")
	number := func(i int) int {
		if i >= len(lines) {
			return 0
		}
		n, err := strconv.Atoi(strings.TrimSpace(lines[i]))
		if err != nil || n < 0 {
			return 0
		}
		return n
	}
	return number(0), number(3)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

func portFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	return err == nil && l.Close() == nil
}

func (s *Server) openLog() (*os.File, error) {
	flags := os.O_CREATE | os.O_APPEND | os.O_WRONLY
	if info, err := os.Stat(s.logFile()); err == nil && info.Size() > maxLog {
		flags |= os.O_TRUNC
	}
	f, err := os.OpenFile(s.logFile(), flags, 0o600)
	if err != nil {
		return nil, err
	}
	if err := s.acct.own(s.logFile()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (s *Server) lastLog() string {
	raw, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	return lastLines(raw)
}

func lastLines(raw []byte) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) > quotedBytes {
		raw = raw[len(raw)-quotedBytes:]
	}
	lines := strings.Split(string(raw), "\n")
	if len(lines) > quotedLines {
		lines = lines[len(lines)-quotedLines:]
	}
	return strings.Join(lines, "\n")
}
