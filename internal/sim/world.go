package sim

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
)

// Hazards are what happens to replicas and to the database, in chances of 1000 for each step.
type Hazards struct {
	Crash, Pause        int // at each named point and around each transaction
	Away, Slow          int // of a transaction: not reached; slow to begin or to answer its COMMIT
	Again               int // serialization failure
	Lost                int // COMMIT without an answer; half of them did not commit
	ClockOffset         time.Duration
	DatabaseClockOffset time.Duration
}

// Habits are what clients do, in chances of 1000.
type Habits struct {
	Twice, LoseKey, LeaveEarly, OtherParameters, Amend, TwoSteps, NewTry, LongPause int

	Hosted, Manual, Step int // how an order is paid: on a page, held first, with a payer's step
	Change, EarlyChange  int // capture, cancel, refund, check: after the answer, and before it
	WrongCode            int
	// CancelCode and Compensate are the odds of a merchant's policies.
	CancelCode, Compensate int
}

// Config of a world. Swarm makes one from a seed.
type Config struct {
	Seed     uint64
	Merchant []Terms // one merchant for each, with an account at such an acquirer
	Orders   int
	Replicas int
	Engine   operation.Config
	Sweep    time.Duration // between two passes
	Hazards  Hazards
	Mischief Mischief
	Habits   Habits
	// Trouble ends after this: then nothing fails any more, and everything unfinished has to come to an end.
	Trouble time.Duration
	// Late repeats every key after its operation was purged (PROTOCOL K8).
	Late bool
	// Trace gets the whole history; nil: only its sum and tail are kept.
	Trace io.Writer
}

// Limits of a world.
const (
	lastChecks = 2                   // the second one sees what the first one led to
	quietTime  = 12 * 24 * time.Hour // after the trouble, until everything must have come to an end
	maxSteps   = 2_000_000           // a world that needs more is a defect of its own
)

// World is one history: replicas with the real flows and sweep, a database, acquirers, clients.
type World struct {
	Config    Config
	Scheduler *Scheduler
	Store     *Store
	Acquirers []*Acquirer
	// Told is every answer that a replica gave, in order.
	Told []Told
	// Counts are what the engine reported and what happened, by name.
	Counts map[string]int
	// Faults are errors that no rule foresees.
	Faults []string
	// Tail is the end of a history in which something is wrong.
	Tail string

	merchants []id.ID
	accounts  map[id.ID]*Acquirer
	pods      []*pod
	clients   *Replica
	shopping  int // clients that are not done
	over      bool
}

// NewWorld makes the world; Run runs it.
func NewWorld(c Config) (*World, error) {
	s := NewScheduler(c.Seed, NewTrace(c.Trace))
	w := &World{Config: c, Scheduler: s, Store: NewStore(s), Counts: map[string]int{}, accounts: map[id.ID]*Acquirer{}}
	w.Store.Offset = c.Hazards.DatabaseClockOffset
	w.Store.Faults, w.Store.Step, w.Store.Committed = w.txFault, w.misfortune, w.wakeSweeps
	for n, terms := range c.Merchant {
		a := NewAcquirer(s, terms, c.Mischief)
		merchant, account := s.newID(Start), s.newID(Start)
		w.merchants, w.Acquirers, w.accounts[account] = append(w.merchants, merchant), append(w.Acquirers, a), a
		row := flow.Account{Merchant: merchant, ID: account, Adapter: "sandbox", Settings: terms.Settings(), Secrets: terms.secrets()}
		a.Deliver = w.deliver(a, merchant, account)
		if err := w.Store.AddAccount(row); err != nil {
			return nil, err
		}
		p := flow.Policy{Merchant: merchant, CancelCode: s.Odds(c.Habits.CancelCode), AutoCompensate: s.Odds(c.Habits.Compensate)}
		if err := w.Store.SetPolicy(p); err != nil {
			return nil, err
		}
		s.Note("merchant", strconv.Itoa(n), terms.Name, string(terms.Settings()), fmt.Sprintf("%+v", p))
	}
	for n := range c.Replicas {
		p := &pod{w: w, name: "replica" + strconv.Itoa(n)}
		w.pods = append(w.pods, p)
		p.boot()
	}
	w.clients = s.NewReplica("client", 0)
	w.openShop()
	return w, nil
}

// Run runs the world to its end and returns what is wrong with it, by the numbers of PROTOCOL section 16; nothing: all
// is well. A panic of the code under test is one more thing that is wrong.
func (w *World) Run() (wrong []string) {
	defer w.Scheduler.Close()
	defer func() {
		if p := recover(); p != nil {
			wrong = append(wrong, fmt.Sprintf("panic: %v", p))
		}
	}()
	w.Scheduler.After(w.Config.Trouble, w.calm)
	stop := func() bool { return w.Scheduler.Steps > maxSteps || w.settled() }
	w.Scheduler.Run(w.Config.Trouble+quietTime, stop)
	for range lastChecks {
		w.checkAll()
		w.Scheduler.Run(w.Scheduler.now+quietTime, stop)
	}
	wrong = w.verdict()
	if w.Config.Late && len(wrong) == 0 {
		wrong = w.lateRepeats()
	}
	w.over = true
	if len(wrong) > 0 {
		w.Tail = w.Scheduler.Trace.Tail()
	}
	if w.Config.Trace != nil {
		w.dump()
	}
	return wrong
}

// calm ends the trouble: replicas that are down come back, and nothing fails any more.
func (w *World) calm() {
	w.Scheduler.Note("the trouble is over")
	w.Config.Hazards = Hazards{}
	for _, a := range w.Acquirers {
		a.Mischief = Mischief{Declines: a.Mischief.Declines}
	}
}

// settled says whether nothing is left to happen: clients are done and everything is final, or with a person.
func (w *World) settled() bool {
	if w.shopping > 0 || w.Scheduler.now < w.Config.Trouble {
		return false
	}
	for _, k := range w.Store.operations.order {
		if o := w.Store.operations.rows[k]; o.State != operation.Completed && !w.withPerson(o) && !w.openReview(o.Payment) {
			return false
		}
	}
	for _, k := range w.Store.payments.order {
		p := w.Store.payments.rows[k]
		unfinished := !p.Status.Final() || p.Status.Refusal() && !p.GateOpen && !p.Conflict
		if unfinished && !w.openReview(p.ID) {
			return false
		}
	}
	for _, k := range w.Store.modifications.order {
		if m := w.Store.modifications.rows[k]; m.Status.Open() && !w.openReview(m.Payment) {
			return false
		}
	}
	for _, a := range w.Acquirers {
		if a.awaited > 0 {
			return false
		}
	}
	return w.Store.NextMessage().IsZero()
}

// withPerson says whether an operation, or the one that it follows, is in review.
func (w *World) withPerson(o operation.Operation) bool {
	if o.State == operation.InReview {
		return true
	}
	leader, ok := w.Store.operations.by("operation_id", flow.Row{Merchant: o.Merchant, ID: o.Follows})
	return ok && leader.State == operation.InReview
}

func (w *World) openReview(p id.ID) bool {
	found := false
	w.Store.reviews.each(func(r payment.Review) bool {
		found = r.Payment == p && r.DecidedAt.IsZero()
		return !found
	})
	return found
}

// txFault draws what happens to a transaction.
func (w *World) txFault(string) TxFault {
	s, h := w.Scheduler, w.Config.Hazards
	f := TxFault{Before: s.Between(100*time.Microsecond, 4*time.Millisecond), After: s.Between(200*time.Microsecond, 5*time.Millisecond)}
	if s.Odds(h.Slow) {
		f.Before = s.Between(100*time.Millisecond, 8*time.Second)
	}
	if s.Odds(h.Slow) {
		f.After = s.Between(100*time.Millisecond, 40*time.Second)
	}
	f.Away = s.Odds(h.Away)
	if s.Odds(h.Again) {
		f.Again = 1 + s.Chance.IntN(2)
	}
	if s.Odds(h.Lost) {
		f.Lost, f.Undone = true, s.Odds(500)
	}
	return f
}

// misfortune may end or stop the process whose task runs now.
func (w *World) misfortune(_ context.Context, point string) {
	s := w.Scheduler
	r := s.current.replica
	n := slices.IndexFunc(w.pods, func(p *pod) bool { return p.replica == r })
	if n < 0 {
		return
	}
	if s.Odds(w.Config.Hazards.Crash) {
		w.Counts["crash "+point]++
		w.pods[n].crash(point)
		r.Vanish()
	}
	if w.Store.InTransaction() || !s.Odds(w.Config.Hazards.Pause) {
		return
	}
	d := s.Between(time.Second, 90*time.Second)
	switch odds := s.Chance.IntN(10); {
	case odds == 0:
		d = s.Between(time.Hour, 30*time.Hour)
	case odds < 5: // about as long as a permit is fresh
		d = s.Between(time.Second, w.Config.Engine.Fresh)
	}
	w.Counts["pause"]++
	s.Note("stands still", point, d.String())
	if s.Odds(300) {
		r.Suspend(d)
	} else {
		r.Pause(d)
	}
	r.Sleep(context.Background(), time.Microsecond)
}

// wakeSweeps lets sweeps look again at what is due next. It stands for their polling, which finds nothing in between.
func (w *World) wakeSweeps() {
	for _, p := range w.pods {
		for _, waits := range []operation.Signal{p.alarm, p.bell} {
			if waits != nil {
				waits.Set()
			}
		}
	}
}

// dump writes the end state into the trace, so that two equal sums mean two equal databases.
func (w *World) dump() {
	note := func(table string, row any) { w.Scheduler.Note(table, fmt.Sprintf("%v", row)) }
	w.Store.intents.each(func(i payment.Intent) bool { note("intent", i); return true })
	w.Store.payments.each(func(p payment.Payment) bool { note("payment", p); return true })
	w.Store.operations.each(func(o operation.Operation) bool { note("operation", o); return true })
	w.Store.modifications.each(func(m payment.Modification) bool { note("modification", m); return true })
	w.Store.disputes.each(func(d payment.Dispute) bool { note("dispute", d); return true })
	w.Store.codes.each(func(c payment.CancelCode) bool { note("code", c); return true })
	w.Store.movements.each(func(m payment.Movement) bool { note("movement", m); return true })
	w.Store.reviews.each(func(r payment.Review) bool { note("review", r); return true })
	for _, k := range w.Store.entries.order {
		note("entry", w.Store.entries.rows[k])
	}
	for _, k := range w.Store.events.order {
		note("event", w.Store.events.rows[k])
	}
	for _, k := range w.Store.evidence.order {
		note("evidence", w.Store.evidence.rows[k])
	}
	w.Store.messages.each(func(m flow.Message) bool { note("message", m); return true })
	for _, k := range w.Store.history.order {
		note("history", w.Store.history.rows[k])
	}
}
