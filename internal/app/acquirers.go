package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/wire"
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

// contracts knows what each account's acquirer promises, and calls nobody: it is for whoever decides but does not pay,
// and so needs no secret of an acquirer.
type contracts struct{}

// For implements flow.Acquirers.
func (contracts) For(account flow.Account) (acquirer.Adapter, error) {
	c, err := adapter.ContractOf(account.Adapter, account.Settings)
	if err != nil {
		return nil, fmt.Errorf("account %s: %w", account.ID, err)
	}
	return silent{c}, nil
}

// silent has a contract and no voice.
type silent struct{ contract acquirer.Contract }

var errSilent = errors.New("this process calls no acquirer")

// Contract implements acquirer.Adapter.
func (s silent) Contract() acquirer.Contract { return s.contract }

// Prepare implements acquirer.Adapter.
func (silent) Prepare(acquirer.Request) (acquirer.Prepared, error) {
	return acquirer.Prepared{}, errSilent
}

// Send implements acquirer.Adapter. No byte leaves.
func (silent) Send(context.Context, acquirer.Prepared, *wire.Permit) acquirer.Reply {
	return acquirer.Reply{Outcome: acquirer.OutcomeNotSent, Class: "silent", Message: errSilent.Error()}
}

// Lookup implements acquirer.Adapter. It proves nothing.
func (silent) Lookup(context.Context, acquirer.Query) acquirer.Reply {
	return acquirer.Reply{Class: "silent", Message: errSilent.Error()}
}

// Movements implements acquirer.Adapter.
func (silent) Movements(context.Context, time.Time, time.Time) ([]acquirer.Movement, error) {
	return nil, errSilent
}
