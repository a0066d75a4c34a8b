package flow_test

import (
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/internal/rig"
)

// During a hold after a failover no change to a payment begins: it may have been made in the lost interval (A8).
func TestHoldRefusesChanges(t *testing.T) {
	r := rig.New(t, quick)
	l := life{t, r, r.Replica(fleeting)}
	paid, held := l.sale("key-1"), l.held("key-2")
	sent := len(r.Charges())
	hold(t, r, l.p)
	l.refused("refund", problem.SendsOnHold)(l.p.Refund("ref-1", paid, 0))
	l.refused("capture", problem.SendsOnHold)(l.p.Capture("cap-1", held, 0, nil))
	l.refused("cancel", problem.SendsOnHold)(l.p.Cancel("can-1", held, ""))
	l.count("changes", 0, "SELECT count(*) FROM modification")
	l.count("operations", 2, "SELECT count(*) FROM operation")
	if got := len(r.Charges()); got != sent {
		t.Errorf("%d requests left during the hold", got-sent)
	}
	compared(t, l.p)
	status(t, "refund", 201)(l.p.Refund("ref-1", paid, 0))
	status(t, "capture", 201)(l.p.Capture("cap-1", held, 0, nil))
	l.money(1000, "payment.paid", "refund.succeeded", "payment.authorized", "payment.paid")
}

// What was done in a lost interval is found in the acquirer's list and attributed: captures, refunds, one that the bank returned, a
// chargeback, a chargeback that was won, a reversal of the same day. Then the commands come again, and nothing moves twice.
func TestComparisonAttributesLostChanges(t *testing.T) {
	r := rig.New(t, quick)
	l := life{t, r, r.Replica(fleeting)}
	captured, refunded, returned := l.held("key-1"), l.sale("key-2"), l.sale("key-3")
	disputed, won, released := l.sale("key-4"), l.sale("key-5"), l.held("key-6")
	r.Lose(func() {
		status(t, "capture", 201)(l.p.Capture("cap-1", captured, 600, nil))
		status(t, "capture", 201)(l.p.Capture("cap-2", captured, 400, nil))
		status(t, "refund", 201)(l.p.Refund("ref-2", refunded, 300))
		status(t, "refund", 201)(l.p.Refund("ref-3", returned, 300))
		if _, err := r.Acquirer.FailRefund(t.Context(), r.Text("SELECT acquirer_reference FROM modification WHERE idempotency_key = 'ref-3'"), "account_closed"); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Acquirer.OpenChargeback(t.Context(), r.ChargeOf(disputed).ID, 0); err != nil {
			t.Fatal(err)
		}
		dispute, err := r.Acquirer.OpenChargeback(t.Context(), r.ChargeOf(won).ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Acquirer.WinChargeback(t.Context(), dispute.ID); err != nil {
			t.Fatal(err)
		}
		status(t, "cancel", 201)(l.p.Cancel("can-6", released, ""))
	})
	l.count("changes that are known", 0, "SELECT count(*) FROM modification")
	if err := l.p.Store.EpochRestored(t.Context(), "a test"); err != nil {
		t.Fatal(err)
	}
	compared(t, l.p)
	l.count("open reviews", 0, "SELECT count(*) FROM review WHERE decided_at IS NULL")
	l.count("captured", 1000, "SELECT captured_amount FROM payment WHERE id = $1", captured)
	l.count("refunded", 300, "SELECT refunded_amount FROM payment WHERE id = $1", refunded)
	l.count("refunded and returned", 0, "SELECT refunded_amount FROM payment WHERE id = $1", returned)
	l.count("disputed", 1000, "SELECT disputed_amount FROM payment WHERE id = $1 AND dispute = 'opened'", disputed)
	l.count("won", 0, "SELECT disputed_amount FROM payment WHERE id = $1 AND dispute = 'won'", won)
	l.sound()
	moved := len(r.Movements())

	// The clients, who were told of success, repeat.
	for key, again := range map[string]func() error{
		"cap-1": func() error { _, err := l.p.Capture("cap-1", captured, 600, nil); return err },
		"cap-2": func() error { _, err := l.p.Capture("cap-2", captured, 400, nil); return err },
	} {
		if err := again(); !problem.Is(err, problem.NotCapturable) {
			t.Errorf("%s again: %v", key, err)
		}
	}
	status(t, "cancel again", 201)(l.p.Cancel("can-6", released, ""))
	status(t, "refund again", 201)(l.p.Refund("ref-2", refunded, 300))
	l.p.Settle(time.Hour)
	if got := len(r.Movements()); got != moved {
		t.Errorf("%d movements after the repeats", got-moved)
	}
	l.count("refunded", 300, "SELECT refunded_amount FROM payment WHERE id = $1", refunded)
	l.sound()
}
