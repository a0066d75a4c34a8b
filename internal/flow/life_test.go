package flow_test

import (
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/rig"
)

func status(t *testing.T, what string, want int) func(operation.Answer, error) operation.Answer {
	t.Helper()
	return func(a operation.Answer, err error) operation.Answer {
		t.Helper()
		if err != nil || a.Status != want {
			t.Fatalf("%s: %d %s, error %v; want %d", what, a.Status, a.Body, err, want)
		}
		return a
	}
}

func isTrue() *bool { v := true; return &v }

// A payer who pays on the page and closes the browser: paid by the sweep alone, with no call of any client (S5).
func TestPageIsPaidWithoutAnyCall(t *testing.T) {
	r := rig.New(t, nil)
	p := r.Replica()
	status(t, "create", 201)(p.Hosted("key-1", rig.Order{Reference: "order-1"}))
	status(t, "repeat", 200)(p.Hosted("key-1", rig.Order{Reference: "order-1"}))
	pay := r.PaymentOf("key-1")
	if got := r.Status("key-1"); got != "registered" {
		t.Fatalf("status %s", got)
	}
	if _, err := r.Acquirer.PaySession(t.Context(), r.SessionOf(pay).ID); err != nil {
		t.Fatal(err)
	}
	p.Settle(time.Hour)
	if got := r.Status("key-1"); got != "paid" {
		t.Fatalf("status %s", got)
	}
	status(t, "repeat", 201)(p.Hosted("key-1", rig.Order{Reference: "order-1"}))
	settled(t, r, 1)
}

// Two steps: the hold stands in the books, parts are captured, the last one releases the rest; then money goes back in parts.
func TestHoldCaptureRefund(t *testing.T) {
	r := rig.New(t, nil)
	p := r.Replica()
	status(t, "hold", 201)(p.Hold("key-1", rig.Order{Reference: "order-1", Minor: 1000}))
	pay := r.PaymentOf("key-1")
	if got := r.Status("key-1"); got != "authorized" {
		t.Fatalf("status %s", got)
	}
	if got := r.Count("SELECT COALESCE(sum(amount), 0) FROM ledger_entry WHERE account LIKE 'authorized:%'"); got != 1000 {
		t.Errorf("%d held in the books, want 1000", got)
	}
	r.Verify()
	status(t, "first part", 201)(p.Capture("cap-1", pay, 300, nil))
	status(t, "last part", 201)(p.Capture("cap-2", pay, 400, isTrue()))
	if got := r.Status("key-1"); got != "paid" {
		t.Fatalf("status %s", got)
	}
	if got := r.Count("SELECT COALESCE(sum(amount), 0) FROM ledger_entry WHERE account LIKE 'authorized:%'"); got != 0 {
		t.Errorf("%d held in the books, want 0", got)
	}
	status(t, "refund", 201)(p.Refund("ref-1", pay, 100))
	status(t, "refund of the rest", 201)(p.Refund("ref-2", pay, 0))
	if got := r.Count("SELECT refunded_amount FROM payment"); got != 700 {
		t.Errorf("%d refunded, want 700", got)
	}
	if c, f := r.Moved("capture"), r.Moved("refund"); c != 2 || f != 2 {
		t.Errorf("%d captures and %d refunds at the acquirer, want 2 and 2", c, f)
	}
	r.Verify()
}

// A hold that is canceled is released, and the intent is free.
func TestCancelReleasesTheHold(t *testing.T) {
	r := rig.New(t, nil)
	p := r.Replica()
	status(t, "hold", 201)(p.Hold("key-1", rig.Order{Reference: "order-1"}))
	status(t, "cancel", 201)(p.Cancel("can-1", r.PaymentOf("key-1"), ""))
	if got := r.Status("key-1"); got != "canceled" {
		t.Fatalf("status %s", got)
	}
	if got := r.Moved("reverse"); got != 1 {
		t.Errorf("%d reversals, want 1", got)
	}
	status(t, "next attempt", 201)(p.Hold("key-2", rig.Order{Reference: "order-1"}))
	r.Verify()
}

// A page that is canceled is closed at the acquirer, and nobody can pay on it.
func TestCancelClosesThePage(t *testing.T) {
	r := rig.New(t, nil)
	p := r.Replica()
	status(t, "create", 201)(p.Hosted("key-1", rig.Order{Reference: "order-1"}))
	pay := r.PaymentOf("key-1")
	status(t, "cancel", 201)(p.Cancel("can-1", pay, ""))
	if got := r.SessionOf(pay).Status; got != "closed" {
		t.Errorf("the page is %s", got)
	}
	if got := r.Status("key-1"); got != "canceled" {
		t.Fatalf("status %s", got)
	}
	status(t, "the create's own answer", 422)(p.Hosted("key-1", rig.Order{Reference: "order-1"}))
	status(t, "a new page", 201)(p.Hosted("key-2", rig.Order{Reference: "order-1"}))
	r.Verify()
}

// A cancel of a payment whose charge has no proven outcome waits for it: held, it is released; taken, it ends in paid and says so.
func TestCancelWaitsForTheCharge(t *testing.T) {
	for _, tc := range []struct{ name, method, want string }{
		{"held", "pm_timeout_executed", "canceled"}, {"taken", "pm_timeout_executed", "paid"},
		{"not executed", "pm_timeout_not_executed", "canceled"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := rig.New(t, rig.Terms{"repeat_budget": 1}) // the answer stays lost
			p := r.Replica(rig.Hasty)
			if tc.name == "held" {
				status(t, "hold", 202)(p.Hold("key-1", rig.Order{Reference: "order-1", Method: tc.method}))
			} else {
				status(t, "charge", 202)(p.Pay("key-1", rig.Order{Reference: "order-1", Method: tc.method}))
			}
			status(t, "cancel", 202)(p.Cancel("can-1", r.PaymentOf("key-1"), ""))
			p.Settle(3 * time.Hour)
			if got := r.Status("key-1"); got != tc.want {
				t.Errorf("status %s, want %s", got, tc.want)
			}
			if tc.want == "paid" {
				status(t, "cancel, told that it was too late", 422)(p.Cancel("can-1", r.PaymentOf("key-1"), ""))
			} else {
				status(t, "cancel", 201)(p.Cancel("can-1", r.PaymentOf("key-1"), ""))
			}
			r.Verify()
		})
	}
}
