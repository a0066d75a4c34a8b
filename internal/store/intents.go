package store

import (
	"cmp"
	"context"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/store/dbgen"
	"github.com/jackc/pgx/v5/pgtype"
)

func compareIntents(a, b payment.Intent) int {
	return cmp.Or(compareID(a.Merchant, b.Merchant), cmp.Compare(a.ClientReference, b.ClientReference), compareID(a.ID, b.ID))
}

// InsertIntents implements flow.Tx (PROTOCOL W3).
func (t *tx) InsertIntents(ctx context.Context, rows []payment.Intent) error {
	if len(rows) == 0 {
		return nil
	}
	type row = payment.Intent
	in := sorted(rows, compareIntents)
	return t.fail("insert intents", t.q.InsertIntents(ctx, dbgen.InsertIntentsParams{
		Merchants:           column(in, func(i row) pgtype.UUID { return dbID(i.Merchant) }),
		Ids:                 column(in, func(i row) pgtype.UUID { return dbID(i.ID) }),
		Refs:                column(in, func(i row) string { return i.ClientReference }),
		Customers:           column(in, func(i row) string { return i.Customer }),
		Descriptions:        column(in, func(i row) string { return i.Description }),
		Metadata:            column(in, func(i row) string { return string(i.Metadata) }),
		Receipts:            column(in, func(i row) string { return i.Receipt }),
		Amounts:             column(in, func(i row) int64 { return i.Amount.Minor() }),
		Currencies:          column(in, func(i row) string { return string(i.Amount.Currency()) }),
		Captures:            column(in, func(i row) string { return string(i.Capture) }),
		PayBefore:           column(in, func(i row) pgtype.Timestamptz { return dbTime(i.PayBefore) }),
		Seeds:               column(in, func(i row) string { return i.KeySeed }),
		Versions:            column(in, func(i row) int32 { return int32(i.Version) }),
		Kinds:               column(in, func(i row) string { return i.By.Kind }),
		Keys:                column(in, func(i row) string { return i.By.Key }),
		Fingerprints:        column(in, func(i row) []byte { return i.By.Fingerprint[:] }),
		FingerprintVersions: column(in, func(i row) int16 { return int16(i.By.FPVersion) }),
	}))
}

// LockIntents implements flow.Tx: intents first, then their latest payments (PROTOCOL P4, P7).
func (t *tx) LockIntents(ctx context.Context, refs []flow.IntentRef) ([]flow.LockedIntent, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	var arg dbgen.LockIntentsParams
	for _, r := range refs {
		if r.ID.IsZero() {
			arg.RefMerchants, arg.Refs = append(arg.RefMerchants, dbID(r.Merchant)), append(arg.Refs, r.ClientReference)
		} else {
			arg.Merchants, arg.Ids = append(arg.Merchants, dbID(r.Merchant)), append(arg.Ids, dbID(r.ID))
		}
	}
	rows, err := t.q.LockIntents(ctx, arg)
	if err != nil || len(rows) == 0 {
		return nil, t.fail("lock intents", err)
	}
	locked := make([]flow.LockedIntent, len(rows))
	at := make(map[flow.Row]*flow.LockedIntent, len(rows))
	for i, r := range rows {
		if locked[i].Intent, err = domainIntent(r); err != nil {
			return nil, t.fail("lock intents", err)
		}
		at[flow.Row{Merchant: locked[i].Merchant, ID: locked[i].ID}] = &locked[i]
	}
	return locked, t.aboutIntents(ctx, rows, at)
}

// aboutIntents adds what a new payment must know.
func (t *tx) aboutIntents(ctx context.Context, rows []dbgen.PaymentIntent, at map[flow.Row]*flow.LockedIntent) error {
	merchants := column(rows, func(r dbgen.PaymentIntent) pgtype.UUID { return r.MerchantID })
	ids := column(rows, func(r dbgen.PaymentIntent) pgtype.UUID { return r.ID })
	latest, err := t.q.LockLatestPayments(ctx, dbgen.LockLatestPaymentsParams{Merchants: merchants, Intents: ids})
	if err != nil {
		return t.fail("lock latest payments", err)
	}
	payments, err := each(latest, domainPayment)
	if err != nil {
		return t.fail("lock latest payments", err)
	}
	for i := range payments {
		at[flow.Row{Merchant: payments[i].Merchant, ID: payments[i].Intent}].Latest = &payments[i]
	}
	money, err := t.q.MoneyOnIntents(ctx, dbgen.MoneyOnIntentsParams{Merchants: merchants, Intents: ids})
	for _, m := range money {
		if l := at[flow.Row{Merchant: domainID(m.MerchantID), ID: domainID(m.IntentID)}]; !l.Money {
			l.Money, l.MoneyOn = true, domainID(m.PaymentID)
		}
	}
	return t.fail("money on intents", err)
}

// AmendIntents implements flow.Tx. A row whose version is not the one before is a defect and fails.
func (t *tx) AmendIntents(ctx context.Context, rows []payment.Intent) error {
	if len(rows) == 0 {
		return nil
	}
	type row = payment.Intent
	n, err := t.q.AmendIntents(ctx, dbgen.AmendIntentsParams{
		Merchants:           column(rows, func(i row) pgtype.UUID { return dbID(i.Merchant) }),
		Ids:                 column(rows, func(i row) pgtype.UUID { return dbID(i.ID) }),
		Customers:           column(rows, func(i row) string { return i.Customer }),
		Descriptions:        column(rows, func(i row) string { return i.Description }),
		Metadata:            column(rows, func(i row) string { return string(i.Metadata) }),
		Receipts:            column(rows, func(i row) string { return i.Receipt }),
		Amounts:             column(rows, func(i row) int64 { return i.Amount.Minor() }),
		Currencies:          column(rows, func(i row) string { return string(i.Amount.Currency()) }),
		Captures:            column(rows, func(i row) string { return string(i.Capture) }),
		PayBefore:           column(rows, func(i row) pgtype.Timestamptz { return dbTime(i.PayBefore) }),
		Versions:            column(rows, func(i row) int32 { return int32(i.Version) }),
		Kinds:               column(rows, func(i row) string { return i.By.Kind }),
		Keys:                column(rows, func(i row) string { return i.By.Key }),
		Fingerprints:        column(rows, func(i row) []byte { return i.By.Fingerprint[:] }),
		FingerprintVersions: column(rows, func(i row) int16 { return int16(i.By.FPVersion) }),
	})
	if err == nil {
		err = affected(n, len(rows))
	}
	return t.fail("amend intents", err)
}

// SaveIntents implements flow.Tx. The version of the last event never goes back.
func (t *tx) SaveIntents(ctx context.Context, rows []payment.Intent) error {
	if len(rows) == 0 {
		return nil
	}
	n, err := t.q.SaveIntents(ctx, dbgen.SaveIntentsParams{
		Merchants:     column(rows, func(i payment.Intent) pgtype.UUID { return dbID(i.Merchant) }),
		Ids:           column(rows, func(i payment.Intent) pgtype.UUID { return dbID(i.ID) }),
		EventVersions: column(rows, func(i payment.Intent) int64 { return i.EventVersion }),
		Conflicts:     column(rows, func(i payment.Intent) bool { return i.Conflict }),
	})
	if err == nil {
		err = affected(n, len(rows))
	}
	return t.fail("save intents", err)
}

// commandColumns are the columns of a command's identity (PROTOCOL K8).
func commandColumns(refs []flow.CommandRef) refArrays {
	return refColumns(refs, func(r flow.CommandRef) operation.Ref {
		return operation.Ref{Merchant: r.Merchant, Kind: operation.Kind(r.Kind), Key: r.Key}
	})
}

// IntentsByCommand implements flow.Tx (PROTOCOL K8).
func (t *tx) IntentsByCommand(ctx context.Context, refs []flow.CommandRef) ([]payment.Intent, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	c := commandColumns(refs)
	rows, err := t.q.IntentsByCommand(ctx, dbgen.IntentsByCommandParams{Merchants: c.merchants, Kinds: c.kinds, Keys: c.keys})
	if err != nil {
		return nil, t.fail("intents by command", err)
	}
	intents, err := each(rows, func(r dbgen.IntentsByCommandRow) (payment.Intent, error) {
		made := r.PaymentIntent
		made.Version, made.Amount, made.Currency, made.UpdatedAt = r.MadeVersion, r.MadeAmount, r.MadeCurrency, r.MadeAt
		intent, err := domainIntent(made)
		intent.By = domainCommand(r.Kind, r.IdempotencyKey, r.Fingerprint, r.FingerprintVersion)
		return intent, err
	})
	return intents, t.fail("intents by command", err)
}

func rowColumns(rows []flow.Row) (merchants, ids []pgtype.UUID) {
	return column(rows, func(r flow.Row) pgtype.UUID { return dbID(r.Merchant) }),
		column(rows, func(r flow.Row) pgtype.UUID { return dbID(r.ID) })
}
