package textbook

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What each answer of the acquirer comes to, and what the repeat with the same key gets.
func TestOutcomeTable(t *testing.T) {
	for _, c := range []struct {
		acquirer                 int
		body                     string
		status                   int
		paymentStatus, keyStatus string
	}{
		{200, `{"id":"A-1","status":"succeeded"}`, 201, statusPaid, keyCompleted},
		{200, `{"id":"A-1","status":"processing"}`, 202, statusUnknown, keyAwaitingResult},
		{200, `not JSON`, 202, statusUnknown, keyAwaitingResult},
		{402, `{"status":"declined"}`, 402, statusDeclined, keyCompleted},
		{400, `{}`, 422, statusFailed, keyCompleted},
		{401, `{}`, 422, statusFailed, keyCompleted},
		{403, `{}`, 422, statusFailed, keyCompleted},
		{422, `{}`, 422, statusFailed, keyCompleted},
		{404, `{}`, 202, statusUnknown, keyAwaitingResult},
		{409, `{}`, 202, statusUnknown, keyAwaitingResult},
		{429, `{}`, 202, statusUnknown, keyAwaitingResult},
		{500, `{}`, 202, statusUnknown, keyAwaitingResult},
	} {
		t.Run(fmt.Sprint(c.acquirer, c.paymentStatus), func(t *testing.T) {
			acquirer := &fakeAcquirer{charge: func(_ int, w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.acquirer)
				if _, err := w.Write([]byte(c.body)); err != nil {
					t.Error(err)
				}
			}}
			ck := clientKey{42, "key"}
			svc, url := start(t, acquirer, Config{})
			first, repeat := post(t, url, ck, request), post(t, url, ck, request)
			if first.status != c.status || repeat.status != c.status {
				t.Errorf("answered %d, repeat %d, want %d", first.status, repeat.status, c.status)
			}
			events := 0
			if c.paymentStatus == statusPaid {
				events = 1
			}
			wantState(t, svc, ck, c.paymentStatus, c.keyStatus, events, false)
			if keys, _ := acquirer.seen(); len(keys) != 1 {
				t.Errorf("charges %v, want one", keys)
			}
		})
	}
}

func TestKeyReuseAndSecondKeyAreRefused(t *testing.T) {
	acquirer := &fakeAcquirer{}
	svc, url := start(t, acquirer, Config{CanPay: func(merchantID, _ int64) bool { return merchantID == 42 }})
	ck := clientKey{42, "key"}
	if r := post(t, url, ck, request); r.status != http.StatusCreated {
		t.Fatalf("answered %d %s, want 201", r.status, r.body)
	}
	other := request
	other.Amount++
	wantRefusal(t, post(t, url, ck, other), http.StatusUnprocessableEntity, "idempotency_key_reuse")
	wantRefusal(t, post(t, url, clientKey{42, "another"}, request), http.StatusConflict, "payment_attempt_exists")
	wantRefusal(t, post(t, url, clientKey{43, "key"}, request), http.StatusForbidden, "forbidden")
	wantRefusal(t, post(t, url, clientKey{42, strings.Repeat("k", maxKeyLength+1)}, request), http.StatusBadRequest, "idempotency_key_invalid")
	wantState(t, svc, ck, statusPaid, keyCompleted, 1, false)
}

func TestRefusedIntentMayBePaidByAnotherKey(t *testing.T) {
	acquirer := &fakeAcquirer{charge: func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			w.WriteHeader(http.StatusPaymentRequired)
			return
		}
		approve(w, r)
	}}
	_, url := start(t, acquirer, Config{})
	if r := post(t, url, clientKey{42, "first"}, request); r.status != http.StatusPaymentRequired {
		t.Errorf("answered %d %s, want 402", r.status, r.body)
	}
	if r := post(t, url, clientKey{42, "second"}, request); r.status != http.StatusCreated {
		t.Errorf("answered %d %s, want 201", r.status, r.body)
	}
}

// A pause longer than the lease: the owner wakes after reconciliation has recorded and may not record.
func TestStaleOwnerGets409AndRecordsNothing(t *testing.T) {
	ck := clientKey{42, "key"}
	paused, resume := make(chan struct{}), make(chan struct{})
	acquirer := &fakeAcquirer{lookup: list}
	svc, url := start(t, acquirer, Config{Hook: func(point string) {
		if point == PointBeforeRecord {
			close(paused)
			<-resume
		}
	}})
	answered := make(chan reply)
	go func() { answered <- post(t, url, ck, request) }()
	<-paused
	r := post(t, url, ck, request)
	wantRefusal(t, r, http.StatusConflict, "payment_in_progress")
	if r.header.Get("Retry-After") == "" {
		t.Error("409 in progress comes without Retry-After")
	}
	expireLease(t, svc, ck)
	reconcile(t, svc)
	close(resume)
	wantRefusal(t, <-answered, http.StatusConflict, "stale_attempt")
	wantState(t, svc, ck, statusPaid, keyCompleted, 1, false)
}

// A repeat after the lease asks for the status first, then charges once with the same key.
func TestReclaimLooksUpThenChargesOnce(t *testing.T) {
	ck := clientKey{42, "key"}
	var crashed atomic.Bool
	acquirer := &fakeAcquirer{}
	svc, url := start(t, acquirer, Config{Hook: func(point string) {
		if point == PointAfterClaim && crashed.CompareAndSwap(false, true) {
			runtime.Goexit()
		}
	}})
	if r := post(t, url, ck, request); r.status != 0 {
		t.Errorf("answered %d %s, want no answer", r.status, r.body)
	}
	expireLease(t, svc, ck)
	if r := post(t, url, ck, request); r.status != http.StatusCreated {
		t.Errorf("answered %d %s, want 201", r.status, r.body)
	}
	keys, lookups := acquirer.seen()
	if len(keys) != 1 || len(lookups) != 1 {
		t.Errorf("charges %v, lookups %v, want one of each", keys, lookups)
	}
	wantState(t, svc, ck, statusPaid, keyCompleted, 1, false)
}

func TestPurgeKeepsKeysThatAreNotCompleted(t *testing.T) {
	svc, url := start(t, &fakeAcquirer{}, Config{})
	if r := post(t, url, clientKey{42, "paid"}, request); r.status != http.StatusCreated {
		t.Fatalf("answered %d %s, want 201", r.status, r.body)
	}
	exec(t, svc, `INSERT INTO textbook.idempotency_keys
	                (merchant_id, idempotency_key, request_hash, status, lease_until, expires_at)
	         VALUES (42, 'open', repeat('0', 64), 'AWAITING_RESULT', now(), now())`)
	exec(t, svc, `UPDATE textbook.idempotency_keys SET expires_at = now() - interval '1 day'`)
	if n, err := svc.Purge(t.Context()); n != 1 || err != nil {
		t.Errorf("purged %d (%v), want 1", n, err)
	}
	if _, err := findKey(t.Context(), svc.pool, clientKey{42, "open"}); err != nil {
		t.Errorf("the open key is gone: %v", err)
	}
}

func wantRefusal(t *testing.T, r reply, status int, code string) {
	t.Helper()
	if r.status != status || !strings.Contains(r.body, `"`+code+`"`) {
		t.Errorf("answered %d %s, want %d %s", r.status, r.body, status, code)
	}
}

// Go's transport repeats a keyed request by itself when a kept connection dies before an answer, so
// that "charge once" reaches the acquirer twice; the key alone keeps it one charge.
func TestStockTransportRepeatsWhatIsSentOnce(t *testing.T) {
	ck := clientKey{42, "key"}
	acquirer := &fakeAcquirer{charge: func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			panic(http.ErrAbortHandler) // booked, and the connection that the lookup kept is dropped
		}
		approve(w, r)
	}}
	svc, _ := start(t, acquirer, Config{})
	stuck(t, svc, ck, "PENDING", keyInProgress, "1 minute")

	reconcile(t, svc)

	keys, _ := acquirer.seen()
	if diff := cmp.Diff([]string{"42:key", "42:key"}, keys); diff != "" {
		t.Errorf("charges (-want +got):\n%s", diff)
	}
	wantState(t, svc, ck, statusPaid, keyCompleted, 1, false)
}
