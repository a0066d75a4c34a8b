package textbook

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/hapaxpay/hapax/internal/sandbox"
)

// sandboxURL runs the sandbox acquirer for one test.
func sandboxURL(t *testing.T) string {
	t.Helper()
	acquirer, err := sandbox.Open(sandbox.Config{Dir: t.TempDir(), Secret: "s"})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- acquirer.Serve() }()
	t.Cleanup(func() {
		if err := acquirer.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return acquirer.URL()
}

// movements counts what the sandbox's register shows.
func movements(t *testing.T, url string) int {
	t.Helper()
	res, err := http.Get(url + "/register")
	if err != nil {
		t.Fatal(err)
	}
	var register struct {
		Movements []json.RawMessage `json:"movements"`
	}
	err = json.NewDecoder(res.Body).Decode(&register)
	if closeErr := res.Body.Close(); err != nil || closeErr != nil {
		t.Fatal(err, closeErr)
	}
	return len(register.Movements)
}

func TestAgainstSandbox(t *testing.T) {
	for _, c := range []struct {
		method        string
		status        int
		movements     int
		paymentStatus string // after one pass of reconciliation
		keyStatus     string
	}{
		{"pm_ok", http.StatusCreated, 1, statusPaid, keyCompleted},
		{"pm_declined_insufficient_funds", http.StatusPaymentRequired, 0, statusDeclined, keyCompleted},
		{"pm_timeout_executed", http.StatusCreated, 1, statusPaid, keyCompleted},
		{"pm_500_executed", http.StatusAccepted, 1, statusPaid, keyCompleted},
		// The repeat of a charge that went through meets a refused secret: money moved, the client
		// is told that the payment failed, and nothing looks again.
		{"pm_timeout_executed|pm_401_once", http.StatusUnprocessableEntity, 1, statusFailed, keyCompleted},
	} {
		t.Run(c.method, func(t *testing.T) {
			ck := clientKey{42, "key"}
			acquirer := sandboxURL(t)
			svc, url := startAgainst(t, acquirer, Config{Scale: 5})
			req := request
			req.PaymentMethod = c.method
			if r := post(t, url, ck, req); r.status != c.status {
				t.Errorf("answered %d %s, want %d", r.status, r.body, c.status)
			}
			expireLease(t, svc, ck)
			reconcile(t, svc)
			events := 0
			if c.paymentStatus == statusPaid {
				events = 1
			}
			wantState(t, svc, ck, c.paymentStatus, c.keyStatus, events, false)
			if got := movements(t, acquirer); got != c.movements {
				t.Errorf("the register shows %d movements, want %d", got, c.movements)
			}
		})
	}
}
