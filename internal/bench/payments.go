package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hapaxpay/hapax/internal/app"
)

// payments measures payments through the HTTP door with so many callers, each of which waits for its answer.
func (l *lab) payments(ctx context.Context, name string, callers int, each time.Duration) (Point, error) {
	took, err := l.pay(ctx, callers, each)
	return pointOf(name, took, each), err
}

// pay makes payments on a replica of its own and gives how long each took.
func (l *lab) pay(ctx context.Context, callers int, each time.Duration) (took []time.Duration, err error) {
	r, err := l.replica(ctx, app.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.stop(ctx)) }()
	return l.load(ctx, r.url, callers, each)
}

// load lets callers pay one after the other until the time is over.
func (l *lab) load(ctx context.Context, url string, callers int, each time.Duration) ([]time.Duration, error) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers, MaxConnsPerHost: callers}}
	defer client.CloseIdleConnections()
	l.paid++
	run, until := l.paid, time.Now().Add(each)
	results := make([][]time.Duration, callers)
	errs := make([]error, callers)
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for n := 0; errs[c] == nil && time.Now().Before(until); n++ {
				begun := time.Now()
				errs[c] = l.payOnce(ctx, client, url, fmt.Sprintf("order-%d-%d-%d", run, c, n))
				results[c] = append(results[c], time.Since(begun))
			}
		})
	}
	all.Wait()
	var took []time.Duration
	for _, r := range results {
		took = append(took, r...)
	}
	return took, errors.Join(errs...)
}

func (l *lab) payOnce(ctx context.Context, client *http.Client, url, order string) (err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/payments",
		strings.NewReader(`{"amount":499000,"currency":"KZT","client_reference":"`+order+`","payment_method":"pm_ok"}`))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+l.apiKey)
	req.Header.Set("Idempotency-Key", order)
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err == nil && res.StatusCode != http.StatusCreated {
		err = fmt.Errorf("a payment was answered with %d: %.200s", res.StatusCode, body)
	}
	return err
}
