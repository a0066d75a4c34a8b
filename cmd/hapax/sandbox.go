package main

import (
	"context"
	"errors"
	"io"
	"path/filepath"

	"github.com/hapaxpay/hapax/internal/sandbox"
)

type sandboxCmd struct {
	Addr          string `default:"127.0.0.1:8090" help:"Loopback address; port 0 picks one."`
	Dir           string `help:"Folder of register, wire log and tries of webhooks. Default: sandbox in the data folder." type:"path"`
	Secret        string `env:"HAPAX_SANDBOX_SECRET" default:"sandbox" help:"What callers send as Authorization: Bearer."`
	WebhookSecret string `env:"HAPAX_SANDBOX_WEBHOOK_SECRET" help:"What signs webhooks unless PUT /control/webhooks says otherwise: whsec_ and base64."`
	Seed          int64  `help:"Seed of faults with a percentage."`
	// WithParent ends the sandbox when its standard input is closed, as it is when the process that started it is gone.
	WithParent bool `hidden:""`
}

// Run plays the acquirer until the process is told to stop.
func (c sandboxCmd) Run(t *tool) error {
	if c.Dir == "" {
		dir, err := t.dataDir()
		if err != nil {
			return err
		}
		c.Dir = filepath.Join(dir, "sandbox")
	}
	s, err := sandbox.Open(sandbox.Config{Dir: c.Dir, Addr: c.Addr, Secret: c.Secret, WebhookSecret: c.WebhookSecret, Seed: c.Seed})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(t.ctx)
	defer stop()
	if c.WithParent {
		go func() {
			defer stop()
			if _, err := io.Copy(io.Discard, t.in); err != nil {
				t.log.Warn("standard input", "error", err.Error())
			}
		}()
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	if err := t.tell(map[string]any{"ok": true, "address": s.URL()}, "sandbox acquirer on "+s.URL()); err != nil {
		return errors.Join(err, s.Close(), <-served)
	}
	select {
	case <-ctx.Done():
		return errors.Join(s.Close(), <-served)
	case err := <-served:
		return errors.Join(err, s.Close())
	}
}
