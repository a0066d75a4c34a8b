package sim

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/internal/routing"
)

// TxFault is what happens to one transaction beside its statements.
type TxFault struct {
	Before, After time.Duration // until it begins; from COMMIT to its answer, which no limit shortens (PROTOCOL K12)
	Away          bool          // the database cannot be reached: nothing is done
	Again         int           // serialization failures before the run that counts
	Lost          bool          // COMMIT gets no answer
	Undone        bool          // with Lost: it had not committed
}

// Store is the database in memory. Transactions are serial; its clock is virtual time with an offset of its own. It
// implements flow.Store and sweep.Housekeeping with the rules of internal/store and of the schema.
type Store struct {
	tables
	// Offset shifts the database's clock against virtual time.
	Offset time.Duration
	// Faults decides what happens to a transaction; nil: nothing. It is asked inside tasks only.
	Faults func(name string) TxFault
	// Step is called where a process may stop or vanish around a transaction; nil: nothing.
	Step func(ctx context.Context, point string)
	// Committed is called after each commit; nil: nothing.
	Committed func()
	// Defects are violations of the schema and errors that no rule foresees. There must be none.
	Defects []string

	s     *Scheduler
	epoch operation.Guard
	open  bool
}

var _ flow.Store = (*Store)(nil)

// maxRuns bounds how often one transaction is run after serialization failures, as in the real store.
const maxRuns = 8

// NewStore makes an empty database in epoch 1.
func NewStore(s *Scheduler) *Store {
	return &Store{tables: newTables(), s: s, epoch: operation.Guard{Epoch: 1}}
}

// Now is the database's clock, in microseconds as PostgreSQL keeps it.
func (st *Store) Now() time.Time { return micro(st.s.Time().Add(st.Offset)) }

func micro(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Microsecond)
}

// AddAccount stores an acquirer account.
func (st *Store) AddAccount(a flow.Account) error {
	x := &tx{Store: st}
	if _, known := st.policies.get(a.Merchant); !known {
		if err := st.policies.insert(x, flow.Policy{Merchant: a.Merchant}); err != nil {
			return err
		}
	}
	return st.accounts.insert(x, a)
}

// SetPolicy changes what a merchant has decided; its account is added before.
func (st *Store) SetPolicy(p flow.Policy) error { return st.policies.put(&tx{Store: st}, p) }

// AddRule stores a routing rule.
func (st *Store) AddRule(r routing.Rule) error { return st.rules.insert(&tx{Store: st}, r) }

// tx is one transaction; it implements flow.Tx.
type tx struct {
	*Store
	now  time.Time
	undo []func()
	err  error
}

// fail marks the transaction as lost, as the real store does: nothing is committed after it.
func (t *tx) fail(what string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, errViolation) {
		t.defect(what + ": " + err.Error())
	}
	err = fmt.Errorf("%s: %w: %w", what, operation.ErrNothingDone, err)
	if t.err == nil {
		t.err = err
	}
	return err
}

func (st *Store) defect(what string) {
	st.s.Note("DEFECT", what)
	st.Defects = append(st.Defects, what)
}

func (t *tx) rollback() {
	for n := len(t.undo) - 1; n >= 0; n-- {
		t.undo[n]()
	}
	t.undo = nil
}

// InTx implements operation.Store. The body runs in one go, so that transactions are serial; what may go wrong goes
// wrong before it, after it, or in its COMMIT.
func (st *Store) InTx(ctx context.Context, name string, f func(ctx context.Context, tx flow.Tx) error) error {
	if st.s.current == nil {
		return st.once(ctx, name, TxFault{}, f)
	}
	r := st.s.current.replica
	var fault TxFault
	if st.Faults != nil {
		fault = st.Faults(name)
	}
	st.step(ctx, "before-tx")
	r.Sleep(ctx, fault.Before)
	switch {
	case ctx.Err() != nil:
		st.s.Note("tx", name, "not begun in time")
		return fmt.Errorf("%s: connect: %w: %w", name, operation.ErrNothingDone, ctx.Err())
	case fault.Away:
		st.s.Note("tx", name, "database away")
		return fmt.Errorf("%s: connect: %w", name, operation.ErrNothingDone)
	}
	for n := range min(fault.Again, maxRuns-1) {
		if err := st.run(ctx, name, f, func(t *tx) { t.rollback() }); err != nil {
			return err
		}
		st.s.Note("tx", name, "serialization failure", strconv.Itoa(n+1))
		r.Sleep(context.WithoutCancel(ctx), serializationPause)
	}
	return st.once(ctx, name, fault, f)
}

const serializationPause = 3 * time.Millisecond

// once runs the transaction and answers its COMMIT.
func (st *Store) once(ctx context.Context, name string, fault TxFault, f func(ctx context.Context, tx flow.Tx) error) error {
	undone := fault.Lost && fault.Undone
	err := st.run(ctx, name, f, func(t *tx) {
		if undone {
			t.rollback()
		}
	})
	if err != nil {
		return err
	}
	if !undone && st.Committed != nil {
		st.Committed()
	}
	if st.s.current != nil {
		r := st.s.current.replica
		st.step(ctx, "after-commit")
		r.Sleep(context.WithoutCancel(ctx), fault.After)
	}
	if fault.Lost {
		st.s.Note("tx", name, "COMMIT not answered, undone:", strconv.FormatBool(undone))
		return fmt.Errorf("%s: commit: %w", name, operation.ErrCommitUnknown)
	}
	st.s.Note("tx", name, "committed")
	return nil
}

// run makes one run of the body; commit is called when it ended well.
func (st *Store) run(ctx context.Context, name string, f func(ctx context.Context, tx flow.Tx) error, commit func(*tx)) (err error) {
	if st.open {
		panic("sim: a transaction inside a transaction")
	}
	t := &tx{Store: st, now: st.Now()}
	st.open = true
	ended := false
	defer func() {
		st.open = false
		if !ended { // the process vanished inside: the server rolls back
			t.rollback()
		}
	}()
	err = f(wire.ForbidNetwork(ctx), t)
	if err == nil {
		err = t.err
	}
	ended = true
	if err != nil {
		t.rollback()
		st.s.Note("tx", name, "rolled back:", err.Error())
		var refused *problem.Problem // a rule's own reason to roll back
		if !errors.Is(err, operation.ErrNothingDone) && !errors.Is(err, operation.ErrVanished) && !errors.As(err, &refused) {
			st.defect("tx " + name + ": " + err.Error())
		}
		return err
	}
	commit(t)
	return nil
}

func (st *Store) step(ctx context.Context, point string) {
	if st.Step != nil {
		st.Step(ctx, point)
	}
}

// InTransaction says whether a transaction's body is running: nothing may wait there.
func (st *Store) InTransaction() bool { return st.open }

// PurgeExpired implements sweep.Housekeeping.
func (st *Store) PurgeExpired(ctx context.Context, limit int) (int, error) {
	purged := 0
	err := st.InTx(ctx, "purge", func(_ context.Context, x flow.Tx) error {
		t := x.(*tx)
		purged = 0
		for _, o := range st.operations.all(func(o operation.Operation) bool {
			return o.State == operation.Completed && !o.ExpiresAt.After(t.now)
		}) {
			if purged == limit {
				break
			}
			st.operations.remove(t, o.Ref)
			purged++
		}
		return nil
	})
	return purged, err
}

// Heartbeat implements sweep.Housekeeping. Nothing is ever lost here, so that nothing is noted.
func (st *Store) Heartbeat(context.Context) error { return nil }

// NextDue is when the sweep has something to do next, by the database's clock; zero: never. Retention counts too.
func (st *Store) NextDue() time.Time {
	var next time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, k := range st.operations.order {
		if o := st.operations.rows[k]; o.State != operation.Completed {
			sooner(o.DueAt)
		}
	}
	for _, k := range st.payments.order {
		sooner(st.payments.rows[k].DueAt)
	}
	return next
}

// Endpoints implements flow.Tx. No client of the simulation has a webhook endpoint.
func (t *tx) Endpoints() flow.EndpointTx { panic("sim: nobody here has webhook endpoints") }
