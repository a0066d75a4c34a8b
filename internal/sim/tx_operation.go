package sim

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
)

var _ flow.Tx = (*tx)(nil)

func compareRef(a, b operation.Ref) int {
	return cmp.Or(bytes.Compare(a.Merchant[:], b.Merchant[:]), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Key, b.Key))
}

func compareRow(a, b flow.Row) int {
	return cmp.Or(bytes.Compare(a.Merchant[:], b.Merchant[:]), bytes.Compare(a.ID[:], b.ID[:]))
}

// Guard implements operation.Tx.
func (t *tx) Guard(context.Context) (operation.Guard, error) {
	g := t.epoch
	g.Now = t.now
	return g, nil
}

// InsertOperations implements operation.Tx.
func (t *tx) InsertOperations(_ context.Context, rows []operation.Operation, lease time.Duration) ([]bool, error) {
	fresh := make([]bool, len(rows))
	for n, o := range rows {
		row := operation.Operation{Ref: o.Ref, ID: o.ID, Fingerprint: o.Fingerprint, FPVersion: o.FPVersion, RequestID: o.RequestID,
			State: operation.InProgress, Fence: 1, ClaimID: o.ClaimID, ClaimedAt: t.now, LeaseUntil: t.now.Add(lease),
			DueAt: t.now.Add(lease), CreatedAt: t.now, Intent: o.Intent, Payment: o.Payment, Modification: o.Modification,
			Follows: o.Follows, SendUntil: micro(o.SendUntil), Epoch: o.Epoch, Lost: o.Lost}
		if row.SendUntil.IsZero() {
			row.SendUntil = t.now
		}
		var err error
		if fresh[n], err = t.operations.absorb(t, "", row); err != nil {
			return nil, t.fail("insert operations", err)
		}
	}
	return fresh, nil
}

// DeleteOperations implements operation.Tx.
func (t *tx) DeleteOperations(_ context.Context, refs []operation.Ref) error {
	for _, ref := range refs {
		o, ok := t.operations.get(ref)
		if !ok || !o.CreatedAt.Equal(t.now) || o.Fence != 1 {
			return t.fail("delete operations", violates("a row that this transaction did not make"))
		}
		t.operations.remove(t, ref)
	}
	return nil
}

// ReadOperations implements operation.Tx.
func (t *tx) ReadOperations(_ context.Context, refs []operation.Ref) ([]operation.Operation, error) {
	var rows []operation.Operation
	for _, ref := range refs {
		if o, ok := t.operations.get(ref); ok {
			rows = append(rows, o)
		}
	}
	return rows, nil
}

// LockOperations implements operation.Tx.
func (t *tx) LockOperations(ctx context.Context, refs []operation.Ref) ([]operation.Operation, error) {
	refs = slices.Clone(refs)
	slices.SortFunc(refs, compareRef)
	return t.ReadOperations(ctx, slices.Compact(refs))
}

// TakeOver implements operation.Tx. A row that carries the claim's id already is ours (PROTOCOL K10).
func (t *tx) TakeOver(_ context.Context, takes []operation.Take) ([]operation.Operation, error) {
	return t.takeOver(takes, false)
}

func (t *tx) takeOver(takes []operation.Take, followers bool) ([]operation.Operation, error) {
	var taken []operation.Operation
	for _, k := range takes {
		o, ok := t.operations.get(k.Ref)
		switch {
		case !ok || o.State == operation.Completed:
			continue
		case o.Fence == k.Fence && !o.DueAt.After(t.now) && (followers || o.Follows.IsZero()):
			o.Fence, o.ClaimID, o.ClaimedAt = o.Fence+1, k.ClaimID, t.now
			o.LeaseUntil, o.DueAt = t.now.Add(k.Lease), t.now.Add(k.Lease)
			if err := t.operations.put(t, o); err != nil {
				return nil, t.fail("take over", err)
			}
		case followers || o.ClaimID != k.ClaimID:
			continue
		}
		taken = append(taken, o)
	}
	return taken, nil
}

// PickDue implements operation.Tx.
func (t *tx) PickDue(_ context.Context, limit, perMerchant int, base time.Duration, claim func() id.ID) ([]operation.Operation, error) {
	due := t.operations.all(func(o operation.Operation) bool { return o.State != operation.Completed && !o.DueAt.After(t.now) })
	due = fair(due, limit, perMerchant, func(o operation.Operation) (id.ID, time.Time) { return o.Merchant, o.DueAt })
	was := map[operation.Ref]time.Time{}
	slices.SortFunc(due, func(a, b operation.Operation) int { return compareRef(a.Ref, b.Ref) })
	takes := make([]operation.Take, len(due))
	for n, o := range due {
		was[o.Ref] = o.DueAt
		takes[n] = operation.Take{Ref: o.Ref, Fence: o.Fence, ClaimID: claim(), Lease: operation.Lease(base, o.Fence+1)}
	}
	taken, err := t.takeOver(takes, true)
	slices.SortStableFunc(taken, func(a, b operation.Operation) int { return was[a.Ref].Compare(was[b.Ref]) })
	return taken, err
}

// fair keeps the oldest rows, at most perMerchant of one merchant and limit in all.
func fair[V any](rows []V, limit, perMerchant int, of func(V) (id.ID, time.Time)) []V {
	slices.SortStableFunc(rows, func(a, b V) int {
		_, x := of(a)
		_, y := of(b)
		return x.Compare(y)
	})
	count := map[id.ID]int{}
	var kept []V
	for _, v := range rows {
		merchant, _ := of(v)
		if count[merchant]++; count[merchant] <= perMerchant && len(kept) < limit {
			kept = append(kept, v)
		}
	}
	return kept
}

// Permit implements operation.Tx (PROTOCOL A0).
func (t *tx) Permit(_ context.Context, ask operation.PermitAsk) (operation.PermitAnswer, error) {
	if ask.PermitID.IsZero() || ask.Unsent < 0 || ask.MaxSends < 1 || ask.CutOff < 0 {
		return operation.PermitAnswer{}, t.fail("permit", errors.New("asked for without an id or with impossible limits"))
	}
	o, ok := t.operations.get(ask.Ref)
	intent, known := t.intents.get(flow.Row{Merchant: o.Merchant, ID: o.Intent})
	if !ok || !known {
		return operation.PermitAnswer{Denied: operation.DeniedStale}, nil
	}
	if why, again := t.denied(ask, o, intent); why != "" || again {
		return operation.PermitAnswer{Granted: again, Denied: why, Op: o}, nil
	}
	o.Sends, o.Unsent, o.PermitID, o.LastPermitAt = o.Sends+1, o.Unsent+ask.Unsent, ask.PermitID, t.now
	if o.FirstPermitAt.IsZero() {
		o.FirstPermitAt = t.now
	}
	return operation.PermitAnswer{Granted: true, Op: o}, t.fail("permit", t.operations.put(t, o))
}

// denied says why there is no permit; again says that it was granted before, under the same id.
func (t *tx) denied(ask operation.PermitAsk, o operation.Operation, i payment.Intent) (why string, again bool) {
	working := o.State == operation.InProgress || o.State == operation.AwaitingResult
	left := o.Sends - o.Unsent - ask.Unsent
	cutOff := left > 0
	if ask.CutOff > 0 {
		cutOff = !o.FirstPermitAt.IsZero() && !o.FirstPermitAt.Add(ask.CutOff).After(t.now)
	}
	account, _ := t.accounts.get(flow.Row{Merchant: o.Merchant, ID: o.Account})
	switch {
	case o.Fence != ask.Fence || !working || o.Action == "":
		return operation.DeniedStale, false
	case o.PermitID == ask.PermitID:
		return "", true
	case t.barred(ask, o, i):
		return operation.DeniedMoney, false
	case first(o.Kind) && t.canceling(o):
		return operation.DeniedCanceling, false
	case first(o.Kind) && !i.PayBefore.After(t.now):
		return operation.DeniedExpired, false
	case t.epoch.Held && !(ask.HeldOK && o.Epoch == t.epoch.Epoch) && account.Compared < t.epoch.Epoch:
		return operation.DeniedHold, false
	case first(o.Kind) && !ask.ClientWaiting && !o.SendUntil.After(t.now):
		return operation.DeniedLate, false
	case cutOff:
		return operation.DeniedCutOff, false
	case o.Sends >= operation.MaxSendsEver || left >= ask.MaxSends:
		return operation.DeniedBudget, false
	case o.Unsent+ask.Unsent > o.Sends:
		return operation.DeniedStale, false
	}
	return "", false
}

// first says whether a call of this kind first takes or holds money: time and money that is there bar no other (PROTOCOL W3).
func first(k operation.Kind) bool {
	return !slices.Contains([]operation.Kind{operation.CapturePayment, operation.CancelPayment, operation.CreateRefund, operation.Compensate}, k)
}

// barred says whether money or a conflict forbids the call (PROTOCOL A0, P7).
func (t *tx) barred(ask operation.PermitAsk, o operation.Operation, i payment.Intent) bool {
	if o.Kind == operation.CapturePayment {
		p, _ := t.payments.get(flow.Row{Merchant: o.Merchant, ID: o.Payment})
		return i.Conflict || p.Status != payment.Authorized
	}
	return first(o.Kind) && (i.Conflict || t.moneyFor(o, ask.Family))
}

func (t *tx) canceling(o operation.Operation) bool {
	p, _ := t.payments.get(flow.Row{Merchant: o.Merchant, ID: o.Payment})
	return p.Status == payment.Canceling
}

func (t *tx) moneyFor(o operation.Operation, family []string) (found bool) {
	t.movements.each(func(m payment.Movement) bool {
		ours := m.Intent == o.Intent || m.Payment.IsZero() && (m.AcquirerKey == o.AcquirerKey || slices.Contains(family, m.AcquirerKey))
		found = m.Merchant == o.Merchant && ours && standing(m)
		return !found
	})
	return found
}

// standing says whether a movement took money that was not given back.
func standing(m payment.Movement) bool {
	return (m.Kind == acquirer.MovementCharge || m.Kind == acquirer.MovementCapture) && m.State != payment.Returned
}

// SaveOperations implements operation.Tx, guarded by the fence (PROTOCOL K3).
func (t *tx) SaveOperations(_ context.Context, rows []operation.Operation, retention time.Duration) ([]bool, error) {
	saved := make([]bool, len(rows))
	for n, row := range rows {
		o, ok := t.operations.get(row.Ref)
		if !ok || o.Fence != row.Fence || o.State == operation.Completed {
			continue
		}
		if o.State != row.State && !slices.Contains(operation.Moves[o.State], row.State) {
			t.defect(fmt.Sprintf("operation %s moves from %s to %s", o.ID, o.State, row.State))
		}
		o.State, o.Checks, o.Unsent = row.State, row.Checks, row.Unsent
		o.AnswerStatus, o.AnswerBody = row.AnswerStatus, row.AnswerBody
		o.Intent, o.Payment, o.Modification, o.Follows = row.Intent, row.Payment, row.Modification, row.Follows
		if !row.DueAt.IsZero() {
			o.DueAt = micro(row.DueAt)
		}
		o.CompletedAt, o.ExpiresAt = time.Time{}, time.Time{}
		if o.State == operation.Completed {
			o.CompletedAt, o.ExpiresAt = t.now, t.now.Add(retention)
		}
		if err := t.operations.put(t, o); err != nil {
			return nil, t.fail("save operations", err)
		}
		saved[n] = true
	}
	return saved, nil
}

// NoteHistory implements operation.Tx. A note whose id exists is left out.
func (t *tx) NoteHistory(_ context.Context, notes []operation.Note) error {
	for _, n := range notes {
		if _, err := t.history.absorb(t, "", n); err != nil {
			return t.fail("note history", err)
		}
	}
	return nil
}

// BindOperations implements flow.Tx (PROTOCOL A0, A1).
func (t *tx) BindOperations(_ context.Context, rows []operation.Operation) error {
	for _, row := range rows {
		o, ok := t.operations.get(row.Ref)
		if !ok || o.Fence != 1 || o.ClaimID != row.ClaimID || o.State != operation.InProgress || o.Sends != 0 {
			return t.fail("bind operations", violates("a claim that is not this owner's"))
		}
		o.Intent, o.Payment, o.Modification, o.Follows, o.Account = row.Intent, row.Payment, row.Modification, row.Follows, row.Account
		o.Action, o.AcquirerKey, o.Object, o.RequestBody = row.Action, row.AcquirerKey, row.Object, row.RequestBody
		if !row.SendUntil.IsZero() {
			o.SendUntil = micro(row.SendUntil)
		}
		if o.Action != "" {
			o.Sends, o.PermitID, o.FirstPermitAt, o.LastPermitAt = 1, row.PermitID, t.now, t.now
		}
		if err := t.operations.put(t, o); err != nil {
			return t.fail("bind operations", err)
		}
	}
	return nil
}

// BindCalls implements flow.Tx (PROTOCOL A1): what will be sent, once it is known.
func (t *tx) BindCalls(_ context.Context, rows []operation.Operation) ([]bool, error) {
	bound := make([]bool, len(rows))
	for n, row := range rows {
		if row.Action == "" || row.AcquirerKey == "" || row.Account.IsZero() {
			return nil, t.fail("bind calls", errors.New("a call without action, key or account"))
		}
		o, ok := t.operations.get(row.Ref)
		if !ok || o.Fence != row.Fence || o.State == operation.Completed || o.Action != "" {
			continue
		}
		o.Account, o.Action, o.AcquirerKey, o.Object, o.RequestBody = row.Account, row.Action, row.AcquirerKey, row.Object, row.RequestBody
		if err := t.operations.put(t, o); err != nil {
			return nil, t.fail("bind calls", err)
		}
		bound[n] = true
	}
	return bound, nil
}

// OpenOperations implements flow.Tx.
func (t *tx) OpenOperations(_ context.Context, payments []flow.Row) ([]operation.Operation, error) {
	rows := t.operations.all(func(o operation.Operation) bool {
		return o.State != operation.Completed && slices.Contains(payments, flow.Row{Merchant: o.Merchant, ID: o.Payment})
	})
	slices.SortFunc(rows, func(a, b operation.Operation) int { return compareRef(a.Ref, b.Ref) })
	return rows, nil
}
