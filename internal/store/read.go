package store

import (
	"context"
	"errors"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/store/dbgen"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Every reading is a short transaction with one snapshot on the primary: a replica that lags shows a state that was.

// Attempt is a payment with its intent, as it is read.
type Attempt struct {
	flow.Attempt
	InReview  bool // an open review waits for a person
	KeptAside bool // it is about money that was taken, but not as asked
}

// Order is an intent with its payments, in order of their ordinals.
type Order struct {
	Intent   payment.Intent
	Payments []Attempt
}

// Page bounds a list: at most Limit items, newest first, beginning below Before (zero: from the newest).
type Page struct {
	Before id.ID
	Limit  int
}

// PaymentFilter names payments; the first member that is set counts, none: all of the merchant.
type PaymentFilter struct {
	Intent            id.ID
	ClientReference   string
	Customer          string
	IdempotencyKey    string // of create_payment
	AcquirerReference string // of a movement of money
}

// none turns "no row" into false.
func none(err error) (bool, error) {
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// IntentByID reads one intent with its payments; false: the merchant has none of this id.
func (s *Store) IntentByID(ctx context.Context, merchant, intent id.ID) (Order, bool, error) {
	return s.order(ctx, func(ctx context.Context, q *dbgen.Queries) (dbgen.PaymentIntent, error) {
		return q.IntentByID(ctx, dbgen.IntentByIDParams{MerchantID: dbID(merchant), ID: dbID(intent)})
	})
}

// IntentByReference reads the intent of a client reference with its payments; false: there is none.
func (s *Store) IntentByReference(ctx context.Context, merchant id.ID, reference string) (Order, bool, error) {
	return s.order(ctx, func(ctx context.Context, q *dbgen.Queries) (dbgen.PaymentIntent, error) {
		return q.IntentByReference(ctx, dbgen.IntentByReferenceParams{MerchantID: dbID(merchant), ClientReference: reference})
	})
}

func (s *Store) order(ctx context.Context, find func(context.Context, *dbgen.Queries) (dbgen.PaymentIntent, error)) (o Order, found bool, err error) {
	err = s.look(ctx, "intent", func(ctx context.Context, q *dbgen.Queries) error {
		row, err := find(ctx, q)
		if found, err = none(err); err != nil || !found {
			return err
		}
		orders, err := ordersOf(ctx, q, []dbgen.PaymentIntent{row})
		if err == nil {
			o = orders[0]
		}
		return err
	})
	return o, found, err
}

// IntentsByCustomer reads a page of a customer's intents with their payments.
func (s *Store) IntentsByCustomer(ctx context.Context, merchant id.ID, customer string, page Page) (orders []Order, err error) {
	err = s.look(ctx, "intents by customer", func(ctx context.Context, q *dbgen.Queries) error {
		rows, err := q.IntentsByCustomer(ctx, dbgen.IntentsByCustomerParams{MerchantID: dbID(merchant), Customer: customer,
			Before: dbID(page.Before), MaxRows: int32(page.Limit)})
		if err == nil {
			orders, err = ordersOf(ctx, q, rows)
		}
		return err
	})
	return orders, err
}

// ordersOf adds the payments, in the order of the intents given.
func ordersOf(ctx context.Context, q *dbgen.Queries, rows []dbgen.PaymentIntent) ([]Order, error) {
	intents, err := each(rows, domainIntent)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	found, err := q.PaymentsOfIntents(ctx, dbgen.PaymentsOfIntentsParams{
		Merchants: column(rows, func(i dbgen.PaymentIntent) pgtype.UUID { return i.MerchantID }),
		Intents:   column(rows, func(i dbgen.PaymentIntent) pgtype.UUID { return i.ID }),
	})
	if err != nil {
		return nil, err
	}
	attempts, err := attempts(ctx, q, column(found, func(r dbgen.PaymentsOfIntentsRow) pair { return pair{r.PaymentIntent, r.Payment} }))
	orders := make([]Order, len(intents))
	at := make(map[id.ID]*Order, len(intents))
	for i, intent := range intents {
		orders[i].Intent = intent
		at[intent.ID] = &orders[i]
	}
	for _, a := range attempts {
		o := at[a.Intent.ID]
		o.Payments = append(o.Payments, a)
	}
	return orders, err
}

type pair struct {
	intent  dbgen.PaymentIntent
	payment dbgen.Payment
}

// attempts converts, and adds what the queue of reviews says.
func attempts(ctx context.Context, q *dbgen.Queries, rows []pair) ([]Attempt, error) {
	reviews, err := q.ReviewsOf(ctx, dbgen.ReviewsOfParams{
		Merchants: column(rows, func(r pair) pgtype.UUID { return r.intent.MerchantID }),
		Intents:   column(rows, func(r pair) pgtype.UUID { return r.intent.ID }),
	})
	if err != nil {
		return nil, err
	}
	waits, aside := make(map[pgtype.UUID]bool, len(reviews)), map[pgtype.UUID]bool{}
	for _, r := range reviews {
		waits[r.PaymentID] = true
		aside[r.PaymentID] = aside[r.PaymentID] || r.Reason == string(payment.ReviewAmountMismatch)
	}
	return each(rows, func(r pair) (Attempt, error) {
		a, err := attempt(r.intent, r.payment)
		return Attempt{a, waits[r.payment.ID], aside[r.payment.ID]}, err
	})
}

// PaymentByID reads one payment with its intent; false: the merchant has none of this id.
func (s *Store) PaymentByID(ctx context.Context, merchant, payment id.ID) (a Attempt, found bool, err error) {
	err = s.look(ctx, "payment", func(ctx context.Context, q *dbgen.Queries) error {
		rows, err := q.ReadPayments(ctx, dbgen.ReadPaymentsParams{Merchants: []pgtype.UUID{dbID(merchant)}, Ids: []pgtype.UUID{dbID(payment)}})
		if err != nil || len(rows) == 0 {
			return err
		}
		all, err := attempts(ctx, q, []pair{{rows[0].PaymentIntent, rows[0].Payment}})
		if err == nil {
			a, found = all[0], true
		}
		return err
	})
	return a, found, err
}

// Payments reads a page of the merchant's payments.
func (s *Store) Payments(ctx context.Context, merchant id.ID, f PaymentFilter, page Page) (all []Attempt, err error) {
	err = s.look(ctx, "payments", func(ctx context.Context, q *dbgen.Queries) error {
		rows, err := findPayments(ctx, q, dbID(merchant), f, dbID(page.Before), int32(page.Limit))
		if err == nil {
			all, err = attempts(ctx, q, rows)
		}
		return err
	})
	return all, err
}

func findPayments(ctx context.Context, q *dbgen.Queries, merchant pgtype.UUID, f PaymentFilter, before pgtype.UUID, limit int32) ([]pair, error) {
	switch {
	case !f.Intent.IsZero():
		rows, err := q.PaymentsByIntent(ctx, dbgen.PaymentsByIntentParams{MerchantID: merchant, IntentID: dbID(f.Intent), Before: before, MaxRows: limit})
		return column(rows, func(r dbgen.PaymentsByIntentRow) pair { return pair{r.PaymentIntent, r.Payment} }), err
	case f.ClientReference != "":
		rows, err := q.PaymentsByReference(ctx, dbgen.PaymentsByReferenceParams{MerchantID: merchant, ClientReference: f.ClientReference, Before: before, MaxRows: limit})
		return column(rows, func(r dbgen.PaymentsByReferenceRow) pair { return pair{r.PaymentIntent, r.Payment} }), err
	case f.Customer != "":
		rows, err := q.PaymentsByCustomer(ctx, dbgen.PaymentsByCustomerParams{MerchantID: merchant, Customer: f.Customer, Before: before, MaxRows: limit})
		return column(rows, func(r dbgen.PaymentsByCustomerRow) pair { return pair{r.PaymentIntent, r.Payment} }), err
	case f.IdempotencyKey != "":
		rows, err := q.PaymentsByKey(ctx, dbgen.PaymentsByKeyParams{MerchantID: merchant, IdempotencyKey: f.IdempotencyKey, Before: before, MaxRows: limit})
		return column(rows, func(r dbgen.PaymentsByKeyRow) pair { return pair{r.PaymentIntent, r.Payment} }), err
	case f.AcquirerReference != "":
		rows, err := q.PaymentsByAcquirerReference(ctx, dbgen.PaymentsByAcquirerReferenceParams{MerchantID: merchant, AcquirerReference: f.AcquirerReference, Before: before, MaxRows: limit})
		return column(rows, func(r dbgen.PaymentsByAcquirerReferenceRow) pair { return pair{r.PaymentIntent, r.Payment} }), err
	}
	rows, err := q.AllPayments(ctx, dbgen.AllPaymentsParams{MerchantID: merchant, Before: before, MaxRows: limit})
	return column(rows, func(r dbgen.AllPaymentsRow) pair { return pair{r.PaymentIntent, r.Payment} }), err
}

// OperationByRef reads one operation; false: the key is free.
func (s *Store) OperationByRef(ctx context.Context, ref operation.Ref) (o operation.Operation, found bool, err error) {
	err = s.inTx(ctx, "operation", s.read, func(ctx context.Context, t *tx) error {
		rows, err := t.ReadOperations(ctx, []operation.Ref{ref})
		if found = len(rows) == 1; found {
			o = rows[0]
		}
		return err
	})
	return o, found, err
}

// Events reads a page of the merchant's events.
func (s *Store) Events(ctx context.Context, merchant id.ID, page Page) (events []payment.Event, err error) {
	err = s.look(ctx, "events", func(ctx context.Context, q *dbgen.Queries) error {
		rows, err := q.Events(ctx, dbgen.EventsParams{MerchantID: dbID(merchant), Before: dbID(page.Before), MaxRows: int32(page.Limit)})
		events = column(rows, domainEvent)
		return err
	})
	return events, err
}

// EventsOfIntent reads up to limit events of an intent above a version, in their order.
func (s *Store) EventsOfIntent(ctx context.Context, merchant, intent id.ID, after int64, limit int) (events []payment.Event, err error) {
	err = s.look(ctx, "events of intent", func(ctx context.Context, q *dbgen.Queries) error {
		rows, err := q.EventsOfIntent(ctx, dbgen.EventsOfIntentParams{MerchantID: dbID(merchant), IntentID: dbID(intent), After: after, MaxRows: int32(limit)})
		events = column(rows, domainEvent)
		return err
	})
	return events, err
}

// EventByID reads one event; false: the merchant has none of this id.
func (s *Store) EventByID(ctx context.Context, merchant, event id.ID) (e payment.Event, found bool, err error) {
	err = s.look(ctx, "event", func(ctx context.Context, q *dbgen.Queries) error {
		row, err := q.EventByID(ctx, dbgen.EventByIDParams{MerchantID: dbID(merchant), ID: dbID(event)})
		e = domainEvent(row)
		found, err = none(err)
		return err
	})
	return e, found, err
}

// OpenReviews reads up to limit open entries of a merchant, the oldest first, above after (zero: from the oldest).
func (s *Store) OpenReviews(ctx context.Context, merchant, after id.ID, limit int) (reviews []payment.Review, err error) {
	err = s.look(ctx, "open reviews", func(ctx context.Context, q *dbgen.Queries) error {
		rows, err := q.OpenReviewsOfMerchant(ctx, dbgen.OpenReviewsOfMerchantParams{MerchantID: dbID(merchant), After: dbID(after), MaxRows: int32(limit)})
		reviews = column(rows, domainReview)
		return err
	})
	return reviews, err
}

// ReviewByID reads one entry with the decisions that were made about it; false: the merchant has none of this id.
func (s *Store) ReviewByID(ctx context.Context, merchant, review id.ID) (r payment.Review, decisions []flow.Decision, found bool, err error) {
	err = s.look(ctx, "review", func(ctx context.Context, q *dbgen.Queries) error {
		row, err := q.ReviewByID(ctx, dbgen.ReviewByIDParams{MerchantID: dbID(merchant), ID: dbID(review)})
		if found, err = none(err); err != nil || !found {
			return err
		}
		r = domainReview(row)
		made, err := q.DecisionsOfReview(ctx, dbgen.DecisionsOfReviewParams{MerchantID: dbID(merchant), ReviewID: dbID(review)})
		decisions = column(made, domainDecision)
		return err
	})
	return r, decisions, found, err
}
