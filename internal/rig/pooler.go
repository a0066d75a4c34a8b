package rig

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/hapaxpay/hapax/internal/dbtest"
)

// poolerNames are where Debian and others put pgbouncer.
var poolerNames = []string{"pgbouncer", "/usr/sbin/pgbouncer"}

// poolerSize is smaller than what the replicas of a test open: backends are really shared.
const poolerSize = 4

// Pooler puts a pgbouncer in transaction mode between later replicas and the database. It skips the test, with the
// reason, where pgbouncer is not installed.
func (r *Rig) Pooler() {
	r.T.Helper()
	var path string
	for _, name := range poolerNames {
		if found, err := exec.LookPath(name); err == nil {
			path = found
		}
	}
	if path == "" {
		r.T.Skip("pgbouncer is not installed (Debian: apt-get install pgbouncer)")
	}
	server, err := url.Parse(r.DB.Service())
	r.must(err)
	password, _ := server.User.Password()
	port := freePort(r)
	dir, err := os.MkdirTemp("", "hapax-pooler")
	r.must(err)
	r.T.Cleanup(func() { r.must(os.RemoveAll(dir)) })
	users := filepath.Join(dir, "users.txt")
	conf := filepath.Join(dir, "pgbouncer.ini")
	r.must(os.WriteFile(users, fmt.Appendf(nil, "%q %q\n", server.User.Username(), password), 0o600))
	r.must(os.WriteFile(conf, fmt.Appendf(nil, `[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = scram-sha-256
auth_file = %s
pool_mode = transaction
default_pool_size = %d
max_client_conn = 200
`, server.Hostname(), server.Port(), port, users, poolerSize), 0o600))
	cmd := exec.CommandContext(r.T.Context(), path, "-q", conf)
	cmd.SysProcAttr = poolerAccount(r, dir, users, conf)
	cmd.Stderr = r.T.Output()
	r.must(cmd.Start())
	r.T.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			r.T.Logf("pgbouncer: %v", err)
		}
		if err := cmd.Wait(); err != nil {
			r.T.Logf("pgbouncer: %v", err)
		}
	})
	server.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	dbtest.Eventually(r.T, func() bool {
		c, err := net.Dial("tcp", server.Host)
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
	r.Through(server.String())
}

func freePort(r *Rig) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	port := l.Addr().(*net.TCPAddr).Port
	r.must(l.Close())
	return port
}

// poolerAccount runs pgbouncer as "postgres" for root, whom it refuses, and gives it its files.
func poolerAccount(r *Rig, paths ...string) *syscall.SysProcAttr {
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	r.must(err)
	uid, err := strconv.Atoi(u.Uid)
	r.must(err)
	gid, err := strconv.Atoi(u.Gid)
	r.must(err)
	for _, p := range paths {
		r.must(os.Chown(p, uid, gid))
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}
