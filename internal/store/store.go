// Package store writes: all SQL, migrations, transactions and the meaning of database errors.
//
// Owns every statement (queries/*.sql), the schema (migrations/*.sql) and InTx, which says what a failed COMMIT means.
// Never decides about a payment, calls out, or reads a clock: time is the database's.
// Read next: intx.go (transactions), guard.go (which database this is), operations.go and permit.go (the engine's statements).
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/store/dbgen"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// PoolMode says what stands between us and PostgreSQL.
type PoolMode string

// The pool modes. Behind a transaction pooler no statement may be prepared by name, because the next one may reach
// another backend.
const (
	PoolDetect      PoolMode = "auto"        // look at the connection: an address changed on the way means a pooler
	PoolSession     PoolMode = "session"     // PostgreSQL itself, or a session pooler
	PoolTransaction PoolMode = "transaction" // a transaction pooler such as pgbouncer
)

// Defaults of Config, each less than the next (PROTOCOL K12).
const (
	DefaultLockTimeout      = 2 * time.Second
	DefaultStatementTimeout = 5 * time.Second
	DefaultIdleInTxTimeout  = 10 * time.Second
	DefaultLease            = 30 * time.Second
	DefaultMaxConns         = 16
)

// Config says how to reach the database. Zero fields take the defaults.
type Config struct {
	URL      string // of the service's role
	MaxConns int
	// The time limits must nest: LockTimeout < StatementTimeout < IdleInTxTimeout < Lease (PROTOCOL K12).
	LockTimeout, StatementTimeout, IdleInTxTimeout, Lease time.Duration
	PoolMode                                              PoolMode
	// Distributed says that this is not one plain PostgreSQL: no SKIP LOCKED across merchants (DESIGN data rule 6).
	Distributed bool
	// NothingLost declares the policy "synchronous quorum, nothing lost": a failover holds nothing (PROTOCOL A8).
	NothingLost bool
	Log         *slog.Logger // nil: slog.Default()
	// Told is called after each commit that wrote events, and must return at once; nil: nobody is to be woken.
	Told func()
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.LockTimeout, DefaultLockTimeout}, {&c.StatementTimeout, DefaultStatementTimeout},
		{&c.IdleInTxTimeout, DefaultIdleInTxTimeout}, {&c.Lease, DefaultLease},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.MaxConns == 0 {
		c.MaxConns = DefaultMaxConns
	}
	if c.PoolMode == "" {
		c.PoolMode = PoolDetect
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

func (c Config) validate() error {
	if c.MaxConns < 1 {
		return errors.New("store: at least one connection is needed")
	}
	switch c.PoolMode {
	case PoolDetect, PoolSession, PoolTransaction:
	default:
		return fmt.Errorf("store: unknown pool mode %q", c.PoolMode)
	}
	if c.LockTimeout < time.Millisecond || c.LockTimeout >= c.StatementTimeout ||
		c.StatementTimeout >= c.IdleInTxTimeout || c.IdleInTxTimeout >= c.Lease {
		return fmt.Errorf("store: time limits must nest (PROTOCOL K12): lock %v < statement %v < idle in transaction %v < lease %v",
			c.LockTimeout, c.StatementTimeout, c.IdleInTxTimeout, c.Lease)
	}
	return nil
}

// Counters count what must be visible from outside (PROTOCOL section 15).
type Counters struct {
	Retries       int64 // transactions run again after a serialization failure or deadlock
	LedgerHits    int64 // unique-index hits in the ledger: a defect upstream, target zero
	CommitUnknown int64 // lost answers to COMMIT
	EpochChanges  int64 // failovers and restores that this process noticed
}

type counters struct{ retries, ledgerHits, commitUnknown, epochChanges atomic.Int64 }

// Store is the database. It is safe for concurrent use.
type Store struct {
	cfg    Config
	pool   *pgxpool.Pool
	begin  pgx.TxOptions // of a writing transaction
	read   pgx.TxOptions // of a reading one
	memory memory
	counts counters
	// numbered is where the relay of this process goes on among the merchants; it keeps the work fair and decides nothing.
	numbered atomic.Pointer[id.ID]
}

// Open connects, and refuses a database that is not a durable primary (PROTOCOL K9: ErrNotDurable), whose schema is
// older than this binary, or limits that do not nest. Close must be called.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s, err := connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := s.checkAtStart(ctx); err != nil {
		s.pool.Close()
		return nil, err
	}
	return s, nil
}

// connect makes a store without a look at what it is connected to.
func connect(ctx context.Context, cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	pc, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, errors.New("store: the database URL cannot be read") // the parser quotes its input
	}
	pc.MaxConns = int32(cfg.MaxConns)
	// A dead peer must be noticed without a deadline on COMMIT (PROTOCOL K12).
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle, Interval: keepAliveEvery, Count: keepAliveCount}}
	pc.ConnConfig.DialFunc = dialer.DialContext
	if cfg.PoolMode == PoolDetect {
		if cfg.PoolMode, err = detectPooler(ctx, pc.ConnConfig); err != nil {
			return nil, err
		}
	}
	limits := []string{"", fmt.Sprintf("lock_timeout = %d", cfg.LockTimeout.Milliseconds()),
		fmt.Sprintf("statement_timeout = %d", cfg.StatementTimeout.Milliseconds()),
		fmt.Sprintf("idle_in_transaction_session_timeout = %d", cfg.IdleInTxTimeout.Milliseconds())}
	if cfg.PoolMode == PoolTransaction {
		pc.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	} else {
		pc.AfterConnect = choosePlans // behind a transaction pooler each statement is planned anew anyhow
		pc.MaxConnLifetime, pc.MaxConnLifetimeJitter = sessionLife, sessionLife/4
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	settings := strings.Join(limits, "; set local ")
	return &Store{
		cfg:  cfg,
		pool: pool,
		// Limits travel with BEGIN: no session state, so that a pooler may change the backend (PROTOCOL K12).
		begin: pgx.TxOptions{BeginQuery: "begin isolation level read committed" + settings, CommitQuery: commitQuery},
		read:  pgx.TxOptions{BeginQuery: "begin isolation level repeatable read read only" + settings, CommitQuery: commitQuery},
	}, nil
}

// matureRows is how many rows the planner must know of before a session may keep its plans.
const matureRows = 1000

// knownRows asks what the planner believes about the tables that grow with every payment. sqlc does not know pg_class.
const knownRows = `SELECT COALESCE(min(c.reltuples), 0)::float8 FROM pg_class c
 WHERE c.relnamespace = 'public'::regnamespace AND c.relname IN ('operation', 'payment', 'payment_intent')`

// choosePlans makes the sessions on a young database plan each statement anew. Every index begins with the merchant
// (DESIGN data rule 1), so that a planner that knows nothing of the tables sees no difference between them, takes any,
// and a kept plan goes on to read all rows of a merchant while the tables grow, until somebody analyzes them.
func choosePlans(ctx context.Context, conn *pgx.Conn) error {
	var rows float64
	if err := conn.QueryRow(ctx, knownRows).Scan(&rows); err != nil {
		return err
	}
	mode := "auto"
	if rows < matureRows {
		mode = "force_custom_plan"
	}
	_, err := conn.Exec(ctx, "set jit = off; set plan_cache_mode = "+mode)
	return err
}

const (
	// sessionLife ends a session that began on a young database, or after a failover on the old one.
	sessionLife    = 10 * time.Minute
	keepAliveIdle  = 15 * time.Second
	keepAliveEvery = 5 * time.Second
	keepAliveCount = 3
)

// Close ends the connections, waiting for those in use.
func (s *Store) Close() { s.pool.Close() }

// PoolMode is the mode in use: as configured, or as detected.
func (s *Store) PoolMode() PoolMode { return s.cfg.PoolMode }

// Counters reads the counters of this process.
func (s *Store) Counters() Counters {
	return Counters{Retries: s.counts.retries.Load(), LedgerHits: s.counts.ledgerHits.Load(),
		CommitUnknown: s.counts.commitUnknown.Load(), EpochChanges: s.counts.epochChanges.Load()}
}

// ErrNoSchema says that the database was never migrated.
var ErrNoSchema = errors.New("store: the database has no schema: run hapax migrate")

func (s *Store) checkAtStart(ctx context.Context) error {
	var version int32
	err := s.inTx(ctx, "check schema", s.read, func(ctx context.Context, t *tx) error {
		var err error
		version, err = t.q.SchemaVersion(ctx)
		return t.fail("schema version", err)
	})
	switch {
	case isCode(err, undefinedTable):
		return ErrNoSchema
	case err != nil:
		return err
	case int(version) < LatestVersion():
		return fmt.Errorf("store: the schema has version %d, this binary needs %d: run hapax migrate", version, LatestVersion())
	}
	err = s.inTx(ctx, "check database", s.begin, func(ctx context.Context, t *tx) error {
		_, err := t.Guard(ctx)
		return err
	})
	if errors.Is(err, operation.ErrOnHold) { // sends wait, everything else goes on
		return nil
	}
	return err
}

// detectPooler compares the address from which we connect with the one that the server sees.
func detectPooler(ctx context.Context, cfg *pgx.ConnConfig) (mode PoolMode, err error) {
	cfg = cfg.Copy()
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return "", fmt.Errorf("store: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	seen, err := dbgen.New(conn).ClientPort(ctx)
	if err != nil {
		return "", fmt.Errorf("store: %w", err)
	}
	own := 0 // a socket in the file system
	if address, ok := conn.PgConn().Conn().LocalAddr().(*net.TCPAddr); ok {
		own = address.Port
	}
	if own != int(seen) {
		return PoolTransaction, nil
	}
	return PoolSession, nil
}
