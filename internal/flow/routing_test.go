package flow_test

import (
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// secondAccount gives the merchant another account at the acquirer, and its rules: the first account takes everything first.
func (l life) secondAccount() id.ID {
	l.t.Helper()
	other := l.r.AddAccount(l.r.Merchant)
	for n, account := range []id.ID{l.r.Merchant.Account, other} {
		if _, err := l.r.Owner.Exec(l.t.Context(), `INSERT INTO routing_rule (merchant_id, id, account_id, priority) VALUES ($1, gen_random_uuid(), $2, $3)`,
			l.r.Merchant.ID, account, 10+n); err != nil {
			l.t.Fatal(err)
		}
	}
	return other
}

func (l life) pause(account id.ID) {
	l.t.Helper()
	if found, err := l.p.Store.PauseAccount(l.t.Context(), l.r.Merchant.ID, account, true); err != nil || !found {
		l.t.Fatal(found, err)
	}
}

func (l life) accountOf(key string) string {
	return l.r.Text("SELECT account_id::text FROM payment WHERE idempotency_key = $1", key)
}

// A paused acquirer gets nothing new; what is under way there goes on. While the first is unknown, no other acquirer is tried (P5).
func TestNoSecondAcquirerWhileTheFirstIsUnknown(t *testing.T) {
	l := newLife(t, once)
	other := l.secondAccount()
	l.faults(sandbox.Rule{Fault: "reset_executed"})
	status(t, "first", 202)(l.p.Pay("key-1", rig.Order{Reference: "order-1", Minor: 1000}))
	l.faults()
	l.pause(l.r.Merchant.Account)
	status(t, "again, with another key", 202)(l.p.Pay("key-2", rig.Order{Reference: "order-1", Minor: 1000}))
	status(t, "another order", 201)(l.p.Pay("key-3", rig.Order{Reference: "order-3", Minor: 1000}))
	if got := l.accountOf("key-3"); got != other.String() {
		t.Errorf("another order went to %s, want %s", got, other)
	}
	l.p.Settle(time.Hour)
	l.is("key-1", "paid")
	if got := l.accountOf("key-1"); got != l.r.Merchant.Account.String() {
		t.Errorf("the payment moved to %s", got)
	}
	if n := len(l.r.Movements()); n != 2 {
		t.Errorf("%d movements, want 2", n)
	}
	l.pause(other)
	l.refused("all are paused", problem.TryAgain)(l.p.Pay("key-4", rig.Order{Reference: "order-4"}))
	status(t, "a refund at a paused acquirer", 201)(l.p.Refund("ref-1", l.r.PaymentOf("key-1"), 0))
	l.sound()
}

// A finally refused payment may go to another acquirer with its next attempt.
func TestNextAttemptMayGoElsewhere(t *testing.T) {
	l := newLife(t, nil)
	other := l.secondAccount()
	status(t, "refused", 402)(l.p.Pay("key-1", rig.Order{Reference: "order-1", Method: "pm_declined_do_not_honor"}))
	l.pause(l.r.Merchant.Account)
	status(t, "next", 201)(l.p.Pay("key-2", rig.Order{Reference: "order-1"}))
	if got := l.accountOf("key-2"); got != other.String() {
		t.Errorf("the next attempt went to %s, want %s", got, other)
	}
	l.sound()
}

// A page whose address was lost, at an acquirer that tells it only once: it is closed, and nobody can pay on it; then a new one
// may open (section 7, point 3).
func TestPageWithALostAddressIsClosed(t *testing.T) {
	l := newLife(t, rig.Terms{"page_by_address": true, "repeat_budget": 1})
	terms := sandbox.DefaultContract()
	terms.PageByAddress = true
	if err := l.r.Acquirer.SetContract(t.Context(), terms); err != nil {
		t.Fatal(err)
	}
	l.faults(sandbox.Rule{Fault: "reset_executed", Call: "session"})
	status(t, "page", 202)(l.p.Hosted("key-1", rig.Order{Reference: "order-1", Minor: 1000}))
	l.faults()
	l.p.Settle(time.Hour)
	l.is("key-1", "canceled")
	if got := l.r.SessionOf(l.r.PaymentOf("key-1")).Status; got != "closed" {
		t.Errorf("the page is %s", got)
	}
	status(t, "a new page", 201)(l.p.Hosted("key-2", rig.Order{Reference: "order-1", Minor: 1000}))
	l.sound()
}
