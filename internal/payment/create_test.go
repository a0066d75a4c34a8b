package payment_test

import (
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/money"
)

// The rows of PROTOCOL section 2 for "other key", with P6 and P7.
func TestCreateWithAnotherKey(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	before, after := noon.Add(-time.Nanosecond), noon.Add(time.Nanosecond)
	type latest struct {
		status payment.Status
		gate   bool
	}
	for _, tc := range []struct {
		name            string
		latest          *latest
		money, conflict bool
		other           bool // other parameters than the live payment's
		now             time.Time
		want            payment.Admission
	}{
		{name: "first payment", now: before, want: payment.Admit},
		{name: "exactly at pay_before", now: noon, want: payment.RefuseExpired},
		{name: "past pay_before", now: after, want: payment.RefuseExpired},

		{name: "live, same parameters", latest: &latest{status: payment.Pending}, now: before, want: payment.Join},
		{name: "live, same parameters, past pay_before", latest: &latest{status: payment.Unknown}, now: after, want: payment.Join},
		{name: "live, other parameters", latest: &latest{status: payment.Pending}, other: true, now: before, want: payment.RefuseOpen},
		{name: "unknown, other parameters", latest: &latest{status: payment.Unknown}, other: true, now: before, want: payment.RefuseOpen},
		{name: "registered", latest: &latest{status: payment.Registered}, now: before, want: payment.Join},
		{name: "authorized, other parameters", latest: &latest{status: payment.Authorized}, other: true, now: before, want: payment.RefuseOpen},
		{name: "canceling", latest: &latest{status: payment.Canceling}, now: before, want: payment.Join},
		{name: "live, money kept aside", latest: &latest{status: payment.Unknown}, money: true, now: before, want: payment.Join},

		{name: "paid, same parameters", latest: &latest{status: payment.Paid}, money: true, now: before, want: payment.RefusePaid},
		{name: "paid, other parameters", latest: &latest{status: payment.Paid}, money: true, other: true, now: before, want: payment.RefusePaid},
		{name: "paid, past pay_before", latest: &latest{status: payment.Paid}, money: true, now: after, want: payment.RefusePaid},
		{name: "paid, money given back", latest: &latest{status: payment.Paid}, now: before, want: payment.RefusePaid},

		{name: "refused, gate closed", latest: &latest{status: payment.Declined}, now: before, want: payment.RefuseClosed},
		{name: "refused, gate closed, past pay_before", latest: &latest{status: payment.Failed}, now: after, want: payment.RefuseClosed},
		{name: "refused, gate open", latest: &latest{payment.Declined, true}, now: before, want: payment.Admit},
		{name: "failed, gate open, other parameters", latest: &latest{payment.Failed, true}, other: true, now: before, want: payment.Admit},
		{name: "canceled, gate open", latest: &latest{payment.Canceled, true}, now: before, want: payment.Admit},
		{name: "refused, gate open, past pay_before", latest: &latest{payment.Declined, true}, now: noon, want: payment.RefuseExpired},

		{name: "refused, gate open, money on it", latest: &latest{payment.Declined, true}, money: true, now: before, want: payment.RefusePaid},
		{name: "no payment, money on it", money: true, now: before, want: payment.RefusePaid},
		{name: "conflict and nothing else", conflict: true, now: before, want: payment.RefuseConflict},
		{name: "conflict, gate open", latest: &latest{payment.Declined, true}, conflict: true, money: true, now: before, want: payment.RefuseConflict},
		{name: "conflict, live, same parameters", latest: &latest{status: payment.Unknown}, conflict: true, now: before, want: payment.RefuseConflict},
		{name: "conflict, paid", latest: &latest{status: payment.Paid}, conflict: true, money: true, now: before, want: payment.RefuseConflict},
		{name: "conflict, past pay_before", conflict: true, now: after, want: payment.RefuseConflict},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := payment.Standing{Intent: payment.Intent{Conflict: tc.conflict}, Money: tc.money}
			wantN := 1
			if tc.latest != nil {
				s.Latest = &payment.Payment{N: 3, Status: tc.latest.status, GateOpen: tc.latest.gate}
				wantN = 4
			}
			if got := s.Create(!tc.other, noon, tc.now); got != tc.want {
				t.Errorf("admission %d, want %d", got, tc.want)
			}
			if got := s.NextN(); got != wantN {
				t.Errorf("next ordinal %d, want %d", got, wantN)
			}
		})
	}
}

// The same parameters again return the same intent; any other one amends it, as one new version (W3).
func TestWishSameAndAmend(t *testing.T) {
	payBefore := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	i := payment.Intent{Amount: money.Must(100, "JPY"), Customer: "c", Description: "d", Metadata: []byte(`{"a":1}`),
		Capture: payment.CaptureAutomatic, PayBefore: payBefore, KeySeed: "seed", Version: 2}
	same := payment.Wish{Amount: i.Amount, Customer: "c", Description: "d", Metadata: `{"a":1}`, Capture: payment.CaptureAutomatic}
	if !same.Same(i) {
		t.Error("the same wish differs")
	}
	withTime := same
	if withTime.PayBefore = payBefore.In(time.FixedZone("x", 3600)); !withTime.Same(i) {
		t.Error("the same moment in another zone differs")
	}
	for name, change := range map[string]func(*payment.Wish){
		"amount":     func(w *payment.Wish) { w.Amount = money.Must(101, "JPY") },
		"currency":   func(w *payment.Wish) { w.Amount = money.Must(100, "USD") },
		"customer":   func(w *payment.Wish) { w.Customer = "" },
		"descr":      func(w *payment.Wish) { w.Description = "e" },
		"metadata":   func(w *payment.Wish) { w.Metadata = "" },
		"receipt":    func(w *payment.Wish) { w.Receipt = "payer@shop.example" },
		"capture":    func(w *payment.Wish) { w.Capture = payment.CaptureManual },
		"pay_before": func(w *payment.Wish) { w.PayBefore = payBefore.Add(time.Second) },
	} {
		w := same
		change(&w)
		if w.Same(i) {
			t.Errorf("%s: no difference seen", name)
		}
		next := w.Amend(i)
		if !w.Same(next) || next.Version != 3 || next.KeySeed != "seed" {
			t.Errorf("%s: amended to %+v", name, next)
		}
		if w.PayBefore.IsZero() && !next.PayBefore.Equal(payBefore) {
			t.Errorf("%s: pay_before became %v", name, next.PayBefore)
		}
	}
}
