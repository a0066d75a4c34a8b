package store_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/store"
)

// startPgbouncer runs a transaction pooler with two connections before the database and gives the URL through it.
func startPgbouncer(t *testing.T, serviceURL string) string {
	t.Helper()
	binary, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Skip("pgbouncer is not installed: the transaction pooler itself is not tried; TestCase060_NothingIsPreparedByName is")
	}
	u, err := url.Parse(serviceURL)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`[databases]
pooled = host=%s port=%s dbname=%s user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
`, u.Hostname(), u.Port(), u.Path[1:], u.User.Username(), password, port)
	file := filepath.Join(dbtest.Dir(t), "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{file}
	if os.Geteuid() == 0 {
		args = []string{"-u", "postgres", file} // it refuses to run as root
	}
	cmd := exec.Command(binary, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		if _, err := cmd.Process.Wait(); err != nil {
			t.Error(err)
		}
	})
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	dbtest.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", address)
		return err == nil && conn.Close() == nil
	})
	u.Host, u.Path = address, "/pooled"
	return u.String()
}

// work runs claims, permits, saves and readings on several connections at once.
func work(t *testing.T, sh *shop) {
	const workers, rounds = 8, 10
	done := make(chan error, workers)
	for range workers {
		go func() {
			var err error
			for range rounds {
				op := sh.operation(newID().String())
				err = sh.s.InTx(t.Context(), "claim", func(ctx context.Context, tx flow.Tx) error {
					if _, err := tx.Guard(ctx); err != nil {
						return err
					}
					if _, err := tx.InsertOperations(ctx, []operation.Operation{op}, lease); err != nil {
						return err
					}
					op.State, op.AnswerStatus = operation.Completed, 200
					_, err := tx.SaveOperations(ctx, []operation.Operation{op}, lease)
					return err
				})
				if err == nil {
					_, err = sh.s.AccountsOf(t.Context(), sh.merchant)
				}
				if err == nil {
					err = sh.s.Heartbeat(t.Context())
				}
				if err != nil {
					break
				}
			}
			done <- err
		}()
	}
	for range workers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := sh.count("operation", "state = 'completed'"); n != workers*rounds {
		t.Errorf("%d operations, want %d", n, workers*rounds)
	}
}

func TestCase060_BehindATransactionPooler(t *testing.T) {
	sh := newShop(t)
	through := startPgbouncer(t, sh.db.Service())
	sh.s = again(t, sh.db, func(c *store.Config) { c.URL = through })
	if sh.s.PoolMode() != store.PoolTransaction {
		t.Errorf("the pooler was taken for %q", sh.s.PoolMode())
	}
	work(t, sh)
	st := sh.start("order-1")
	if got := sh.permit(usual(st.op)); !got.Granted {
		t.Errorf("permit %+v", got)
	}
}

func TestCase060_NothingIsPreparedByName(t *testing.T) {
	sh := newShop(t)
	sh.s = again(t, sh.db, func(c *store.Config) { c.PoolMode = store.PoolTransaction; c.MaxConns = 1 })
	work(t, sh)
	sh.start("order-1")
	if prepared := sh.s.Prepared(t); prepared != 0 {
		t.Errorf("%d statements are prepared on the connection", prepared)
	}
	session := again(t, sh.db, func(c *store.Config) { c.MaxConns = 1 })
	if session.Prepared(t) == 0 {
		t.Error("a session without a pooler prepares nothing: this test sees nothing")
	}
}

// TestCase059_LeaseBehindATransactionPooler: the right to migrate is a row's lock, which ends with its transaction, wherever the
// pooler sends the next statement. A process that dies while it has it holds up nobody, and nobody takes a lock of a session.
func TestCase059_LeaseBehindATransactionPooler(t *testing.T) {
	db := dbtest.OpenEmpty(t)
	through := startPgbouncer(t, db.Owner())
	sh := &shop{t: t, db: db}
	bootstrap, err := os.ReadFile("migrations/0000_bootstrap.sql")
	if err != nil {
		t.Fatal(err)
	}
	sh.owner(string(bootstrap))
	cfg, err := pgx.ParseConfig(through)
	if err != nil {
		t.Fatal(err)
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	dying, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{"BEGIN", "SELECT FROM migration_lease FOR UPDATE"} {
		if _, err := dying.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- store.Migrate(t.Context(), through) }()
	db.WaitBlocked(t, 1)
	if err := dying.PgConn().Conn().Close(); err != nil { // as the end of its process would
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if after, err := store.SchemaVersion(t.Context(), through); err != nil || after != store.LatestVersion() {
		t.Errorf("version %d, %v", after, err)
	}
	sh.s = again(t, db)
	sh.merchant, sh.account = sh.addMerchant()
	err = sh.s.InTx(t.Context(), "claim", func(ctx context.Context, tx flow.Tx) error {
		if _, err := tx.InsertOperations(ctx, []operation.Operation{sh.operation("K")}, lease); err != nil {
			return err
		}
		if _, err := tx.PickDue(ctx, 1, 1, lease, newID); err != nil {
			return err
		}
		if n := sh.count("pg_locks", "locktype = 'advisory'"); n != 0 {
			t.Errorf("%d locks of sessions are held in a transaction of the service", n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
