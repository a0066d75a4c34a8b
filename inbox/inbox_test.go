package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/inbox"
	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/pgproxy"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx" of database/sql
)

const receipts = "receipts" // the consumer of most tests

// world is a consumer's database: the inbox, and receipts as the effect.
type world struct {
	t    *testing.T
	db   *dbtest.DB
	pool *pgxpool.Pool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	db := dbtest.OpenEmpty(t)
	w := &world{t, db, connect(t, db.Superuser())}
	w.exec(inbox.Schema + "CREATE TABLE receipt (event_id text NOT NULL, consumer text NOT NULL)")
	w.exec(inbox.Schema) // a second time changes nothing
	return w
}

func connect(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 8 // five deliveries at once, each on its own
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func (w *world) exec(query string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(w.t.Context(), query, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) count(query string, args ...any) (n int) {
	w.t.Helper()
	if err := w.pool.QueryRow(w.t.Context(), query, args...).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// want checks marks and receipts of one event.
func (w *world) want(eventID string, marks, written int) {
	w.t.Helper()
	if n := w.count("SELECT count(*) FROM hapax_inbox WHERE event_id = $1", eventID); n != marks {
		w.t.Errorf("%s: %d marks, want %d", eventID, n, marks)
	}
	if n := w.count("SELECT count(*) FROM receipt WHERE event_id = $1", eventID); n != written {
		w.t.Errorf("%s: %d receipts, want %d", eventID, n, written)
	}
}

const insertReceipt = "INSERT INTO receipt (event_id, consumer) VALUES ($1, $2)"

// once delivers the event one time; hook runs inside the effect, after the receipt was written.
type once func(ctx context.Context, consumer, eventID string, hook func() error) (bool, error)

// drivers are the ways to a database: pgx, and database/sql.
func (w *world) drivers(url string) map[string]once {
	db, err := sql.Open("pgx", url)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := db.Close(); err != nil {
			w.t.Error(err)
		}
	})
	overPGX, overSQL := inbox.OverPGX(connect(w.t, url)), inbox.OverSQL(db)
	return map[string]once{
		"pgx": func(ctx context.Context, consumer, eventID string, hook func() error) (bool, error) {
			return overPGX.Once(ctx, consumer, eventID, func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, insertReceipt, eventID, consumer)
				return errors.Join(err, hook())
			})
		},
		"database/sql": func(ctx context.Context, consumer, eventID string, hook func() error) (bool, error) {
			return overSQL.Once(ctx, consumer, eventID, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, insertReceipt, eventID, consumer)
				return errors.Join(err, hook())
			})
		},
	}
}

func nothing() error { return nil }

func each(t *testing.T, f func(t *testing.T, w *world, deliver once)) {
	w := newWorld(t)
	for name, deliver := range w.drivers(w.db.Superuser()) {
		t.Run(name, func(t *testing.T) {
			inner := *w
			inner.t = t
			inner.exec("TRUNCATE hapax_inbox, receipt")
			f(t, &inner, deliver)
		})
	}
}

func wantOnce(t *testing.T, first bool, err error, want bool) {
	t.Helper()
	if err != nil || first != want {
		t.Errorf("got %t, %v; want %t", first, err, want)
	}
}

// TestFiveDeliveries: five deliveries one after another have one effect; another consumer has its own.
func TestFiveDeliveries(t *testing.T) {
	each(t, func(t *testing.T, w *world, deliver once) {
		for i := range 5 {
			first, err := deliver(t.Context(), receipts, "evt_1", nothing)
			wantOnce(t, first, err, i == 0)
		}
		w.want("evt_1", 1, 1)
		first, err := deliver(t.Context(), "search index", "evt_1", nothing)
		wantOnce(t, first, err, true)
		w.want("evt_1", 2, 2)
	})
}

type answer struct {
	first bool
	err   error
}

// together delivers one event five times at once: the first is inside its effect when the four others have begun and wait
// for it; then its effect ends with an error or without.
func together(t *testing.T, w *world, deliver once, ending error) (answers []answer) {
	t.Helper()
	inside, proceed, done := make(chan struct{}), make(chan struct{}), make(chan answer, 5)
	let := sync.OnceFunc(func() { close(proceed) })
	defer let() // also when the test ends early
	go func() {
		first, err := deliver(t.Context(), receipts, "evt_1", func() error {
			close(inside)
			<-proceed
			return ending
		})
		done <- answer{first, err}
	}()
	<-inside
	for range 4 {
		go func() {
			first, err := deliver(t.Context(), receipts, "evt_1", nothing)
			done <- answer{first, err}
		}()
	}
	w.db.WaitBlocked(t, 4)
	let()
	for range 5 {
		answers = append(answers, <-done)
	}
	return answers
}

// TestFiveDeliveriesAtOnce: who comes second waits, and then sees that it is done.
func TestFiveDeliveriesAtOnce(t *testing.T) {
	each(t, func(t *testing.T, w *world, deliver once) {
		firsts := 0
		for _, a := range together(t, w, deliver, nil) {
			if a.err != nil {
				t.Errorf("a delivery failed: %v", a.err)
			}
			if a.first {
				firsts++
			}
		}
		if firsts != 1 {
			t.Errorf("%d were told that they were the first", firsts)
		}
		w.want("evt_1", 1, 1)
	})
}

// TestTheNextOneStepsIn: where the first of five fails, one of those who waited has the effect.
func TestTheNextOneStepsIn(t *testing.T) {
	each(t, func(t *testing.T, w *world, deliver once) {
		broken := errors.New("no room for receipts")
		firsts, failures := 0, 0
		for _, a := range together(t, w, deliver, broken) {
			if errors.Is(a.err, broken) {
				failures++
			} else if a.err != nil {
				t.Error(a.err)
			}
			if a.first {
				firsts++
			}
		}
		if firsts != 1 || failures != 1 {
			t.Errorf("%d first, %d failed", firsts, failures)
		}
		w.want("evt_1", 1, 1)
	})
}

// TestAFailedEffectLeavesNothing: no mark, no receipt; and the event has its effect when it comes again.
func TestAFailedEffectLeavesNothing(t *testing.T) {
	each(t, func(t *testing.T, w *world, deliver once) {
		broken := errors.New("no room for receipts")
		if first, err := deliver(t.Context(), receipts, "evt_1", func() error { return broken }); first || !errors.Is(err, broken) {
			t.Errorf("got %t, %v", first, err)
		}
		w.want("evt_1", 0, 0)
		func() {
			defer func() {
				if recover() != "broken" {
					t.Error("the panic was swallowed")
				}
			}()
			_, err := deliver(t.Context(), receipts, "evt_1", func() error { panic("broken") })
			t.Errorf("after a panic: %v", err)
		}()
		w.want("evt_1", 0, 0)
		first, err := deliver(t.Context(), receipts, "evt_1", nothing)
		wantOnce(t, first, err, true)
		w.want("evt_1", 1, 1)
	})
}

// TestTheCallerCommitsAnyway: an effect that failed is undone also where the caller does not look at the error, or wants
// to commit something else; what the caller wrote before stays.
func TestTheCallerCommitsAnyway(t *testing.T) {
	w := newWorld(t)
	broken := errors.New("broken")
	for name, effect := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"error": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, insertReceipt, "evt_1", receipts)
			return errors.Join(err, broken)
		},
		"statement that failed, and nothing said": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT 1/0")
			t.Log("not told:", err)
			return nil
		},
	} {
		tx, err := w.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), insertReceipt, "caller: "+name, receipts); err != nil {
			t.Fatal(err)
		}
		first, err := inbox.Once(t.Context(), inbox.PGX(tx), receipts, "evt_1", func(ctx context.Context) error { return effect(ctx, tx) })
		if first || err == nil {
			t.Errorf("%s: got %t, %v", name, first, err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		w.want("evt_1", 0, 0)
		w.want("caller: "+name, 0, 1)
	}
}

// TestCrashBetweenEffectAndCommit: the consumer dies after its effect and before its commit. Nothing is left of it, and
// the next delivery has the effect.
func TestCrashBetweenEffectAndCommit(t *testing.T) {
	w := newWorld(t)
	conn, err := pgx.Connect(t.Context(), w.db.Superuser())
	if err != nil {
		t.Fatal(err)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first, err := inbox.Once(t.Context(), inbox.PGX(tx), receipts, "evt_1", func(ctx context.Context) error {
		_, err := tx.Exec(ctx, insertReceipt, "evt_1", receipts)
		return err
	})
	wantOnce(t, first, err, true)
	if err := conn.PgConn().Conn().Close(); err != nil { // as the end of a process does: no rollback, no farewell
		t.Fatal(err)
	}
	for i, deliver := range []once{w.drivers(w.db.Superuser())["pgx"], w.drivers(w.db.Superuser())["database/sql"]} {
		first, err = deliver(t.Context(), receipts, "evt_1", nothing)
		wantOnce(t, first, err, i == 0)
	}
	w.want("evt_1", 1, 1)
}

// TestLostAnswerToCommit: the consumer does not hear whether its COMMIT happened. It may not acknowledge; the next
// delivery finds out.
func TestLostAnswerToCommit(t *testing.T) {
	w := newWorld(t)
	proxy, url := pgproxy.New(t, w.db.Superuser())
	for name, deliver := range w.drivers(url) {
		for mode, again := range map[pgproxy.Mode]bool{pgproxy.SwallowReply: false, pgproxy.SwallowCommit: true} {
			eventID := fmt.Sprint(name, mode)
			proxy.Once(mode, 0)
			if first, err := deliver(t.Context(), receipts, eventID, nothing); first || err == nil {
				t.Errorf("%s: without an answer to COMMIT: %t, %v", eventID, first, err)
			}
			first, err := deliver(t.Context(), receipts, eventID, nothing)
			wantOnce(t, first, err, again)
			w.want(eventID, 1, 1)
		}
	}
}

// TestSnapshotsAreToldApart: at REPEATABLE READ, who waited cannot see the mark, and fails instead of having the effect again.
func TestSnapshotsAreToldApart(t *testing.T) {
	w := newWorld(t)
	tx, err := w.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tx.Rollback(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	if _, err := tx.Exec(t.Context(), "SELECT 1"); err != nil { // takes the snapshot
		t.Fatal(err)
	}
	first, err := w.drivers(w.db.Superuser())["pgx"](t.Context(), receipts, "evt_1", nothing)
	wantOnce(t, first, err, true)
	first, err = inbox.Once(t.Context(), inbox.PGX(tx), receipts, "evt_1", func(context.Context) error {
		t.Error("the effect ran again")
		return nil
	})
	var refused *pgconn.PgError
	if first || !errors.As(err, &refused) || refused.Code != "40001" {
		t.Errorf("got %t, %v", first, err)
	}
	w.want("evt_1", 1, 1)
}

// TestNames: what cannot be a key is refused before anything is done.
func TestNames(t *testing.T) {
	w := newWorld(t)
	deliver := w.drivers(w.db.Superuser())["pgx"]
	long := strings.Repeat("x", inbox.MaxNameBytes+1)
	for _, names := range [][2]string{{"", "evt_1"}, {receipts, ""}, {long, "evt_1"}, {receipts, long}} {
		if first, err := deliver(t.Context(), names[0], names[1], nothing); first || !errors.Is(err, inbox.ErrName) {
			t.Errorf("%q: got %t, %v", names, first, err)
		}
	}
	first, err := deliver(t.Context(), long[1:], long[1:], nothing)
	wantOnce(t, first, err, true)
	if n := w.count("SELECT count(*) FROM hapax_inbox"); n != 1 {
		t.Errorf("%d marks", n)
	}
}

// copyState keeps a copy of a subject's state, as the newest version tells it.
func (w *world) copyState(version int64, ending error) (newest bool, err error) {
	_, err = inbox.OverPGX(w.pool).Once(w.t.Context(), "copy", fmt.Sprint("evt_", version), func(ctx context.Context, tx pgx.Tx) error {
		newest, err = inbox.Newest(ctx, inbox.PGX(tx), "copy", "pi_1", version)
		return errors.Join(err, ending)
	})
	return newest, err
}

// TestNewest: an older version that comes late is told as such; one whose effect failed is not remembered.
func TestNewest(t *testing.T) {
	w := newWorld(t)
	for _, step := range []struct {
		version int64
		newest  bool
	}{{2, true}, {1, false}, {4, true}, {3, false}, {5, true}} {
		newest, err := w.copyState(step.version, nil)
		if err != nil || newest != step.newest {
			t.Errorf("version %d: %t, %v", step.version, newest, err)
		}
	}
	broken := errors.New("broken")
	if _, err := w.copyState(7, broken); !errors.Is(err, broken) {
		t.Error(err)
	}
	for _, version := range []int64{6, 7} {
		if newest, err := w.copyState(version, nil); err != nil || !newest {
			t.Errorf("version %d after a failure: %t, %v", version, newest, err)
		}
	}
	err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
		same, err := inbox.Newest(t.Context(), inbox.PGX(tx), "copy", "pi_1", 7)
		other, otherErr := inbox.Newest(t.Context(), inbox.PGX(tx), "another consumer", "pi_1", 1)
		if same || !other {
			t.Errorf("the same version again: %t; of another consumer: %t", same, other)
		}
		return errors.Join(err, otherErr)
	})
	if err != nil {
		t.Error(err)
	}
}

// TestPurge forgets what is old, in batches, and nothing younger than it was asked or than can come again.
func TestPurge(t *testing.T) {
	w := newWorld(t)
	const old = 2500 // more than two batches
	w.exec("INSERT INTO hapax_inbox (consumer, event_id, seen_at) SELECT 'a', 'evt_' || n, now() - interval '15 days' FROM generate_series(1, $1) n", old)
	w.exec("INSERT INTO hapax_inbox_subject (consumer, subject, version, seen_at) VALUES ('a', 'pi_1', 1, now() - interval '15 days')")
	w.exec("INSERT INTO hapax_inbox (consumer, event_id, seen_at) VALUES ('a', 'young', now() - interval '13 days')")
	w.exec("INSERT INTO hapax_inbox_subject (consumer, subject, version, seen_at) VALUES ('a', 'pi_2', 1, now() - interval '13 days')")
	db := inbox.OverPGX(w.pool)
	if n, err := db.Purge(t.Context(), inbox.MinKeep-time.Second); n != 0 || !errors.Is(err, inbox.ErrKeep) {
		t.Errorf("too soon: %d, %v", n, err)
	}
	if n, err := db.Purge(t.Context(), 16*24*time.Hour); n != 0 || err != nil {
		t.Errorf("nothing that old: %d, %v", n, err)
	}
	if n, err := db.Purge(t.Context(), inbox.MinKeep); n != old+1 || err != nil {
		t.Errorf("forgot %d, %v", n, err)
	}
	if n := w.count("SELECT (SELECT count(*) FROM hapax_inbox) + (SELECT count(*) FROM hapax_inbox_subject)"); n != 2 {
		t.Errorf("%d rows are left", n)
	}
}
