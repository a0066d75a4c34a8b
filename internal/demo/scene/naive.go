package scene

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/internal/demo/naive"
)

// naiveService is the service of the incidents. Nothing in it recovers, so time changes nothing in its database.
type naiveService struct {
	databaseURL, acquirerURL string
	reader                   *naive.Service // the first replica that was opened, or a later one after a restore
}

var naivePoints = map[string]point{naive.PointAfterClaim: beforeCall, naive.PointAfterCall: afterCall}

func (s *naiveService) open(ctx context.Context, p *process) (backend, error) {
	n, err := naive.New(naive.Config{DatabaseURL: s.databaseURL, AcquirerURL: s.acquirerURL, AcquirerSecret: acquirerSecret,
		Scale: scale, Hook: hook(p, naivePoints)})
	if err != nil {
		return nil, err
	}
	s.reader = n
	return naiveBackend{n}, n.Migrate(ctx)
}

// hook ends the request of a process that is gone, as the end of the process would.
func hook(p *process, points map[string]point) func(string) {
	return func(name string) {
		if at, ok := points[name]; ok && !p.meet(at) {
			runtime.Goexit()
		}
	}
}

func (s *naiveService) request(ctx context.Context, url, _ string, o order) (*http.Request, error) {
	return post(ctx, url+"/payments", map[string]any{
		"order_id": o.number, "amount": o.amount, "currency": o.currency, "payment_method": o.method,
	})
}

// post makes a request that Go's transport will not repeat by itself: the scenarios decide who repeats.
func post(ctx context.Context, url string, body map[string]any) (*http.Request, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	r.GetBody = nil
	r.Header.Set("Content-Type", "application/json")
	return r, nil
}

func (s *naiveService) age(context.Context, time.Duration) error { return nil }
func (s *naiveService) settled(context.Context) (bool, error)    { return true, nil }
func (s *naiveService) restored(context.Context) error           { return nil }
func (s *naiveService) check(context.Context) ([]string, error)  { return nil, nil }
func (s *naiveService) reconnect()                               {}
func (s *naiveService) close()                                   {}

func (s *naiveService) believes(ctx context.Context, number int64) (believed, error) {
	payments, err := s.reader.Payments(ctx, number)
	if err != nil {
		return believed{}, err
	}
	b := believed{status: "none"}
	for _, p := range payments {
		b.status = strings.ToLower(p.Status)
		if b.status == "paid" {
			b.receipts++
		}
	}
	page, receipts, err := s.reader.Hosted(ctx, number)
	b.status, b.receipts = strings.ToLower(cmp.Or(page, b.status)), b.receipts+receipts
	return b, err
}

type naiveBackend struct{ *naive.Service }

func (b naiveBackend) handler() http.Handler      { return b.Handler() }
func (b naiveBackend) pass(context.Context) error { return nil }
func (b naiveBackend) close(context.Context) error {
	b.Close()
	return nil
}

func (s *naiveService) create(ctx context.Context, url, _ string, o order) (*http.Request, error) {
	return createPage(ctx, url, o)
}

func (s *naiveService) ask(ctx context.Context, url, _ string, o order) (*http.Request, error) {
	return checkPage(ctx, url, o)
}

func (s *naiveService) cancel(ctx context.Context, url, _, _ string, o order, code string) (*http.Request, error) {
	return cancelPage(ctx, url, o, code)
}

func (s *naiveService) codeFor(context.Context, *stage, string) (string, error) {
	return oneTimeCode, nil
}

// The hosted flow of naive and textbook has one form, that of the article which both come from.
func createPage(ctx context.Context, url string, o order) (*http.Request, error) {
	return post(ctx, url+"/sessions", map[string]any{"order_id": o.number, "amount": o.amount, "currency": o.currency, "hold": o.hold,
		"return_url": returnURL, "code": oneTimeCode})
}

func checkPage(ctx context.Context, url string, o order) (*http.Request, error) {
	return post(ctx, url+"/check", map[string]any{"order_id": o.number})
}

func cancelPage(ctx context.Context, url string, o order, code string) (*http.Request, error) {
	return post(ctx, url+"/cancel", map[string]any{"order_id": o.number, "code": code})
}
