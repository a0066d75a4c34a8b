package intake_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/config"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// TestCase064_WebhooksWhileTheAcquirerIsSlow: fifty payments wait for an acquirer that has done them and does not answer, on a replica
// with ten connections. Meanwhile it answers questions, checks, and takes and applies the news of all of them: it holds no connection
// for those who wait.
func TestCase064_WebhooksWhileTheAcquirerIsSlow(t *testing.T) {
	const creates, connections = 50, 10
	r, p := wired(t, nil, rig.With(func(c *config.Config) {
		// It waits for longer than the test holds the acquirer, so that nothing is freed by a limit.
		c.PoolSize, c.Read, c.CallUntil, c.Lease = connections, time.Minute, 130*time.Second, 160*time.Second
	}))
	lostAnswers(r)
	pay(r, p, "key-lost", rig.Order{Reference: "lost"})
	if err := r.Acquirer.SetFaults(t.Context(), 0, sandbox.Rule{Call: "charge", Fault: "hold_after", Gate: "slow"}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for n := range creates {
		all.Go(func() {
			key := fmt.Sprintf("key-%d", n)
			if a := p.PayHTTP(key, rig.Order{Reference: key}); a.Status != 201 && a.Status != 202 {
				t.Errorf("told %d %s", a.Status, a.Body)
			}
		})
	}
	answer := func() {
		if err := r.Acquirer.SetFaults(t.Context(), 0); err != nil {
			t.Error(err)
		}
		if _, err := r.Acquirer.Release(t.Context(), "slow", 0); err != nil {
			t.Error(err)
		}
		all.Wait()
	}
	defer answer()
	soon, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := r.Acquirer.WaitWaiting(soon, "slow", creates); err != nil {
		t.Fatal(err) // somebody waits for a connection instead
	}
	// All are calling: until something else comes, nobody is in a transaction, idle or not.
	const inTransaction = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'
		AND xact_start IS NOT NULL AND pid <> pg_backend_pid()`
	counts(r, 0, inTransaction)
	lost := "/v1/payments/" + r.PaymentOf("key-lost").Text(id.Payment)
	for range 2 * connections {
		if a, err := p.Do(t.Context(), r.Merchant, http.MethodGet, lost, "", nil); err != nil || a.Status != 200 {
			t.Errorf("a question was told %d, %v", a.Status, err)
		}
	}
	if a, err := p.Do(t.Context(), r.Merchant, http.MethodPost, lost+"/check", "", nil); err != nil || a.Status != 200 || a.Member("status") != "paid" {
		t.Errorf("a check was told %d %s, %v", a.Status, a.Body, err)
	}
	sends(r, r.Told("charge.succeeded")...)
	pass(r, p)
	counts(r, creates+1, "SELECT count(*) FROM inbox_message WHERE state = 'applied'")
	counts(r, creates+1, "SELECT count(*) FROM payment WHERE status = 'paid'")
	counts(r, 0, inTransaction)
	if waiting := done[map[string]int](r)(r.Acquirer.Waiting(t.Context())); waiting["slow"] != creates {
		t.Errorf("%d still wait for the acquirer, want all %d: the rest proves nothing", waiting["slow"], creates)
	}
	answer()
	counts(r, 0, "SELECT count(*) FROM operation WHERE state <> 'completed'")
	if len(r.Movements()) != creates+1 || r.Receipts() != creates+1 || len(r.Events()) != creates+1 || len(r.Charges()) != creates+1 {
		t.Errorf("%d movements, %d receipts, %d events, %d charge calls", len(r.Movements()), r.Receipts(), len(r.Events()), len(r.Charges()))
	}
	r.Verify()
}
