package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/hapaxpay/hapax/internal/adapter"
	"github.com/hapaxpay/hapax/internal/auth"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/host"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/intake"
	"github.com/hapaxpay/hapax/internal/store"
)

// maxSettings bounds the settings of an account, in bytes.
const maxSettings = 64 << 10

type acquirerAccountCmd struct {
	Add    accountAddCmd    `cmd:"" help:"Add an account of a tenant at an acquirer."`
	List   accountListCmd   `cmd:"" help:"List the accounts of a tenant, with the contract of each."`
	Rotate accountRotateCmd `cmd:"" help:"Replace the secrets of an account, and its settings where they are given."`
	Pause  accountPauseCmd  `cmd:"" help:"Send no new payment to an account. What is under way there goes on."`
	Resume accountResumeCmd `cmd:"" help:"Send new payments to a paused account again."`
}

// secretsFrom says where secrets come from: never from the command line, which other users of the machine can read.
type secretsFrom struct {
	Secrets string `default:"-" help:"Where the adapter's secrets (JSON) are read from: - for standard input, @file, or env:NAME." placeholder:"-|@file|env:NAME"`
}

func (f secretsFrom) read(in io.Reader) ([]byte, error) {
	switch name, isEnv := strings.CutPrefix(f.Secrets, "env:"); {
	case isEnv:
		text, ok := os.LookupEnv(name)
		if !ok {
			return nil, fmt.Errorf("the environment has no %s", name)
		}
		return []byte(text), nil
	case f.Secrets == "-":
		return limited(in, auth.MaxSecret)
	case strings.HasPrefix(f.Secrets, "@"):
		return limitedFile(f.Secrets[1:], auth.MaxSecret)
	}
	return nil, errors.New("--secrets wants -, @file or env:NAME: other users of this machine can read a command line")
}

// settings reads JSON, or @file.
func settings(text string) ([]byte, error) {
	if path, isFile := strings.CutPrefix(text, "@"); isFile {
		return limitedFile(path, maxSettings)
	}
	return limited(strings.NewReader(text), maxSettings)
}

func limitedFile(path string, most int64) (raw []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return limited(f, most)
}

func limited(from io.Reader, most int64) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(from, most+1))
	if err == nil && int64(len(raw)) > most {
		err = fmt.Errorf("more than %d bytes", most)
	}
	return raw, err
}

type accountAddCmd struct {
	ofMerchant
	Adapter  string `required:"" help:"Name of the adapter; see hapax acquirers."`
	Settings string `default:"{}" help:"The adapter's settings: JSON, or @file."`
	secretsFrom
}

// Run checks the account by opening its adapter, and stores it.
func (c accountAddCmd) Run(t *tool) error {
	s, done, err := t.store()
	if err != nil {
		return err
	}
	defer done()
	m, err := c.find(t, s)
	if err != nil {
		return err
	}
	raw, err := settings(c.Settings)
	if err != nil {
		return fmt.Errorf("--settings: %w", err)
	}
	secrets, err := c.read(t.in)
	if err != nil {
		return fmt.Errorf("--secrets: %w", err)
	}
	a := flow.Account{Merchant: m.ID, ID: (&host.Runtime{}).NewID(), Adapter: c.Adapter, Settings: raw}
	if a.Secrets, err = t.seal(a, secrets); err != nil {
		return err
	}
	if err := s.AddAccount(t.ctx, a); err != nil {
		return err
	}
	webhooks := intake.Path(a.Merchant, a.ID)
	return t.tell(map[string]any{"ok": true, "id": a.ID.Text(id.Account), "merchant": m.ID.Text(id.Merchant), "adapter": a.Adapter, "webhooks": webhooks},
		a.ID.Text(id.Account)+" of "+m.Name+" at "+a.Adapter+"\nthe acquirer sends webhooks to "+webhooks+" of your API's public address")
}

// seal opens the adapter with these settings and secrets, holds its contract to its own rules, and seals the secrets.
func (t *tool) seal(a flow.Account, secrets []byte) ([]byte, error) {
	made, err := adapter.Open(a.Adapter, a.Settings, secrets, adapter.Options{Clock: &host.Runtime{}})
	if err != nil {
		return nil, err
	}
	if err := made.Contract().Validate(); err != nil {
		return nil, err
	}
	key, err := t.secretKey()
	if err != nil {
		return nil, err
	}
	ring, err := auth.ParseKeyring(key)
	if err != nil {
		return nil, err
	}
	return ring.Seal(a.Merchant, a.ID, secrets)
}

type accountRotateCmd struct {
	ofMerchant
	Account  string `arg:"" help:"The account: aa_…"`
	Settings string `help:"New settings: JSON, or @file. Empty: as they are."`
	secretsFrom
}

// Run replaces what the account says about itself.
func (c accountRotateCmd) Run(t *tool) error {
	account, err := parseID(id.Account, c.Account)
	if err != nil {
		return err
	}
	s, done, err := t.store()
	if err != nil {
		return err
	}
	defer done()
	m, err := c.find(t, s)
	if err != nil {
		return err
	}
	a, err := accountOf(t, s, m, account)
	if err != nil {
		return err
	}
	if c.Settings != "" {
		if a.Settings, err = settings(c.Settings); err != nil {
			return fmt.Errorf("--settings: %w", err)
		}
	}
	secrets, err := c.read(t.in)
	if err != nil {
		return fmt.Errorf("--secrets: %w", err)
	}
	if a.Secrets, err = t.seal(a, secrets); err != nil {
		return err
	}
	if _, err := s.ReplaceAccount(t.ctx, a); err != nil {
		return err
	}
	return t.tell(map[string]any{"ok": true, "id": c.Account}, c.Account+" has new secrets; replicas use them from their next call on")
}

type accountPauseCmd struct {
	ofMerchant
	Account string `arg:"" help:"The account: aa_…"`
}

// Run pauses the account.
func (c accountPauseCmd) Run(t *tool) error { return t.pauseAccount(c.ofMerchant, c.Account, true) }

type accountResumeCmd struct {
	ofMerchant
	Account string `arg:"" help:"The account: aa_…"`
}

// Run resumes the account.
func (c accountResumeCmd) Run(t *tool) error { return t.pauseAccount(c.ofMerchant, c.Account, false) }

func (t *tool) pauseAccount(of ofMerchant, text string, paused bool) error {
	account, err := parseID(id.Account, text)
	if err != nil {
		return err
	}
	s, done, err := t.store()
	if err != nil {
		return err
	}
	defer done()
	m, err := of.find(t, s)
	if err != nil {
		return err
	}
	found, err := s.PauseAccount(t.ctx, m.ID, account, paused)
	if err == nil && !found {
		err = noAccount(m, account)
	}
	if err != nil {
		return err
	}
	state := text + " takes new payments again"
	if paused {
		state = text + " takes no new payments; what is under way there goes on"
	}
	return t.tell(map[string]any{"ok": true, "id": text, "paused": paused}, state)
}

func noAccount(m store.Merchant, account id.ID) error {
	return fmt.Errorf("%s has no account %s", m.Name, account.Text(id.Account))
}

func accountOf(t *tool, s *store.Store, m store.Merchant, account id.ID) (flow.Account, error) {
	all, err := s.AccountsOf(t.ctx, m.ID)
	if err != nil {
		return flow.Account{}, err
	}
	for _, a := range all {
		if a.ID == account {
			return a, nil
		}
	}
	return flow.Account{}, noAccount(m, account)
}

type accountListCmd struct{ ofMerchant }

// Run lists accounts, without their secrets.
func (c accountListCmd) Run(t *tool) error {
	s, done, err := t.store()
	if err != nil {
		return err
	}
	defer done()
	m, err := c.find(t, s)
	if err != nil {
		return err
	}
	all, err := s.AccountsOf(t.ctx, m.ID)
	if err != nil {
		return err
	}
	objects := []map[string]any{}
	var rows [][]string
	for _, a := range all {
		name, state, promise := a.ID.Text(id.Account), "active", ""
		if a.Paused {
			state = "paused"
		}
		object := map[string]any{"id": name, "adapter": a.Adapter, "paused": a.Paused, "settings": rawJSON(a.Settings),
			"webhooks": intake.Path(a.Merchant, a.ID)}
		if contract, err := adapter.ContractOf(a.Adapter, a.Settings); err != nil {
			object["error"], promise = err.Error(), err.Error()
		} else {
			object["contract"], promise = contractObject(contract), contractText(contract)
		}
		objects = append(objects, object)
		rows = append(rows, []string{name, a.Adapter, state, intake.Path(a.Merchant, a.ID), promise})
	}
	return t.tellList("acquirer_accounts", objects, "ACCOUNT\tADAPTER\tSTATE\tWEBHOOKS\tCONTRACT", rows)
}
