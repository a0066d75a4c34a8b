package store_test

import (
	"context"
	"testing"

	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/store"
)

// pay takes a payment through every statement of the usual path.
func (sh *shop) pay(reference string) {
	sh.t.Helper()
	st := sh.start(reference)
	if got := sh.permit(usual(st.op)); !got.Granted {
		sh.t.Fatalf("permit %+v", got)
	}
	paid, op := st.payment, st.op
	paid.Status, paid.Captured, paid.AcquirerReference, paid.Version = payment.Paid, 1500, "ch_1", 2
	op.State, op.AnswerStatus = operation.Completed, 201
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		intents := []flow.Row{rowOf(st.intent)}
		if _, err := tx.LockIntents(ctx, []flow.IntentRef{{Merchant: sh.merchant, ClientReference: reference}}); err != nil {
			return err
		}
		if _, err := tx.PaymentsByCommand(ctx, []flow.CommandRef{{Merchant: sh.merchant, Kind: st.payment.By.Kind, Key: st.payment.By.Key}}); err != nil {
			return err
		}
		if _, err := tx.LockPayments(ctx, []flow.Row{row(st.payment)}); err != nil {
			return err
		}
		if _, err := tx.OpenOperations(ctx, []flow.Row{row(st.payment)}); err != nil {
			return err
		}
		if _, err := tx.MovementsOf(ctx, intents, []string{paid.AcquirerKey}); err != nil {
			return err
		}
		if _, err := tx.ReviewsOf(ctx, intents, nil); err != nil {
			return err
		}
		if err := tx.SavePayments(ctx, []flow.PaymentChange{{ExpectedStatus: payment.Pending, ExpectedVersion: 1, New: paid}}); err != nil {
			return err
		}
		_, err := tx.SaveOperations(ctx, []operation.Operation{op}, lease)
		return err
	})
	if _, err := sh.s.Payments(sh.t.Context(), sh.merchant, store.PaymentFilter{ClientReference: reference}, store.Page{Limit: 10}); err != nil {
		sh.t.Fatal(err)
	}
	sh.pick(10, 10)
}

// A session that planned its statements on an empty database must not read all rows of a merchant when there are many:
// every index begins with the merchant, so that a wrong one is easily taken.
func TestASessionOfAYoungDatabaseReadsOnlyWhatItNeeds(t *testing.T) {
	sh := newShop(t, func(c *store.Config) { c.MaxConns = 1 })
	for range 10 { // enough for PostgreSQL to settle on a plan
		sh.pay(newID().String())
	}
	const rows, payments, each = 3000, 20, 100
	sh.owner(`INSERT INTO payment_intent (merchant_id, id, client_reference, amount, currency, capture_method, pay_before, key_seed)
SELECT $1, gen_random_uuid(), 'old-' || n, 1, 'EUR', 'automatic', now(), 's' FROM generate_series(1, $2::int) n`, sh.merchant.String(), rows)
	sh.owner(`INSERT INTO payment (merchant_id, id, intent_id, n, flow, status, captured_amount, amount, currency, payment_method, account_id, acquirer_key, kind, idempotency_key, fingerprint, fingerprint_version)
SELECT merchant_id, gen_random_uuid(), id, 1, 'direct', 'paid', 1, 1, 'EUR', 'pm', $1, client_reference, 'create_payment', client_reference, sha256(''), 1
  FROM payment_intent WHERE client_reference LIKE 'old-%'`, sh.account.String())
	sh.owner(`INSERT INTO operation (merchant_id, kind, idempotency_key, id, fingerprint, fingerprint_version, request_id, state, claim_id, lease_until, due_at, answer_status, completed_at, expires_at, payment_id, intent_id, send_until, epoch)
SELECT merchant_id, kind, idempotency_key, gen_random_uuid(), fingerprint, 1, '', 'completed', gen_random_uuid(), now(), now(), 200, now(), now() + interval '1 day', id, intent_id, now(), 1
  FROM payment WHERE acquirer_key LIKE 'old-%'`)
	const read = "SELECT sum(COALESCE(seq_tup_read, 0) + COALESCE(idx_tup_fetch, 0))::bigint, sum(n_tup_ins)::bigint FROM pg_stat_user_tables"
	pool := sh.db.OwnerPool(t)
	var before, after, inserted int64
	dbtest.Eventually(t, func() bool { // the rows above are counted when their sessions are
		return pool.QueryRow(t.Context(), read).Scan(&before, &inserted) == nil && inserted >= 3*rows
	})
	seen := inserted
	for range payments {
		sh.pay(newID().String())
	}
	sh.s.Close() // a session counts at its end
	dbtest.Eventually(t, func() bool {
		return pool.QueryRow(t.Context(), read).Scan(&after, &inserted) == nil && inserted >= seen+3*payments
	})
	if perPayment := (after - before) / (payments + 10); perPayment > each {
		t.Errorf("%d rows were read for a payment, want at most %d", perPayment, each)
	}
}
