package store_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/pgproxy"
	"github.com/hapaxpay/hapax/internal/store"
	"github.com/jackc/pgx/v5"
)

func TestTheErrorOfAFunctionComesBackAsItIs(t *testing.T) {
	sh := newShop(t)
	refused := errors.New("refused")
	op := sh.operation("k")
	err := sh.s.InTx(t.Context(), "test", func(ctx context.Context, tx flow.Tx) error {
		if !wire.NetworkForbidden(ctx) {
			t.Error("the context of a transaction allows network calls")
		}
		if _, err := tx.InsertOperations(ctx, []operation.Operation{op}, lease); err != nil {
			return err
		}
		return refused
	})
	if err != refused {
		t.Errorf("got %v", err)
	}
	if n := sh.count("operation", "true"); n != 0 {
		t.Errorf("%d rows after a rollback", n)
	}
}

func TestAFailedStatementIsNeverCommitted(t *testing.T) {
	sh := newShop(t)
	op := sh.operation("k")
	broken := sh.operation("broken")
	broken.Key = strings.Repeat("x", 256)
	err := sh.s.InTx(t.Context(), "test", func(ctx context.Context, tx flow.Tx) error {
		if _, err := tx.InsertOperations(ctx, []operation.Operation{op}, lease); err != nil {
			return err
		}
		if _, err := tx.InsertOperations(ctx, []operation.Operation{broken}, lease); !errors.Is(err, operation.ErrNothingDone) {
			t.Errorf("a refused statement says %v", err)
		}
		return nil // swallowed
	})
	if name, ok := store.Violation(err); !errors.Is(err, operation.ErrNothingDone) || !ok || name != "operation_idempotency_key_check" {
		t.Errorf("got %v", err)
	}
	if n := sh.count("operation", "true"); n != 0 {
		t.Errorf("%d rows after a failed statement", n)
	}
}

// behind gives a shop whose store reaches PostgreSQL through a proxy.
func behind(t *testing.T) (*shop, *pgproxy.Proxy) {
	t.Helper()
	sh := newShop(t)
	p, through := pgproxy.New(t, sh.db.Service())
	sh.s = again(t, sh.db, func(c *store.Config) { c.URL = through; c.PoolMode = store.PoolSession })
	return sh, p
}

func TestCase016_ALostAnswerToCommitIsUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		mode pgproxy.Mode
		rows int
	}{"committed": {pgproxy.SwallowReply, 1}, "not committed": {pgproxy.SwallowCommit, 0}} {
		t.Run(name, func(t *testing.T) {
			sh, p := behind(t)
			op := sh.operation("k")
			insert := func(ctx context.Context, tx flow.Tx) error {
				_, err := tx.InsertOperations(ctx, []operation.Operation{op}, lease)
				return err
			}
			p.Set(c.mode)
			err := sh.s.InTx(t.Context(), "claim", insert)
			p.Set(pgproxy.Pass)
			if !errors.Is(err, operation.ErrCommitUnknown) || errors.Is(err, operation.ErrNothingDone) {
				t.Fatalf("got %v", err)
			}
			if n := sh.s.Counters().CommitUnknown; n != 1 {
				t.Errorf("%d lost answers were counted", n)
			}
			// The server notices the broken connection in its own time; the second insert waits for it.
			fresh := false
			sh.tx(func(ctx context.Context, tx flow.Tx) error {
				got, err := tx.InsertOperations(ctx, []operation.Operation{op}, lease)
				fresh = err == nil && got[0]
				return err
			})
			if fresh == (c.rows == 1) {
				t.Errorf("a second claim is new: %v", fresh)
			}
			if row := sh.read(op.Ref); row.ClaimID != op.ClaimID { // K10: this is how we know that it is ours
				t.Errorf("claim id %v, want %v", row.ClaimID, op.ClaimID)
			}
		})
	}
}

func TestCase016_ALostPermitIsGrantedOnce(t *testing.T) {
	sh, p := behind(t)
	st := sh.start("order-1")
	ask := operation.PermitAsk{Ref: st.op.Ref, Fence: 1, PermitID: newID(), MaxSends: 3, CutOff: time.Hour}
	var answer operation.PermitAnswer
	permit := func(ctx context.Context, tx flow.Tx) (err error) {
		answer, err = tx.Permit(ctx, ask)
		return err
	}
	p.Set(pgproxy.SwallowReply)
	if err := sh.s.InTx(t.Context(), "permit", permit); !errors.Is(err, operation.ErrCommitUnknown) {
		t.Fatalf("got %v", err)
	}
	p.Set(pgproxy.Pass)
	sh.tx(permit)
	if !answer.Granted || answer.Op.Sends != 2 {
		t.Errorf("asked again: %+v", answer)
	}
	if row := sh.read(st.op.Ref); row.Sends != 2 || row.PermitID != ask.PermitID {
		t.Errorf("%d sends, permit %v", row.Sends, row.PermitID)
	}
}

func TestCase017_NoSuccessWithoutADurableRow(t *testing.T) {
	sh := newShop(t)
	terminate := func(ctx context.Context) {
		sh.exec(sh.db.Superuser(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'")
	}
	for name, between := range map[string]func(ctx context.Context, cancel func(), tx flow.Tx){
		"the client leaves before COMMIT": func(_ context.Context, cancel func(), _ flow.Tx) { cancel() },
		"the client leaves before a statement": func(ctx context.Context, cancel func(), tx flow.Tx) {
			cancel()
			if _, err := tx.Guard(ctx); !errors.Is(err, operation.ErrNothingDone) {
				t.Errorf("a statement after the client left: %v", err)
			}
		},
		"a statement fails": func(ctx context.Context, _ func(), tx flow.Tx) {
			if _, err := tx.InsertOperations(ctx, []operation.Operation{{}}, lease); err == nil {
				t.Error("an empty row was taken")
			}
		},
		"the server ends the session": func(ctx context.Context, _ func(), _ flow.Tx) { terminate(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			op := sh.operation(name)
			err := sh.s.InTx(ctx, "record", func(ctx context.Context, tx flow.Tx) error {
				if _, err := tx.InsertOperations(ctx, []operation.Operation{op}, lease); err != nil {
					return err
				}
				between(ctx, cancel, tx)
				return nil
			})
			stored := sh.count("operation", "idempotency_key = $1", name) == 1
			switch {
			case err == nil && !stored:
				t.Error("success without a row")
			case errors.Is(err, operation.ErrNothingDone) && stored:
				t.Error("nothing done, but there is a row")
			case err != nil && !errors.Is(err, operation.ErrNothingDone) && !errors.Is(err, operation.ErrCommitUnknown):
				t.Errorf("an error that says neither: %v", err)
			}
			if name == "the client leaves before COMMIT" && err != nil {
				t.Errorf("COMMIT has a context of its own: %v", err)
			}
			if name != "the client leaves before COMMIT" && err == nil {
				t.Error("no error")
			}
		})
	}
}

func TestIdleTransactionsAreEndedAndNothingIsDone(t *testing.T) {
	sh := newShop(t, func(c *store.Config) {
		c.LockTimeout, c.StatementTimeout, c.IdleInTxTimeout = 10*time.Millisecond, 20*time.Millisecond, 40*time.Millisecond
	})
	err := sh.s.InTx(t.Context(), "slow", func(ctx context.Context, tx flow.Tx) error {
		if _, err := tx.InsertOperations(ctx, []operation.Operation{sh.operation("k")}, lease); err != nil {
			return err
		}
		conn, err := pgx.Connect(t.Context(), sh.db.Superuser())
		if err != nil {
			return err
		}
		for n := 1; n > 0 && err == nil; { // until the server has ended it
			err = conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'").Scan(&n)
		}
		return errors.Join(err, conn.Close(t.Context()))
	})
	if !errors.Is(err, operation.ErrNothingDone) || sh.count("operation", "true") != 0 {
		t.Errorf("got %v", err)
	}
}

func TestALockIsWaitedForWithinItsLimit(t *testing.T) {
	sh := newShop(t, func(c *store.Config) { c.LockTimeout = 50 * time.Millisecond })
	op := sh.claim("k")[0]
	var late error
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		if _, err := tx.LockOperations(ctx, []operation.Ref{op.Ref}); err != nil {
			return err
		}
		late = sh.s.InTx(t.Context(), "second", func(ctx context.Context, tx flow.Tx) error {
			_, err := tx.LockOperations(ctx, []operation.Ref{op.Ref})
			return err
		})
		return nil
	})
	if !errors.Is(late, operation.ErrNothingDone) {
		t.Errorf("got %v", late)
	}
}

func TestNoConnectionMeansNothingDone(t *testing.T) {
	sh, p := behind(t)
	p.Stop()
	err := sh.s.InTx(t.Context(), "claim", func(context.Context, flow.Tx) error {
		t.Error("the function ran")
		return nil
	})
	if !errors.Is(err, operation.ErrNothingDone) {
		t.Errorf("got %v", err)
	}
}

func TestDeadlocksAreRunAgain(t *testing.T) {
	sh := newShop(t, func(c *store.Config) { // the server looks for deadlocks after a second
		c.LockTimeout, c.StatementTimeout = 20*time.Second, 25*time.Second
		c.IdleInTxTimeout = 28 * time.Second
	})
	ops := sh.claim("a", "b")
	var holds sync.WaitGroup
	holds.Add(2)
	done := make(chan error, 2)
	for _, order := range [][]operation.Operation{{ops[0], ops[1]}, {ops[1], ops[0]}} {
		go func() {
			first := true
			done <- sh.s.InTx(t.Context(), "cross", func(ctx context.Context, tx flow.Tx) error {
				if _, err := tx.LockOperations(ctx, []operation.Ref{order[0].Ref}); err != nil {
					return err
				}
				if first { // both hold one lock: now each wants the other's
					first = false
					holds.Done()
					holds.Wait()
				}
				_, err := tx.LockOperations(ctx, []operation.Ref{order[1].Ref})
				return err
			})
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if sh.s.Counters().Retries == 0 { // more than one, where the second run meets the other again
		t.Error("no deadlock: this test forces nothing")
	}
}

func TestPoolerIsDetected(t *testing.T) {
	s, db := open(t)
	if s.PoolMode() != store.PoolSession {
		t.Errorf("a direct connection is taken for %q", s.PoolMode())
	}
	_, through := pgproxy.New(t, db.Service())
	if s := again(t, db, func(c *store.Config) { c.URL = through }); s.PoolMode() != store.PoolTransaction {
		t.Errorf("an address that changes on the way is taken for %q", s.PoolMode())
	}
}
