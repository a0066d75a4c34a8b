package bench

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hapaxpay/hapax/internal/app"
	"github.com/hapaxpay/hapax/internal/auth"
	"github.com/hapaxpay/hapax/internal/config"
	"github.com/hapaxpay/hapax/internal/devdb"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/host"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/store"
	"github.com/hapaxpay/hapax/money"
)

// lab is where everything is measured: one private PostgreSQL with its safe settings, an acquirer, a merchant.
type lab struct {
	dir      string
	server   *devdb.Server
	acquirer *instant
	cfg      config.Config
	merchant id.ID
	apiKey   string
	log      *slog.Logger
	paid     int // how many references were used
}

// measureDatabase is where pgbench works, beside Hapax's in the same cluster.
const measureDatabase = "measure"

// closeWithin bounds the end of a replica.
const closeWithin = 30 * time.Second

func openLab(ctx context.Context) (*lab, error) {
	dir, err := devdb.TemporaryDir()
	if err != nil {
		return nil, err
	}
	l := &lab{dir: dir, log: slog.New(slog.DiscardHandler)}
	if l.server, err = devdb.Start(ctx, devdb.Config{Dir: filepath.Join(dir, "cluster"), Settings: map[string]string{"max_connections": "200"}}); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := l.prepare(ctx); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *lab) prepare(ctx context.Context) (err error) {
	if l.acquirer, err = startInstant(); err != nil {
		return err
	}
	if err := store.Migrate(ctx, l.server.URL(devdb.RoleOwner, devdb.Database)); err != nil {
		return err
	}
	if err := l.as(ctx, devdb.Superuser, "postgres", "CREATE DATABASE "+measureDatabase+" OWNER "+devdb.RoleOwner); err != nil {
		return err
	}
	if err := l.as(ctx, devdb.RoleOwner, measureDatabase, measureSchema); err != nil {
		return err
	}
	secret := make([]byte, 32)
	rand.Read(secret) // never fails: the program ends if the system has no randomness
	l.cfg = config.Config{DatabaseURL: l.server.URL(devdb.RoleService, devdb.Database), SecretKey: base64.StdEncoding.EncodeToString(secret),
		Environment: "bench", AnswerWithin: 8 * time.Second, CallUntil: 25 * time.Second, Lease: 30 * time.Second, Fresh: 10 * time.Second,
		Connect: time.Second, Read: 10 * time.Second, KeyRetention: 720 * time.Hour, SweepEvery: time.Second, RelayEvery: 250 * time.Millisecond, WebhookDisableAfter: 120 * time.Hour, MaxAmount: money.MaxMinor,
		RateLimit: 1_000_000, FailoverPolicy: "compare", PoolMode: "session", PoolSize: 16}
	return l.addMerchant(ctx)
}

// as runs statements as a role.
func (l *lab) as(ctx context.Context, role, database, sql string) error {
	conn, err := pgx.Connect(ctx, l.server.URL(role, database))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
}

func (l *lab) addMerchant(ctx context.Context) error {
	var rt host.Runtime
	l.merchant = rt.NewID()
	account := rt.NewID()
	ring, err := auth.ParseKeyring(l.cfg.SecretKey)
	if err != nil {
		return err
	}
	sealed, err := ring.Seal(l.merchant, account, []byte(`{"secret":"bench"}`))
	if err != nil {
		return err
	}
	settings, err := json.Marshal(map[string]string{"url": l.acquirer.url})
	if err != nil {
		return err
	}
	var random [auth.SecretBytes]byte
	rand.Read(random[:]) // never fails
	text, hash := auth.NewKey(auth.Test, l.merchant, random)
	l.apiKey = text
	st, err := store.Open(ctx, app.StoreConfig(l.cfg, l.log))
	if err != nil {
		return err
	}
	defer st.Close()
	return errors.Join(
		st.CreateMerchant(ctx, store.Merchant{ID: l.merchant, Name: "bench", Mode: auth.Test}),
		st.AddAccount(ctx, flow.Account{Merchant: l.merchant, ID: account, Adapter: "sandbox", Settings: settings, Secrets: sealed}),
		st.AddAPIKey(ctx, l.merchant, rt.NewID(), hash, "bench"))
}

// replica opens one, with its HTTP door on loopback.
func (l *lab) replica(ctx context.Context, o app.Options) (*serving, error) {
	o.Log, o.Version = l.log, "bench"
	r, err := app.Open(ctx, l.cfg, o)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, end(ctx, r))
	}
	s := &serving{Replica: r, url: "http://" + listener.Addr().String(), served: make(chan error, 1)}
	go func() { s.served <- r.Serve(listener) }()
	return s, nil
}

// serving is one replica that answers.
type serving struct {
	*app.Replica
	url    string
	served chan error
}

func (s *serving) stop(ctx context.Context) error {
	return errors.Join(end(ctx, s.Replica), <-s.served)
}

func end(ctx context.Context, r *app.Replica) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	return r.Close(ctx)
}

// warmUp makes payments that are not measured, until the planner knows the tables: on a young database each statement is planned
// anew, see store.choosePlans.
func (l *lab) warmUp(ctx context.Context) error {
	for made := 0; made < warmUpPayments; {
		took, err := l.pay(ctx, 16, time.Second)
		if err != nil {
			return err
		}
		made += len(took)
	}
	return l.as(ctx, devdb.RoleOwner, devdb.Database, "ANALYZE")
}

const warmUpPayments = 1500

// close ends the cluster. Nothing in it is needed again, so no time is spent on a clean stop.
func (l *lab) close() error {
	var err error
	if l.acquirer != nil {
		err = l.acquirer.close()
	}
	return errors.Join(err, l.server.Kill(), os.RemoveAll(l.dir))
}
