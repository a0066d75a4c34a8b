package sweep_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// lose makes n payments whose answers are lost; the acquirer executed them.
func lose(t *testing.T, r *rig.Rig, p *rig.Replica, prefix string, n int) {
	t.Helper()
	if err := r.Acquirer.SetFaults(t.Context(), 0, sandbox.Rule{Fault: "500_executed"}); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if a, err := p.Pay(fmt.Sprintf("%s-%d", prefix, i), rig.Order{Reference: fmt.Sprintf("%s-%d", prefix, i)}); err != nil || a.Status != 202 {
			t.Fatalf("told %d, %v", a.Status, err)
		}
	}
	if err := r.Acquirer.SetFaults(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
}

// More due rows than one batch holds are finished in one pass.
func TestAPassFinishesAllThatIsDue(t *testing.T) {
	r := rig.New(t, nil)
	p := r.Replica()
	lose(t, r, p, "order", 40)
	r.Later(time.Minute)
	report := p.Sweep.Pass(t.Context())
	if report.Picked < 40 || report.Failed != 0 {
		t.Errorf("picked %d, failed %d; want 40 and none", report.Picked, report.Failed)
	}
	if got := r.Count("SELECT count(*) FROM payment WHERE status = 'paid'"); got != 40 {
		t.Errorf("%d payments are paid, want 40", got)
	}
	r.Verify()
}

// One bad row never stops the others (PROTOCOL S2): a row that cannot be written stays due, with back-off.
func TestABadRowDoesNotStopTheOthers(t *testing.T) {
	r := rig.New(t, nil)
	p := r.Replica()
	lose(t, r, p, "order", 5)
	// The record of order-2 fails: its receipt's key is taken, as only a defect could leave it.
	if _, err := r.Owner.Exec(t.Context(), `INSERT INTO ledger_entry (merchant_id, tx_key, line, id, account, amount, currency)
		SELECT p.merchant_id, i.key_seed || ':auth:1:debit', 1, p.id, 'merchant_payable', -1, 'KZT' FROM payment p JOIN payment_intent i
		ON i.merchant_id = p.merchant_id AND i.id = p.intent_id WHERE p.idempotency_key = 'order-2'`); err != nil {
		t.Fatal(err)
	}
	r.Later(time.Minute)
	p.Sweep.Pass(t.Context())
	if got := r.Count("SELECT count(*) FROM payment WHERE status = 'paid'"); got != 4 {
		t.Errorf("%d payments are paid, want the 4 good ones", got)
	}
	if got := r.Count("SELECT count(*) FROM operation WHERE state <> 'completed' AND due_at > now()"); got != 1 {
		t.Errorf("%d operations are due later, want the bad one", got)
	}
	if got := p.Store.Counters().LedgerHits; got == 0 {
		t.Error("a hit on the ledger's unique index was not counted")
	}
}

// An acquirer gone dark is asked ever more rarely, and its breaker leaves the others alone (PROTOCOL S6).
func TestADarkAcquirerDoesNotStarveTheOthers(t *testing.T) {
	r := rig.New(t, nil)
	p := r.Replica(rig.Hasty)
	lose(t, r, p, "mine", 12)
	dark := r.Merchant
	if err := r.Acquirer.SetFaults(t.Context(), 0, sandbox.Rule{Fault: "lookup_silent"}); err != nil {
		t.Fatal(err)
	}
	r.Later(time.Minute)
	asked := len(r.Lookups())
	p.Sweep.Pass(t.Context())
	first := len(r.Lookups()) - asked
	if first == 0 || first > 12 {
		t.Errorf("%d questions in the first pass, want 1 to 12", first)
	}
	if err := r.Acquirer.SetFaults(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	r.Merchant = r.AddMerchant(nil)
	lose(t, r, p, "theirs", 3)
	r.Later(time.Minute)
	p.Sweep.Pass(t.Context())
	if got := r.Count("SELECT count(*) FROM payment WHERE merchant_id = $1 AND status = 'paid'", r.Merchant.ID); got != 3 {
		t.Errorf("%d payments of the other merchant are paid, want 3", got)
	}
	r.Merchant = dark
	r.Replica().Settle(6 * time.Hour) // another process: the breaker is memory of one
	if got := r.Count("SELECT count(*) FROM payment WHERE status = 'paid'"); got != 15 {
		t.Errorf("%d payments are paid in the end, want 15", got)
	}
	r.Verify()
}

// A payer who closes everything is served: paid with no further call of a client (PROTOCOL S5).
func TestPaidWithoutAClient(t *testing.T) {
	r := rig.New(t, nil)
	p := r.Replica()
	lose(t, r, p, "order", 1)
	p.Settle(time.Hour)
	if got := r.Events(); len(got) != 1 || got[0] != "payment.paid" {
		t.Errorf("events %v", got)
	}
	r.Verify()
}

// With no client waiting, the sweep sends only within send_until; after that it only asks (PROTOCOL W3).
func TestNothingIsSentAfterSendUntil(t *testing.T) {
	for _, c := range []struct {
		later time.Duration
		sends int
	}{{10 * time.Minute, 1}, {20 * time.Minute, 0}} {
		t.Run(c.later.String(), func(t *testing.T) {
			r := rig.New(t, rig.Terms{"max_flight": "1h"})
			p := r.Replica()
			if err := r.Acquirer.SetFaults(t.Context(), 0, sandbox.Rule{Fault: "500_not_executed"}); err != nil {
				t.Fatal(err)
			}
			if a, err := p.Pay("key-1", rig.Order{Reference: "order-1"}); err != nil || a.Status != 202 {
				t.Fatalf("told %d, %v", a.Status, err)
			}
			sent := len(r.Charges())
			r.Later(c.later)
			p.Sweep.Pass(t.Context())
			if got := len(r.Charges()) - sent; got != c.sends {
				t.Errorf("%d requests were sent, want %d", got, c.sends)
			}
			r.Verify()
		})
	}
}
