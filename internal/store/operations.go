package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/store/dbgen"
	"github.com/jackc/pgx/v5/pgtype"
)

// refArrays are the columns of the primary key of operation.
type refArrays struct {
	merchants   []pgtype.UUID
	kinds, keys []string
}

// refColumns makes them from anything that has a Ref, in the order given.
func refColumns[R any](rows []R, ref func(R) operation.Ref) refArrays {
	return refArrays{
		merchants: column(rows, func(r R) pgtype.UUID { return dbID(ref(r).Merchant) }),
		kinds:     column(rows, func(r R) string { return string(ref(r).Kind) }),
		keys:      column(rows, func(r R) string { return ref(r).Key }),
	}
}

func itself(r operation.Ref) operation.Ref               { return r }
func refOfOperation(o operation.Operation) operation.Ref { return o.Ref }
func compareOperations(a, b operation.Operation) int     { return compareRef(a.Ref, b.Ref) }
func operationID(o operation.Operation) id.ID            { return o.ID }

// InsertOperations implements operation.Tx. Of two rows with one key in the array the first wins.
func (t *tx) InsertOperations(ctx context.Context, rows []operation.Operation, lease time.Duration) ([]bool, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	type row = operation.Operation
	in := sorted(rows, compareOperations)
	refs := refColumns(in, refOfOperation)
	fresh, err := t.q.InsertOperations(ctx, dbgen.InsertOperationsParams{
		LeaseUs: lease.Microseconds(), Merchants: refs.merchants, Kinds: refs.kinds, Keys: refs.keys,
		Ids:                 column(in, func(o row) pgtype.UUID { return dbID(o.ID) }),
		Fingerprints:        column(in, func(o row) []byte { return o.Fingerprint[:] }),
		FingerprintVersions: column(in, func(o row) int16 { return int16(o.FPVersion) }),
		RequestIds:          column(in, func(o row) string { return o.RequestID }),
		ClaimIds:            column(in, func(o row) pgtype.UUID { return dbID(o.ClaimID) }),
		Intents:             column(in, func(o row) pgtype.UUID { return dbID(o.Intent) }),
		Payments:            column(in, func(o row) pgtype.UUID { return dbID(o.Payment) }),
		Modifications:       column(in, func(o row) pgtype.UUID { return dbID(o.Modification) }),
		Follows:             column(in, func(o row) pgtype.UUID { return dbID(o.Follows) }),
		SendUntil:           column(in, func(o row) pgtype.Timestamptz { return dbTime(o.SendUntil) }),
		Epochs:              column(in, func(o row) int64 { return o.Epoch }),
		Lost:                column(in, func(o row) bool { return o.Lost }),
	})
	return present(rows, fresh, operationID), t.fail("insert operations", err)
}

// DeleteOperations implements operation.Tx. A row that this transaction did not make is a defect and fails.
func (t *tx) DeleteOperations(ctx context.Context, refs []operation.Ref) error {
	if len(refs) == 0 {
		return nil
	}
	c := refColumns(refs, itself)
	n, err := t.q.DeleteOperations(ctx, dbgen.DeleteOperationsParams{Merchants: c.merchants, Kinds: c.kinds, Keys: c.keys})
	if err == nil {
		err = affected(n, len(refs))
	}
	return t.fail("delete operations", err)
}

// affected wants every row of a statement to have found its own.
func affected(n int64, want int) error {
	if n != int64(want) {
		return fmt.Errorf("%d of %d rows were not as expected", int64(want)-n, want)
	}
	return nil
}

// ReadOperations implements operation.Tx. A new statement has a new snapshot: it sees the row that an insert waited for.
func (t *tx) ReadOperations(ctx context.Context, refs []operation.Ref) ([]operation.Operation, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	c := refColumns(refs, itself)
	rows, err := t.q.ReadOperations(ctx, dbgen.ReadOperationsParams{Merchants: c.merchants, Kinds: c.kinds, Keys: c.keys})
	return domainOperations(rows), t.fail("read operations", err)
}

// LockOperations implements operation.Tx.
func (t *tx) LockOperations(ctx context.Context, refs []operation.Ref) ([]operation.Operation, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	c := refColumns(refs, itself)
	rows, err := t.q.LockOperations(ctx, dbgen.LockOperationsParams{Merchants: c.merchants, Kinds: c.kinds, Keys: c.keys})
	return domainOperations(rows), t.fail("lock operations", err)
}

// TakeOver implements operation.Tx (PROTOCOL K2). A row that carries the claim's id already is ours: an earlier run of
// this transaction was committed without an answer (K10).
func (t *tx) TakeOver(ctx context.Context, takes []operation.Take) ([]operation.Operation, error) {
	taken, err := t.takeOver(ctx, takes, false)
	if err != nil || len(taken) == len(takes) {
		return taken, err
	}
	done := make(map[id.ID]bool, len(takes))
	for _, o := range taken {
		done[o.ClaimID] = true
	}
	claims := make(map[operation.Ref]id.ID, len(takes))
	var missed []operation.Ref
	for _, k := range takes {
		if !done[k.ClaimID] {
			missed = append(missed, k.Ref)
			claims[k.Ref] = k.ClaimID
		}
	}
	rows, err := t.ReadOperations(ctx, missed)
	for _, o := range rows {
		if o.ClaimID == claims[o.Ref] && o.State != operation.Completed {
			taken = append(taken, o)
		}
	}
	return taken, err
}

func (t *tx) takeOver(ctx context.Context, takes []operation.Take, followers bool) ([]operation.Operation, error) {
	if len(takes) == 0 {
		return nil, nil
	}
	c := refColumns(takes, func(k operation.Take) operation.Ref { return k.Ref })
	rows, err := t.q.TakeOver(ctx, dbgen.TakeOverParams{
		Merchants: c.merchants, Kinds: c.kinds, Keys: c.keys, Followers: followers,
		Fences:   column(takes, func(k operation.Take) int64 { return k.Fence }),
		ClaimIds: column(takes, func(k operation.Take) pgtype.UUID { return dbID(k.ClaimID) }),
		LeasesUs: column(takes, func(k operation.Take) int64 { return k.Lease.Microseconds() }),
	})
	return domainOperations(rows), t.fail("take over", err)
}

// PickDue implements operation.Tx (PROTOCOL S2). The rows come back oldest first.
func (t *tx) PickDue(ctx context.Context, limit, perMerchant int, base time.Duration, claim func() id.ID) ([]operation.Operation, error) {
	var rows []dbgen.Operation
	var err error
	if t.s.cfg.Distributed {
		rows, err = t.q.DueOperationsWaiting(ctx, dbgen.DueOperationsWaitingParams{PerMerchant: int32(perMerchant), MaxRows: int32(limit)})
	} else {
		rows, err = t.q.DueOperations(ctx, dbgen.DueOperationsParams{PerMerchant: int32(perMerchant), MaxRows: int32(limit)})
	}
	if err != nil {
		return nil, t.fail("due operations", err)
	}
	due := domainOperations(rows)
	was := make(map[id.ID]time.Time, len(due))
	takes := make([]operation.Take, len(due))
	for i, o := range due {
		was[o.ID] = o.DueAt
		takes[i] = operation.Take{Ref: o.Ref, Fence: o.Fence, ClaimID: claim(), Lease: operation.Lease(base, o.Fence+1)}
	}
	taken, err := t.takeOver(ctx, takes, true)
	slices.SortStableFunc(taken, func(a, b operation.Operation) int { return was[a.ID].Compare(was[b.ID]) })
	return taken, err
}

// SaveOperations implements operation.Tx (PROTOCOL K3, K8). A zero DueAt leaves the due time as it is.
func (t *tx) SaveOperations(ctx context.Context, rows []operation.Operation, retention time.Duration) ([]bool, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	type row = operation.Operation
	c := refColumns(rows, refOfOperation)
	saved, err := t.q.SaveOperations(ctx, dbgen.SaveOperationsParams{
		RetentionUs: retention.Microseconds(), Merchants: c.merchants, Kinds: c.kinds, Keys: c.keys,
		Fences:         column(rows, func(o row) int64 { return o.Fence }),
		States:         column(rows, func(o row) string { return string(o.State) }),
		Due:            column(rows, func(o row) pgtype.Timestamptz { return dbTime(o.DueAt) }),
		Checks:         column(rows, func(o row) int32 { return int32(o.Checks) }),
		Unsent:         column(rows, func(o row) int32 { return int32(o.Unsent) }),
		AnswerStatuses: column(rows, func(o row) int32 { return int32(o.AnswerStatus) }),
		AnswerBodies:   column(rows, func(o row) []byte { return o.AnswerBody }),
		Intents:        column(rows, func(o row) pgtype.UUID { return dbID(o.Intent) }),
		Payments:       column(rows, func(o row) pgtype.UUID { return dbID(o.Payment) }),
		Modifications:  column(rows, func(o row) pgtype.UUID { return dbID(o.Modification) }),
		Follows:        column(rows, func(o row) pgtype.UUID { return dbID(o.Follows) }),
	})
	return present(rows, saved, operationID), t.fail("save operations", err)
}

// BindOperations implements flow.Tx (PROTOCOL A0, A1). Only a claim of this owner, with the first fence, can be bound.
func (t *tx) BindOperations(ctx context.Context, rows []operation.Operation) error {
	if len(rows) == 0 {
		return nil
	}
	type row = operation.Operation
	c := refColumns(rows, refOfOperation)
	n, err := t.q.BindOperations(ctx, dbgen.BindOperationsParams{
		Merchants: c.merchants, Kinds: c.kinds, Keys: c.keys,
		ClaimIds:      column(rows, func(o row) pgtype.UUID { return dbID(o.ClaimID) }),
		Intents:       column(rows, func(o row) pgtype.UUID { return dbID(o.Intent) }),
		Payments:      column(rows, func(o row) pgtype.UUID { return dbID(o.Payment) }),
		Modifications: column(rows, func(o row) pgtype.UUID { return dbID(o.Modification) }),
		Objects:       column(rows, func(o row) string { return o.Object }),
		Follows:       column(rows, func(o row) pgtype.UUID { return dbID(o.Follows) }),
		Accounts:      column(rows, func(o row) pgtype.UUID { return dbID(o.Account) }),
		Actions:       column(rows, func(o row) string { return o.Action }),
		AcquirerKeys:  column(rows, func(o row) string { return o.AcquirerKey }),
		Bodies:        column(rows, func(o row) []byte { return o.RequestBody }),
		SendUntil:     column(rows, func(o row) pgtype.Timestamptz { return dbTime(o.SendUntil) }),
		PermitIds:     column(rows, func(o row) pgtype.UUID { return dbID(o.PermitID) }),
	})
	if err == nil {
		err = affected(n, len(rows))
	}
	return t.fail("bind operations", err)
}

// BindCalls implements flow.Tx (PROTOCOL A1). A call without action, key or account is a defect and fails.
func (t *tx) BindCalls(ctx context.Context, rows []operation.Operation) ([]bool, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	type row = operation.Operation
	if slices.ContainsFunc(rows, func(o row) bool { return o.Action == "" || o.AcquirerKey == "" || o.Account.IsZero() }) {
		return nil, t.fail("bind calls", errors.New("a call without action, key or account"))
	}
	c := refColumns(rows, refOfOperation)
	bound, err := t.q.BindCalls(ctx, dbgen.BindCallsParams{
		Merchants: c.merchants, Kinds: c.kinds, Keys: c.keys,
		Fences:       column(rows, func(o row) int64 { return o.Fence }),
		Accounts:     column(rows, func(o row) pgtype.UUID { return dbID(o.Account) }),
		Actions:      column(rows, func(o row) string { return o.Action }),
		AcquirerKeys: column(rows, func(o row) string { return o.AcquirerKey }),
		Objects:      column(rows, func(o row) string { return o.Object }),
		Bodies:       column(rows, func(o row) []byte { return o.RequestBody }),
	})
	return present(rows, bound, operationID), t.fail("bind calls", err)
}

// NoteHistory implements operation.Tx (PROTOCOL E4).
func (t *tx) NoteHistory(ctx context.Context, notes []operation.Note) error {
	if len(notes) == 0 {
		return nil
	}
	type note = operation.Note
	return t.fail("note history", t.q.NoteHistory(ctx, dbgen.NoteHistoryParams{
		Merchants:  column(notes, func(n note) pgtype.UUID { return dbID(n.Merchant) }),
		Ids:        column(notes, func(n note) pgtype.UUID { return dbID(n.ID) }),
		Intents:    column(notes, func(n note) pgtype.UUID { return dbID(n.Intent) }),
		Payments:   column(notes, func(n note) pgtype.UUID { return dbID(n.Payment) }),
		Operations: column(notes, func(n note) pgtype.UUID { return dbID(n.Operation) }),
		Kinds:      column(notes, func(n note) string { return string(n.Kind) }),
		Whats:      column(notes, func(n note) string { return n.What }),
		Whys:       column(notes, func(n note) string { return n.Why }),
		Requests:   column(notes, func(n note) string { return n.Request }),
		KeyHashes:  column(notes, func(n note) string { return n.KeyHash }),
		Fences:     column(notes, func(n note) int64 { return n.Fence }),
		Refs:       column(notes, func(n note) string { return n.Reference }),
	}))
}
