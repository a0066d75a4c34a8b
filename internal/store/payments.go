package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/store/dbgen"
	"github.com/jackc/pgx/v5/pgtype"
)

func comparePayments(a, b payment.Payment) int {
	return cmp.Or(compareID(a.Merchant, b.Merchant), compareID(a.Intent, b.Intent), compareID(a.ID, b.ID))
}

// InsertPayments implements flow.Tx (PROTOCOL P1).
func (t *tx) InsertPayments(ctx context.Context, rows []payment.Payment) ([]bool, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	type row = payment.Payment
	in := sorted(rows, comparePayments)
	fresh, err := t.q.InsertPayments(ctx, dbgen.InsertPaymentsParams{
		Merchants:           column(in, func(p row) pgtype.UUID { return dbID(p.Merchant) }),
		Ids:                 column(in, func(p row) pgtype.UUID { return dbID(p.ID) }),
		Intents:             column(in, func(p row) pgtype.UUID { return dbID(p.Intent) }),
		Ns:                  column(in, func(p row) int32 { return int32(p.N) }),
		Flows:               column(in, func(p row) string { return string(p.Flow) }),
		Statuses:            column(in, func(p row) string { return string(p.Status) }),
		Amounts:             column(in, func(p row) int64 { return p.Amount.Minor() }),
		Currencies:          column(in, func(p row) string { return string(p.Amount.Currency()) }),
		Methods:             column(in, func(p row) string { return p.Method }),
		Accounts:            column(in, func(p row) pgtype.UUID { return dbID(p.Account) }),
		AcquirerKeys:        column(in, func(p row) string { return p.AcquirerKey }),
		FailureCodes:        column(in, func(p row) string { return p.Failure.Code }),
		FailureMessages:     column(in, func(p row) string { return p.Failure.Message }),
		Refused:             column(in, func(p row) pgtype.Timestamptz { return dbTime(p.RefusedAt) }),
		Gates:               column(in, func(p row) bool { return p.GateOpen }),
		Due:                 column(in, func(p row) pgtype.Timestamptz { return dbTime(p.DueAt) }),
		Versions:            column(in, func(p row) int64 { return max(p.Version, 1) }),
		Kinds:               column(in, func(p row) string { return p.By.Kind }),
		Keys:                column(in, func(p row) string { return p.By.Key }),
		Fingerprints:        column(in, func(p row) []byte { return p.By.Fingerprint[:] }),
		FingerprintVersions: column(in, func(p row) int16 { return int16(p.By.FPVersion) }),
		CaptureMethods:      column(in, func(p row) string { return string(cmp.Or(p.Capture, payment.CaptureAutomatic)) }),
		ReturnUrls:          column(in, func(p row) string { return p.ReturnURL }),
		RedirectUrls:        column(in, func(p row) string { return p.RedirectURL }),
		Sessions:            column(in, func(p row) string { return p.Session }),
		Expires:             column(in, func(p row) pgtype.Timestamptz { return dbTime(p.ExpiresAt) }),
		Authorized:          column(in, func(p row) int64 { return p.Authorized }),
		AnsweredStatuses:    column(in, func(p row) int16 { return int16(p.AnsweredStatus) }),
	})
	return present(rows, fresh, func(p row) id.ID { return p.ID }), t.fail("insert payments", err)
}

// InsertJoined implements flow.Tx (PROTOCOL K8). A command that is there already stays as it is.
func (t *tx) InsertJoined(ctx context.Context, rows []flow.Joined) error {
	if len(rows) == 0 {
		return nil
	}
	type row = flow.Joined
	in := sorted(rows, func(a, b row) int { return compareRef(joinedRef(a), joinedRef(b)) })
	return t.fail("insert joined commands", t.q.InsertJoined(ctx, dbgen.InsertJoinedParams{
		Merchants:           column(in, func(j row) pgtype.UUID { return dbID(j.Merchant) }),
		Kinds:               column(in, func(j row) string { return j.By.Kind }),
		Keys:                column(in, func(j row) string { return j.By.Key }),
		Fingerprints:        column(in, func(j row) []byte { return j.By.Fingerprint[:] }),
		FingerprintVersions: column(in, func(j row) int16 { return int16(j.By.FPVersion) }),
		Payments:            column(in, func(j row) pgtype.UUID { return dbID(j.Payment) }),
		Modifications:       column(in, func(j row) pgtype.UUID { return dbID(j.Modification) }),
		Answered:            column(in, func(j row) int32 { return int32(j.Answered) }),
	}))
}

func joinedRef(j flow.Joined) operation.Ref {
	return operation.Ref{Merchant: j.Merchant, Kind: operation.Kind(j.By.Kind), Key: j.By.Key}
}

// PaymentsByCommand implements flow.Tx (PROTOCOL K8).
func (t *tx) PaymentsByCommand(ctx context.Context, refs []flow.CommandRef) ([]payment.Payment, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	c := commandColumns(refs)
	rows, err := t.q.PaymentsByCommand(ctx, dbgen.PaymentsByCommandParams{Merchants: c.merchants, Kinds: c.kinds, Keys: c.keys})
	if err != nil {
		return nil, t.fail("payments by command", err)
	}
	payments, err := each(rows, func(r dbgen.PaymentsByCommandRow) (payment.Payment, error) {
		p, err := domainPayment(r.Payment)
		p.By = domainCommand(r.Kind, r.IdempotencyKey, r.Fingerprint, r.FingerprintVersion)
		p.AnsweredStatus = int(r.Answered)
		return p, err
	})
	return payments, t.fail("payments by command", err)
}

func (t *tx) payments(what string, rows []dbgen.Payment, err error) ([]payment.Payment, error) {
	if err != nil {
		return nil, t.fail(what, err)
	}
	payments, err := each(rows, domainPayment)
	return payments, t.fail(what, err)
}

// ReadPayments implements flow.Tx.
func (t *tx) ReadPayments(ctx context.Context, rows []flow.Row) ([]flow.Attempt, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	merchants, ids := rowColumns(rows)
	found, err := t.q.ReadPayments(ctx, dbgen.ReadPaymentsParams{Merchants: merchants, Ids: ids})
	if err != nil {
		return nil, t.fail("read payments", err)
	}
	attempts, err := each(found, func(r dbgen.ReadPaymentsRow) (flow.Attempt, error) { return attempt(r.PaymentIntent, r.Payment) })
	return attempts, t.fail("read payments", err)
}

func attempt(i dbgen.PaymentIntent, p dbgen.Payment) (a flow.Attempt, err error) {
	if a.Intent, err = domainIntent(i); err == nil {
		a.Payment, err = domainPayment(p)
	}
	return a, err
}

// PaymentsByAcquirerKey implements flow.Tx.
func (t *tx) PaymentsByAcquirerKey(ctx context.Context, merchant id.ID, keys []string) ([]payment.Payment, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	rows, err := t.q.PaymentsByAcquirerKey(ctx, dbgen.PaymentsByAcquirerKeyParams{MerchantID: dbID(merchant), AcquirerKeys: keys})
	return t.payments("payments by acquirer key", rows, err)
}

// LockPayments implements flow.Tx (PROTOCOL P4).
func (t *tx) LockPayments(ctx context.Context, rows []flow.Row) ([]payment.Payment, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	merchants, ids := rowColumns(rows)
	found, err := t.q.LockPayments(ctx, dbgen.LockPaymentsParams{Merchants: merchants, Ids: ids})
	return t.payments("lock payments", found, err)
}

// SavePayments implements flow.Tx (PROTOCOL P2, K4).
func (t *tx) SavePayments(ctx context.Context, changes []flow.PaymentChange) error {
	if len(changes) == 0 {
		return nil
	}
	type row = flow.PaymentChange
	n, err := t.q.SavePayments(ctx, dbgen.SavePaymentsParams{
		Merchants:          column(changes, func(c row) pgtype.UUID { return dbID(c.New.Merchant) }),
		Ids:                column(changes, func(c row) pgtype.UUID { return dbID(c.New.ID) }),
		ExpectedStatuses:   column(changes, func(c row) string { return string(c.ExpectedStatus) }),
		ExpectedVersions:   column(changes, func(c row) int64 { return c.ExpectedVersion }),
		Statuses:           column(changes, func(c row) string { return string(c.New.Status) }),
		Conflicts:          column(changes, func(c row) bool { return c.New.Conflict }),
		Captured:           column(changes, func(c row) int64 { return c.New.Captured }),
		Refunded:           column(changes, func(c row) int64 { return c.New.Refunded }),
		AcquirerReferences: column(changes, func(c row) string { return c.New.AcquirerReference }),
		FailureCodes:       column(changes, func(c row) string { return c.New.Failure.Code }),
		FailureMessages:    column(changes, func(c row) string { return c.New.Failure.Message }),
		Refused:            column(changes, func(c row) pgtype.Timestamptz { return dbTime(c.New.RefusedAt) }),
		Gates:              column(changes, func(c row) bool { return c.New.GateOpen }),
		Due:                column(changes, func(c row) pgtype.Timestamptz { return dbTime(c.New.DueAt) }),
		Versions:           column(changes, func(c row) int64 { return c.New.Version }),
		Authorized:         column(changes, func(c row) int64 { return c.New.Authorized }),
		Capturing:          column(changes, func(c row) int64 { return c.New.Capturing }),
		Refunding:          column(changes, func(c row) int64 { return c.New.Refunding }),
		Disputed:           column(changes, func(c row) int64 { return c.New.Disputed }),
		Disputes:           column(changes, func(c row) string { return string(c.New.Dispute) }),
		RedirectUrls:       column(changes, func(c row) string { return c.New.RedirectURL }),
		Sessions:           column(changes, func(c row) string { return c.New.Session }),
		Expires:            column(changes, func(c row) pgtype.Timestamptz { return dbTime(c.New.ExpiresAt) }),
		AnsweredStatuses:   column(changes, func(c row) int16 { return int16(c.New.AnsweredStatus) }),
		Early:              column(changes, func(c row) bool { return c.New.Early }),
	})
	if err == nil {
		err = affected(n, len(changes))
	}
	return t.fail("save payments", err)
}

// OpenOperations implements flow.Tx (PROTOCOL P4, last level).
func (t *tx) OpenOperations(ctx context.Context, payments []flow.Row) ([]operation.Operation, error) {
	if len(payments) == 0 {
		return nil, nil
	}
	merchants, ids := rowColumns(payments)
	rows, err := t.q.OpenOperations(ctx, dbgen.OpenOperationsParams{Merchants: merchants, Payments: ids})
	return domainOperations(rows), t.fail("open operations", err)
}

// DuePayments implements flow.Tx (PROTOCOL S2, S4). The rows come back oldest first, with the due time they had.
func (t *tx) DuePayments(ctx context.Context, limit, perMerchant int, postpone time.Duration) ([]payment.Payment, error) {
	var rows []dbgen.Payment
	var err error
	if t.s.cfg.Distributed {
		rows, err = t.q.DuePaymentsWaiting(ctx, dbgen.DuePaymentsWaitingParams{PerMerchant: int32(perMerchant), MaxRows: int32(limit)})
	} else {
		rows, err = t.q.DuePayments(ctx, dbgen.DuePaymentsParams{PerMerchant: int32(perMerchant), MaxRows: int32(limit)})
	}
	due, err := t.payments("due payments", rows, err)
	if err != nil || len(due) == 0 {
		return nil, err
	}
	slices.SortStableFunc(due, func(a, b payment.Payment) int { return a.DueAt.Compare(b.DueAt) })
	return due, t.fail("postpone payments", t.q.PostponePayments(ctx, dbgen.PostponePaymentsParams{
		PostponeUs: postpone.Microseconds(),
		Merchants:  column(due, func(p payment.Payment) pgtype.UUID { return dbID(p.Merchant) }),
		Ids:        column(due, func(p payment.Payment) pgtype.UUID { return dbID(p.ID) }),
	}))
}

// PaymentsByCharge implements flow.Tx.
func (t *tx) PaymentsByCharge(ctx context.Context, account flow.Row, charges []string) ([]flow.ChargeOwner, error) {
	if len(charges) == 0 {
		return nil, nil
	}
	rows, err := t.q.PaymentsByCharge(ctx, dbgen.PaymentsByChargeParams{MerchantID: dbID(account.Merchant), AccountID: dbID(account.ID), Charges: charges})
	if err != nil {
		return nil, t.fail("payments by charge", err)
	}
	owners, err := each(rows, func(r dbgen.PaymentsByChargeRow) (flow.ChargeOwner, error) {
		p, err := domainPayment(r.Payment)
		return flow.ChargeOwner{Charge: r.Reference, Payment: p}, err
	})
	return owners, t.fail("payments by charge", err)
}
