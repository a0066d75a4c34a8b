package naive

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hapaxpay/hapax/internal/dbtest"
)

// fakeAcquirer books whatever it is asked to; before runs first and may hold the booking back.
type fakeAcquirer struct {
	before func(n int, clientGone <-chan struct{}) // n counts calls from 1

	mu       sync.Mutex
	calls    int
	bookings []string // reference of each, in order
	keyed    bool     // a call carried an Idempotency-Key
}

func (f *fakeAcquirer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var charge struct {
		Reference string `json:"reference"`
	}
	// The body is read to its end, so that the server notices when the client goes.
	raw, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(raw, &charge) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	f.calls++
	n := f.calls
	f.keyed = f.keyed || r.Header.Get("Idempotency-Key") != ""
	f.mu.Unlock()
	f.before(n, r.Context().Done())
	f.mu.Lock()
	f.bookings = append(f.bookings, charge.Reference)
	id := len(f.bookings)
	f.mu.Unlock()
	// Fails when the client has gone, which one of the tests is about.
	fmt.Fprintf(w, `{"id":"A-%d","status":"succeeded"}`, id)
}

func (f *fakeAcquirer) booked() (bookings []string, keyed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.bookings...), f.keyed
}

// startReplica serves one replica over the database.
func startReplica(t *testing.T, pool *pgxpool.Pool, acquirer string, scale int, hook func(string)) (*Service, string) {
	t.Helper()
	svc, err := New(Config{Pool: pool, AcquirerURL: acquirer, AcquirerSecret: "s", Scale: scale, Hook: hook})
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

// pay posts one payment; status 0 says that the connection ended without an answer.
func pay(t *testing.T, url string, order int64) (status int, body string) {
	t.Helper()
	res, err := http.Post(url+"/payments", "application/json", strings.NewReader(fmt.Sprintf(
		`{"order_id":%d,"amount":499000,"currency":"RUB","payment_method":"pm_ok"}`, order)))
	if err != nil {
		return 0, ""
	}
	raw, err := io.ReadAll(res.Body)
	if closeErr := res.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		t.Error(err)
	}
	return res.StatusCode, string(raw)
}

// Incident 1: the acquirer books after the read time-out; the retry policy calls again without a key.
func TestIncident1ReadTimeoutIsCalledAgainAndChargesTwice(t *testing.T) {
	const order = 784512
	firstBooked := make(chan struct{})
	acquirer := &fakeAcquirer{}
	acquirer.before = func(n int, clientGone <-chan struct{}) {
		if n == 1 {
			<-clientGone
			close(firstBooked)
			return
		}
		<-firstBooked
	}
	server := httptest.NewServer(acquirer)
	t.Cleanup(server.Close)
	svc, url := startReplica(t, dbtest.OpenEmpty(t).OwnerPool(t), server.URL, 10, nil)

	status, body := pay(t, url, order)
	if status != http.StatusOK || !strings.Contains(body, `"status":"paid"`) {
		t.Fatalf("answered %d %s, want 200 paid", status, body)
	}
	bookings, keyed := acquirer.booked()
	if len(bookings) != 2 || keyed {
		t.Fatalf("the acquirer booked %v (keyed %t), want two charges without a key", bookings, keyed)
	}
	payments, err := svc.Payments(t.Context(), order)
	if err != nil {
		t.Fatal(err)
	}
	if len(payments) != 1 || payments[0].Status != "PAID" {
		t.Fatalf("the database shows %+v, want one PAID payment", payments)
	}
}

// Incident 2: a repeated POST reaches another replica while the first waits for the acquirer.
func TestIncident2TwoReplicasBothLookAndBothCharge(t *testing.T) {
	const order = 781077
	acquirer := &fakeAcquirer{before: func(int, <-chan struct{}) {}}
	server := httptest.NewServer(acquirer)
	t.Cleanup(server.Close)

	var looked sync.WaitGroup
	looked.Add(2)
	barrier := func(point string) {
		if point == PointAfterLook {
			looked.Done()
			looked.Wait()
		}
	}
	pool := dbtest.OpenEmpty(t).OwnerPool(t)
	_, pod1 := startReplica(t, pool, server.URL, 1, barrier)
	_, pod3 := startReplica(t, pool, server.URL, 1, barrier)

	var requests sync.WaitGroup
	for _, url := range []string{pod1, pod3} {
		requests.Go(func() {
			if status, body := pay(t, url, order); status != http.StatusOK {
				t.Errorf("answered %d %s, want 200", status, body)
			}
		})
	}
	requests.Wait()
	if bookings, _ := acquirer.booked(); len(bookings) != 2 {
		t.Fatalf("the acquirer booked %v, want two charges", bookings)
	}
}

// The rollback of a crash removes the only trace of a charge, and the repeat charges again.
func TestCrashAfterChargeLeavesNoTraceAndRepeatChargesAgain(t *testing.T) {
	const order = 1
	acquirer := &fakeAcquirer{before: func(int, <-chan struct{}) {}}
	server := httptest.NewServer(acquirer)
	t.Cleanup(server.Close)
	var crashed atomic.Bool
	svc, url := startReplica(t, dbtest.OpenEmpty(t).OwnerPool(t), server.URL, 1, func(point string) {
		if point == PointAfterCall && crashed.CompareAndSwap(false, true) {
			runtime.Goexit()
		}
	})
	if status, body := pay(t, url, order); status != 0 {
		t.Fatalf("answered %d %s, want no answer", status, body)
	}
	payments, err := svc.Payments(context.Background(), order)
	if err != nil || len(payments) != 0 {
		t.Fatalf("the database shows %+v (%v), want nothing", payments, err)
	}
	if status, body := pay(t, url, order); status != http.StatusOK {
		t.Fatalf("answered %d %s, want 200", status, body)
	}
	if status, body := pay(t, url, order); status != http.StatusOK || !strings.Contains(body, "already_paid") {
		t.Fatalf("answered %d %s, want 200 already_paid", status, body)
	}
	if bookings, _ := acquirer.booked(); len(bookings) != 2 {
		t.Fatalf("the acquirer booked %v, want two charges", bookings)
	}
}
