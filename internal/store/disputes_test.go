package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/store"
	"github.com/hapaxpay/hapax/money"
)

func TestDisputesAreKnownByTheAcquirersID(t *testing.T) {
	sh := newShop(t)
	st, other := sh.start("order-1"), sh.start("order-2")
	d := payment.Dispute{Merchant: sh.merchant, ID: newID(), Intent: st.intent.ID, Payment: st.payment.ID, Account: sh.account, Reference: "cb_1",
		Amount: money.Must(500, "EUR"), Status: payment.DisputeOpened}
	second := d
	second.ID, second.Reference, second.Status, second.Aside, second.DecidedAt = newID(), "cb_2", payment.DisputeLost, true, time.Now()
	second.OpenedAt = second.DecidedAt.Add(-time.Hour)
	save := func(rows ...payment.Dispute) error {
		return sh.s.InTx(t.Context(), "save", func(ctx context.Context, tx flow.Tx) error { return tx.SaveDisputes(ctx, rows) })
	}
	read := func() []payment.Dispute {
		t.Helper()
		all, err := sh.s.DisputesOfPayment(t.Context(), sh.merchant, st.payment.ID)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if err := save(second, d); err != nil {
		t.Fatal(err)
	}
	got := read()
	sameRows(t, "disputes", got, []payment.Dispute{d, second}, "OpenedAt", "DecidedAt")
	if got[0].OpenedAt.IsZero() || !got[0].DecidedAt.IsZero() || got[1].DecidedAt.Sub(got[1].OpenedAt) != time.Hour {
		t.Errorf("times %+v", got)
	}
	won := d
	won.ID, won.Status, won.Amount = newID(), payment.DisputeWon, money.Must(1, "EUR") // the id and the amount stay
	third := d
	third.ID, third.Reference = newID(), "cb_3"
	if err := save(won, third); err != nil {
		t.Fatal(err)
	}
	if got = read(); len(got) != 3 || got[0].ID != d.ID || got[0].Status != payment.DisputeWon || got[0].DecidedAt.IsZero() || got[0].Amount != d.Amount {
		t.Errorf("decided %+v", got)
	}
	foreign := d
	foreign.ID, foreign.Intent, foreign.Payment = newID(), other.intent.ID, other.payment.ID
	if err := save(foreign); !errors.Is(err, operation.ErrNothingDone) {
		t.Errorf("of another payment: %v", err)
	}
	if all, err := sh.s.DisputesOfPayment(t.Context(), newID(), st.payment.ID); err != nil || len(all) != 0 {
		t.Errorf("another merchant's: %+v, %v", all, err)
	}
}

// X1: the highest ordinal counts, tries only grow, and a code is consumed once.
func TestACancelCodeIsConsumedOnce(t *testing.T) {
	sh := newShop(t)
	st := sh.start("order-1")
	code := func(ordinal int, key string) payment.CancelCode {
		return payment.CancelCode{Merchant: sh.merchant, Payment: st.payment.ID, Ordinal: ordinal, Amount: 1500, ExpiresAt: time.Now().Add(time.Minute),
			By: payment.Command{Kind: "cancel_code", Key: key, Fingerprint: [32]byte{6}, FPVersion: 1}}
	}
	in := func(f func(ctx context.Context, tx flow.Tx) error) error { return sh.s.InTx(t.Context(), "code", f) }
	issue := func(c payment.CancelCode) error {
		return in(func(ctx context.Context, tx flow.Tx) error { return tx.InsertCancelCode(ctx, c) })
	}
	save := func(c payment.CancelCode) error {
		return in(func(ctx context.Context, tx flow.Tx) error { return tx.SaveCancelCode(ctx, c) })
	}
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		if _, found, err := tx.LatestCancelCode(ctx, row(st.payment)); found || err != nil {
			t.Errorf("before any was issued: %v, %v", found, err)
		}
		return nil
	})
	first, second := code(1, "k-1"), code(2, "k-2")
	if err := errors.Join(issue(first), issue(second)); err != nil {
		t.Fatal(err)
	}
	for _, twin := range []payment.CancelCode{code(2, "k-3"), code(3, "k-1")} {
		if name, ok := store.Violation(issue(twin)); !ok {
			t.Errorf("ordinal %d, key %s: %q", twin.Ordinal, twin.By.Key, name)
		}
	}
	latest := func() (c payment.CancelCode) {
		t.Helper()
		sh.tx(func(ctx context.Context, tx flow.Tx) (err error) {
			var found bool
			if c, found, err = tx.LatestCancelCode(ctx, row(st.payment)); !found {
				t.Error("not found")
			}
			return err
		})
		return c
	}
	sameRows(t, "latest", latest(), second, "CreatedAt")
	second.Tries = 2
	if err := save(second); err != nil || latest().Tries != 2 {
		t.Errorf("a counted try: %v, %+v", err, latest())
	}
	fewer, more := second, second
	fewer.Tries, more.Tries = 1, 6
	if err := save(fewer); !errors.Is(err, operation.ErrNothingDone) {
		t.Errorf("a try was taken back: %v", err)
	}
	if name, _ := store.Violation(save(more)); name != "cancel_code_tries_check" {
		t.Errorf("more tries than are allowed: %q", name)
	}
	second.ConsumedAt = time.Now()
	if err := save(second); err != nil || latest().ConsumedAt.IsZero() {
		t.Errorf("consumed: %v, %+v", err, latest())
	}
	if err := save(second); !errors.Is(err, operation.ErrNothingDone) {
		t.Errorf("consumed twice: %v", err)
	}
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		got, found, err := tx.CancelCodeByCommand(ctx, flow.CommandRef{Merchant: sh.merchant, Kind: "cancel_code", Key: "k-1"})
		if !found {
			t.Error("not found by its command")
		}
		sameRows(t, "by command", got, first, "CreatedAt")
		if _, found, e := tx.CancelCodeByCommand(ctx, flow.CommandRef{Merchant: newID(), Kind: "cancel_code", Key: "k-1"}); found || e != nil {
			t.Errorf("another merchant's: %v, %v", found, e)
		}
		return err
	})
}
