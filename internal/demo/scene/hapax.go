package scene

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/app"
	"github.com/hapaxpay/hapax/internal/auth"
	"github.com/hapaxpay/hapax/internal/config"
	"github.com/hapaxpay/hapax/internal/devdb"
	"github.com/hapaxpay/hapax/internal/fault"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/host"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/store"
	"github.com/hapaxpay/hapax/internal/verify"
	"github.com/hapaxpay/hapax/money"
)

// hapaxService is Hapax as it is released; only time-outs are shorter.
type hapaxService struct {
	acquirerURL string
	cfg         config.Config
	owner       *pgxpool.Pool
	merchant    id.ID
	apiKey      string
}

var hapaxPoints = map[string]point{operation.PointAfterClaim: beforeCall, operation.PointAfterReply: afterCall}

// terms are what an account's settings declare about its acquirer, where it differs from the sandbox's own contract.
type terms map[string]any

func newHapax(ctx context.Context, ownerURL, serviceURL, acquirerURL string, t terms) (service, error) {
	secret := make([]byte, 32)
	rand.Read(secret) // never fails: the program ends if the system has no randomness
	owner, err := pgxpool.New(ctx, ownerURL)
	if err != nil {
		return nil, err
	}
	s := &hapaxService{acquirerURL: acquirerURL, owner: owner, cfg: config.Config{
		DatabaseURL: serviceURL, SecretKey: base64.StdEncoding.EncodeToString(secret), Environment: "demo",
		AnswerWithin: 8 * time.Second, CallUntil: 24 * time.Second, Lease: 30 * time.Second, Fresh: 10 * time.Second,
		Connect: connectWithin, Read: readWithin, KeyRetention: 720 * time.Hour, SweepEvery: time.Second, RelayEvery: 50 * time.Millisecond, WebhookDisableAfter: 120 * time.Hour,
		MaxAmount: money.MaxMinor, RateLimit: 1000, FailoverPolicy: "compare", PoolMode: "session", PoolSize: 8,
	}}
	if err := s.addMerchant(ctx, t); err != nil {
		owner.Close()
		return nil, err
	}
	return s, nil
}

// Time-outs of a call: those of textbook, scaled like them. Connecting on one machine is not the subject here.
const (
	connectWithin = 500 * time.Millisecond
	readWithin    = 3 * time.Second / scale
)

// addMerchant makes a test merchant with one account at the sandbox and an API key.
func (s *hapaxService) addMerchant(ctx context.Context, t terms) error {
	settings := map[string]any{"url": s.acquirerURL}
	if t != nil {
		settings["contract"] = t
	}
	raw, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	var rt host.Runtime
	account := rt.NewID()
	s.merchant = rt.NewID()
	ring, err := auth.ParseKeyring(s.cfg.SecretKey)
	if err != nil {
		return err
	}
	sealed, err := ring.Seal(s.merchant, account, []byte(`{"secret":"`+acquirerSecret+`"}`))
	if err != nil {
		return err
	}
	var random [auth.SecretBytes]byte
	rand.Read(random[:]) // never fails
	key, hash := auth.NewKey(auth.Test, s.merchant, random)
	s.apiKey = key
	st, err := store.Open(ctx, app.StoreConfig(s.cfg, quiet))
	if err != nil {
		return err
	}
	defer st.Close()
	return errors.Join(
		st.CreateMerchant(ctx, store.Merchant{ID: s.merchant, Name: "a shop", Mode: auth.Test}),
		st.AddAccount(ctx, flow.Account{Merchant: s.merchant, ID: account, Adapter: "sandbox", Settings: raw, Secrets: sealed}),
		st.AddAPIKey(ctx, s.merchant, rt.NewID(), hash, "demo"))
}

// quiet drops what the replicas log: the demo speaks of what they did.
var quiet = slog.New(slog.DiscardHandler)

func (s *hapaxService) open(ctx context.Context, p *process) (backend, error) {
	// The real transport, with the process's clock: a process that stood still sees on it that its permit is over.
	transport, err := wire.New(wire.Config{BaseURL: s.acquirerURL, ConnectTimeout: connectWithin, ReadTimeout: readWithin, Clock: p})
	if err != nil {
		return nil, err
	}
	faults := fault.Func(func(_ context.Context, name string) error {
		if p.dead() {
			return operation.ErrVanished
		}
		if at, ok := hapaxPoints[name]; ok && !p.meet(at) {
			return operation.ErrVanished
		}
		return nil
	})
	r, err := app.Open(ctx, s.cfg, app.Options{Log: quiet, Faults: faults, Doer: transport, Version: "demo", Dev: true})
	if err != nil {
		transport.Close()
		return nil, err
	}
	return &hapaxBackend{r, transport}, nil
}

func (s *hapaxService) request(ctx context.Context, url, key string, o order) (*http.Request, error) {
	return s.authorized(ctx, url+"/v1/payments", key, map[string]any{
		"client_reference": strconv.FormatInt(o.number, 10), "amount": o.amount, "currency": o.currency, "payment_method": o.method,
	})
}

func (s *hapaxService) age(ctx context.Context, by time.Duration) error {
	return s.owner.AcquireFunc(ctx, func(c *pgxpool.Conn) error { return devdb.Age(ctx, c.Conn(), by) })
}

// settled: every operation is finished or waits for a person, every gate is open, and no hold is on.
func (s *hapaxService) settled(ctx context.Context) (settled bool, err error) {
	err = s.owner.QueryRow(ctx, `
		SELECT NOT EXISTS (SELECT FROM operation WHERE state IN ('in_progress', 'awaiting_result'))
		   AND NOT EXISTS (SELECT FROM payment p WHERE p.due_at IS NOT NULL AND NOT EXISTS (
		                     SELECT FROM review r WHERE r.merchant_id = p.merchant_id AND r.payment_id = p.id AND r.decided_at IS NULL))
		   AND NOT EXISTS (SELECT FROM database_epoch WHERE held)`).Scan(&settled)
	return settled, err
}

func (s *hapaxService) believes(ctx context.Context, number int64) (believed, error) {
	b := believed{status: "none", keys: map[string]string{}}
	rows, err := s.owner.Query(ctx, `
		SELECT p.status, p.idempotency_key, p.acquirer_key
		  FROM payment p JOIN payment_intent i ON i.merchant_id = p.merchant_id AND i.id = p.intent_id
		 WHERE i.merchant_id = $1 AND i.client_reference = $2
		 ORDER BY p.n`, s.merchant.String(), strconv.FormatInt(number, 10))
	if err != nil {
		return b, err
	}
	defer rows.Close()
	for rows.Next() {
		var key, acquirerKey string
		if err := rows.Scan(&b.status, &key, &acquirerKey); err != nil {
			return b, err
		}
		b.keys[key] = acquirerKey
	}
	if err := rows.Err(); err != nil {
		return b, err
	}
	return b, s.owner.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM review WHERE decided_at IS NULL),
		       (SELECT count(*) FROM ledger_entry l JOIN payment_intent i ON i.merchant_id = l.merchant_id AND i.id = l.intent_id
		         WHERE i.merchant_id = $1 AND i.client_reference = $2 AND l.account = 'merchant_payable' AND l.amount < 0)`,
		s.merchant.String(), strconv.FormatInt(number, 10)).Scan(&b.inReview, &b.receipts)
}

// restored is `hapax epoch restored`.
func (s *hapaxService) restored(ctx context.Context) error {
	st, err := store.Open(ctx, app.StoreConfig(s.cfg, quiet))
	if err != nil {
		return err
	}
	defer st.Close()
	return st.EpochRestored(ctx, "the demo restored a copy of the folder")
}

// check is `hapax verify` with the acquirer's register.
func (s *hapaxService) check(ctx context.Context) ([]string, error) {
	report, err := verify.Run(ctx, s.owner, verify.Options{SandboxURL: s.acquirerURL})
	if err != nil {
		return nil, err
	}
	var broken []string
	for _, i := range report.Invariants {
		for _, row := range i.Rows {
			broken = append(broken, i.ID+": "+row.String())
		}
	}
	return broken, nil
}

func (s *hapaxService) reconnect() { s.owner.Reset() }

func (s *hapaxService) close() { s.owner.Close() }

type hapaxBackend struct {
	replica   *app.Replica
	transport *wire.Client
}

func (b *hapaxBackend) handler() http.Handler { return b.replica.Handler }

func (b *hapaxBackend) pass(ctx context.Context) error {
	b.replica.Sweep.Pass(ctx)
	return nil
}

func (b *hapaxBackend) close(ctx context.Context) error {
	defer b.transport.Close()
	return b.replica.Close(ctx)
}

// authorized makes a call with the merchant's key.
func (s *hapaxService) authorized(ctx context.Context, url, key string, body map[string]any) (*http.Request, error) {
	r, err := post(ctx, url, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+s.apiKey)
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	return r, nil
}

func (s *hapaxService) create(ctx context.Context, url, key string, o order) (*http.Request, error) {
	method := "automatic"
	if o.hold {
		method = "manual"
	}
	return s.authorized(ctx, url+"/v1/payments", key, map[string]any{"client_reference": strconv.FormatInt(o.number, 10), "amount": o.amount,
		"currency": o.currency, "flow": "hosted", "return_url": returnURL, "capture_method": method})
}

func (s *hapaxService) ask(ctx context.Context, url, payment string, _ order) (*http.Request, error) {
	return s.authorized(ctx, url+"/v1/payments/"+payment+"/check", "", map[string]any{})
}

func (s *hapaxService) cancel(ctx context.Context, url, key, payment string, _ order, code string) (*http.Request, error) {
	return s.authorized(ctx, url+"/v1/payments/"+payment+"/cancel", key, map[string]any{"code": code})
}

// codeFor lets the service issue a code, which stands in a header here, as in development.
func (s *hapaxService) codeFor(ctx context.Context, st *stage, payment string) (string, error) {
	r, err := s.authorized(ctx, st.replicas[0].url+"/v1/payments/"+payment+"/cancel_code", key1, map[string]any{})
	if err != nil {
		return "", err
	}
	res, err := st.client.Do(r)
	if err != nil {
		return "", err
	}
	code := res.Header.Get("Cancel-Code")
	if code == "" {
		err = fmt.Errorf("no one-time code was issued: status %d", res.StatusCode)
	}
	return code, errors.Join(err, res.Body.Close())
}
