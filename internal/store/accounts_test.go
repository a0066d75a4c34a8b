package store_test

import (
	"context"
	"testing"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
)

func TestAccounts(t *testing.T) {
	sh := newShop(t)
	other, otherAccount := sh.addMerchant()
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		got, err := tx.Accounts(ctx, []id.ID{other, sh.merchant, newID()})
		if err == nil && (len(got) != 2 || got[0].Merchant != sh.merchant || got[1].ID != otherAccount || got[0].Adapter != "sandbox" ||
			string(got[0].Secrets) != "sealed" || string(got[0].Settings) != `{"url": "x"}` || got[0].Paused || got[0].Compared != 0) {
			t.Errorf("read %+v", got)
		}
		return err
	})
	changed := flow.Account{Merchant: sh.merchant, ID: sh.account, Settings: []byte(`{"url":"y"}`), Secrets: []byte("new"), Paused: true}
	if found, err := sh.s.ReplaceAccount(t.Context(), changed); err != nil || !found {
		t.Fatalf("replaced: %v, %v", found, err)
	}
	got, err := sh.s.AccountsOf(t.Context(), sh.merchant)
	if err != nil || len(got) != 1 || string(got[0].Secrets) != "new" || !got[0].Paused || string(got[0].Settings) != `{"url": "y"}` {
		t.Errorf("read %+v, %v", got, err)
	}
	changed.Merchant = other
	if found, err := sh.s.ReplaceAccount(t.Context(), changed); err != nil || found {
		t.Errorf("another merchant's: %v, %v", found, err)
	}
}

func TestTheHoldEndsWithTheLastAccount(t *testing.T) {
	sh := newShop(t)
	other, otherAccount := sh.addMerchant()
	third, paused := sh.addMerchant()
	if _, err := sh.s.ReplaceAccount(t.Context(), flow.Account{Merchant: third, ID: paused, Settings: []byte("{}"), Paused: true}); err != nil {
		t.Fatal(err)
	}
	sh.owner("UPDATE database_epoch SET system_identifier = '1'")
	epoch := sh.mustGuard().Epoch
	uncompared := func() (n int) {
		sh.tx(func(ctx context.Context, tx flow.Tx) error {
			got, err := tx.UncomparedAccounts(ctx, epoch, 10)
			n = len(got)
			return err
		})
		return n
	}
	if n := uncompared(); n != 3 { // a paused one may have moved money before
		t.Errorf("%d accounts to compare, want 3", n)
	}
	mark := func(merchant, account id.ID, epoch int64) error {
		return sh.s.InTx(t.Context(), "mark", func(ctx context.Context, tx flow.Tx) error {
			return tx.MarkCompared(ctx, flow.Row{Merchant: merchant, ID: account}, epoch)
		})
	}
	if err := mark(sh.merchant, sh.account, epoch-1); err != nil { // of an earlier epoch: ends nothing
		t.Fatal(err)
	}
	if err := mark(sh.merchant, newID(), epoch); err == nil {
		t.Error("an account that does not exist was compared")
	}
	if !sh.mustGuard().Held {
		t.Fatal("the hold ended early")
	}
	if err := mark(third, paused, epoch); err != nil {
		t.Fatal(err)
	}
	// Both at once: whoever comes second must see the first.
	done := make(chan error, 2)
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		if err := tx.MarkCompared(ctx, flow.Row{Merchant: sh.merchant, ID: sh.account}, epoch); err != nil {
			return err
		}
		go func() { done <- mark(other, otherAccount, epoch) }()
		sh.db.WaitBlocked(t, 1)
		return nil
	})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if g := sh.mustGuard(); g.Held || g.Epoch != epoch || uncompared() != 0 {
		t.Errorf("after the last account %+v", g)
	}
}
