// Package rig starts a whole installation for one test: database, sandbox acquirer, merchants, replicas.
//
// Owns the set-up that tests above the store share, and the three witnesses that they ask: register, ledger, outbox.
// Never mocks a part: database, acquirer and transport are the real ones; only time limits are shorter.
// Read next: crash.go (vanishing at named points), witness.go (what really happened).
package rig

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/app"
	"github.com/hapaxpay/hapax/internal/auth"
	"github.com/hapaxpay/hapax/internal/config"
	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/host"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/sandbox"
	"github.com/hapaxpay/hapax/money"
)

// AcquirerSecret is the sandbox's bearer secret in tests.
const AcquirerSecret = "sandbox-secret-of-tests"

// closeWithin bounds the end of a replica.
const closeWithin = 30 * time.Second

// Rig is one installation.
type Rig struct {
	T        testing.TB
	DB       *dbtest.DB
	Owner    *pgxpool.Pool
	Server   *sandbox.Server
	Acquirer *sandbox.Client
	Merchant Merchant
	runtime  host.Runtime
	ring     *auth.Keyring
	secret   string
	database string // URL of the service's role; tests put a proxy in between
}

// Merchant is a tenant with one acquirer account and an API key.
type Merchant struct {
	ID, Account id.ID
	APIKey      string
}

// Terms are the settings of an account's contract, as the sandbox adapter reads them; nil: the default.
type Terms map[string]any

// New starts database and sandbox and makes one merchant with these terms.
func New(t testing.TB, terms Terms) *Rig {
	t.Helper()
	r := &Rig{T: t, DB: dbtest.Open(t)}
	r.Owner = r.DB.OwnerPool(t)
	r.database = r.DB.Service()
	r.secret = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))
	var err error
	r.ring, err = auth.ParseKeyring(r.secret)
	r.must(err)
	r.Server, err = sandbox.Open(sandbox.Config{Dir: t.TempDir(), Secret: AcquirerSecret})
	r.must(err)
	served := make(chan error, 1)
	go func() { served <- r.Server.Serve() }()
	t.Cleanup(func() {
		if err := r.Server.Close(); err != nil {
			t.Errorf("sandbox: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("sandbox: %v", err)
		}
	})
	r.Acquirer = &sandbox.Client{Base: r.Server.URL()}
	r.Merchant = r.AddMerchant(terms)
	return r
}

func (r *Rig) must(err error) {
	r.T.Helper()
	if err != nil {
		r.T.Fatal(err)
	}
}

// AddMerchant makes a test merchant with one sandbox account of these terms.
func (r *Rig) AddMerchant(terms Terms) Merchant {
	r.T.Helper()
	m := Merchant{ID: r.runtime.NewID(), Account: r.runtime.NewID()}
	settings := map[string]any{"url": r.Server.URL()}
	if terms != nil {
		settings["contract"] = terms
	}
	raw, err := json.Marshal(settings)
	r.must(err)
	sealed, err := r.ring.Seal(m.ID, m.Account, Secrets)
	r.must(err)
	ctx := r.T.Context()
	for _, q := range []struct {
		sql  string
		args []any
	}{
		{"INSERT INTO merchant (merchant_id, name, mode) VALUES ($1, 'a shop', 'test')", []any{m.ID}},
		{"INSERT INTO acquirer_account (merchant_id, id, adapter, settings, secrets) VALUES ($1, $2, 'sandbox', $3, $4)", []any{m.ID, m.Account, raw, sealed}},
	} {
		_, err := r.Owner.Exec(ctx, q.sql, q.args...)
		r.must(err)
	}
	return r.AddKey(m)
}

// AddKey makes one more API key of the merchant.
func (r *Rig) AddKey(m Merchant) Merchant {
	r.T.Helper()
	var random [auth.SecretBytes]byte
	unique := r.runtime.NewID()
	copy(random[:], unique[:])
	text, hash := auth.NewKey(auth.Test, m.ID, random)
	m.APIKey = text
	_, err := r.Owner.Exec(r.T.Context(), "INSERT INTO api_key (merchant_id, key_hash, id) VALUES ($1, $2, $3)", m.ID, hash[:], r.runtime.NewID())
	r.must(err)
	return m
}

// Through makes later replicas reach the database at another address, such as a proxy's.
func (r *Rig) Through(databaseURL string) { r.database = databaseURL }

// Config is what replicas of tests run with: the defaults, and short times where a test would wait.
func (r *Rig) Config() config.Config {
	return config.Config{DatabaseURL: r.database, SecretKey: r.secret, Environment: "test",
		AnswerWithin: 8 * time.Second, CallUntil: 24 * time.Second, Lease: 30 * time.Second, Fresh: 10 * time.Second,
		Connect: 2 * time.Second, Read: 5 * time.Second, KeyRetention: 720 * time.Hour, SweepEvery: 50 * time.Millisecond, RelayEvery: 50 * time.Millisecond, WebhookDisableAfter: 120 * time.Hour,
		MaxAmount: money.MaxMinor, RateLimit: 100_000, FailoverPolicy: "compare", PoolMode: "session", PoolSize: 8}
}

// Replica is one running replica of the rig.
type Replica struct {
	*app.Replica
	URL string
	rig *Rig
}

// Option changes a replica.
type Option func(*config.Config, *app.Options)

// WithFaults gives the replica a fault plan.
func WithFaults(f operation.Faults) Option {
	return func(_ *config.Config, o *app.Options) { o.Faults = f }
}

// WithDoer gives the replica a transport of its own.
func WithDoer(d wire.Doer) Option { return func(_ *config.Config, o *app.Options) { o.Doer = d } }

// With changes the configuration.
func With(change func(*config.Config)) Option {
	return func(c *config.Config, _ *app.Options) { change(c) }
}

// Hasty waits for the acquirer only a moment, for tests in which it never answers.
func Hasty(c *config.Config, _ *app.Options) { c.Read = 300 * time.Millisecond }

// Replica starts one more replica, with its HTTP door on loopback; its sweep runs only when a test makes a pass.
func (r *Rig) Replica(options ...Option) *Replica {
	r.T.Helper()
	cfg := r.Config()
	o := app.Options{Log: slog.New(slog.NewTextHandler(r.T.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))}
	for _, change := range options {
		change(&cfg, &o)
	}
	opened, err := app.Open(r.T.Context(), cfg, o)
	r.must(err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	served := make(chan error, 1)
	go func() { served <- opened.Serve(l) }()
	r.T.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.T.Context()), closeWithin)
		defer cancel()
		if err := opened.Close(ctx); err != nil {
			r.T.Errorf("replica: %v", err)
		}
		if err := <-served; err != nil {
			r.T.Errorf("replica: %v", err)
		}
	})
	return &Replica{Replica: opened, URL: "http://" + l.Addr().String(), rig: r}
}

// Order is what a test pays.
type Order struct {
	Reference string
	Minor     int64
	Currency  money.Currency
	Method    string
	Receipt   string // mail address; empty: none
}

// Command makes the command that pays the order inline, for the rig's merchant.
func (r *Rig) Command(key string, o Order) flow.CreatePaymentCommand {
	if o.Currency == "" {
		o.Currency = "KZT"
	}
	if o.Minor == 0 {
		o.Minor = 499_000
	}
	if o.Method == "" {
		o.Method = "pm_ok"
	}
	f := &flow.IntentFields{Amount: money.Must(o.Minor, o.Currency)}
	if o.Reference != "" {
		f.ClientReference = &o.Reference
	}
	if o.Receipt != "" {
		f.Receipt = &o.Receipt
	}
	return flow.CreatePaymentCommand{Merchant: r.Merchant.ID, Key: key, RequestID: "req_" + r.runtime.NewID().String(), Inline: f,
		Method: o.Method, Flow: payment.Direct}
}

// Pay pays the order through the replica's engine.
func (p *Replica) Pay(key string, o Order) (operation.Answer, error) {
	return p.Flow.CreatePayment(p.rig.T.Context(), p.rig.Command(key, o))
}

// Response is an HTTP answer.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Member gives a member of the JSON body, as text; empty where there is none.
func (r Response) Member(name string) string {
	var m map[string]any
	if json.Unmarshal(r.Body, &m) != nil {
		return ""
	}
	if v, ok := m[name]; ok && v != nil {
		return fmt.Sprint(v)
	}
	return ""
}

// Do makes one HTTP call with the merchant's key. A nil body makes it a GET.
func (p *Replica) Do(ctx context.Context, m Merchant, method, path, key string, body []byte) (Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.URL+path, bytes.NewReader(body))
	if err != nil {
		return Response{}, err
	}
	req.Header.Set("Authorization", "Bearer "+m.APIKey)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	return send(req)
}

func send(req *http.Request) (Response, error) {
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return Response{}, err
	}
	raw, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if closeErr := res.Body.Close(); err == nil {
		err = closeErr
	}
	return Response{Status: res.StatusCode, Header: res.Header, Body: raw}, err
}

// PayHTTP pays inline through the replica's HTTP door.
func (p *Replica) PayHTTP(key string, o Order) Response {
	p.rig.T.Helper()
	c := p.rig.Command(key, o)
	body := map[string]any{"amount": c.Inline.Amount.Minor(), "currency": c.Inline.Amount.Currency(), "payment_method": c.Method}
	if c.Inline.ClientReference != nil {
		body["client_reference"] = *c.Inline.ClientReference
	}
	raw, err := json.Marshal(body)
	p.rig.must(err)
	res, err := p.Do(p.rig.T.Context(), p.rig.Merchant, http.MethodPost, "/v1/payments", key, raw)
	p.rig.must(err)
	return res
}

// Later lets time pass: for the database, by moving its stored times back, and for the acquirer, by moving its clock.
func (r *Rig) Later(d time.Duration) {
	r.T.Helper()
	r.DB.Age(r.T, d)
	r.must(r.Acquirer.Advance(r.T.Context(), d))
}

// CompareAll puts the database on hold for the time of the whole test and compares it with the acquirer's movements, as
// after a restore.
func (r *Rig) CompareAll(p *Replica) error {
	r.T.Helper()
	if err := p.Store.HoldEpoch(r.T.Context(), "a test", time.Now().Add(-30*24*time.Hour)); err != nil {
		return err
	}
	r.Later(11 * time.Second)
	_, err := p.Flow.CompareLost(r.T.Context())
	return err
}

// maxPasses bounds Settle: with the back-off, a week fits.
const maxPasses = 400

// Settle lets the sweep of the replica work, with time passing between its passes, until every operation is finished or
// waits for a person, or until the given time has passed.
func (p *Replica) Settle(within time.Duration) {
	p.rig.T.Helper()
	passed := time.Duration(0)
	for n := 0; n < maxPasses && passed < within; n++ {
		p.Sweep.Pass(p.rig.T.Context())
		if p.rig.Unsettled() == 0 {
			return
		}
		step := min(max(passed/8, 5*time.Second), time.Hour)
		p.rig.Later(step)
		passed += step
	}
	p.Sweep.Pass(p.rig.T.Context())
}
