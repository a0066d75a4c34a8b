package devdb_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/devdb"
	"github.com/jackc/pgx/v5"
)

// clusterDir is a folder that the server's account can enter even when root
// runs the tests (t.TempDir is closed to others).
func clusterDir(t *testing.T) string {
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

func start(t *testing.T, cfg devdb.Config) *devdb.Server {
	t.Helper()
	s, err := devdb.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	stopAtEnd(t, s)
	return s
}

func stopAtEnd(t *testing.T, s *devdb.Server) {
	t.Cleanup(func() {
		if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

func connect(t *testing.T, s *devdb.Server, role string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL(role, devdb.Database))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test may have killed the server on purpose: nothing to judge here.
		if err := conn.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Logf("close: %v", err)
		}
	})
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func ask[T any](t *testing.T, conn *pgx.Conn, sql string) T {
	t.Helper()
	var v T
	if err := conn.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func TestStartMakesASafeCluster(t *testing.T) {
	dir := filepath.Join(clusterDir(t), "c")
	s := start(t, devdb.Config{Dir: dir})
	owner, admin := connect(t, s, devdb.RoleOwner), connect(t, s, devdb.Superuser)
	for name, want := range map[string]string{
		"fsync": "on", "synchronous_commit": "on", "listen_addresses": "127.0.0.1",
		"unix_socket_directories": "", "password_encryption": "scram-sha-256", "TimeZone": "UTC", "server_encoding": "UTF8",
	} {
		if got := ask[string](t, admin, "SHOW "+name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	exec(t, owner, "CREATE TABLE a (x int)")
	exec(t, owner, "GRANT SELECT ON a TO hapax_service, hapax_console")
	for _, role := range []string{devdb.RoleService, devdb.RoleConsole} {
		conn := connect(t, s, role)
		if n := ask[int](t, conn, "SELECT count(*) FROM a"); n != 0 {
			t.Errorf("%s reads %d rows", role, n)
		}
		if _, err := conn.Exec(t.Context(), "CREATE TABLE b (x int)"); err == nil {
			t.Errorf("%s could make a table", role)
		}
	}
	info, err := os.Stat(filepath.Join(dir, "secret"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("secret has mode %v", info.Mode().Perm())
	}
	if os.Geteuid() == 0 && info.Sys().(*syscall.Stat_t).Uid == 0 {
		t.Error("root owns the cluster's files; the server could not have read them")
	}
	if _, err := pgx.Connect(t.Context(), strings.Replace(s.URL(devdb.RoleOwner, devdb.Database), "@", "x@", 1)); err == nil {
		t.Error("a wrong password was accepted")
	}
}

func TestSecondStartJoinsAndStopLeavesItAlone(t *testing.T) {
	dir := filepath.Join(clusterDir(t), "c")
	first := start(t, devdb.Config{Dir: dir})
	second := start(t, devdb.Config{Dir: dir})
	if !second.Attached() || first.Attached() {
		t.Fatalf("attached: first %v, second %v", first.Attached(), second.Attached())
	}
	if first.URL("postgres", "postgres") != second.URL("postgres", "postgres") {
		t.Error("the two have different URLs")
	}
	if err := second.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"kill":    second.Kill,
		"restart": func() error { return second.Restart(t.Context()) },
		"copy":    func() error { return second.ColdCopy(t.Context(), dir+"2") },
		"remove":  second.Remove,
	} {
		if err := call(); !errors.Is(err, devdb.ErrNotOurs) {
			t.Errorf("%s: %v", name, err)
		}
	}
	connect(t, first, devdb.RoleOwner)
}

func TestDataOutlivesStopKillAndStalePidFile(t *testing.T) {
	dir := filepath.Join(clusterDir(t), "c")
	s := start(t, devdb.Config{Dir: dir})
	exec(t, connect(t, s, devdb.RoleOwner), "CREATE TABLE a AS SELECT 1 AS x")
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A crash leaves a pid file; the number may belong to a stranger by now: here to us.
	stale := filepath.Join(dir, "data", "postmaster.pid")
	content := strings.Join([]string{strconv.Itoa(os.Getpid()), dir, "0", "5432", "", "127.0.0.1", ""}, "\n")
	if err := os.WriteFile(stale, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	s = start(t, devdb.Config{Dir: dir})
	exec(t, connect(t, s, devdb.RoleOwner), "INSERT INTO a VALUES (2)")
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if s.PID() != 0 {
		t.Error("killed and still has a process id")
	}
	port := s.Port()
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Port() != port {
		t.Errorf("port changed from %d to %d", port, s.Port())
	}
	if n := ask[int](t, connect(t, s, devdb.RoleOwner), "SELECT count(*) FROM a"); n != 2 {
		t.Errorf("%d rows after the crash, want 2", n)
	}
}

func TestConfigureAppliesAtTheNextStart(t *testing.T) {
	s := start(t, devdb.Config{Dir: filepath.Join(clusterDir(t), "c"), Settings: map[string]string{"work_mem": "5MB"}})
	s.Configure(map[string]string{"fsync": "off", "work_mem": "", "application_name": "it's"})
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, s, devdb.RoleOwner)
	for name, want := range map[string]string{"fsync": "off", "work_mem": "4MB", "application_name": "it's"} {
		if got := ask[string](t, conn, "SHOW "+name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
}

func TestColdCopyIsTheSameDatabaseEarlier(t *testing.T) {
	parent := clusterDir(t)
	s := start(t, devdb.Config{Dir: filepath.Join(parent, "c")})
	exec(t, connect(t, s, devdb.RoleOwner), "CREATE TABLE a AS SELECT 1 AS x")
	copied := filepath.Join(parent, "copy")
	if err := s.ColdCopy(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, s, devdb.RoleOwner)
	exec(t, conn, "INSERT INTO a VALUES (2)")
	identity := "SELECT (SELECT system_identifier::text FROM pg_control_system()) || left(pg_walfile_name(pg_current_wal_lsn()), 8)"
	want := ask[string](t, connect(t, s, devdb.Superuser), identity)
	if err := s.ColdCopy(t.Context(), copied); !errors.Is(err, fs.ErrExist) {
		t.Errorf("copy over a cluster: %v", err)
	}
	port := s.Port()
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	old := start(t, devdb.Config{Dir: copied, Port: port})
	if n := ask[int](t, connect(t, old, devdb.RoleOwner), "SELECT count(*) FROM a"); n != 1 {
		t.Errorf("the copy has %d rows, want 1", n)
	}
	if got := ask[string](t, connect(t, old, devdb.Superuser), identity); got != want {
		t.Errorf("identity and timeline %s, want %s", got, want)
	}
	if old.URL(devdb.RoleService, "x") != s.URL(devdb.RoleService, "x") {
		t.Error("the copy has another URL")
	}
}

func TestRestoreToBeforeTheLastCommits(t *testing.T) {
	parent := clusterDir(t)
	s := start(t, devdb.Config{Dir: filepath.Join(parent, "c"), Archive: true})
	conn := connect(t, s, devdb.RoleOwner)
	exec(t, conn, "CREATE TABLE a (x int)")
	backup := filepath.Join(parent, "backup")
	if err := s.BaseBackup(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, "INSERT INTO a VALUES (1)")
	lsn, err := s.LSN(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := ask[time.Time](t, conn, "SELECT clock_timestamp()")
	exec(t, conn, "INSERT INTO a VALUES (2)")
	if err := s.ArchiveWAL(t.Context()); err != nil {
		t.Fatal(err)
	}
	port := s.Port()
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]devdb.Target{"lsn": {LSN: lsn}, "time": {Time: at}} {
		t.Run(name, func(t *testing.T) {
			cfg := devdb.Config{Dir: filepath.Join(parent, name), Port: port, Archive: true}
			restored, err := devdb.RestoreTo(t.Context(), cfg, backup, s, target)
			if err != nil {
				t.Fatal(err)
			}
			stopAtEnd(t, restored)
			conn := connect(t, restored, devdb.RoleOwner)
			if n := ask[int](t, conn, "SELECT count(*) FROM a"); n != 1 {
				t.Errorf("%d rows, want 1", n)
			}
			if tl := ask[string](t, conn, "SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)"); tl == "00000001" {
				t.Error("the restored server is on the old timeline")
			}
			exec(t, conn, "INSERT INTO a VALUES (3)")
			if err := restored.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
	if _, err := devdb.RestoreTo(t.Context(), devdb.Config{Dir: filepath.Join(parent, "x")}, backup, s, devdb.Target{}); err == nil {
		t.Error("a restore without a target was accepted")
	}
}

func TestAgeMovesEveryTimeBack(t *testing.T) {
	s := start(t, devdb.Config{Dir: filepath.Join(clusterDir(t), "c")})
	conn := connect(t, s, devdb.RoleOwner)
	exec(t, conn, "CREATE TABLE a (x int, at timestamptz, due timestamptz, note text)")
	exec(t, conn, `CREATE TABLE b ("when" timestamptz NOT NULL)`)
	exec(t, conn, "INSERT INTO a VALUES (1, '2026-01-05 12:00Z', 'infinity', 'n'), (2, NULL, '2026-01-06 00:00Z', 'n')")
	exec(t, conn, "INSERT INTO b VALUES ('2026-01-05 12:00:00.5Z')")
	if err := devdb.Age(t.Context(), conn, 4*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := devdb.Age(t.Context(), conn, time.Hour, "b"); err != nil {
		t.Fatal(err)
	}
	got := ask[string](t, conn, `SELECT string_agg(concat_ws('|', x, at, due), ';' ORDER BY x) || ';' || (SELECT "when" FROM b) FROM a`)
	want := "1|2026-01-01 12:00:00+00|infinity;2|2026-01-02 00:00:00+00;2026-01-01 11:00:00.5+00"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if err := devdb.Age(t.Context(), conn, time.Hour, "c"); err == nil {
		t.Error("an unknown table was aged")
	}
}
