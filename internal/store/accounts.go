package store

import (
	"context"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/store/dbgen"
)

// Accounts implements flow.Tx.
func (t *tx) Accounts(ctx context.Context, merchants []id.ID) ([]flow.Account, error) {
	if len(merchants) == 0 {
		return nil, nil
	}
	rows, err := t.q.Accounts(ctx, column(merchants, dbID))
	return column(rows, domainAccount), t.fail("accounts", err)
}

// UncomparedAccounts implements flow.Tx (PROTOCOL A8).
func (t *tx) UncomparedAccounts(ctx context.Context, epoch int64, limit int) ([]flow.Account, error) {
	rows, err := t.q.UncomparedAccounts(ctx, dbgen.UncomparedAccountsParams{Epoch: epoch, MaxRows: int32(limit)})
	return column(rows, domainAccount), t.fail("uncompared accounts", err)
}

func domainAccount(a dbgen.AcquirerAccount) flow.Account {
	return flow.Account{Merchant: domainID(a.MerchantID), ID: domainID(a.ID), Adapter: a.Adapter, Settings: a.Settings,
		Secrets: a.Secrets, Paused: a.Paused, Compared: a.ComparedEpoch}
}

// MarkCompared implements flow.Tx (PROTOCOL A8). The epoch's row is locked first, so that the last of several accounts
// that are compared at the same time sees the others.
func (t *tx) MarkCompared(ctx context.Context, account flow.Row, epoch int64) error {
	if _, err := t.q.LockEpoch(ctx); err != nil {
		return t.fail("mark compared: lock epoch", err)
	}
	n, err := t.q.MarkCompared(ctx, dbgen.MarkComparedParams{Epoch: epoch, MerchantID: dbID(account.Merchant), ID: dbID(account.ID)})
	if err == nil {
		err = affected(n, 1)
	}
	if err != nil {
		return t.fail("mark compared", err)
	}
	_, err = t.q.ReleaseEpoch(ctx, epoch)
	return t.fail("mark compared: end the hold", err)
}

// AddAccount adds an acquirer account of a merchant. Secrets must be sealed already.
func (s *Store) AddAccount(ctx context.Context, a flow.Account) error {
	return s.change(ctx, "add account", func(ctx context.Context, q *dbgen.Queries) error {
		return q.AddAccount(ctx, dbgen.AddAccountParams{MerchantID: dbID(a.Merchant), ID: dbID(a.ID), Adapter: a.Adapter,
			Settings: string(a.Settings), Secrets: append([]byte{}, a.Secrets...)}) // never NULL
	})
}

// ReplaceAccount writes settings, sealed secrets and whether the account is paused; false: there is no such account.
func (s *Store) ReplaceAccount(ctx context.Context, a flow.Account) (found bool, err error) {
	err = s.change(ctx, "replace account", func(ctx context.Context, q *dbgen.Queries) error {
		n, err := q.ReplaceAccount(ctx, dbgen.ReplaceAccountParams{Settings: string(a.Settings), Secrets: append([]byte{}, a.Secrets...), Paused: a.Paused,
			MerchantID: dbID(a.Merchant), ID: dbID(a.ID)})
		found = n == 1
		return err
	})
	return found, err
}

// PauseAccount stops or resumes the choice of an account for new payments; what is under way there goes on. False: there is
// no such account.
func (s *Store) PauseAccount(ctx context.Context, merchant, account id.ID, paused bool) (found bool, err error) {
	err = s.change(ctx, "pause account", func(ctx context.Context, q *dbgen.Queries) error {
		n, err := q.PauseAccount(ctx, dbgen.PauseAccountParams{Paused: paused, MerchantID: dbID(merchant), ID: dbID(account)})
		found = n == 1
		return err
	})
	return found, err
}

// AccountsOf reads the acquirer accounts of a merchant, oldest first.
func (s *Store) AccountsOf(ctx context.Context, merchant id.ID) (accounts []flow.Account, err error) {
	err = s.inTx(ctx, "accounts", s.read, func(ctx context.Context, t *tx) error {
		accounts, err = t.Accounts(ctx, []id.ID{merchant})
		return err
	})
	return accounts, err
}
