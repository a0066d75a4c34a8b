package textbook

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hapaxpay/hapax/internal/dbtest"
)

// fakeAcquirer counts what reaches it and answers as a test says; it keeps no books.
type fakeAcquirer struct {
	charge func(n int, w http.ResponseWriter, r *http.Request) // n counts charges from 1; nil approves
	lookup http.HandlerFunc                                    // nil answers 404

	mu      sync.Mutex
	keys    []string // Idempotency-Key of each charge, in order
	lookups []string // idempotency_key of each lookup, in order
}

func (f *fakeAcquirer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The body is read to its end, so that the server notices when the client goes.
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	f.mu.Lock()
	if r.Method == http.MethodGet {
		f.lookups = append(f.lookups, r.URL.Query().Get("idempotency_key"))
	} else {
		f.keys = append(f.keys, r.Header.Get("Idempotency-Key"))
	}
	n := len(f.keys)
	f.mu.Unlock()
	switch {
	case r.Method == http.MethodGet && f.lookup == nil:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodGet:
		f.lookup(w, r)
	case f.charge == nil:
		approve(w, r)
	default:
		f.charge(n, w, r)
	}
}

func (f *fakeAcquirer) seen() (keys, lookups []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.keys...), append([]string(nil), f.lookups...)
}

// approve may fail to write: to a client that went away there is nobody to tell.
func approve(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprint(w, `{"id":"A-1","status":"succeeded"}`)
}

// list answers a lookup with the charge that approve answers.
func list(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprint(w, `{"data":[{"id":"A-1","status":"succeeded"}]}`)
}

// start serves one replica and the acquirer over a database of the test's own.
func start(t *testing.T, acquirer http.Handler, cfg Config) (*Service, string) {
	t.Helper()
	server := httptest.NewServer(acquirer)
	t.Cleanup(server.Close)
	return startAgainst(t, server.URL, cfg)
}

// startAgainst serves one replica over a database of the test's own.
func startAgainst(t *testing.T, acquirerURL string, cfg Config) (*Service, string) {
	t.Helper()
	cfg.Pool, cfg.AcquirerURL, cfg.AcquirerSecret = dbtest.OpenEmpty(t).OwnerPool(t), acquirerURL, "s"
	svc, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := svc.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(svc.Handler())
	t.Cleanup(func() { server.Close(); svc.Close() })
	return svc, server.URL
}

// reply is what a client got; status 0 says that the connection ended without an answer.
type reply struct {
	status int
	body   string
	header http.Header
}

var request = payRequest{PaymentIntentID: 784512, Amount: 499_000, Currency: "RUB", PaymentMethod: "pm_test"}

// post sends one payment and reports a failure without ending the test, so that any goroutine may call it.
func post(t *testing.T, url string, ck clientKey, r payRequest) reply {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url+"/payments", strings.NewReader(fmt.Sprintf(
		`{"payment_intent_id":%d,"amount":%d,"currency":%q,"payment_method":%q}`,
		r.PaymentIntentID, r.Amount, r.Currency, r.PaymentMethod)))
	if err != nil {
		t.Error(err)
		return reply{}
	}
	req.GetBody = nil // the client's transport must not repeat by itself
	req.Header.Set("Idempotency-Key", ck.value)
	req.Header.Set(MerchantHeader, strconv.FormatInt(ck.merchantID, 10))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{}
	}
	raw, err := io.ReadAll(res.Body)
	if closeErr := res.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		t.Error(err)
	}
	return reply{status: res.StatusCode, body: string(raw), header: res.Header}
}

func exec(t *testing.T, svc *Service, sql string, args ...any) {
	t.Helper()
	if _, err := svc.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func expireLease(t *testing.T, svc *Service, ck clientKey) {
	t.Helper()
	exec(t, svc, `UPDATE textbook.idempotency_keys SET lease_until = now() - interval '1 second'
	          WHERE merchant_id = $1 AND idempotency_key = $2`, ck.merchantID, ck.value)
}

// stuck writes what an owner that vanished leaves behind, its lease over.
func stuck(t *testing.T, svc *Service, ck clientKey, paymentStatus, keyStatus, age string) {
	t.Helper()
	exec(t, svc, `INSERT INTO textbook.idempotency_keys
	                (merchant_id, idempotency_key, request_hash, status, lease_until, expires_at)
	         VALUES ($1, $2, $3, $4, now() - interval '1 second', now() + interval '7 days')`,
		ck.merchantID, ck.value, fingerprint(request), keyStatus)
	exec(t, svc, `INSERT INTO textbook.payments
	                (merchant_id, idempotency_key, payment_intent_id, amount_minor, currency, payment_method_id, status, created_at)
	         VALUES ($1, $2, $3, $4, $5, $6, $7, now() - $8::interval)`,
		ck.merchantID, ck.value, request.PaymentIntentID, request.Amount, request.Currency, request.PaymentMethod,
		paymentStatus, age)
}

// wantState checks the one payment of the intent, its key, the events and the queue of reviews.
func wantState(t *testing.T, svc *Service, ck clientKey, paymentStatus, keyStatus string, events int, review bool) {
	t.Helper()
	payments, err := svc.Payments(t.Context(), request.PaymentIntentID)
	if err != nil {
		t.Fatal(err)
	}
	if len(payments) != 1 || payments[0].Status != paymentStatus || payments[0].InReview != review {
		t.Errorf("payments are %+v, want one %s, in review %t", payments, paymentStatus, review)
	}
	key, err := findKey(t.Context(), svc.pool, ck)
	if err != nil {
		t.Fatal(err)
	}
	if key.status != keyStatus {
		t.Errorf("the key is %s, want %s", key.status, keyStatus)
	}
	var got int
	if err := svc.pool.QueryRow(t.Context(), `SELECT count(*) FROM textbook.outbox`).Scan(&got); err != nil {
		t.Fatal(err)
	}
	if got != events {
		t.Errorf("%d events, want %d", got, events)
	}
}
