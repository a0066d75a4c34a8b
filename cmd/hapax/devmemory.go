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
	"strings"
	"syscall"

	"github.com/hapaxpay/hapax/acquirer/signature"
)

// remembered is what dev keeps between two starts, readable by its user only.
type remembered struct {
	SecretKey     string `json:"secret_key"`
	SandboxSecret string `json:"sandbox_secret"`
	// HookSecret signs what the sandbox tells.
	HookSecret string `json:"hook_secret,omitempty"`
	APIKey     string `json:"api_key"`
	Merchant   string `json:"merchant"`
	// SandboxURL is where the sandbox of the last start listened.
	SandboxURL string `json:"sandbox_url,omitempty"`
	// Ports are addresses that were taken in place of wanted ones, which were in use: a second start has the same.
	Ports map[string]string `json:"ports,omitempty"`
}

// openPort listens on the address that was taken in place of the wanted one before, else on the wanted one, else on a
// free port, and says so.
func (t *tool) openPort(mem *remembered, what, how, wanted string) (l net.Listener, err error) {
	for _, addr := range []string{mem.Ports[wanted], wanted, "127.0.0.1:0"} {
		if addr == "" {
			continue
		}
		if l, err = net.Listen("tcp", addr); !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	if err != nil || strings.HasSuffix(wanted, ":0") {
		return l, err
	}
	got := l.Addr().String()
	if got == wanted {
		delete(mem.Ports, wanted)
		return l, nil
	}
	if before := mem.Ports[wanted]; before == got {
		fmt.Fprintf(t.err, "%s listens on %s, as at the last start; %s chooses another address.\n", what, got, how)
		return l, nil
	}
	fmt.Fprintf(t.err, "%s is in use: %s listens on %s, now and at the next start; %s chooses another address.\n", wanted, what, got, how)
	if mem.Ports == nil {
		mem.Ports = map[string]string{}
	}
	mem.Ports[wanted] = got
	return l, nil
}

// runningSandbox is the address of the sandbox of the dev that runs on the data folder, or "" where none runs.
func (t *tool) runningSandbox() (string, error) {
	dir, err := t.dataDir()
	if err != nil {
		return "", err
	}
	unlock, err := t.lockDev(dir)
	if err == nil {
		unlock()
		return "", nil
	}
	if !errors.As(err, &anotherDev{}) {
		return "", err
	}
	mem, err := recall(dir)
	if err != nil {
		return "", err
	}
	return mem.SandboxURL, nil
}

// memoryFile is where dev keeps what it remembers, in the data folder.
const memoryFile = "dev.json"

// lockFile is held by the one dev that runs on a data folder; the system lets go of it however that one ends.
const lockFile = "dev.lock"

// anotherDev says that a dev runs on the folder.
type anotherDev struct{ dir string }

func (e anotherDev) Error() string {
	return fmt.Sprintf("another `hapax dev` runs on %s: use it, stop it, or give this one a folder of its own with HAPAX_DATA_DIR", e.dir)
}

// lockDev keeps a second dev away: two sandboxes on one register would be one acquirer with two memories.
func (t *tool) lockDev(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = anotherDev{dir}
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
	if mem.HookSecret == "" {
		mem.HookSecret = signature.NewSecret([signature.NewSecretBytes]byte(random(signature.NewSecretBytes))).Text()
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
