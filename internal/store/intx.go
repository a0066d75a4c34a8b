package store

import (
	"context"
	"fmt"
	"time"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/store/dbgen"
	"github.com/jackc/pgx/v5"
)

const (
	// maxRuns bounds how often one transaction is tried: deadlocks and serialization failures end in far fewer.
	maxRuns = 8
	// rollbackLimit bounds a rollback; after it the connection is closed, which rolls back as well.
	rollbackLimit = 5 * time.Second
	// commitQuery frees COMMIT from the statement's limit: a limit would end the wait for a synchronous standby, and
	// PostgreSQL would then commit locally and report success (PROTOCOL K12).
	commitQuery = "set local statement_timeout = 0; commit"
)

var _ flow.Store = (*Store)(nil)

// InTx runs f in one READ COMMITTED transaction and commits it, as operation.Store documents. Before COMMIT is sent,
// every failure wraps operation.ErrNothingDone; a COMMIT without an answer is operation.ErrCommitUnknown (PROTOCOL K10).
func (s *Store) InTx(ctx context.Context, name string, f func(ctx context.Context, tx flow.Tx) error) error {
	return s.inTx(ctx, name, s.begin, func(ctx context.Context, t *tx) error { return f(ctx, t) })
}

// tx is one transaction; it implements flow.Tx.
type tx struct {
	s     *Store
	q     *dbgen.Queries
	err   error // the first failure of a statement: nothing may be committed after it
	guard *operation.Guard
	// moved is set when the server is not the one that the database remembers.
	moved *identity
	told  bool // events were written: the relay has work when this is committed
}

// fail marks the transaction as lost and names the statement.
func (t *tx) fail(what string, err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s: %w: %w", what, operation.ErrNothingDone, err)
	if t.err == nil {
		t.err = err
	}
	return err
}

func (s *Store) inTx(ctx context.Context, name string, options pgx.TxOptions, f func(ctx context.Context, t *tx) error) error {
	var err error
	for range maxRuns {
		again := false
		if again, err = s.once(ctx, name, options, f); !again {
			return err
		}
	}
	if err == nil { // each run met another server than the one whose epoch was just written: nothing was committed
		return fmt.Errorf("%s: %w: %w", name, operation.ErrOnHold, operation.ErrNothingDone)
	}
	return err
}

// once runs the transaction one time; again says that it is proven undone and worth another run.
func (s *Store) once(ctx context.Context, name string, options pgx.TxOptions, f func(ctx context.Context, t *tx) error) (again bool, err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return false, fmt.Errorf("%s: connect: %w: %w", name, operation.ErrNothingDone, err)
	}
	defer conn.Release() // closes the connection when the transaction is still open
	open, err := conn.BeginTx(ctx, options)
	if err != nil {
		return false, fmt.Errorf("%s: begin: %w: %w", name, operation.ErrNothingDone, err)
	}
	t := &tx{s: s, q: dbgen.New(open)}
	err = f(wire.ForbidNetwork(ctx), t)
	if err == nil {
		err = t.err
	}
	if err != nil {
		s.rollback(ctx, name, open)
		if t.moved != nil {
			conn.Release() // the change of epoch needs one itself, and this may be the last
			return s.advance(ctx, *t.moved)
		}
		if again = retryable(err) || retryable(t.err); again {
			s.counts.retries.Add(1)
		}
		return again, err
	}
	if open.Conn().IsClosed() {
		return false, fmt.Errorf("%s: %w: the connection was lost before COMMIT", name, operation.ErrNothingDone)
	}
	// Whoever waits for the answer may leave; the commit does not (PROTOCOL K11, K12).
	err = open.Commit(context.WithoutCancel(ctx))
	if t.told && s.cfg.Told != nil {
		s.cfg.Told() // also where the answer was lost: a look that finds nothing costs little
	}
	if err == nil {
		return false, nil
	}
	if retryable(err) {
		s.counts.retries.Add(1)
		again = true
	}
	meaning := commitMeaning(err)
	if meaning == operation.ErrCommitUnknown {
		s.counts.commitUnknown.Add(1)
	}
	return again, fmt.Errorf("%s: commit: %w: %w", name, meaning, err)
}

// rollback ends the transaction. A failure changes nothing: the connection is closed, and nothing was committed.
func (s *Store) rollback(ctx context.Context, name string, open pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackLimit)
	defer cancel()
	if err := open.Rollback(ctx); err != nil {
		s.cfg.Log.Debug("rollback failed, connection closed", "transaction", name, "error", err)
	}
}

// look runs f in a short reading transaction with one snapshot, on the primary.
func (s *Store) look(ctx context.Context, name string, f func(ctx context.Context, q *dbgen.Queries) error) error {
	return s.inTx(ctx, name, s.read, func(ctx context.Context, t *tx) error { return t.fail(name, f(ctx, t.q)) })
}

// change runs f in a short writing transaction.
func (s *Store) change(ctx context.Context, name string, f func(ctx context.Context, q *dbgen.Queries) error) error {
	return s.inTx(ctx, name, s.begin, func(ctx context.Context, t *tx) error { return t.fail(name, f(ctx, t.q)) })
}
