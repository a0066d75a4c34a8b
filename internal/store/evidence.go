package store

import (
	"context"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/store/dbgen"
	"github.com/hapaxpay/hapax/money"
	"github.com/jackc/pgx/v5/pgtype"
)

// InsertEvidence implements flow.Tx (PROTOCOL section 8).
func (t *tx) InsertEvidence(ctx context.Context, rows []evidence.Observation) ([]bool, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	type row = evidence.Observation
	fresh, err := t.q.InsertEvidence(ctx, dbgen.InsertEvidenceParams{
		Merchants:          column(rows, func(o row) pgtype.UUID { return dbID(o.Merchant) }),
		Ids:                column(rows, func(o row) pgtype.UUID { return dbID(o.ID) }),
		Intents:            column(rows, func(o row) pgtype.UUID { return dbID(o.Intent) }),
		Payments:           column(rows, func(o row) pgtype.UUID { return dbID(o.Payment) }),
		Operations:         column(rows, func(o row) pgtype.UUID { return dbID(o.Operation) }),
		Accounts:           column(rows, func(o row) pgtype.UUID { return dbID(o.Account) }),
		Sources:            column(rows, func(o row) string { return string(o.Source) }),
		Outcomes:           column(rows, func(o row) string { return o.Outcome.String() }),
		Classes:            column(rows, func(o row) string { return o.Class }),
		Codes:              column(rows, func(o row) string { return o.Code }),
		Failures:           column(rows, func(o row) string { return o.Failure }),
		Messages:           column(rows, func(o row) string { return o.Message }),
		Refs:               column(rows, func(o row) string { return o.Reference }),
		OurRefs:            column(rows, func(o row) string { return o.OurReference }),
		Amounts:            column(rows, func(o row) int64 { return o.Amount.Minor() }),
		Currencies:         column(rows, func(o row) string { return string(o.Amount.Currency()) }),
		AcquirerRequestIds: column(rows, func(o row) string { return o.RequestID }),
		RawHashes:          column(rows, func(o row) []byte { return dbHash(o.RawHash) }),
		BytesWritten:       column(rows, func(o row) int64 { return o.BytesWritten }),
		Asked:              column(rows, func(o row) pgtype.Timestamptz { return dbTime(o.AskedAt) }),
		Moved:              column(rows, func(o row) pgtype.Timestamptz { return dbTime(movedAt(o)) }),
		Fences:             column(rows, func(o row) int64 { return o.Fence }),
		Inferences:         column(rows, func(o row) string { return string(o.Inference) }),
		Effects:            column(rows, func(o row) string { return string(o.Effect) }),
		Whys:               column(rows, func(o row) string { return o.Why }),
		Persons:            column(rows, func(o row) string { return o.Person }),
		Notes:              column(rows, func(o row) string { return o.Note }),
		RequestIds:         column(rows, func(o row) string { return o.Request }),
		Modifications:      column(rows, func(o row) pgtype.UUID { return dbID(o.Modification) }),
		Abouts:             column(rows, func(o row) string { return string(o.About) }),
		Objects:            column(rows, func(o row) string { return o.Object }),
		Sessions:           column(rows, func(o row) string { return o.Session }),
		Finals:             column(rows, func(o row) bool { return o.Final }),
		Expires:            column(rows, func(o row) pgtype.Timestamptz { return dbTime(o.ExpiresAt) }),
	})
	return present(rows, fresh, func(o row) id.ID { return o.ID }), t.fail("insert evidence", err)
}

// movedAt is when money moved, by whatever told it.
func movedAt(o evidence.Observation) time.Time {
	if o.MovedAt.IsZero() {
		return o.At
	}
	return o.MovedAt
}

// EarlyEvidence implements flow.Tx (PROTOCOL E1).
func (t *tx) EarlyEvidence(ctx context.Context, payments []flow.Row, limit int) ([]evidence.Observation, error) {
	if len(payments) == 0 {
		return nil, nil
	}
	merchants, ids := rowColumns(payments)
	rows, err := t.q.EarlyEvidence(ctx, dbgen.EarlyEvidenceParams{Merchants: merchants, Payments: ids, MaxRows: int32(limit)})
	if err != nil {
		return nil, t.fail("early evidence", err)
	}
	early, err := each(rows, domainObservation)
	return early, t.fail("early evidence", err)
}

// domainObservation gives what was stored. That an answer was read completely is not, nor what else it told: Also has rows of
// its own.
func domainObservation(e dbgen.Evidence) (evidence.Observation, error) {
	var amount money.Amount
	var err error
	if e.Currency.Valid {
		amount, err = domainAmount(e.Amount.Int64, e.Currency.String)
	}
	return evidence.Observation{
		Merchant: domainID(e.MerchantID), ID: domainID(e.ID), Intent: domainID(e.IntentID), Payment: domainID(e.PaymentID),
		Operation: domainID(e.OperationID), Modification: domainID(e.ModificationID), Account: domainID(e.AccountID), Source: evidence.Source(e.Source),
		Reply: acquirer.Reply{
			Outcome: acquirer.ParseOutcome(e.Outcome), Class: e.Class, Code: e.Code.String, Failure: e.Failure.String, Message: e.Message.String,
			About: acquirer.Action(e.About), Reference: e.Reference.String, OurReference: e.OurReference.String, Object: e.Object.String,
			Session: e.Session.String, Amount: amount, Final: e.Final, ExpiresAt: domainAt(e.ExpiresAt), At: domainAt(e.MovedAt),
			RequestID: e.AcquirerRequestID.String, RawHash: domainHash(e.RawHash), BytesWritten: e.BytesWritten,
		},
		AskedAt: domainAt(e.AskedAt), Fence: e.Fence, Inference: evidence.Inference(e.Inference), MovedAt: domainAt(e.MovedAt),
		Person: e.Person.String, Note: e.Note.String, Request: e.RequestID.String, Effect: evidence.Effect(e.Effect), Why: e.Why,
	}, err
}
