package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"sync"
	"time"

	"github.com/hapaxpay/hapax/internal/app"
	"github.com/hapaxpay/hapax/internal/auth"
	"github.com/hapaxpay/hapax/internal/fault"
	"github.com/hapaxpay/hapax/internal/store"
)

type serveCmd struct {
	Only string `enum:"all,api,workers" default:"all" help:"Run one part only: api, or workers (health and metrics are served by both)."`
}

// Run serves until the process is told to stop.
func (c serveCmd) Run(t *tool) error {
	if t.cfg.DatabaseURL == "" {
		return errors.New("serve needs HAPAX_DATABASE_URL; `hapax dev` starts a private database")
	}
	t.quiet()
	replica, err := t.replica(t.cfg.DatabaseURL, app.Options{WithoutAPI: c.Only == "workers"})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", t.cfg.Listen)
	if err != nil {
		return errors.Join(err, t.close(replica))
	}
	address := "http://" + l.Addr().String()
	if err := t.tell(map[string]any{"ok": true, "address": address, "version": version}, "hapax listens on "+address); err != nil {
		return errors.Join(err, t.close(replica))
	}
	return t.runReplica(replica, l, c.Only != "api")
}

// replica opens a replica with the fault plan of the environment; the plan is refused where a live merchant exists.
func (t *tool) replica(databaseURL string, o app.Options) (*app.Replica, error) {
	plan, err := fault.Parse(t.cfg.Faults)
	if err != nil {
		return nil, err
	}
	cfg := t.cfg
	cfg.DatabaseURL = databaseURL
	o.Log, o.Faults, o.Offset, o.Version = t.log, plan, plan.Clock, version
	replica, err := app.Open(t.ctx, cfg, o)
	if err != nil {
		return nil, err
	}
	if plan.Active() {
		if err := t.refuseLive(replica.Store); err != nil {
			return nil, errors.Join(err, t.close(replica))
		}
	}
	return replica, nil
}

func (t *tool) refuseLive(s *store.Store) error {
	return eachMerchant(t, s, func(m store.Merchant) (bool, error) {
		if m.Mode == auth.Live {
			return true, errors.New("HAPAX_FAULTS is set, and this database has a live merchant: refused")
		}
		return false, nil
	})
}

// drainWithin bounds how long a stop waits for calls under way: as long as an owner may call.
func (t *tool) drainWithin() time.Duration { return t.cfg.CallUntil + 10*time.Second }

func (t *tool) close(r *app.Replica) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), t.drainWithin())
	defer cancel()
	return r.Close(ctx)
}

// runReplica serves, and works where it is told to, until the process is told to stop or the door fails.
func (t *tool) runReplica(r *app.Replica, l net.Listener, workers bool) error {
	ctx, stop := context.WithCancel(t.ctx)
	defer stop()
	served := make(chan error, 1)
	go func() { served <- r.Serve(l) }()
	var work sync.WaitGroup
	if workers {
		work.Go(func() { r.Work(ctx) })
	}
	var err error
	select {
	case <-ctx.Done():
		t.log.Info("stopping", "wait_at_most", t.drainWithin().String())
	case err = <-served:
	}
	stop()
	work.Wait()
	return errors.Join(err, t.close(r))
}

// quiet keeps the standard logger, to which libraries write, from leaking what came over the wire: net/http prints the
// bytes of an unexpected answer there. Only that something was written is logged.
func (t *tool) quiet() {
	log.SetFlags(0)
	log.SetOutput(app.Wordless(t.log))
}

type migrateCmd struct{}

// Run brings the schema up to this version.
func (migrateCmd) Run(t *tool) error {
	owner, _, done, err := t.database()
	if err != nil {
		return err
	}
	defer done()
	if err := store.Migrate(t.ctx, owner); err != nil {
		return err
	}
	return t.tell(map[string]any{"ok": true, "schema_version": store.LatestVersion()}, fmt.Sprintf("schema version %d", store.LatestVersion()))
}
