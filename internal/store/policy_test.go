package store_test

import (
	"context"
	"slices"
	"testing"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/routing"
	"github.com/hapaxpay/hapax/internal/store"
)

func TestAMerchantsPolicy(t *testing.T) {
	sh := newShop(t)
	other, _ := sh.addMerchant()
	if p, found, err := sh.s.PolicyOf(t.Context(), sh.merchant); err != nil || !found || p != (flow.Policy{Merchant: sh.merchant}) {
		t.Errorf("at first %+v, %v, %v", p, found, err)
	}
	want := flow.Policy{Merchant: sh.merchant, CancelCode: true, AutoCompensate: true}
	if found, err := sh.s.SetPolicy(t.Context(), want); err != nil || !found {
		t.Fatalf("set: %v, %v", found, err)
	}
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		got, err := tx.Policies(ctx, []id.ID{other, sh.merchant, newID()})
		if !slices.Equal(got, []flow.Policy{want, {Merchant: other}}) {
			t.Errorf("read %+v", got)
		}
		return err
	})
	if found, err := sh.s.SetPolicy(t.Context(), flow.Policy{Merchant: sh.merchant}); err != nil || !found {
		t.Fatalf("set back: %v, %v", found, err)
	}
	if p, _, err := sh.s.PolicyOf(t.Context(), sh.merchant); err != nil || p.CancelCode || p.AutoCompensate {
		t.Errorf("set back %+v, %v", p, err)
	}
	nobody := newID()
	if found, err := sh.s.SetPolicy(t.Context(), flow.Policy{Merchant: nobody}); err != nil || found {
		t.Errorf("no such merchant: %v, %v", found, err)
	}
	if _, found, err := sh.s.PolicyOf(t.Context(), nobody); err != nil || found {
		t.Errorf("no such merchant: %v, %v", found, err)
	}
}

func TestAnAccountIsPausedAndResumed(t *testing.T) {
	sh := newShop(t)
	for _, paused := range []bool{true, false} {
		if found, err := sh.s.PauseAccount(t.Context(), sh.merchant, sh.account, paused); err != nil || !found {
			t.Fatalf("found %v, %v", found, err)
		}
		got, err := sh.s.AccountsOf(t.Context(), sh.merchant)
		if err != nil || len(got) != 1 || got[0].Paused != paused || string(got[0].Secrets) != "sealed" {
			t.Errorf("paused %v: %+v, %v", paused, got, err)
		}
	}
	if found, err := sh.s.PauseAccount(t.Context(), newID(), sh.account, true); err != nil || found {
		t.Errorf("another merchant's: %v, %v", found, err)
	}
}

func TestRoutingRules(t *testing.T) {
	sh := newShop(t)
	other, otherAccount := sh.addMerchant()
	last := routing.Rule{Merchant: sh.merchant, ID: newID(), Account: sh.account, Priority: 100, Weight: 1}
	first := routing.Rule{Merchant: sh.merchant, ID: newID(), Account: sh.account, Priority: 1, Weight: 10, Currency: "EUR", MethodPrefix: "pm_", Flow: "hosted"}
	second := first
	second.ID = newID()
	foreign := routing.Rule{Merchant: other, ID: newID(), Account: otherAccount, Priority: 5, Weight: 1}
	for _, r := range []routing.Rule{last, second, first, foreign} {
		if err := sh.s.AddRoutingRule(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		got, err := tx.RoutingRules(ctx, []id.ID{other, sh.merchant})
		if want := []routing.Rule{first, second, last, foreign}; !slices.Equal(got, want) {
			t.Errorf("read %+v, want %+v", got, want)
		}
		return err
	})
	stolen := last
	stolen.ID, stolen.Account = newID(), otherAccount
	if name, _ := store.Violation(sh.s.AddRoutingRule(t.Context(), stolen)); name != "routing_rule_merchant_id_account_id_fkey" {
		t.Errorf("another merchant's account: %q", name)
	}
	if found, err := sh.s.RemoveRoutingRule(t.Context(), other, first.ID); err != nil || found {
		t.Errorf("another merchant's: %v, %v", found, err)
	}
	if found, err := sh.s.RemoveRoutingRule(t.Context(), sh.merchant, first.ID); err != nil || !found {
		t.Errorf("removed: %v, %v", found, err)
	}
	if got, err := sh.s.RoutingRulesOf(t.Context(), sh.merchant); err != nil || !slices.Equal(got, []routing.Rule{second, last}) {
		t.Errorf("left %+v, %v", got, err)
	}
}
