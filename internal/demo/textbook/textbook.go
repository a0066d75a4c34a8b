// Package textbook is the repaired protocol that answers the two incidents in the article they come
// from, ported to Go as published: an example that Hapax is shown against. NEVER USE IT: it is neither
// stronger nor weaker than its text, and the demo shows in which cases it still charges twice or says
// what is not so.
//
// Owns the claim with lease and attempt, the three phases, its table of outcomes, its one retry with
// the same key over Go's stock transport, and its reconciliation.
// Never improved where a case breaks it: that is what it is for.
// Read next service.go, which follows one payment through the three phases.
package textbook

import (
	"context"
	_ "embed"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The figures of the article; Config.Scale divides the durations.
const (
	lease               = 30 * time.Second // recovery, not exclusivity
	retention           = 7 * 24 * time.Hour
	reconciliationGrace = 30 * time.Second // lets the acquirer update its status
	reconcileDelay      = 15 * time.Second
	connectTimeout      = 500 * time.Millisecond
	readTimeout         = 3 * time.Second
	retryDelay          = 300 * time.Millisecond
	retryJitter         = 100 * time.Millisecond // either way, so that a pause is 400 ms at most
	// defaultProviderKeyWindow is the shortest retention of keys that the article quotes of an acquirer.
	defaultProviderKeyWindow = 24 * time.Hour
)

// Points at which Config.Hook is called: the first four in a client's request, the last in a pass of
// Reconcile.
const (
	PointAfterClaim         = "after-claim"          // phase 1 is committed, nothing is sent
	PointAfterLookup        = "after-lookup"         // a reclaimed key: the acquirer knows no charge, about to charge
	PointAfterCall          = "after-call"           // phase 2 is over, the outcome is in memory alone
	PointBeforeRecord       = "before-record"        // about to begin phase 3
	PointReconcileAfterCall = "reconcile-after-call" // a pass has an outcome, about to record it
)

//go:embed schema.sql
var schema string

// Config says what one replica works with. Several replicas are several services over one database.
type Config struct {
	DatabaseURL    string        // used when Pool is nil
	Pool           *pgxpool.Pool // stays the caller's: Close leaves it open
	AcquirerURL    string
	AcquirerSecret string
	Scale          int // divides every duration, ProviderKeyWindow too; 0 means 1
	// ProviderKeyWindow is how long the acquirer keeps a key, counted from the payment's creation;
	// 0 means 24 h.
	ProviderKeyWindow time.Duration
	// CanPay is the access policy: may this merchant pay this intent. nil allows all.
	CanPay func(merchantID, paymentIntentID int64) bool
	Hook   func(point string) // may block, or end the request there by runtime.Goexit; nil does nothing
	Logger *slog.Logger       // nil discards
}

// Service is one replica.
type Service struct {
	cfg      Config
	pool     *pgxpool.Pool
	acquirer acquirer
}

// New makes one replica. It fails on a database address that cannot be read; it connects later.
func New(cfg Config) (*Service, error) {
	if cfg.Scale == 0 {
		cfg.Scale = 1
	}
	if cfg.Scale < 0 {
		return nil, fmt.Errorf("textbook: scale %d is negative", cfg.Scale)
	}
	if cfg.ProviderKeyWindow == 0 {
		cfg.ProviderKeyWindow = defaultProviderKeyWindow
	}
	if cfg.CanPay == nil {
		cfg.CanPay = func(int64, int64) bool { return true }
	}
	if cfg.Hook == nil {
		cfg.Hook = func(string) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Service{cfg: cfg, pool: cfg.Pool}
	s.acquirer = newAcquirer(cfg.AcquirerURL, cfg.AcquirerSecret, time.Duration(cfg.Scale))
	if s.pool == nil {
		pool, err := pgxpool.New(context.Background(), cfg.DatabaseURL)
		if err != nil {
			return nil, fmt.Errorf("textbook: database: %w", err)
		}
		s.pool = pool
	}
	return s, nil
}

// Close ends the replica's connections to the acquirer, and to the database when New opened them.
func (s *Service) Close() {
	s.acquirer.http.CloseIdleConnections()
	if s.cfg.Pool == nil {
		s.pool.Close()
	}
}

// Migrate creates the service's own schema, `textbook`. One replica calls it, once, before the others start.
func (s *Service) Migrate(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, schema); err != nil {
		return fmt.Errorf("textbook: migrate: %w", err)
	}
	return nil
}

// Payment is what the service believes about one payment.
type Payment struct {
	ID            int64
	Status        string // PENDING, UNKNOWN, PAID, DECLINED or FAILED
	TransactionID string // the acquirer's id, empty until PAID
	InReview      bool   // handed to a person
}

// Payments reads what the service believes about an intent, oldest first.
func (s *Service) Payments(ctx context.Context, paymentIntentID int64) ([]Payment, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT p.id, p.status, COALESCE(p.transaction_id, ''), r.payment_id IS NOT NULL
		  FROM textbook.payments p
		  LEFT JOIN textbook.manual_review r ON r.payment_id = p.id
		 WHERE p.payment_intent_id = $1
		 ORDER BY p.id`, paymentIntentID)
	if err != nil {
		return nil, fmt.Errorf("textbook: payments of intent %d: %w", paymentIntentID, err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Payment])
}

func (s *Service) scaled(d time.Duration) time.Duration { return d / time.Duration(s.cfg.Scale) }
