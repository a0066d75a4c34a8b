package scene

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hapaxpay/hapax/internal/demo/textbook"
)

// textbookService is the repaired protocol. Its own scale shortens its lease and its window as well, so that time that
// passes is divided by it.
type textbookService struct {
	databaseURL, acquirerURL string
	pool                     *pgxpool.Pool
	reader                   *textbook.Service
}

var textbookPoints = map[string]point{textbook.PointAfterClaim: beforeCall, textbook.PointAfterCall: afterCall}

func newTextbook(ctx context.Context, databaseURL, acquirerURL string) (service, error) {
	pool, err := pgxpool.New(ctx, databaseURL)
	if err != nil {
		return nil, err // not in one line: a nil pointer is no nil service
	}
	return &textbookService{databaseURL: databaseURL, acquirerURL: acquirerURL, pool: pool}, nil
}

func (s *textbookService) open(ctx context.Context, p *process) (backend, error) {
	t, err := textbook.New(textbook.Config{DatabaseURL: s.databaseURL, AcquirerURL: s.acquirerURL, AcquirerSecret: acquirerSecret,
		Scale: scale, Hook: hook(p, textbookPoints)})
	if err != nil {
		return nil, err
	}
	s.reader = t
	return textbookBackend{t}, t.Migrate(ctx)
}

func (s *textbookService) request(ctx context.Context, url, key string, o order) (*http.Request, error) {
	r, err := post(ctx, url+"/payments", map[string]any{
		"payment_intent_id": o.number, "amount": o.amount, "currency": o.currency, "payment_method": o.method,
	})
	if err != nil {
		return nil, err
	}
	r.Header.Set(textbook.MerchantHeader, merchantNumber)
	r.Header.Set("Idempotency-Key", key)
	return r, nil
}

func (s *textbookService) age(ctx context.Context, by time.Duration) error {
	_, err := s.pool.Exec(ctx, `
		WITH shift AS (SELECT make_interval(secs => $1) AS d),
		     keys AS (UPDATE textbook.idempotency_keys
		                 SET lease_until = lease_until - d, expires_at = expires_at - d, created_at = created_at - d
		                FROM shift),
		     sessions AS (UPDATE textbook.sessions SET lease_until = lease_until - d FROM shift)
		UPDATE textbook.payments SET created_at = created_at - d FROM shift`, by.Seconds()/scale)
	return err
}

func (s *textbookService) settled(ctx context.Context) (settled bool, err error) {
	err = s.pool.QueryRow(ctx, `
		SELECT NOT EXISTS (SELECT FROM textbook.payments p
		                    WHERE p.status IN ('PENDING', 'UNKNOWN')
		                      AND NOT EXISTS (SELECT FROM textbook.manual_review r WHERE r.payment_id = p.id))`).Scan(&settled)
	return settled, err
}

func (s *textbookService) believes(ctx context.Context, number int64) (believed, error) {
	payments, err := s.reader.Payments(ctx, number)
	b := believed{status: "none", keys: map[string]string{}}
	if err != nil {
		return b, err
	}
	for _, p := range payments {
		if p.Status == "PAID" {
			b.receipts++
		}
		b.status, b.inReview = strings.ToLower(p.Status), b.inReview || p.InReview
	}
	for _, key := range allKeys {
		b.keys[key] = merchantNumber + ":" + key // as it names them to the acquirer
	}
	page, receipts, err := s.reader.Hosted(ctx, number)
	b.status, b.receipts = strings.ToLower(cmp.Or(page, b.status)), b.receipts+receipts
	return b, err
}

func (s *textbookService) restored(context.Context) error          { return nil }
func (s *textbookService) check(context.Context) ([]string, error) { return nil, nil }
func (s *textbookService) reconnect()                              { s.pool.Reset() }
func (s *textbookService) close()                                  { s.pool.Close() }

type textbookBackend struct{ *textbook.Service }

func (b textbookBackend) handler() http.Handler { return b.Handler() }
func (b textbookBackend) pass(ctx context.Context) error {
	return errors.Join(b.Reconcile(ctx), b.SweepSessions(ctx))
}
func (b textbookBackend) close(context.Context) error {
	b.Close()
	return nil
}

func (s *textbookService) create(ctx context.Context, url, _ string, o order) (*http.Request, error) {
	return createPage(ctx, url, o)
}

func (s *textbookService) ask(ctx context.Context, url, _ string, o order) (*http.Request, error) {
	return checkPage(ctx, url, o)
}

func (s *textbookService) cancel(ctx context.Context, url, _, _ string, o order, code string) (*http.Request, error) {
	return cancelPage(ctx, url, o, code)
}

func (s *textbookService) codeFor(context.Context, *stage, string) (string, error) {
	return oneTimeCode, nil
}
