package app

import (
	"crypto/sha256"
	"fmt"
	"sync"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/adapter"
	"github.com/hapaxpay/hapax/internal/auth"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
)

// maxAdapters bounds the adapters that are kept open: one for each account and version of its settings.
const maxAdapters = 4096

// acquirers makes adapters of accounts and keeps them, so that connections to an acquirer are kept too.
type acquirers struct {
	keys    *auth.Keyring
	options adapter.Options
	mu      sync.Mutex
	open    map[id.ID]opened
}

type opened struct {
	digest  [32]byte // of settings and secrets: a rotation makes a new adapter
	adapter acquirer.Adapter
}

func newAcquirers(keys *auth.Keyring, options adapter.Options) *acquirers {
	return &acquirers{keys: keys, options: options, open: map[id.ID]opened{}}
}

// For implements flow.Acquirers.
func (a *acquirers) For(account flow.Account) (acquirer.Adapter, error) {
	digest := sha256.Sum256(append(append([]byte(account.Adapter+"\x00"), account.Settings...), account.Secrets...))
	a.mu.Lock()
	defer a.mu.Unlock()
	if o, ok := a.open[account.ID]; ok && o.digest == digest {
		return o.adapter, nil
	}
	secrets, err := a.keys.Open(account.Merchant, account.ID, account.Secrets)
	if err != nil {
		return nil, fmt.Errorf("account %s: %w", account.ID, err)
	}
	made, err := adapter.Open(account.Adapter, account.Settings, secrets, a.options)
	if err != nil {
		return nil, fmt.Errorf("account %s: %w", account.ID, err)
	}
	if err := made.Contract().Validate(); err != nil {
		return nil, fmt.Errorf("account %s: %w", account.ID, err)
	}
	if len(a.open) >= maxAdapters {
		clear(a.open)
	}
	a.open[account.ID] = opened{digest, made}
	return made, nil
}
