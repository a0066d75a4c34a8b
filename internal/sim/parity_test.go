package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/auth"
	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/ledger"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/store"
	"github.com/hapaxpay/hapax/money"
)

// Times that are past or to come on both clocks.
var (
	longAgo = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	farAway = time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC)
)

// script makes random statements over few rows, so that they meet. What it draws depends on the seed alone.
type script struct {
	r        *rand.Rand
	merchant [2]id.ID
	account  [2]id.ID
	intents  [4]id.ID
	payments [6]id.ID
	moved    [4]id.ID
	reviews  [4]id.ID
	claims   [3]id.ID
	changes  [6]id.ID
}

func newScript(seed uint64) *script {
	s := &script{r: rand.New(rand.NewPCG(seed, 7))}
	for _, pool := range [][]id.ID{s.merchant[:], s.account[:], s.intents[:], s.payments[:], s.moved[:], s.reviews[:], s.claims[:], s.changes[:]} {
		for n := range pool {
			pool[n] = s.newID()
		}
	}
	return s
}

func (s *script) newID() id.ID {
	var random [10]byte
	for n := range random {
		random[n] = byte(s.r.Uint32())
	}
	return id.New(Start, random)
}

func pick[V any](s *script, of ...V) V { return of[s.r.IntN(len(of))] }

var kinds = []operation.Kind{operation.CreatePayment, operation.CreatePayment, operation.CreateIntent, operation.CapturePayment, operation.CancelPayment}

func (s *script) ref() operation.Ref {
	return operation.Ref{Merchant: s.merchant[0], Kind: pick(s, kinds...), Key: pick(s, "a", "b")}
}

func (s *script) row(pool []id.ID) flow.Row {
	return flow.Row{Merchant: s.merchant[0], ID: pool[s.r.IntN(len(pool))]}
}

func (s *script) command() payment.Command {
	return payment.Command{Kind: "create_payment", Key: fmt.Sprint(s.r.IntN(40)), FPVersion: 1}
}

func (s *script) money() money.Amount {
	return money.Must(100+int64(s.r.IntN(2)), pick(s, money.Currency("EUR"), "USD"))
}

func (s *script) when() time.Time { return pick(s, time.Time{}, longAgo, farAway) }

// parityStatements is enough for every statement to be refused and to be carried out.
const parityStatements = 1500

// statement is one of a transaction's, with the arguments drawn already.
type statement func(ctx context.Context, tx flow.Tx) (any, error)

// draw gives a random statement and its name.
func (s *script) draw() (string, statement) {
	all := []func() (string, statement){s.insertOperations, s.takeOver, s.pickDue, s.permit, s.saveOperations, s.bind, s.readOperations,
		s.insertIntents, s.lockIntents, s.changeIntents, s.insertPayments, s.join, s.savePayments, s.readPayments, s.insertMovements, s.saveMovements,
		s.books, s.observe, s.openReviews, s.closeReviews, s.commands, s.duePayments, s.insertModifications, s.saveModifications,
		s.readModifications, s.bindCalls, s.disputes, s.cancelCodes, s.readEarly, s.decided, s.keepMessage, s.workOnMessages, s.readMailboxes,
		s.firstPermit, s.firstPermit}
	return all[s.r.IntN(len(all))]()
}

func (s *script) insertOperations() (string, statement) {
	lease := pick(s, time.Microsecond, time.Hour)
	o := operation.Operation{Ref: s.ref(), ID: s.newID(), FPVersion: 1, RequestID: "r", ClaimID: pick(s, s.claims[:]...), SendUntil: s.when(), Epoch: 1}
	undo := s.r.IntN(6) == 0
	return "insert operations", func(ctx context.Context, tx flow.Tx) (any, error) {
		fresh, err := tx.InsertOperations(ctx, []operation.Operation{o}, lease)
		if err == nil && undo {
			err = tx.DeleteOperations(ctx, []operation.Ref{o.Ref})
		}
		return fresh, err
	}
}

func (s *script) takeOver() (string, statement) {
	t := operation.Take{Ref: s.ref(), Fence: 1 + s.r.Int64N(3), ClaimID: pick(s, s.claims[:]...), Lease: pick(s, time.Microsecond, time.Hour)}
	return "take over", func(ctx context.Context, tx flow.Tx) (any, error) { return tx.TakeOver(ctx, []operation.Take{t}) }
}

func (s *script) pickDue() (string, statement) {
	claim := pick(s, s.claims[:]...)
	return "pick due", func(ctx context.Context, tx flow.Tx) (any, error) {
		return tx.PickDue(ctx, 50, 50, time.Microsecond, func() id.ID { return claim })
	}
}

func (s *script) permit() (string, statement) {
	ask := operation.PermitAsk{Ref: s.ref(), Fence: 1 + s.r.Int64N(3), PermitID: pick(s, s.claims[:]...), Unsent: s.r.IntN(2), MaxSends: 1 + s.r.IntN(3),
		CutOff: pick(s, 0, time.Microsecond, time.Hour), ClientWaiting: s.r.IntN(2) == 0, Family: pick(s, nil, []string{fmt.Sprint("key", s.r.IntN(30)), "other"})}
	owner, fresh := s.r.IntN(2) == 0, s.newID()
	return "permit", func(ctx context.Context, tx flow.Tx) (any, error) {
		rows, err := tx.ReadOperations(ctx, []operation.Ref{ask.Ref})
		if err != nil {
			return nil, err
		}
		if owner && len(rows) == 1 {
			ask.Fence, ask.PermitID = rows[0].Fence, fresh
		}
		a, err := tx.Permit(ctx, ask)
		if !a.Granted {
			a.Op = operation.Operation{} // promised after a grant only
		}
		return a, err
	}
}

func (s *script) saveOperations() (string, statement) {
	ref, state, due, sum := s.ref(), pick(s, operation.AwaitingResult, operation.InReview, operation.InProgress, operation.Completed), s.when(), s.r.IntN(2)
	status, fence, keep := pick(s, 201, 201, 0), 1+s.r.Int64N(3), pick(s, time.Microsecond, time.Hour)
	intent, pay, follows := pick(s, s.intents[:]...), pick(s, s.payments[:]...), pick(s, id.ID{}, id.ID{}, s.claims[0])
	return "save operations", func(ctx context.Context, tx flow.Tx) (any, error) {
		rows, err := tx.LockOperations(ctx, []operation.Ref{ref})
		if err != nil || len(rows) == 0 {
			return nil, err
		}
		o := rows[0]
		if fence < 3 {
			o.Fence = fence
		}
		if o.State != operation.Completed && state != o.State && !slices.Contains(operation.Moves[o.State], state) {
			return "no such move", nil // which only this package checks
		}
		o.State, o.DueAt, o.Unsent, o.AnswerStatus, o.AnswerBody = state, due, o.Unsent+sum, status, []byte("answer")
		o.Intent, o.Payment, o.Follows = intent, pay, follows
		return tx.SaveOperations(ctx, []operation.Operation{o}, keep)
	}
}

func (s *script) bind() (string, statement) {
	ref, intent, pay, account, action, body := s.ref(), pick(s, s.intents[:]...), pick(s, s.payments[:]...), s.account[0], pick(s, "charge", ""), pick(s, []byte("x"), nil)
	permit, changed, object := pick(s, s.claims[:]...), pick(s, id.ID{}, s.changes[0]), pick(s, "", "ch_1")
	return "bind operations", func(ctx context.Context, tx flow.Tx) (any, error) {
		rows, err := tx.ReadOperations(ctx, []operation.Ref{ref})
		if err != nil || len(rows) == 0 {
			return nil, err
		}
		o := rows[0]
		o.Intent, o.Payment, o.Account, o.Action, o.AcquirerKey, o.RequestBody, o.PermitID = intent, pay, account, action, "key", body, permit
		o.Modification, o.Object = changed, object
		return nil, tx.BindOperations(ctx, []operation.Operation{o})
	}
}

func (s *script) readOperations() (string, statement) {
	pay, kept := s.row(s.payments[:]), s.ref()
	return "read operations", func(ctx context.Context, tx flow.Tx) (any, error) {
		open, err := tx.OpenOperations(ctx, []flow.Row{pay})
		if err != nil {
			return nil, err
		}
		locked, err := tx.LockOperations(ctx, []operation.Ref{kept})
		return [][]operation.Operation{open, locked}, err
	}
}

func (s *script) intent() payment.Intent {
	return payment.Intent{Merchant: s.merchant[0], ID: pick(s, s.intents[:]...), ClientReference: pick(s, "", "order-1", "order-2"), Amount: s.money(),
		Capture: payment.CaptureAutomatic, PayBefore: pick(s, longAgo, farAway, farAway), KeySeed: "seed", Version: 1, By: s.command()}
}

func (s *script) insertIntents() (string, statement) {
	i := s.intent()
	return "insert intents", func(ctx context.Context, tx flow.Tx) (any, error) {
		return nil, tx.InsertIntents(ctx, []payment.Intent{i})
	}
}

func (s *script) lockIntents() (string, statement) {
	refs := []flow.IntentRef{{Merchant: s.merchant[0], ClientReference: "order-1"}, {Merchant: s.merchant[0], ID: pick(s, s.intents[:]...)}}
	return "lock intents", func(ctx context.Context, tx flow.Tx) (any, error) { return tx.LockIntents(ctx, refs) }
}

func (s *script) changeIntents() (string, statement) {
	ref := flow.IntentRef{Merchant: s.merchant[0], ID: pick(s, s.intents[:]...)}
	amount, by, conflict, amend := s.money(), s.command(), s.r.IntN(5) == 0, s.r.IntN(2) == 0
	return "change intents", func(ctx context.Context, tx flow.Tx) (any, error) {
		locked, err := tx.LockIntents(ctx, []flow.IntentRef{ref})
		if err != nil || len(locked) == 0 {
			return nil, err
		}
		i := locked[0].Intent
		if amend {
			i.Amount, i.Version, i.By = amount, i.Version+1, by
			return nil, tx.AmendIntents(ctx, []payment.Intent{i})
		}
		i.EventVersion, i.Conflict = i.EventVersion+1, conflict
		return nil, tx.SaveIntents(ctx, []payment.Intent{i})
	}
}

func (s *script) insertPayments() (string, statement) {
	p := payment.Payment{Merchant: s.merchant[0], ID: pick(s, s.payments[:]...), Intent: pick(s, s.intents[:]...), N: 1 + s.r.IntN(3), Flow: pick(s, payment.Direct, payment.Hosted),
		Capture: pick(s, payment.CaptureAutomatic, payment.CaptureManual, ""), ReturnURL: pick(s, "", "https://shop.example/back"), ExpiresAt: s.when(),
		Status: payment.Pending, Amount: s.money(), Method: pick(s, "pm_ok", "pm_ok", ""), Account: s.account[0], AcquirerKey: fmt.Sprint("key", s.r.IntN(30)),
		Version: 1, By: s.command()}
	return "insert payments", func(ctx context.Context, tx flow.Tx) (any, error) {
		return tx.InsertPayments(ctx, []payment.Payment{p})
	}
}

func (s *script) join() (string, statement) {
	j := flow.Joined{Merchant: s.merchant[0], By: s.command(), Payment: pick(s, s.payments[:]...), Modification: pick(s, id.ID{}, s.changes[0], s.changes[1])}
	return "join", func(ctx context.Context, tx flow.Tx) (any, error) {
		return nil, tx.InsertJoined(ctx, []flow.Joined{j})
	}
}

func (s *script) savePayments() (string, statement) {
	row, captured, due, gate := s.row(s.payments[:]), pick(s, int64(0), 100, 101), s.when(), s.r.IntN(3) == 0
	status := pick(s, payment.Unknown, payment.Paid, payment.Declined, payment.Failed, payment.Authorized, payment.Authorized, payment.Canceling)
	change := s.amounts()
	version, refused, failure := s.r.Int64N(8), pick(s, longAgo, longAgo, time.Time{}), pick(s, "declined", "declined", "")
	return "save payments", func(ctx context.Context, tx flow.Tx) (any, error) {
		rows, err := tx.LockPayments(ctx, []flow.Row{row})
		if err != nil || len(rows) == 0 {
			return nil, err
		}
		p := rows[0]
		if p.Status.Final() {
			return "final", nil // which only this package checks
		}
		c := flow.PaymentChange{ExpectedStatus: p.Status, ExpectedVersion: p.Version, New: p}
		if version == 0 {
			c.ExpectedVersion++
		}
		c.New.Status, c.New.Captured, c.New.DueAt, c.New.Version = status, captured, due, c.ExpectedVersion+1
		change(&c.New)
		if status.Refusal() {
			c.New.RefusedAt, c.New.GateOpen, c.New.Failure = refused, gate, payment.Failure{Code: failure, Message: "m"}
		}
		return nil, tx.SavePayments(ctx, []flow.PaymentChange{c})
	}
}

func (s *script) readPayments() (string, statement) {
	row, key := s.row(s.payments[:]), fmt.Sprint("key", s.r.IntN(30))
	return "read payments", func(ctx context.Context, tx flow.Tx) (any, error) {
		rows, err := tx.ReadPayments(ctx, []flow.Row{row})
		if err != nil {
			return nil, err
		}
		found, err := tx.PaymentsByAcquirerKey(ctx, s.merchant[0], []string{key})
		if err != nil {
			return nil, err
		}
		accounts, err := tx.Accounts(ctx, s.merchant[:1])
		return []any{rows, found, accounts}, err
	}
}

func (s *script) insertMovements() (string, statement) {
	m := payment.Movement{Merchant: s.merchant[0], ID: s.newID(), Account: s.account[0], Reference: pick(s, "x", "y", "z"),
		Kind: pick(s, acquirer.MovementCharge, acquirer.MovementCharge, acquirer.MovementHold, acquirer.MovementRefund, "theft"), Object: pick(s, "", "ch_1"),
		AcquirerKey: fmt.Sprint("key", s.r.IntN(30)), Intent: pick(s, id.ID{}, s.intents[0], s.intents[1]), Payment: pick(s, id.ID{}, s.payments[0]), Amount: s.money(),
		State: pick(s, payment.Applied, payment.Unapplied), Cause: pick(s, "", "why")}
	return "insert movements", func(ctx context.Context, tx flow.Tx) (any, error) {
		return tx.InsertMovements(ctx, []payment.Movement{m})
	}
}

func (s *script) saveMovements() (string, statement) {
	rows := []flow.Row{pick(s, s.row(s.intents[:]), flow.Row{Merchant: s.merchant[0]})}
	keys := []string{fmt.Sprint("key", s.r.IntN(30)), fmt.Sprint("key", s.r.IntN(30))}
	state := pick(s, payment.Returned, payment.Applied, payment.Unapplied)
	return "save movements", func(ctx context.Context, tx flow.Tx) (any, error) {
		found, err := tx.MovementsOf(ctx, rows, keys)
		if err != nil || len(found) == 0 {
			return found, err
		}
		m := found[0]
		m.State = state
		return found, tx.SaveMovements(ctx, []payment.Movement{m})
	}
}

func (s *script) books() (string, statement) {
	e := ledger.Entry{Merchant: s.merchant[0], ID: s.newID(), TxKey: fmt.Sprint("tx", s.r.IntN(50)), Line: 1, Account: "a", Amount: s.money()}
	v := payment.Event{Merchant: s.merchant[0], ID: s.newID(), Intent: pick(s, s.intents[:]...), Version: 1 + s.r.Int64N(20), Key: fmt.Sprint("event", s.r.IntN(50)),
		Type: payment.EventPaid, Payload: []byte("{}"), At: longAgo}
	which := s.r.IntN(2) == 0
	return "books", func(ctx context.Context, tx flow.Tx) (any, error) {
		if which {
			return nil, tx.InsertEntries(ctx, []ledger.Entry{e})
		}
		if locked, err := tx.LockIntents(ctx, []flow.IntentRef{{Merchant: v.Merchant, ID: v.Intent}}); err != nil || len(locked) == 0 {
			return nil, err
		}
		return nil, tx.InsertEvents(ctx, []payment.Event{v})
	}
}

func (s *script) observe() (string, statement) {
	o := evidence.Observation{Merchant: s.merchant[0], ID: pick(s, s.moved[:]...), Source: evidence.FromCall, AskedAt: longAgo,
		Payment: pick(s, s.payments[:2]...), Effect: pick(s, evidence.Noted, evidence.Early, "nonsense"), Why: "why", MovedAt: s.when(),
		Reply: acquirer.Reply{Class: pick(s, "c", "c", ""), Amount: s.money(), About: pick(s, "", acquirer.ActionCapture, "theft"), Object: pick(s, "", "ch_1"),
			Final: s.r.IntN(2) == 0, Outcome: acquirer.OutcomeSucceeded, Answered: true, At: s.when(), Also: []acquirer.Reply{{Class: "more"}}}}
	return "observe", func(ctx context.Context, tx flow.Tx) (any, error) {
		return tx.InsertEvidence(ctx, []evidence.Observation{o})
	}
}

func (s *script) openReviews() (string, statement) {
	r := payment.Review{Merchant: s.merchant[0], ID: pick(s, s.reviews[:]...), Intent: pick(s, s.intents[:]...), Payment: pick(s, id.ID{}, s.payments[0], s.payments[1]),
		Movement: pick(s, id.ID{}, s.moved[0]), Reason: pick(s, payment.ReviewNoProof, payment.ReviewContradiction), Detail: "d", OpenedAt: longAgo}
	return "open reviews", func(ctx context.Context, tx flow.Tx) (any, error) {
		if _, known, err := tx.ReadReview(ctx, flow.Row{Merchant: r.Merchant, ID: r.ID}); known || err != nil {
			return nil, err
		}
		return tx.OpenReviews(ctx, []payment.Review{r})
	}
}

func (s *script) closeReviews() (string, statement) {
	row, rows, moved := s.row(s.reviews[:]), []flow.Row{s.row(s.intents[:])}, []flow.Row{s.row(s.moved[:])}
	d := flow.Decision{Merchant: s.merchant[0], ID: s.newID(), By: s.command(), Verdict: "v", Person: pick(s, "p", "p", ""), Reason: "r", Second: pick(s, "", "p")}
	return "close reviews", func(ctx context.Context, tx flow.Tx) (any, error) {
		open, err := tx.ReviewsOf(ctx, rows, moved)
		if err != nil {
			return nil, err
		}
		r, known, err := tx.LockReview(ctx, row)
		if err != nil || !known || !r.DecidedAt.IsZero() {
			return []any{open, r}, err
		}
		r.Decision, d.Review = "decided", r.ID
		if err := tx.CloseReviews(ctx, []payment.Review{r}); err != nil {
			return nil, err
		}
		return open, tx.InsertDecision(ctx, d)
	}
}

func (s *script) commands() (string, statement) {
	c := s.command()
	ref := flow.CommandRef{Merchant: s.merchant[0], Kind: c.Kind, Key: c.Key}
	return "commands", func(ctx context.Context, tx flow.Tx) (any, error) {
		i, err := tx.IntentsByCommand(ctx, []flow.CommandRef{ref})
		if err != nil {
			return nil, err
		}
		p, err := tx.PaymentsByCommand(ctx, []flow.CommandRef{ref})
		if err != nil {
			return nil, err
		}
		d, known, err := tx.DecisionByCommand(ctx, ref)
		return []any{i, p, d, known}, err
	}
}

func (s *script) duePayments() (string, statement) {
	return "due payments", func(ctx context.Context, tx flow.Tx) (any, error) { return tx.DuePayments(ctx, 50, 50, time.Hour) }
}

// compared says when two results are the same: times are compared by being there, orders that nobody promised by content.
var compared = cmp.Options{
	cmp.Comparer(func(a, b time.Time) bool { return a.IsZero() == b.IsZero() }),
	cmp.Comparer(func(a, b money.Amount) bool { return a == b }),
	cmpopts.EquateEmpty(),
	cmpopts.SortSlices(func(a, b operation.Operation) bool { return compareRef(a.Ref, b.Ref) < 0 }),
	cmpopts.SortSlices(func(a, b payment.Payment) bool { return compareID(a.ID, b.ID) }),
	cmpopts.SortSlices(func(a, b payment.Movement) bool { return compareID(a.ID, b.ID) }),
	cmpopts.SortSlices(func(a, b payment.Review) bool { return compareID(a.ID, b.ID) }),
	cmpopts.SortSlices(func(a, b payment.Modification) bool {
		return compareID(a.ID, b.ID) || a.ID == b.ID && a.By.Key < b.By.Key
	}),
}

func compareID(a, b id.ID) bool { return a.String() < b.String() }

// TestParity runs one random script on PostgreSQL and in memory: every statement gives the same, or fails in both.
func TestParity(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { parity(t, seed, parityStatements) })
	}
}

func parity(t *testing.T, seed uint64, statements int) {
	ctx := t.Context()
	real, err := store.Open(ctx, store.Config{URL: dbtest.Open(t).Service()})
	if err != nil {
		t.Fatal(err)
	}
	defer real.Close()
	s := newScript(seed)
	clock := NewScheduler(seed, NewTrace(nil))
	defer clock.Close()
	memory := NewStore(clock)
	for n, m := range s.merchant {
		a := flow.Account{Merchant: m, ID: s.account[n], Adapter: "sandbox", Settings: []byte(`{}`), Secrets: []byte("x")}
		if err := errors.Join(real.CreateMerchant(ctx, store.Merchant{ID: m, Name: "a shop", Mode: auth.Test}), real.AddAccount(ctx, a), memory.AddAccount(a)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.rule(ctx, real, memory); err != nil {
		t.Fatal(err)
	}
	refused, done := map[string]int{}, map[string]int{}
	for n := range statements {
		name, do := s.draw()
		clock.now += time.Second
		var a, b any
		run := func(in flow.Store, out *any) error {
			return in.InTx(ctx, name, func(ctx context.Context, tx flow.Tx) (err error) {
				*out, err = do(ctx, tx)
				return err
			})
		}
		errA, errB := run(real, &a), run(memory, &b)
		if (errA == nil) != (errB == nil) {
			t.Fatalf("seed %d, statement %d, %s: PostgreSQL says %v, memory says %v", seed, n, name, errA, errB)
		}
		if errA != nil {
			refused[name]++
			continue
		}
		if p, asked := a.([]any); asked && len(p) == 2 && p[0] == true && p[1] == "" {
			name += ", granted"
		}
		done[name]++
		if diff := cmp.Diff(a, b, compared); diff != "" {
			t.Fatalf("seed %d, statement %d, %s: PostgreSQL - memory +\n%s", seed, n, name, diff)
		}
	}
	purgedA, errA := real.PurgeExpired(ctx, 100)
	purgedB, errB := memory.PurgeExpired(ctx, 100)
	if purgedA != purgedB || errA != nil || errB != nil {
		t.Fatalf("seed %d: purged %d and %d, %v, %v", seed, purgedA, purgedB, errA, errB)
	}
	t.Logf("done by both: %v, refused by both: %v", done, refused)
}
