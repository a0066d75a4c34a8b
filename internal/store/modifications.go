package store

import (
	"cmp"
	"context"
	"errors"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/store/dbgen"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

func domainModification(m dbgen.Modification) (payment.Modification, error) {
	amount, err := domainAmount(m.Amount, m.Currency)
	return payment.Modification{
		Merchant: domainID(m.MerchantID), ID: domainID(m.ID), Intent: domainID(m.IntentID), Payment: domainID(m.PaymentID),
		Type: payment.ModificationType(m.Type), Action: acquirer.Action(m.Action), K: int(m.K), Status: payment.ModificationStatus(m.Status),
		Amount: amount, Final: m.Final, External: m.External, Movement: domainID(m.MovementID), Account: domainID(m.AccountID),
		AcquirerKey: m.AcquirerKey, AcquirerReference: m.AcquirerReference.String, Reason: m.Reason.String,
		Failure:        payment.Failure{Code: m.FailureCode.String, Message: m.FailureMessage.String},
		AnsweredStatus: int(m.AnsweredStatus.Int16), Version: m.Version,
		By:        domainCommand(m.Kind, m.IdempotencyKey, m.Fingerprint, m.FingerprintVersion),
		CreatedAt: domainAt(m.CreatedAt), UpdatedAt: domainAt(m.UpdatedAt),
	}, err
}

func compareModifications(a, b payment.Modification) int {
	return cmp.Or(compareID(a.Merchant, b.Merchant), compareID(a.Payment, b.Payment), compareID(a.ID, b.ID))
}

// InsertModifications implements flow.Tx (PROTOCOL X2, X4).
func (t *tx) InsertModifications(ctx context.Context, rows []payment.Modification) ([]bool, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	type row = payment.Modification
	in := sorted(rows, compareModifications)
	fresh, err := t.q.InsertModifications(ctx, dbgen.InsertModificationsParams{
		Merchants:           column(in, func(m row) pgtype.UUID { return dbID(m.Merchant) }),
		Ids:                 column(in, func(m row) pgtype.UUID { return dbID(m.ID) }),
		Intents:             column(in, func(m row) pgtype.UUID { return dbID(m.Intent) }),
		Payments:            column(in, func(m row) pgtype.UUID { return dbID(m.Payment) }),
		Types:               column(in, func(m row) string { return string(m.Type) }),
		Actions:             column(in, func(m row) string { return string(m.Action) }),
		Ks:                  column(in, func(m row) int32 { return int32(m.K) }),
		Statuses:            column(in, func(m row) string { return string(m.Status) }),
		Amounts:             column(in, func(m row) int64 { return m.Amount.Minor() }),
		Currencies:          column(in, func(m row) string { return string(m.Amount.Currency()) }),
		Finals:              column(in, func(m row) bool { return m.Final }),
		Externals:           column(in, func(m row) bool { return m.External }),
		Movements:           column(in, func(m row) pgtype.UUID { return dbID(m.Movement) }),
		Accounts:            column(in, func(m row) pgtype.UUID { return dbID(m.Account) }),
		AcquirerKeys:        column(in, func(m row) string { return m.AcquirerKey }),
		AcquirerReferences:  column(in, func(m row) string { return m.AcquirerReference }),
		Reasons:             column(in, func(m row) string { return m.Reason }),
		FailureCodes:        column(in, func(m row) string { return m.Failure.Code }),
		FailureMessages:     column(in, func(m row) string { return m.Failure.Message }),
		AnsweredStatuses:    column(in, func(m row) int16 { return int16(m.AnsweredStatus) }),
		Versions:            column(in, func(m row) int64 { return max(m.Version, 1) }),
		Kinds:               column(in, func(m row) string { return m.By.Kind }),
		Keys:                column(in, func(m row) string { return m.By.Key }),
		Fingerprints:        column(in, func(m row) []byte { return m.By.Fingerprint[:] }),
		FingerprintVersions: column(in, func(m row) int16 { return int16(m.By.FPVersion) }),
	})
	return present(rows, fresh, func(m row) id.ID { return m.ID }), t.fail("insert modifications", err)
}

// SaveModifications implements flow.Tx (PROTOCOL P2, K4).
func (t *tx) SaveModifications(ctx context.Context, changes []flow.ModificationChange) error {
	if len(changes) == 0 {
		return nil
	}
	type row = flow.ModificationChange
	n, err := t.q.SaveModifications(ctx, dbgen.SaveModificationsParams{
		Merchants:          column(changes, func(c row) pgtype.UUID { return dbID(c.New.Merchant) }),
		Ids:                column(changes, func(c row) pgtype.UUID { return dbID(c.New.ID) }),
		ExpectedStatuses:   column(changes, func(c row) string { return string(c.ExpectedStatus) }),
		ExpectedVersions:   column(changes, func(c row) int64 { return c.ExpectedVersion }),
		Statuses:           column(changes, func(c row) string { return string(c.New.Status) }),
		Actions:            column(changes, func(c row) string { return string(c.New.Action) }),
		AcquirerReferences: column(changes, func(c row) string { return c.New.AcquirerReference }),
		FailureCodes:       column(changes, func(c row) string { return c.New.Failure.Code }),
		FailureMessages:    column(changes, func(c row) string { return c.New.Failure.Message }),
		AnsweredStatuses:   column(changes, func(c row) int16 { return int16(c.New.AnsweredStatus) }),
		Versions:           column(changes, func(c row) int64 { return c.New.Version }),
	})
	if err == nil {
		err = affected(n, len(changes))
	}
	return t.fail("save modifications", err)
}

// ModificationsOf implements flow.Tx.
func (t *tx) ModificationsOf(ctx context.Context, payments []flow.Row) ([]payment.Modification, error) {
	if len(payments) == 0 {
		return nil, nil
	}
	merchants, ids := rowColumns(payments)
	rows, err := t.q.ModificationsOf(ctx, dbgen.ModificationsOfParams{Merchants: merchants, Payments: ids})
	if err != nil {
		return nil, t.fail("modifications", err)
	}
	modifications, err := each(rows, domainModification)
	return modifications, t.fail("modifications", err)
}

// ModificationByID implements flow.Tx.
func (t *tx) ModificationByID(ctx context.Context, row flow.Row) (payment.Modification, bool, error) {
	m, err := t.q.ModificationByID(ctx, dbgen.ModificationByIDParams{MerchantID: dbID(row.Merchant), ID: dbID(row.ID)})
	if errors.Is(err, pgx.ErrNoRows) {
		return payment.Modification{}, false, nil
	}
	if err != nil {
		return payment.Modification{}, false, t.fail("modification", err)
	}
	modification, err := domainModification(m)
	return modification, true, t.fail("modification", err)
}

// ModificationsByCommand implements flow.Tx (PROTOCOL K8).
func (t *tx) ModificationsByCommand(ctx context.Context, refs []flow.CommandRef) ([]payment.Modification, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	c := commandColumns(refs)
	rows, err := t.q.ModificationsByCommand(ctx, dbgen.ModificationsByCommandParams{Merchants: c.merchants, Kinds: c.kinds, Keys: c.keys})
	if err != nil {
		return nil, t.fail("modifications by command", err)
	}
	modifications, err := each(rows, func(r dbgen.ModificationsByCommandRow) (payment.Modification, error) {
		m, err := domainModification(r.Modification)
		m.By = domainCommand(r.Kind, r.IdempotencyKey, r.Fingerprint, r.FingerprintVersion)
		return m, err
	})
	return modifications, t.fail("modifications by command", err)
}

// Refunds reads a page of what was given back or is being, refunds and compensations alike: of one payment, or of all of
// the merchant's where pay is zero.
func (s *Store) Refunds(ctx context.Context, merchant, pay id.ID, page Page) (refunds []payment.Modification, err error) {
	err = s.look(ctx, "refunds", func(ctx context.Context, q *dbgen.Queries) error {
		var rows []dbgen.Modification
		var err error
		if pay.IsZero() {
			rows, err = q.Refunds(ctx, dbgen.RefundsParams{MerchantID: dbID(merchant), Before: dbID(page.Before), MaxRows: int32(page.Limit)})
		} else {
			rows, err = q.RefundsOfPayment(ctx, dbgen.RefundsOfPaymentParams{MerchantID: dbID(merchant), PaymentID: dbID(pay),
				Before: dbID(page.Before), MaxRows: int32(page.Limit)})
		}
		if err == nil {
			refunds, err = each(rows, domainModification)
		}
		return err
	})
	return refunds, err
}

// RefundByID reads one refund or compensation; false: the merchant has none of this id.
func (s *Store) RefundByID(ctx context.Context, merchant, refund id.ID) (m payment.Modification, found bool, err error) {
	err = s.look(ctx, "refund", func(ctx context.Context, q *dbgen.Queries) error {
		row, err := q.ModificationByID(ctx, dbgen.ModificationByIDParams{MerchantID: dbID(merchant), ID: dbID(refund)})
		if found, err = none(err); err != nil || !found {
			return err
		}
		m, err = domainModification(row)
		found = m.Type == payment.Refund || m.Type == payment.Compensation
		return err
	})
	return m, found, err
}

// ModificationsOfPayment reads all changes to a payment, oldest first, without locking anything.
func (s *Store) ModificationsOfPayment(ctx context.Context, merchant, pay id.ID) (all []payment.Modification, err error) {
	err = s.inTx(ctx, "modifications", s.read, func(ctx context.Context, t *tx) error {
		all, err = t.ModificationsOf(ctx, []flow.Row{{Merchant: merchant, ID: pay}})
		return err
	})
	return all, err
}
