package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/hapaxpay/hapax/internal/app"
	"github.com/hapaxpay/hapax/internal/devdb"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/intake"
	"github.com/hapaxpay/hapax/internal/sandbox"
	"github.com/hapaxpay/hapax/internal/store"
)

type devCmd struct {
	SandboxAddr string `default:"127.0.0.1:8090" help:"Address of the sandbox acquirer; a free port is taken where it is in use."`
}

// Run starts everything on this machine and prints how to make a payment.
func (c devCmd) Run(t *tool) error {
	if t.cfg.DatabaseURL != "" {
		return errors.New("dev starts a private database; with HAPAX_DATABASE_URL use `hapax serve`")
	}
	dir, err := t.dataDir()
	if err != nil {
		return err
	}
	t.quiet()
	if err := c.run(t, dir); err != nil || t.json {
		return err
	}
	_, err = fmt.Fprintln(t.out, "stopped; data kept in "+dir)
	return err
}

func (c devCmd) run(t *tool, dir string) error {
	server, err := t.private()
	if err != nil {
		return err
	}
	unlock, err := t.lockDev(dir)
	if err != nil {
		t.stop(server)
		return err
	}
	defer unlock()
	defer t.stop(server)
	if err := t.migratePrivate(server); err != nil {
		return err
	}
	mem, err := recall(dir)
	if err != nil {
		return err
	}
	acquirer, err := t.devSandbox(mem, c.SandboxAddr, dir)
	if err != nil {
		return err
	}
	defer acquirer.stop()
	if t.cfg.SecretKey == "" {
		t.cfg.SecretKey = mem.SecretKey
	}
	t.cfg.WebhookAllowPrivate = true // who develops a receiver has it on this machine
	replica, err := t.replica(server.URL(devdb.RoleService, devdb.Database), app.Options{Dev: true})
	if err != nil {
		return err
	}
	account, err := t.seed(replica.Store, mem, acquirer.url)
	if err != nil {
		return errors.Join(err, t.close(replica))
	}
	l, err := t.openPort(mem, "the API", "HAPAX_LISTEN", t.cfg.Listen)
	if err := errors.Join(err, keep(dir, mem)); err != nil {
		return errors.Join(err, t.close(replica))
	}
	hooks := sandbox.WebhooksTo("http://"+l.Addr().String()+intake.Path(account.Merchant, account.ID), mem.HookSecret)
	if err := (&sandbox.Client{Base: acquirer.url}).SetWebhooks(t.ctx, hooks); err != nil {
		return errors.Join(err, l.Close(), t.close(replica))
	}
	if err := t.welcome("http://"+l.Addr().String(), acquirer.url, mem.APIKey, dir); err != nil {
		return errors.Join(err, t.close(replica))
	}
	return t.runReplica(replica, l, true)
}

// devSandbox starts the sandbox acquirer, and remembers where it listens.
func (t *tool) devSandbox(mem *remembered, wanted, dir string) (*sandboxProcess, error) {
	l, err := t.openPort(mem, "the sandbox acquirer", "--sandbox-addr", wanted)
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil { // for the other process
		return nil, err
	}
	p, err := t.startSandbox(addr, filepath.Join(dir, "sandbox"), mem.SandboxSecret)
	if err == nil {
		mem.SandboxURL = p.url
	}
	return p, err
}

func (t *tool) welcome(api, acquirer, key, dir string) error {
	if t.json {
		return t.print(map[string]any{"ok": true, "address": api, "sandbox": acquirer, "api_key": key, "data_dir": dir})
	}
	_, err := fmt.Fprintf(t.out, `
Hapax is running.

  API                %[1]s      (contract: %[1]s/openapi.json)
  sandbox acquirer   %[2]s      (its register, in a browser)
  API key            %[3]s
  data               %[4]s

Make a payment:

  curl -si %[1]s/v1/payments \
    -H 'Authorization: Bearer %[3]s' \
    -H 'Idempotency-Key: order-1-first-try' \
    -H 'Content-Type: application/json' \
    -d '{"amount":499000,"currency":"KZT","client_reference":"order-1","payment_method":"pm_ok"}'; echo

Repeat it: the same answer comes back, and the register still shows one movement.
Send a payer to the acquirer's page instead: open the redirect_url of the answer in a browser, and pay there. The acquirer
tells us by webhook: the payment is paid at once.

  curl -si %[1]s/v1/payments \
    -H 'Authorization: Bearer %[3]s' \
    -H 'Idempotency-Key: order-3-first-try' \
    -H 'Content-Type: application/json' \
    -d '{"amount":499000,"currency":"KZT","client_reference":"order-3","flow":"hosted","return_url":"%[2]s"}'; echo

Other payment methods show other outcomes: pm_declined_insufficient_funds, pm_timeout_executed, … (docs/sandbox.md).
Then ask for the whole story:  ./bin/hapax timeline order-1
Stop with Ctrl-C. Warnings and errors are logged here; HAPAX_LOG_LEVEL=info shows every request.

`, api, acquirer, key, dir)
	return err
}

// seed makes the first merchant, account and API key, and points the account at the sandbox of this start.
func (t *tool) seed(s *store.Store, mem *remembered, acquirerURL string) (flow.Account, error) {
	settings, err := json.Marshal(map[string]string{"url": acquirerURL})
	if err != nil {
		return flow.Account{}, err
	}
	secrets, err := json.Marshal(map[string]any{"secret": mem.SandboxSecret, "webhook_secrets": []string{mem.HookSecret}})
	if err != nil {
		return flow.Account{}, err
	}
	return t.ensureShop(s, mem, settings, secrets)
}
