// Package adapter knows every adapter by its name.
//
// Owns the list of adapters and the making of one from an account's settings and secrets.
// Never holds an adapter, a secret or a connection after Open has returned it.
// Read next: the folder of an adapter, then acquirer/acquirertest, which every adapter must pass.
package adapter

import (
	"context"
	"fmt"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/adapter/sandbox"
)

// Options say how an adapter reaches its acquirer.
type Options struct {
	// Doer carries the calls. When it is nil, Open makes a wire.Client for the address in the settings, and the other
	// fields go into its configuration: zero values take the defaults of wire.Config.
	Doer                                      wire.Doer
	Clock                                     wire.Clock
	Hook                                      func(ctx context.Context, point string)
	ConnectTimeout, WriteTimeout, ReadTimeout time.Duration
}

func (o Options) doer(url string) (wire.Doer, error) {
	if o.Doer != nil {
		return o.Doer, nil
	}
	client, err := wire.New(wire.Config{BaseURL: url, Clock: o.Clock, Hook: o.Hook,
		ConnectTimeout: o.ConnectTimeout, WriteTimeout: o.WriteTimeout, ReadTimeout: o.ReadTimeout})
	if err != nil {
		return nil, err // not in one line: a nil *Client is no nil Doer
	}
	return client, nil
}

// Open makes the adapter of an account from its name, its settings (JSON) and its decrypted secrets (JSON). It opens no
// connection. It fails on an unknown name and on settings or secrets that the adapter refuses; no error holds a secret.
func Open(name string, settings, secrets []byte, o Options) (acquirer.Adapter, error) {
	switch name {
	case sandbox.Name:
		return openSandbox(settings, secrets, o)
	}
	return nil, unknown(name)
}

// ContractOf gives the contract of an account from its adapter's name and its settings, without its secrets: what a
// decision needs to know, and nothing that could call out. It fails as Open does.
func ContractOf(name string, settings []byte) (acquirer.Contract, error) {
	switch name {
	case sandbox.Name:
		s, err := sandbox.ParseSettings(settings)
		return s.Contract, err
	}
	return acquirer.Contract{}, unknown(name)
}

func unknown(name string) error { return fmt.Errorf("adapter: no adapter is called %q", name) }

// Known gives the contract that each adapter declares when its settings change nothing, in the order of names.
func Known() []acquirer.Contract {
	return []acquirer.Contract{sandbox.DefaultContract()}
}

func openSandbox(settings, secrets []byte, o Options) (acquirer.Adapter, error) {
	s, err := sandbox.ParseSettings(settings)
	if err != nil {
		return nil, err
	}
	doer, err := o.doer(s.URL)
	if err != nil {
		return nil, err
	}
	a, err := sandbox.New(s, secrets, doer)
	if err != nil {
		return nil, err
	}
	return a, nil
}
