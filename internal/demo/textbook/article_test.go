package textbook

import (
	"net/http"
	"runtime"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The five tests of the article, in its order.

func TestConcurrentRequestsWithSameKeyCreateOnePaymentAndOneCharge(t *testing.T) {
	const callers = 20
	ck := clientKey{42, "key-1"}
	acquirer := &fakeAcquirer{}
	svc, url := start(t, acquirer, Config{})

	var ready, done sync.WaitGroup
	ready.Add(callers)
	for range callers {
		done.Go(func() {
			ready.Done()
			ready.Wait()
			if r := post(t, url, ck, request); r.status != http.StatusCreated && r.status != http.StatusConflict {
				t.Errorf("answered %d %s, want 201 or 409", r.status, r.body)
			}
		})
	}
	done.Wait()

	keys, lookups := acquirer.seen()
	if diff := cmp.Diff([]string{"42:key-1"}, keys); diff != "" {
		t.Errorf("charges (-want +got):\n%s", diff)
	}
	if len(lookups) != 0 {
		t.Errorf("lookups %v, want none", lookups)
	}
	wantState(t, svc, ck, statusPaid, keyCompleted, 1, false)
}

func TestReadTimeoutIsRetriedWithTheSameIdempotencyKey(t *testing.T) {
	ck := clientKey{42, "key-2"}
	acquirer := &fakeAcquirer{charge: func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			<-r.Context().Done() // longer than the read time-out
		}
		approve(w, r)
	}}
	svc, url := start(t, acquirer, Config{Scale: 5})

	if r := post(t, url, ck, request); r.status != http.StatusCreated {
		t.Errorf("answered %d %s, want 201", r.status, r.body)
	}
	keys, _ := acquirer.seen()
	if diff := cmp.Diff([]string{"42:key-2", "42:key-2"}, keys); diff != "" {
		t.Errorf("charges (-want +got):\n%s", diff)
	}
	wantState(t, svc, ck, statusPaid, keyCompleted, 1, false)
}

func TestStuckPendingAfterCrashIsSettledByReconciliation(t *testing.T) {
	ck := clientKey{42, "key-3"}
	acquirer := &fakeAcquirer{lookup: list}
	svc, url := start(t, acquirer, Config{Hook: func(point string) {
		if point == PointBeforeRecord {
			runtime.Goexit()
		}
	}})
	if r := post(t, url, ck, request); r.status != 0 {
		t.Errorf("answered %d %s, want no answer", r.status, r.body)
	}
	wantState(t, svc, ck, "PENDING", keyInProgress, 0, false)

	reconcile(t, svc) // the lease still runs: nothing to recover
	if _, lookups := acquirer.seen(); len(lookups) != 0 {
		t.Errorf("lookups %v before the lease is over, want none", lookups)
	}
	expireLease(t, svc, ck)
	reconcile(t, svc)

	keys, lookups := acquirer.seen()
	if len(keys) != 1 || len(lookups) != 1 {
		t.Errorf("charges %v, lookups %v, want one of each", keys, lookups)
	}
	wantState(t, svc, ck, statusPaid, keyCompleted, 1, false)
	if r := post(t, url, ck, request); r.status != http.StatusCreated {
		t.Errorf("the repeat is answered %d %s, want the stored 201", r.status, r.body)
	}
}

func TestRecoveryIsClaimedByExactlyOneWorker(t *testing.T) {
	ck := clientKey{42, "key-4"}
	// The owner's lookup is answered when the two others have given up, so that they met its lease.
	lost := make(chan struct{})
	acquirer := &fakeAcquirer{lookup: func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-lost:
		case <-r.Context().Done():
		}
		list(w, r)
	}}
	svc, url := start(t, acquirer, Config{})
	stuck(t, svc, ck, "PENDING", keyInProgress, "1 minute")

	ended := make(chan struct{}, 3)
	var ready, done sync.WaitGroup
	ready.Add(3)
	for _, work := range []func(){
		func() { reconcile(t, svc) },
		func() { reconcile(t, svc) },
		func() {
			if r := post(t, url, ck, request); r.status != http.StatusCreated && r.status != http.StatusConflict {
				t.Errorf("answered %d %s, want 201 or 409", r.status, r.body)
			}
		},
	} {
		done.Go(func() {
			ready.Done()
			ready.Wait()
			work()
			ended <- struct{}{}
		})
	}
	<-ended
	<-ended
	close(lost)
	done.Wait()

	keys, lookups := acquirer.seen()
	if diff := cmp.Diff([]string{"42:key-4"}, lookups); diff != "" {
		t.Errorf("lookups (-want +got):\n%s", diff)
	}
	if len(keys) != 0 {
		t.Errorf("charges %v, want none", keys)
	}
	wantState(t, svc, ck, statusPaid, keyCompleted, 1, false)
}

func TestExpiredProviderKeyWindowGoesToManualReviewInsteadOfNewCharge(t *testing.T) {
	ck := clientKey{42, "key-5"}
	acquirer := &fakeAcquirer{}
	svc, _ := start(t, acquirer, Config{})
	stuck(t, svc, ck, statusUnknown, keyAwaitingResult, "25 hours")

	reconcile(t, svc)

	keys, lookups := acquirer.seen()
	if len(keys) != 0 || len(lookups) != 1 {
		t.Errorf("charges %v, lookups %v, want one lookup alone", keys, lookups)
	}
	wantState(t, svc, ck, statusUnknown, keyAwaitingResult, 0, true)

	expireLease(t, svc, ck)
	reconcile(t, svc) // handed over already: the next pass changes nothing
	wantState(t, svc, ck, statusUnknown, keyAwaitingResult, 0, true)
}

func reconcile(t *testing.T, svc *Service) {
	t.Helper()
	if err := svc.Reconcile(t.Context()); err != nil {
		t.Error(err)
	}
}
