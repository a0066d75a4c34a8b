// Package naive is the service of the two incidents, kept with its faults: an example that Hapax is
// shown against. It charges twice. NEVER USE IT, never copy from it.
//
// Owns the payment method that passed its review: one transaction around everything, look for PAID,
// insert PENDING, call the acquirer without a key, call again after a read time-out.
// Never repaired: each fault below is the one that the incidents showed.
// Read next internal/demo/textbook, the same service after its repair.
package naive

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The figures of the incidents; Config.Scale divides the durations.
const (
	readTimeout     = 5 * time.Second
	maxRetries      = 2
	retryDelay      = time.Second
	retryMultiplier = 2
)

// Points at which Config.Hook is called, in the order in which a request passes them. Each try of
// the retry policy passes them again.
const (
	PointAfterLook    = "after-look"    // no PAID payment was found
	PointAfterClaim   = "after-claim"   // PENDING is inserted, not committed
	PointAfterCall    = "after-call"    // the acquirer answered
	PointBeforeRecord = "before-record" // about to mark the payment paid and commit
)

//go:embed schema.sql
var schema string

// Config says what one replica works with. Several replicas are several services over one database.
type Config struct {
	DatabaseURL    string        // used when Pool is nil
	Pool           *pgxpool.Pool // stays the caller's: Close leaves it open
	AcquirerURL    string
	AcquirerSecret string
	Scale          int                // divides every duration; 0 means 1
	Hook           func(point string) // may block, or end the request there by runtime.Goexit; nil does nothing
	// Publish stands for the broker to which orders.paid goes from inside the transaction; nil drops the event.
	Publish func(orderID int64, transactionID string)
	Logger  *slog.Logger // nil discards
}

// Service is one replica of the service of the incidents.
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
		return nil, fmt.Errorf("naive: scale %d is negative", cfg.Scale)
	}
	if cfg.Hook == nil {
		cfg.Hook = func(string) {}
	}
	if cfg.Publish == nil {
		cfg.Publish = func(int64, string) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Service{cfg: cfg, pool: cfg.Pool}
	s.acquirer = newAcquirer(cfg.AcquirerURL, cfg.AcquirerSecret, s.scaled(readTimeout))
	if s.pool == nil {
		pool, err := pgxpool.New(context.Background(), cfg.DatabaseURL)
		if err != nil {
			return nil, fmt.Errorf("naive: database: %w", err)
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

// Migrate creates the service's own schema, `naive`. One replica calls it, once, before the others start.
func (s *Service) Migrate(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, schema); err != nil {
		return fmt.Errorf("naive: migrate: %w", err)
	}
	return nil
}

// Payment is a committed row of the service's table.
type Payment struct {
	ID            int64
	Status        string // PENDING or PAID
	TransactionID string // the acquirer's id, empty until PAID
}

// Payments reads what the service believes about an order, oldest first.
func (s *Service) Payments(ctx context.Context, orderID int64) ([]Payment, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT id, status, COALESCE(transaction_id, '')
		  FROM naive.payments
		 WHERE order_id = $1
		 ORDER BY id`, orderID)
	if err != nil {
		return nil, fmt.Errorf("naive: payments of order %d: %w", orderID, err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Payment])
}

func (s *Service) scaled(d time.Duration) time.Duration { return d / time.Duration(s.cfg.Scale) }

// payRetrying is the retry policy around the payment method. It stands outside the transaction, so
// that each try looks, inserts and charges anew: after a transport failure "we do not know" is taken
// for "it did not happen".
func (s *Service) payRetrying(ctx context.Context, req payRequest) (payResponse, error) {
	delay := s.scaled(retryDelay)
	for try := 0; ; try++ {
		resp, err := s.pay(ctx, req)
		var transport *transportError
		if !errors.As(err, &transport) || try == maxRetries {
			return resp, err
		}
		s.cfg.Logger.Warn("charge failed, calling again", "order_id", req.OrderID, "error", err)
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return payResponse{}, ctx.Err()
		}
		delay *= retryMultiplier
	}
}

// pay is the method of the incidents, line by line. The transaction holds a connection for as long as
// the acquirer takes, and its rollback removes the only trace of a charge whose answer was lost.
func (s *Service) pay(ctx context.Context, req payRequest) (resp payResponse, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		var paid bool
		if err := tx.QueryRow(ctx, `
			SELECT EXISTS (SELECT 1 FROM naive.payments WHERE order_id = $1 AND status = 'PAID')`,
			req.OrderID).Scan(&paid); err != nil {
			return fmt.Errorf("look for a paid payment: %w", err)
		}
		if paid {
			resp = payResponse{OrderID: req.OrderID, Status: "already_paid"}
			return nil
		}
		s.cfg.Hook(PointAfterLook)

		var id int64
		if err := tx.QueryRow(ctx, `
			INSERT INTO naive.payments (order_id, amount_minor, currency, status)
			VALUES ($1, $2, $3, 'PENDING')
			RETURNING id`, req.OrderID, req.Amount, req.Currency).Scan(&id); err != nil {
			return fmt.Errorf("insert pending: %w", err)
		}
		s.cfg.Hook(PointAfterClaim)

		s.cfg.Logger.Info("charge start", "order_id", req.OrderID, "amount", req.Amount)
		transactionID, err := s.acquirer.charge(ctx, req)
		if err != nil {
			return err
		}
		s.cfg.Logger.Info("charge ok", "order_id", req.OrderID, "transaction_id", transactionID)
		s.cfg.Hook(PointAfterCall)

		s.cfg.Hook(PointBeforeRecord)
		if _, err := tx.Exec(ctx, `
			UPDATE naive.payments SET status = 'PAID', transaction_id = $2 WHERE id = $1`,
			id, transactionID); err != nil {
			return fmt.Errorf("mark paid: %w", err)
		}
		// Sent whether or not the commit that follows succeeds.
		s.cfg.Publish(req.OrderID, transactionID)
		resp = payResponse{OrderID: req.OrderID, Status: "paid", TransactionID: transactionID}
		return nil
	})
	return resp, err
}

// Handler serves POST /payments {order_id, amount, currency, payment_method}: 200 paid or
// already_paid, 400 for a body it cannot read, 500 for everything else.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /payments", s.handlePay)
	s.hostedRoutes(mux)
	return mux
}
