package store

import (
	"context"
	"errors"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/store/dbgen"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

func domainReview(r dbgen.Review) payment.Review {
	return payment.Review{
		Merchant: domainID(r.MerchantID), ID: domainID(r.ID), Intent: domainID(r.IntentID), Payment: domainID(r.PaymentID),
		Operation: domainID(r.OperationID), Movement: domainID(r.MovementID), Reason: payment.ReviewReason(r.Reason), Detail: r.Detail,
		OpenedAt: domainAt(r.OpenedAt), DecidedAt: domainAt(r.DecidedAt), Decision: r.Decision.String,
	}
}

// OpenReviews implements flow.Tx (PROTOCOL K6). Entries about a movement and entries about a payment have each an
// index of their own that decides.
func (t *tx) OpenReviews(ctx context.Context, rows []payment.Review) ([]bool, error) {
	var onMovement, onPayment []payment.Review
	for _, r := range rows {
		if r.Movement.IsZero() {
			onPayment = append(onPayment, r)
		} else {
			onMovement = append(onMovement, r)
		}
	}
	fresh, err := t.openPaymentReviews(ctx, onPayment)
	if err != nil {
		return nil, err
	}
	more, err := t.openMovementReviews(ctx, onMovement)
	if err != nil {
		return nil, err
	}
	return present(rows, append(fresh, more...), func(r payment.Review) id.ID { return r.ID }), nil
}

func (t *tx) openPaymentReviews(ctx context.Context, rows []payment.Review) ([]pgtype.UUID, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	type row = payment.Review
	fresh, err := t.q.OpenPaymentReviews(ctx, dbgen.OpenPaymentReviewsParams{
		Merchants:  column(rows, func(r row) pgtype.UUID { return dbID(r.Merchant) }),
		Ids:        column(rows, func(r row) pgtype.UUID { return dbID(r.ID) }),
		Intents:    column(rows, func(r row) pgtype.UUID { return dbID(r.Intent) }),
		Payments:   column(rows, func(r row) pgtype.UUID { return dbID(r.Payment) }),
		Operations: column(rows, func(r row) pgtype.UUID { return dbID(r.Operation) }),
		Reasons:    column(rows, func(r row) string { return string(r.Reason) }),
		Details:    column(rows, func(r row) string { return r.Detail }),
	})
	return fresh, t.fail("open reviews", err)
}

func (t *tx) openMovementReviews(ctx context.Context, rows []payment.Review) ([]pgtype.UUID, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	type row = payment.Review
	fresh, err := t.q.OpenMovementReviews(ctx, dbgen.OpenMovementReviewsParams{
		Merchants:  column(rows, func(r row) pgtype.UUID { return dbID(r.Merchant) }),
		Ids:        column(rows, func(r row) pgtype.UUID { return dbID(r.ID) }),
		Intents:    column(rows, func(r row) pgtype.UUID { return dbID(r.Intent) }),
		Payments:   column(rows, func(r row) pgtype.UUID { return dbID(r.Payment) }),
		Operations: column(rows, func(r row) pgtype.UUID { return dbID(r.Operation) }),
		Movements:  column(rows, func(r row) pgtype.UUID { return dbID(r.Movement) }),
		Reasons:    column(rows, func(r row) string { return string(r.Reason) }),
		Details:    column(rows, func(r row) string { return r.Detail }),
	})
	return fresh, t.fail("open reviews", err)
}

// ReadReview implements flow.Tx.
func (t *tx) ReadReview(ctx context.Context, row flow.Row) (payment.Review, bool, error) {
	r, err := t.q.ReviewByID(ctx, dbgen.ReviewByIDParams{MerchantID: dbID(row.Merchant), ID: dbID(row.ID)})
	if errors.Is(err, pgx.ErrNoRows) {
		return payment.Review{}, false, nil
	}
	return domainReview(r), err == nil, t.fail("read review", err)
}

// LockReview implements flow.Tx.
func (t *tx) LockReview(ctx context.Context, row flow.Row) (payment.Review, bool, error) {
	r, err := t.q.LockReview(ctx, dbgen.LockReviewParams{MerchantID: dbID(row.Merchant), ID: dbID(row.ID)})
	if errors.Is(err, pgx.ErrNoRows) {
		return payment.Review{}, false, nil
	}
	return domainReview(r), err == nil, t.fail("lock review", err)
}

// ReviewsOf implements flow.Tx.
func (t *tx) ReviewsOf(ctx context.Context, intents, movements []flow.Row) ([]payment.Review, error) {
	if len(intents)+len(movements) == 0 {
		return nil, nil
	}
	var arg dbgen.ReviewsOfParams
	arg.Merchants, arg.Intents = rowColumns(intents)
	arg.MovementMerchants, arg.Movements = rowColumns(movements)
	rows, err := t.q.ReviewsOf(ctx, arg)
	return column(rows, domainReview), t.fail("reviews", err)
}

// CloseReviews implements flow.Tx. An entry that is decided already is a defect and fails: the caller holds its intent.
func (t *tx) CloseReviews(ctx context.Context, rows []payment.Review) error {
	if len(rows) == 0 {
		return nil
	}
	n, err := t.q.CloseReviews(ctx, dbgen.CloseReviewsParams{
		Merchants: column(rows, func(r payment.Review) pgtype.UUID { return dbID(r.Merchant) }),
		Ids:       column(rows, func(r payment.Review) pgtype.UUID { return dbID(r.ID) }),
		Decisions: column(rows, func(r payment.Review) string { return r.Decision }),
	})
	if err == nil {
		err = affected(n, len(rows))
	}
	return t.fail("close reviews", err)
}

// InsertDecision implements flow.Tx (PROTOCOL section 14, K8).
func (t *tx) InsertDecision(ctx context.Context, d flow.Decision) error {
	return t.fail("insert decision", t.q.InsertDecision(ctx, dbgen.InsertDecisionParams{
		MerchantID: dbID(d.Merchant), ID: dbID(d.ID), ReviewID: dbID(d.Review), Kind: d.By.Kind, IdempotencyKey: d.By.Key,
		Fingerprint: d.By.Fingerprint[:], FingerprintVersion: int16(d.By.FPVersion), Verdict: d.Verdict, Reference: dbText(d.Reference),
		Person: d.Person, SecondPerson: dbText(d.Second), Reason: d.Reason,
	}))
}

// DecisionByCommand implements flow.Tx (PROTOCOL K8).
func (t *tx) DecisionByCommand(ctx context.Context, ref flow.CommandRef) (flow.Decision, bool, error) {
	d, err := t.q.DecisionByCommand(ctx, dbgen.DecisionByCommandParams{MerchantID: dbID(ref.Merchant), Kind: ref.Kind, IdempotencyKey: ref.Key})
	if errors.Is(err, pgx.ErrNoRows) {
		return flow.Decision{}, false, nil
	}
	return domainDecision(d), err == nil, t.fail("decision by command", err)
}

func domainDecision(d dbgen.Decision) flow.Decision {
	return flow.Decision{
		Merchant: domainID(d.MerchantID), ID: domainID(d.ID), Review: domainID(d.ReviewID),
		By:      domainCommand(d.Kind, d.IdempotencyKey, d.Fingerprint, d.FingerprintVersion),
		Verdict: d.Verdict, Reference: d.Reference.String, Person: d.Person, Second: d.SecondPerson.String, Reason: d.Reason, At: domainAt(d.CreatedAt),
	}
}
