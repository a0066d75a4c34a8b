package store_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/store"
)

func TestOneLivePaymentPerIntent(t *testing.T) {
	sh := newShop(t)
	a := sh.start("order-a")
	b := sh.intent("order-b")
	sh.tx(func(ctx context.Context, tx flow.Tx) error { return tx.InsertIntents(ctx, []payment.Intent{b}) })
	second := sh.payment(a.intent, 2)
	bFirst, bSecond := sh.payment(b, 1), sh.payment(b, 2)
	var fresh []bool
	sh.tx(func(ctx context.Context, tx flow.Tx) (err error) {
		fresh, err = tx.InsertPayments(ctx, []payment.Payment{second, bFirst, bSecond})
		return err
	})
	if want := []bool{false, true, false}; !slices.Equal(fresh, want) {
		t.Errorf("got %v, want %v", fresh, want)
	}
	var locked []payment.Payment
	sh.tx(func(ctx context.Context, tx flow.Tx) (err error) {
		locked, err = tx.LockPayments(ctx, []flow.Row{row(bFirst), row(second), row(a.payment)})
		return err
	})
	if len(locked) != 2 || locked[0].ID != a.payment.ID {
		t.Fatalf("locked %+v", locked)
	}
	sameRows(t, "payment", locked[0], a.payment, "CreatedAt", "UpdatedAt")
}

func TestOtherViolationsRaise(t *testing.T) {
	sh := newShop(t)
	st := sh.start("order-a")
	other := sh.intent("order-b")
	sh.tx(func(ctx context.Context, tx flow.Tx) error { return tx.InsertIntents(ctx, []payment.Intent{other}) })
	for name, c := range map[string]struct {
		change func(*payment.Payment)
		want   string
	}{
		"the same command twice": {func(p *payment.Payment) { p.By = st.payment.By }, "payment_merchant_id_kind_idempotency_key_key"},
		"the same acquirer key":  {func(p *payment.Payment) { p.AcquirerKey = st.payment.AcquirerKey }, "payment_merchant_id_acquirer_key_key"},
		"the same id":            {func(p *payment.Payment) { p.ID = st.payment.ID }, "payment_pkey"},
		"no such account":        {func(p *payment.Payment) { p.Account = newID() }, "payment_merchant_id_account_id_fkey"},
		"no such intent":         {func(p *payment.Payment) { p.Intent = newID() }, "payment_merchant_id_intent_id_fkey"},
	} {
		p := sh.payment(other, 1)
		c.change(&p)
		err := sh.s.InTx(t.Context(), "insert", func(ctx context.Context, tx flow.Tx) error {
			_, err := tx.InsertPayments(ctx, []payment.Payment{p})
			return err
		})
		if got, ok := store.Violation(err); !ok || got != c.want || !errors.Is(err, operation.ErrNothingDone) {
			t.Errorf("%s: %v, constraint %q", name, err, got)
		}
	}
}

func TestSavePaymentsNamesWhatItExpects(t *testing.T) {
	sh := newShop(t)
	st := sh.start("order-1")
	paid := st.payment
	paid.Status, paid.Captured, paid.AcquirerReference, paid.Version = payment.Paid, 1500, "ch_1", 2
	save := func(c flow.PaymentChange) error {
		return sh.s.InTx(t.Context(), "save", func(ctx context.Context, tx flow.Tx) error { return tx.SavePayments(ctx, []flow.PaymentChange{c}) })
	}
	for name, c := range map[string]flow.PaymentChange{
		"another state":   {ExpectedStatus: payment.Unknown, ExpectedVersion: 1, New: paid},
		"another version": {ExpectedStatus: payment.Pending, ExpectedVersion: 2, New: paid},
	} {
		if err := save(c); !errors.Is(err, operation.ErrNothingDone) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := save(flow.PaymentChange{ExpectedStatus: payment.Pending, ExpectedVersion: 1, New: paid}); err != nil {
		t.Fatal(err)
	}
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		got, err := tx.ReadPayments(ctx, []flow.Row{row(st.payment), {Merchant: sh.merchant, ID: newID()}})
		if err != nil {
			return err
		}
		if len(got) != 1 {
			t.Fatalf("read %+v", got)
		}
		sameRows(t, "payment", got[0].Payment, paid, "CreatedAt", "UpdatedAt")
		sameRows(t, "intent", got[0].Intent, st.intent, "By", "CreatedAt", "UpdatedAt")
		byKey, err := tx.PaymentsByAcquirerKey(ctx, sh.merchant, []string{"other", paid.AcquirerKey})
		if err == nil && (len(byKey) != 1 || byKey[0].ID != paid.ID) {
			t.Errorf("by acquirer key %+v", byKey)
		}
		if err != nil {
			return err
		}
		byCommand, err := tx.PaymentsByCommand(ctx, []flow.CommandRef{{Merchant: sh.merchant, Kind: paid.By.Kind, Key: paid.By.Key}, {Merchant: sh.merchant, Kind: "capture", Key: paid.By.Key}})
		if err == nil && (len(byCommand) != 1 || byCommand[0].By != paid.By) {
			t.Errorf("by command %+v", byCommand)
		}
		return err
	})
}

// A page, a hold and what becomes of it are kept as they are.
func TestAPaymentKeepsAllItSays(t *testing.T) {
	sh := newShop(t)
	intent := sh.intent("order-1")
	p := sh.payment(intent, 1)
	p.Flow, p.Capture, p.Method, p.ReturnURL = payment.Hosted, payment.CaptureManual, "", "https://shop.example/back"
	held := sh.payment(sh.intent("order-2"), 1)
	held.Status, held.Authorized, held.Session, held.RedirectURL, held.AnsweredStatus = payment.Authorized, 1000, "s_9", "https://page.example/9", 201
	held.ExpiresAt, held.DueAt = time.Now().Add(time.Hour), time.Now().Add(time.Hour)
	second := sh.intent("order-2")
	second.ID = held.Intent
	read := func(want payment.Payment) {
		t.Helper()
		sh.tx(func(ctx context.Context, tx flow.Tx) error {
			got, err := tx.LockPayments(ctx, []flow.Row{row(want)})
			sameRows(t, "payment", got, []payment.Payment{want}, "CreatedAt", "UpdatedAt")
			return err
		})
	}
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		if err := tx.InsertIntents(ctx, []payment.Intent{intent, second}); err != nil {
			return err
		}
		fresh, err := tx.InsertPayments(ctx, []payment.Payment{p, held})
		if !slices.Equal(fresh, []bool{true, true}) {
			t.Errorf("fresh %v", fresh)
		}
		return err
	})
	read(p)
	read(held)
	p.Status, p.Version, p.Session, p.RedirectURL, p.ExpiresAt, p.AcquirerReference = payment.Authorized, 2, "s_1", "https://page.example/1", time.Now(), "ch_1"
	p.Authorized, p.Captured, p.Capturing, p.Refunded, p.Refunding, p.Disputed = 1400, 1000, 300, 200, 300, 400
	p.Dispute, p.AnsweredStatus, p.Early, p.DueAt = payment.DisputeOpened, 201, true, time.Now()
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		return tx.SavePayments(ctx, []flow.PaymentChange{{ExpectedStatus: payment.Pending, ExpectedVersion: 1, New: p}})
	})
	read(p)
}

// Money that is taken changes no indexed column of a payment, so that the update stays on its page.
func TestSuccessTouchesNoIndex(t *testing.T) {
	sh := newShop(t)
	st := sh.start("order-1")
	paid := st.payment
	paid.Status, paid.Captured, paid.AcquirerReference, paid.Version = payment.Paid, 1500, "ch_1", 2
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		return tx.SavePayments(ctx, []flow.PaymentChange{{ExpectedStatus: payment.Pending, ExpectedVersion: 1, New: paid}})
	})
	sh.s.Close() // a session counts at its end
	pool := sh.db.OwnerPool(t)
	var hot int64
	dbtest.Eventually(t, func() bool {
		updated := int64(0)
		err := pool.QueryRow(t.Context(), "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'payment'").Scan(&updated, &hot)
		return err == nil && updated == 1
	})
	if hot != 1 {
		t.Error("the update of a success was not a heap-only one")
	}
}

func TestDuePaymentsMoveOn(t *testing.T) {
	for name, distributed := range map[string]bool{"plain": false, "distributed": true} {
		t.Run(name, func(t *testing.T) {
			sh := newShop(t, func(c *store.Config) { c.Distributed = distributed })
			var all []started
			for _, reference := range []string{"a", "b", "c"} {
				all = append(all, sh.start(reference))
			}
			for i, st := range all {
				refused := st.payment
				refused.Status, refused.RefusedAt, refused.Version = payment.Declined, time.Now(), 2
				refused.Failure.Code, refused.DueAt = "declined", time.Now().Add(-time.Duration(i+1)*time.Minute)
				sh.tx(func(ctx context.Context, tx flow.Tx) error {
					return tx.SavePayments(ctx, []flow.PaymentChange{{ExpectedStatus: payment.Pending, ExpectedVersion: 1, New: refused}})
				})
			}
			sh.start("not-due")
			due := func(limit, perMerchant int) (keys []string) {
				sh.tx(func(ctx context.Context, tx flow.Tx) error {
					keys = nil
					rows, err := tx.DuePayments(ctx, limit, perMerchant, time.Hour)
					for _, p := range rows {
						keys = append(keys, p.By.Key)
					}
					return err
				})
				return keys
			}
			if got := due(10, 2); !slices.Equal(got, []string{"p-c-1", "p-b-1"}) {
				t.Errorf("first %v", got)
			}
			if got := due(10, 2); !slices.Equal(got, []string{"p-a-1"}) {
				t.Errorf("then %v", got)
			}
			if got := due(10, 2); len(got) != 0 {
				t.Errorf("postponed ones came again: %v", got)
			}
			sh.age(2 * time.Hour)
			if got := due(2, 10); len(got) != 2 {
				t.Errorf("after the postponement %v", got)
			}
		})
	}
}

// A command that joined a live payment is known by that, with or without an operation (PROTOCOL K8).
func TestJoinedCommandsOutliveTheirOperation(t *testing.T) {
	sh := newShop(t)
	st := sh.start("order-1")
	joined := flow.Joined{Merchant: sh.merchant, Payment: st.payment.ID,
		By: payment.Command{Kind: "create_payment", Key: "second", Fingerprint: [32]byte{9}, FPVersion: 2}}
	third, other := joined, joined
	third.By.Key, other.By.Fingerprint = "a third", [32]byte{10}
	for _, rows := range [][]flow.Joined{{joined, third}, {other}, nil} { // what is there stays as it is
		sh.tx(func(ctx context.Context, tx flow.Tx) error { return tx.InsertJoined(ctx, rows) })
	}
	ops := sh.claim("second")
	sh.owner("UPDATE operation SET state = 'completed', answer_status = 201, completed_at = now(), expires_at = now() - interval '1 hour' WHERE idempotency_key = 'second'")
	if n, err := sh.s.PurgeExpired(t.Context(), 10); err != nil || n != 1 {
		t.Fatalf("purged %d, %v", n, err)
	}
	if _, found, err := sh.s.OperationByRef(t.Context(), ops[0].Ref); found || err != nil {
		t.Fatalf("the operation: %v, %v", found, err)
	}
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		ref := func(merchant id.ID, kind, key string) flow.CommandRef {
			return flow.CommandRef{Merchant: merchant, Kind: kind, Key: key}
		}
		got, err := tx.PaymentsByCommand(ctx, []flow.CommandRef{ref(sh.merchant, "create_payment", "second"), ref(sh.merchant, "create_payment", st.payment.By.Key),
			ref(sh.merchant, "capture", "a third"), ref(newID(), "create_payment", "second"), ref(sh.merchant, "create_payment", "unknown")})
		if err != nil {
			return err
		}
		slices.SortFunc(got, func(a, b payment.Payment) int { return strings.Compare(a.By.Key, b.By.Key) })
		if len(got) != 2 {
			t.Fatalf("found %+v", got)
		}
		sameRows(t, "payment of its own command", got[0], st.payment, "CreatedAt", "UpdatedAt")
		want := st.payment
		want.By = joined.By
		sameRows(t, "payment of a joined command", got[1], want, "CreatedAt", "UpdatedAt")
		return nil
	})
	found, err := sh.s.Payments(t.Context(), sh.merchant, store.PaymentFilter{IdempotencyKey: "second"}, store.Page{Limit: 10})
	if err != nil || len(found) != 1 || found[0].Payment.ID != st.payment.ID {
		t.Errorf("by the joined key %+v, %v", found, err)
	}
}
