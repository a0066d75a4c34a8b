package store_test

import (
	"context"
	"reflect"
	"slices"
	"testing"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/store"
)

// history is an intent with a refused and a paid payment, and another customer's intent.
func history(t *testing.T) (sh *shop, first, second payment.Payment, other started) {
	sh = newShop(t)
	st := sh.start("order-1")
	first = st.payment
	sh.owner("UPDATE payment SET status = 'declined', failure_code = 'declined', refused_at = now(), gate_open = true")
	second = sh.payment(st.intent, 2)
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		_, err := tx.InsertPayments(ctx, []payment.Payment{second})
		return err
	})
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		if _, err := tx.InsertMovements(ctx, []payment.Movement{{Merchant: sh.merchant, ID: newID(), Account: sh.account, Reference: "ch_1",
			Kind: acquirer.MovementCharge, Intent: st.intent.ID, Payment: second.ID, Amount: second.Amount, State: payment.Applied}}); err != nil {
			return err
		}
		_, err := tx.OpenReviews(ctx, []payment.Review{{Merchant: sh.merchant, ID: newID(), Intent: st.intent.ID, Payment: second.ID, Reason: payment.ReviewNoProof}})
		return err
	})
	other = sh.start("order-2")
	sh.owner("UPDATE payment_intent SET customer = 'c-2' WHERE client_reference = 'order-2'")
	return sh, first, second, other
}

func TestPaymentsAreFoundByWhateverSupportHolds(t *testing.T) {
	sh, first, second, other := history(t)
	follower := sh.claim("second-tab")[0]
	follower.Intent, follower.Payment, follower.Follows = other.intent.ID, other.payment.ID, other.op.ID
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		return tx.BindOperations(ctx, []operation.Operation{follower})
	})
	for name, c := range map[string]struct {
		filter store.PaymentFilter
		want   []id.ID
	}{
		"all":                 {store.PaymentFilter{}, []id.ID{other.payment.ID, second.ID, first.ID}},
		"intent":              {store.PaymentFilter{Intent: first.Intent}, []id.ID{second.ID, first.ID}},
		"client reference":    {store.PaymentFilter{ClientReference: "order-1"}, []id.ID{second.ID, first.ID}},
		"customer":            {store.PaymentFilter{Customer: "c-2"}, []id.ID{other.payment.ID}},
		"idempotency key":     {store.PaymentFilter{IdempotencyKey: first.By.Key}, []id.ID{first.ID}},
		"key of a second tab": {store.PaymentFilter{IdempotencyKey: "second-tab"}, []id.ID{other.payment.ID}},
		"acquirer reference":  {store.PaymentFilter{AcquirerReference: "ch_1"}, []id.ID{second.ID}},
		"nothing":             {store.PaymentFilter{AcquirerReference: "ch_2"}, nil},
	} {
		got, err := sh.s.Payments(t.Context(), sh.merchant, c.filter, store.Page{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		var ids []id.ID
		for _, a := range got {
			ids = append(ids, a.Payment.ID)
			if a.Intent.ID != a.Payment.Intent || a.InReview != (a.Payment.ID == second.ID) {
				t.Errorf("%s: %+v", name, a)
			}
		}
		if !slices.Equal(ids, c.want) {
			t.Errorf("%s: got %v, want %v", name, ids, c.want)
		}
		// I-15: what one merchant holds, another does not find.
		if foreign, err := sh.s.Payments(t.Context(), newID(), c.filter, store.Page{Limit: 10}); err != nil || len(foreign) != 0 {
			t.Errorf("%s: another merchant finds %+v, %v", name, foreign, err)
		}
		for i := range c.want { // pages of one
			var before id.ID
			if i > 0 {
				before = c.want[i-1]
			}
			page, err := sh.s.Payments(t.Context(), sh.merchant, c.filter, store.Page{Limit: 1, Before: before})
			if err != nil || len(page) != 1 || page[0].Payment.ID != c.want[i] {
				t.Errorf("%s: page %d is %+v, %v", name, i, page, err)
			}
		}
	}
}

func TestIntentsWithTheirPayments(t *testing.T) {
	sh, first, second, other := history(t)
	byID, found, err := sh.s.IntentByID(t.Context(), sh.merchant, first.Intent)
	if err != nil || !found || len(byID.Payments) != 2 || byID.Payments[0].Payment.ID != first.ID || byID.Payments[1].Payment.ID != second.ID || !byID.Payments[1].InReview {
		t.Errorf("by id %+v, %v, %v", byID, found, err)
	}
	byReference, found, err := sh.s.IntentByReference(t.Context(), sh.merchant, "order-2")
	if err != nil || !found || byReference.Intent.ID != other.intent.ID || len(byReference.Payments) != 1 {
		t.Errorf("by reference %+v, %v, %v", byReference, found, err)
	}
	if _, found, err = sh.s.IntentByReference(t.Context(), sh.merchant, "order-3"); err != nil || found {
		t.Errorf("a reference that does not exist: %v, %v", found, err)
	}
	if _, found, err = sh.s.IntentByID(t.Context(), newID(), first.Intent); err != nil || found {
		t.Errorf("another merchant's: %v, %v", found, err)
	}
	sh.owner("UPDATE payment_intent SET customer = 'c'")
	list, err := sh.s.IntentsByCustomer(t.Context(), sh.merchant, "c", store.Page{Limit: 1})
	if err != nil || len(list) != 1 || list[0].Intent.ID != other.intent.ID || len(list[0].Payments) != 1 {
		t.Errorf("first page %+v, %v", list, err)
	}
	list, err = sh.s.IntentsByCustomer(t.Context(), sh.merchant, "c", store.Page{Limit: 5, Before: other.intent.ID})
	if err != nil || len(list) != 1 || len(list[0].Payments) != 2 {
		t.Errorf("second page %+v, %v", list, err)
	}
	one, found, err := sh.s.PaymentByID(t.Context(), sh.merchant, second.ID)
	if err != nil || !found || !one.InReview || one.Intent.ClientReference != "order-1" {
		t.Errorf("payment %+v, %v, %v", one, found, err)
	}
	if _, found, err = sh.s.PaymentByID(t.Context(), newID(), second.ID); err != nil || found {
		t.Errorf("another merchant's: %v, %v", found, err)
	}
	if _, found, err = sh.s.OperationByRef(t.Context(), operation.Ref{Merchant: newID(), Kind: operation.CreatePayment, Key: first.By.Key}); err != nil || found {
		t.Errorf("another merchant's operation: %v, %v", found, err)
	}
}

func TestBacklog(t *testing.T) {
	sh := newShop(t)
	if b, err := sh.s.Backlog(t.Context()); err != nil || !reflect.DeepEqual(b, store.Backlog{}) {
		t.Errorf("of an empty database: %+v, %v", b, err)
	}
	st := sh.start("order-1")
	sh.start("order-2")
	sh.owner("UPDATE payment SET status = 'unknown', created_at = now() - interval '10 minutes' WHERE id = $1", st.payment.ID.String())
	sh.owner("UPDATE operation SET state = 'awaiting_result', due_at = now() - interval '1 minute' WHERE payment_id = $1", st.payment.ID.String())
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		_, err := tx.OpenReviews(ctx, []payment.Review{{Merchant: sh.merchant, ID: newID(), Payment: st.payment.ID, Reason: payment.ReviewNoProof}})
		return err
	})
	sh.owner("UPDATE review SET opened_at = now() - interval '1 hour'")
	b, err := sh.s.Backlog(t.Context())
	if err != nil || b.Due != 1 || b.InProgress != 1 || b.Unknown != 1 || b.OpenReviews != 1 || b.OldestDue.Round(60e9).Minutes() != 1 ||
		b.OldestUnknown.Round(60e9).Minutes() != 10 || b.OldestReviewAge.Round(60e9).Hours() != 1 {
		t.Errorf("got %+v, %v", b, err)
	}
}
