package main

import (
	"context"
	"errors"

	"github.com/hapaxpay/hapax/internal/auth"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/host"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/store"
)

// shopName is the merchant that dev makes.
const shopName = "demo shop"

// ensureShop makes what is missing of the first merchant, its API key and its sandbox account, and points the account
// at the sandbox of this start. What exists stays, so that payments of earlier starts are still there.
func (t *tool) ensureShop(s *store.Store, mem *remembered, settings, secrets []byte) (a flow.Account, err error) {
	m, err := t.shop(s, mem)
	if err != nil {
		return a, err
	}
	if err := t.shopKey(s, mem, m); err != nil {
		return a, err
	}
	accounts, err := s.AccountsOf(t.ctx, m.ID)
	if err != nil {
		return a, err
	}
	a = flow.Account{Merchant: m.ID, ID: (&host.Runtime{}).NewID(), Adapter: "sandbox"}
	write := s.AddAccount
	if len(accounts) > 0 {
		a = accounts[0]
		write = func(ctx context.Context, a flow.Account) error {
			_, err := s.ReplaceAccount(ctx, a)
			return err
		}
	}
	a.Settings = settings
	if a.Secrets, err = t.seal(a, secrets); err != nil {
		return a, err
	}
	return a, write(t.ctx, a)
}

// shop finds the merchant of earlier starts, or makes it.
func (t *tool) shop(s *store.Store, mem *remembered) (found store.Merchant, err error) {
	err = eachMerchant(t, s, func(m store.Merchant) (bool, error) {
		if m.ID.Text(id.Merchant) == mem.Merchant {
			found = m
		}
		return !found.ID.IsZero(), nil
	})
	if err != nil || !found.ID.IsZero() {
		return found, err
	}
	found = tenants(shopName, string(auth.Test), 0)[0]
	mem.Merchant = found.ID.Text(id.Merchant)
	return found, s.CreateMerchant(t.ctx, found)
}

// shopKey keeps the key of earlier starts while it is good, or makes one.
func (t *tool) shopKey(s *store.Store, mem *remembered, m store.Merchant) error {
	key, err := auth.Authenticate(t.ctx, s, "Bearer "+mem.APIKey)
	if err == nil && key.Merchant == m.ID {
		return nil
	}
	if err != nil && !errors.Is(err, auth.ErrUnauthenticated) {
		return err
	}
	row, text, hash := newKey(m)
	mem.APIKey = text
	return s.AddAPIKey(t.ctx, m.ID, row, hash, "made by hapax dev")
}
