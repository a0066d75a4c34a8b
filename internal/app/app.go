// Package app puts one replica together: store, engine, flows, sweep and the HTTP door.
//
// Owns the wiring and the life of a process: open, serve, work, drain, close.
// Never decides anything about a payment.
// Read next: cmd/hapax, whose commands start replicas; internal/rig, which starts several in one test.
package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/adapter"
	"github.com/hapaxpay/hapax/internal/auth"
	"github.com/hapaxpay/hapax/internal/config"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/host"
	"github.com/hapaxpay/hapax/internal/httpapi"
	"github.com/hapaxpay/hapax/internal/intake"
	"github.com/hapaxpay/hapax/internal/metrics"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/outbox"
	"github.com/hapaxpay/hapax/internal/outbox/mail"
	"github.com/hapaxpay/hapax/internal/outbox/webhook"
	"github.com/hapaxpay/hapax/internal/store"
	"github.com/hapaxpay/hapax/internal/sweep"
)

// Options say how a replica differs from the plain one. The zero value is the plain one.
type Options struct {
	Log     *slog.Logger
	Faults  operation.Faults // nil: none
	Doer    wire.Doer        // nil: the real transport
	Offset  time.Duration    // of the wall clock, for tests
	Version string
	// Silent makes a replica that decides and reads but calls no acquirer: it needs no HAPAX_SECRET_KEY, and must not Work.
	Silent bool
	// WithoutAPI leaves health and metrics of the HTTP door only, for a process that only works.
	WithoutAPI bool
	// Sinks are further ones, for tests.
	Sinks map[string]outbox.Sink
	// Resolver finds the addresses of webhook endpoints; nil: the system's. TLS is for connections to them; nil: the system's
	// roots. Both are for tests.
	Resolver webhook.Resolver
	TLS      *tls.Config
	// Dev allows what only a person at this machine needs: payers who are sent back to it by http, and one-time codes that
	// are shown.
	Dev bool
}

// Replica is one process's worth of Hapax.
type Replica struct {
	cfg     config.Config
	log     *slog.Logger
	rt      *host.Runtime
	ring    *auth.Keyring // nil in a silent replica
	Store   *store.Store
	Flow    *flow.Flow
	Sweep   *sweep.Sweep[flow.Tx]
	Relay   *outbox.Relay
	Intake  *intake.Intake
	Handler http.Handler
	server  *http.Server
	letGo   []func() // of brokers, when nothing is under way any more
}

// Open connects to the database and puts a replica together. Close must be called.
func Open(ctx context.Context, cfg config.Config, o Options) (*Replica, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Faults == nil {
		o.Faults = noFaults{}
	}
	r := &Replica{cfg: cfg, log: o.Log, rt: &host.Runtime{Offset: o.Offset}}
	adapters, err := r.secrets(o)
	if err != nil {
		return nil, err
	}
	sc := StoreConfig(cfg, o.Log)
	sc.Told = func() { r.Relay.Wake() } // no event is written before the relay is there
	st, err := store.Open(ctx, sc)
	if err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	watch := metrics.New(registry, o.Log)
	metrics.Watch(registry, st, o.Log)
	r.Store = st
	r.Flow = flow.New(flow.Config{Environment: cfg.Environment, PayBefore: defaultPayBefore, Retention: cfg.KeyRetention,
		SecondPerson: cfg.SecondPerson, CodeSecret: r.codes(), NewSecret: r.newSecret, EndpointPatience: cfg.WebhookDisableAfter}, cfg.Engine(), st, adapters, r.rt, o.Faults, watch)
	r.Sweep = sweep.New(sweep.Config{Lease: cfg.Lease, Every: cfg.SweepEvery}, flow.Store(st), r.rt, r.Flow.Engine(), r.Flow, st,
		func(where string, err error) { o.Log.Warn("sweep", "where", where, "error", err.Error()) })
	sinks, err := r.sinks(o, watch)
	if err != nil {
		st.Close()
		return nil, err
	}
	r.Relay = outbox.New(outbox.Config{Sinks: sinks, Endpoints: r.webhooks(o), Every: cfg.RelayEvery, Retention: cfg.KeyRetention,
		Report: func(where string, err error) { o.Log.Warn("relay", "where", where, "error", err.Error()) }}, st, r.rt, o.Faults, watch)
	r.Intake = intake.New(intake.Config{Lease: cfg.Lease, Every: cfg.SweepEvery, Retention: cfg.KeyRetention}, intake.Parts{Store: st,
		Acquirers: adapters, Runtime: r.rt, Faults: o.Faults, Flow: r.Flow, House: st, Watch: watch,
		Report: func(where string, err error) { o.Log.Warn("intake", "where", where, "error", err.Error()) }})
	r.Handler = httpapi.New(r.door(o, registry))
	if o.WithoutAPI {
		r.Handler = onlyHealth(r.Handler)
	}
	r.server = httpapi.NewServer(r.Handler, cfg.AnswerWithin, o.Log)
	return r, nil
}

// door says what the HTTP door leads to, and how.
func (r *Replica) door(o Options, registry *prometheus.Registry) httpapi.Config {
	s := r.service()
	c := httpapi.Config{Service: s, Keys: r.Store, Log: o.Log, Messages: r.Intake, Ready: r.ready,
		Metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), Register: registry,
		MaxAmount: r.cfg.MaxAmount, RatePerSecond: r.cfg.RateLimit, Version: o.Version, AllowLoopbackReturn: o.Dev,
		Target: r.guard(o).Check}
	if o.Dev {
		c.ShowCancelCode = s.codeText
	}
	return c
}

// purposeCodes names the secret from which one-time codes of cancels are derived (PROTOCOL X1).
const purposeCodes = "cancel codes"

// secrets reads the keys that seal, and gives the way to the acquirers.
func (r *Replica) secrets(o Options) (flow.Acquirers, error) {
	if o.Silent {
		return contracts{}, nil
	}
	var err error
	if r.ring, err = auth.ParseKeyring(r.cfg.SecretKey); err != nil {
		return nil, err
	}
	return newAcquirers(r.ring, adapter.Options{Doer: o.Doer, Clock: r.rt, Hook: hook(o.Faults),
		ConnectTimeout: r.cfg.Connect, ReadTimeout: r.cfg.Read}), nil
}

// codes gives the secret of one-time codes; nil in a silent replica, which issues none.
func (r *Replica) codes() []byte {
	if r.ring == nil {
		return nil
	}
	return r.ring.Derive(purposeCodes)
}

// onlyHealth leaves what operators ask.
func onlyHealth(h http.Handler) http.Handler {
	mux := http.NewServeMux()
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		mux.Handle("GET "+path, h)
	}
	return mux
}

// defaultPayBefore is the life of an intent whose client did not say (PROTOCOL W3).
const defaultPayBefore = 24 * time.Hour

type noFaults struct{}

func (noFaults) Hit(context.Context, string) error { return nil }

// hook tells the fault plan when the first byte of a request is about to leave and when the last one has left.
func hook(f operation.Faults) func(context.Context, string) {
	return func(ctx context.Context, point string) {
		if err := f.Hit(ctx, point); err != nil {
			<-ctx.Done() // the process would be gone here: nothing more leaves
		}
	}
}

// StoreConfig gives what the store needs of a configuration.
func StoreConfig(cfg config.Config, log *slog.Logger) store.Config {
	return store.Config{URL: cfg.DatabaseURL, MaxConns: cfg.PoolSize, Lease: cfg.Lease, PoolMode: store.PoolMode(cfg.PoolMode),
		NothingLost: cfg.FailoverPolicy == "nothing-lost", Log: log}
}

// ready says why this replica should not get requests.
func (r *Replica) ready(ctx context.Context) []httpapi.Reason {
	err := r.Store.InTx(ctx, "ready", func(ctx context.Context, tx flow.Tx) error {
		_, err := tx.Guard(ctx)
		return err
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, operation.ErrNotDurable):
		return []httpapi.Reason{{Part: "database", Why: operation.ErrNotDurable.Error()}}
	case errors.Is(err, operation.ErrOnHold):
		return []httpapi.Reason{{Part: "database", Why: operation.ErrOnHold.Error()}}
	}
	return []httpapi.Reason{{Part: "database", Why: "not reachable"}}
}

// Serve answers requests on the listener until Close.
func (r *Replica) Serve(l net.Listener) error {
	if err := r.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// Work runs the loops side by side until ctx is done.
func (r *Replica) Work(ctx context.Context) {
	var loops sync.WaitGroup
	for _, run := range []func(context.Context){r.Sweep.Run, r.Intake.Run, r.Relay.Run} {
		loops.Go(func() { run(ctx) })
	}
	loops.Wait()
}

// sinks gives those that are configured.
func (r *Replica) sinks(o Options, watch *metrics.Watcher) (map[string]outbox.Sink, error) {
	all := map[string]outbox.Sink{}
	server, err := r.cfg.SMTP()
	if err != nil {
		return nil, err
	}
	if server != nil && !o.Silent { // who has no secret can derive no code
		all[outbox.SinkMail] = mail.New(mail.Config{Server: server, Book: r.Store, Environment: r.cfg.Environment, Clock: r.rt, NewID: r.rt.NewID,
			Code: r.Flow.CancelCode, Faults: o.Faults, Counted: watch.Mailed})
	}
	if err := r.brokers(all); err != nil {
		return nil, err
	}
	maps.Copy(all, o.Sinks)
	return all, nil
}

// Close stops taking requests, waits for what is under way until ctx is done, and lets go of the database. What did not
// end in time is finished by the sweep of another replica.
func (r *Replica) Close(ctx context.Context) error {
	err := r.server.Shutdown(ctx)
	if r.rt.Drain(ctx) {
		for _, letGo := range r.letGo {
			letGo()
		}
	} else {
		err = errors.Join(err, errors.New("calls were still under way"))
	}
	r.Store.Close()
	return err
}
