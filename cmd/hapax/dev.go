package main

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/hapaxpay/hapax/internal/devdb"
	"github.com/hapaxpay/hapax/internal/store"
)

type devCmd struct {
	SandboxAddr string `default:"127.0.0.1:8090" help:"Address of the sandbox acquirer; a free port is taken where it is in use."`
}

// remembered is what dev keeps between two starts, readable by its user only.
type remembered struct {
	SecretKey     string `json:"secret_key"`
	SandboxSecret string `json:"sandbox_secret"`
	APIKey        string `json:"api_key"`
	Merchant      string `json:"merchant"`
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
	if err := store.Migrate(t.ctx, server.URL(devdb.RoleOwner, devdb.Database)); err != nil {
		return err
	}
	mem, err := recall(dir)
	if err != nil {
		return err
	}
	acquirer, err := t.startSandbox(c.SandboxAddr, filepath.Join(dir, "sandbox"), mem.SandboxSecret)
	if err != nil {
		return err
	}
	defer acquirer.stop()
	if t.cfg.SecretKey == "" {
		t.cfg.SecretKey = mem.SecretKey
	}
	t.cfg.Environment = "dev"
	replica, err := t.replica(server.URL(devdb.RoleService, devdb.Database), false)
	if err != nil {
		return err
	}
	if err := t.seed(replica.Store, mem, acquirer.url); err != nil {
		return errors.Join(err, t.close(replica))
	}
	if err := keep(dir, mem); err != nil {
		return errors.Join(err, t.close(replica))
	}
	l, err := t.listen()
	if err != nil {
		return errors.Join(err, t.close(replica))
	}
	if err := t.welcome("http://"+l.Addr().String(), acquirer.url, mem.APIKey, dir); err != nil {
		return errors.Join(err, t.close(replica))
	}
	return t.runReplica(replica, l, true)
}

// listen takes the configured address, or a free port where it is in use.
func (t *tool) listen() (net.Listener, error) {
	l, err := net.Listen("tcp", t.cfg.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		fmt.Fprintf(t.err, "%s is in use; taking a free port.\n", t.cfg.Listen)
		return net.Listen("tcp", "127.0.0.1:0")
	}
	return l, err
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

  curl -s %[1]s/v1/payments \
    -H 'Authorization: Bearer %[3]s' \
    -H 'Idempotency-Key: order-1-first-try' \
    -H 'Content-Type: application/json' \
    -d '{"amount":499000,"currency":"KZT","client_reference":"order-1","payment_method":"pm_ok"}'

Repeat it: the same answer comes back, and the register still shows one movement.
Other payment methods show other outcomes: pm_declined_insufficient_funds, pm_timeout_executed, … (docs/sandbox.md).
Then ask for the whole story:  ./bin/hapax timeline order-1
Stop with Ctrl-C.

`, api, acquirer, key, dir)
	return err
}

// memoryFile is where dev keeps what it remembers, in the data folder.
const memoryFile = "dev.json"

// lockFile is held by the one dev that runs on a data folder; the system lets go of it however that one ends.
const lockFile = "dev.lock"

// lockDev keeps a second dev away: two sandboxes on one register would be one acquirer with two memories.
func (t *tool) lockDev(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = fmt.Errorf("another `hapax dev` runs on %s: use it, stop it, or give this one a folder of its own with HAPAX_DATA_DIR", dir)
		}
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		if err := f.Close(); err != nil {
			fmt.Fprintln(t.err, "hapax:", err)
		}
	}, nil
}

// recall reads what an earlier start kept, and makes what is missing.
func recall(dir string) (*remembered, error) {
	mem, path := &remembered{}, filepath.Join(dir, memoryFile)
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		if err := json.Unmarshal(raw, mem); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	if mem.SecretKey == "" {
		mem.SecretKey = base64.StdEncoding.EncodeToString(random(32))
	}
	if mem.SandboxSecret == "" {
		mem.SandboxSecret = hex.EncodeToString(random(16))
	}
	return mem, nil
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b) // never fails: the program ends if the system has no randomness
	return b
}

// keep writes a new file and puts it in the old one's place: half a file would lose the key of the sealed secrets.
func keep(dir string, mem *remembered) error {
	raw, err := json.MarshalIndent(mem, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, memoryFile)
	if err := os.WriteFile(path+".new", append(raw, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// seed makes the first merchant, account and API key, and points the account at the sandbox of this start.
func (t *tool) seed(s *store.Store, mem *remembered, acquirerURL string) error {
	settings, err := json.Marshal(map[string]string{"url": acquirerURL})
	if err != nil {
		return err
	}
	secrets, err := json.Marshal(map[string]string{"secret": mem.SandboxSecret})
	if err != nil {
		return err
	}
	return t.ensureShop(s, mem, settings, secrets)
}
