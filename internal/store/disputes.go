package store

import (
	"cmp"
	"context"
	"errors"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/store/dbgen"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

func domainDispute(d dbgen.Dispute) (payment.Dispute, error) {
	amount, err := domainAmount(d.Amount, d.Currency)
	return payment.Dispute{
		Merchant: domainID(d.MerchantID), ID: domainID(d.ID), Intent: domainID(d.IntentID), Payment: domainID(d.PaymentID),
		Account: domainID(d.AccountID), Reference: d.Reference, Amount: amount, Status: payment.DisputeStatus(d.Status), Aside: d.Aside,
		OpenedAt: domainAt(d.OpenedAt), DecidedAt: domainAt(d.DecidedAt),
	}, err
}

// DisputesOf implements flow.Tx.
func (t *tx) DisputesOf(ctx context.Context, payments []flow.Row) ([]payment.Dispute, error) {
	if len(payments) == 0 {
		return nil, nil
	}
	merchants, ids := rowColumns(payments)
	rows, err := t.q.DisputesOf(ctx, dbgen.DisputesOfParams{Merchants: merchants, Payments: ids})
	if err != nil {
		return nil, t.fail("disputes", err)
	}
	disputes, err := each(rows, domainDispute)
	return disputes, t.fail("disputes", err)
}

// SaveDisputes implements flow.Tx (PROTOCOL X5). Of one that is there already, status, aside and the time of decision are
// written; times that are not given are the transaction's. One that belongs to another payment is a defect and fails.
func (t *tx) SaveDisputes(ctx context.Context, rows []payment.Dispute) error {
	if len(rows) == 0 {
		return nil
	}
	type row = payment.Dispute
	in := sorted(rows, func(a, b row) int {
		return cmp.Or(compareID(a.Merchant, b.Merchant), compareID(a.Account, b.Account), cmp.Compare(a.Reference, b.Reference))
	})
	fresh, err := t.q.InsertDisputes(ctx, dbgen.InsertDisputesParams{
		Merchants:  column(in, func(d row) pgtype.UUID { return dbID(d.Merchant) }),
		Ids:        column(in, func(d row) pgtype.UUID { return dbID(d.ID) }),
		Intents:    column(in, func(d row) pgtype.UUID { return dbID(d.Intent) }),
		Payments:   column(in, func(d row) pgtype.UUID { return dbID(d.Payment) }),
		Accounts:   column(in, func(d row) pgtype.UUID { return dbID(d.Account) }),
		Refs:       column(in, func(d row) string { return d.Reference }),
		Amounts:    column(in, func(d row) int64 { return d.Amount.Minor() }),
		Currencies: column(in, func(d row) string { return string(d.Amount.Currency()) }),
		Statuses:   column(in, func(d row) string { return string(d.Status) }),
		Asides:     column(in, func(d row) bool { return d.Aside }),
		Opened:     column(in, func(d row) pgtype.Timestamptz { return dbTime(d.OpenedAt) }),
		Decided:    column(in, func(d row) pgtype.Timestamptz { return dbTime(d.DecidedAt) }),
	})
	if err != nil {
		return t.fail("insert disputes", err)
	}
	var known []row
	for i, isNew := range present(in, fresh, func(d row) id.ID { return d.ID }) {
		if !isNew {
			known = append(known, in[i])
		}
	}
	return t.updateDisputes(ctx, known)
}

func (t *tx) updateDisputes(ctx context.Context, rows []payment.Dispute) error {
	if len(rows) == 0 {
		return nil
	}
	type row = payment.Dispute
	n, err := t.q.UpdateDisputes(ctx, dbgen.UpdateDisputesParams{
		Merchants: column(rows, func(d row) pgtype.UUID { return dbID(d.Merchant) }),
		Payments:  column(rows, func(d row) pgtype.UUID { return dbID(d.Payment) }),
		Accounts:  column(rows, func(d row) pgtype.UUID { return dbID(d.Account) }),
		Refs:      column(rows, func(d row) string { return d.Reference }),
		Statuses:  column(rows, func(d row) string { return string(d.Status) }),
		Asides:    column(rows, func(d row) bool { return d.Aside }),
		Decided:   column(rows, func(d row) pgtype.Timestamptz { return dbTime(d.DecidedAt) }),
	})
	if err == nil {
		err = affected(n, len(rows))
	}
	return t.fail("update disputes", err)
}

// DisputesOfPayment reads the disputes of a payment, oldest first, without locking anything.
func (s *Store) DisputesOfPayment(ctx context.Context, merchant, pay id.ID) (disputes []payment.Dispute, err error) {
	err = s.inTx(ctx, "disputes", s.read, func(ctx context.Context, t *tx) error {
		disputes, err = t.DisputesOf(ctx, []flow.Row{{Merchant: merchant, ID: pay}})
		return err
	})
	return disputes, err
}

func domainCancelCode(c dbgen.CancelCode) payment.CancelCode {
	return payment.CancelCode{
		Merchant: domainID(c.MerchantID), Payment: domainID(c.PaymentID), Ordinal: int(c.Ordinal), Amount: c.Amount, Tries: int(c.Tries),
		ExpiresAt: domainAt(c.ExpiresAt), ConsumedAt: domainAt(c.ConsumedAt),
		By: domainCommand(c.Kind, c.IdempotencyKey, c.Fingerprint, c.FingerprintVersion), CreatedAt: domainAt(c.CreatedAt),
	}
}

// InsertCancelCode implements flow.Tx (PROTOCOL X1). An ordinal that exists is a defect and fails: the caller holds the payment.
func (t *tx) InsertCancelCode(ctx context.Context, c payment.CancelCode) error {
	return t.fail("insert cancel code", t.q.InsertCancelCode(ctx, dbgen.InsertCancelCodeParams{
		MerchantID: dbID(c.Merchant), PaymentID: dbID(c.Payment), Ordinal: int32(c.Ordinal), Amount: c.Amount, ExpiresAt: dbTime(c.ExpiresAt),
		Kind: c.By.Kind, IdempotencyKey: c.By.Key, Fingerprint: c.By.Fingerprint[:], FingerprintVersion: int16(c.By.FPVersion),
	}))
}

// LatestCancelCode implements flow.Tx.
func (t *tx) LatestCancelCode(ctx context.Context, row flow.Row) (payment.CancelCode, bool, error) {
	c, err := t.q.LatestCancelCode(ctx, dbgen.LatestCancelCodeParams{MerchantID: dbID(row.Merchant), PaymentID: dbID(row.ID)})
	if errors.Is(err, pgx.ErrNoRows) {
		return payment.CancelCode{}, false, nil
	}
	return domainCancelCode(c), err == nil, t.fail("latest cancel code", err)
}

// SaveCancelCode implements flow.Tx (PROTOCOL X1). A code that is consumed, or has more tries, is a defect and fails.
func (t *tx) SaveCancelCode(ctx context.Context, c payment.CancelCode) error {
	n, err := t.q.SaveCancelCode(ctx, dbgen.SaveCancelCodeParams{Tries: int32(c.Tries), ConsumedAt: dbTime(c.ConsumedAt),
		MerchantID: dbID(c.Merchant), PaymentID: dbID(c.Payment), Ordinal: int32(c.Ordinal)})
	if err == nil {
		err = affected(n, 1)
	}
	return t.fail("save cancel code", err)
}

// CancelCodeByCommand implements flow.Tx (PROTOCOL K8).
func (t *tx) CancelCodeByCommand(ctx context.Context, ref flow.CommandRef) (payment.CancelCode, bool, error) {
	c, err := t.q.CancelCodeByCommand(ctx, dbgen.CancelCodeByCommandParams{MerchantID: dbID(ref.Merchant), Kind: ref.Kind, IdempotencyKey: ref.Key})
	if errors.Is(err, pgx.ErrNoRows) {
		return payment.CancelCode{}, false, nil
	}
	return domainCancelCode(c), err == nil, t.fail("cancel code by command", err)
}
