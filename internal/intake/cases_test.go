package intake_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// TestCase001_WebhooksOfASecondPress: the acquirer takes the money after the client gave up; the client presses again with
// another key, and the news comes twice. One movement, one entry in the books.
func TestCase001_WebhooksOfASecondPress(t *testing.T) {
	r, p := open(t)
	lostAnswers(r)
	pay(r, p, "K1", rig.Order{Reference: "order-1"})
	if a, err := p.Pay("K2", rig.Order{Reference: "order-1"}); err != nil || a.Status != 202 {
		t.Fatalf("the second press is told %d, %v", a.Status, err)
	}
	counts(r, 1, "SELECT count(*) FROM payment")
	paid := only(r, "charge.succeeded")
	took(r, p.Deliver(paid))
	took(r, p.Deliver(rewritten(r, paid, "evt_again", func(map[string]any, map[string]any) {})))
	pass(r, p)
	is(r, "paid", "SELECT status FROM payment")
	if a, err := p.Pay("K2", rig.Order{Reference: "order-1"}); err != nil || a.Status != 201 {
		t.Errorf("afterwards the second press is told %d, %v", a.Status, err)
	}
	if len(r.Movements()) != 1 || r.Receipts() != 1 || len(r.Events()) != 1 {
		t.Errorf("%d movements, %d receipts, events %v", len(r.Movements()), r.Receipts(), r.Events())
	}
	inbox(r, "charge.succeeded applied", "charge.succeeded applied")
	is(r, "moved", "SELECT why FROM inbox_message ORDER BY received_at LIMIT 1")
	is(r, "repeat", "SELECT why FROM inbox_message ORDER BY received_at DESC LIMIT 1")
	r.Verify()
}

// TestCase035_ToldWhileCreateIsUnderWay: "captured" is delivered between the acquirer's answer and our commit.
func TestCase035_ToldWhileCreateIsUnderWay(t *testing.T) {
	for _, point := range []string{operation.PointAfterWrite, operation.PointAfterReply, operation.PointBeforeRecord} {
		t.Run(point, func(t *testing.T) {
			r, other := open(t)
			var told operation.Answer
			r.During(point, func(p *rig.Replica) {
				var err error
				if told, err = p.Pay("key-1", rig.Order{Reference: "order-1"}); err != nil {
					t.Error(err)
				}
			}, func() {
				if point == operation.PointAfterWrite {
					if _, err := r.Acquirer.WaitMessages(t.Context(), "", "", 1); err != nil {
						t.Fatal(err)
					}
				}
				took(r, other.Deliver(only(r, "charge.succeeded")))
				pass(r, other)
				is(r, "paid", "SELECT status FROM payment")
			})
			if told.Status != 201 {
				t.Errorf("the client is told %d", told.Status)
			}
			inbox(r, "charge.succeeded applied")
			if r.Receipts() != 1 || len(r.Events()) != 1 {
				t.Errorf("%d receipts, events %v", r.Receipts(), r.Events())
			}
			counts(r, 0, "SELECT count(*) FROM operation WHERE state <> 'completed'")
			r.Verify()
		})
	}
}

// TestCase035_ToldBeforeOurRowExists: news of a payment that is not there is kept, and applied when the payment appears: its row
// was lost in a restore, and the client's repeat makes it again under the same key.
func TestCase035_ToldBeforeOurRowExists(t *testing.T) {
	r, p := open(t)
	r.Lose(func() { pay(r, p, "key-1", rig.Order{Reference: "order-1"}) })
	took(r, p.Deliver(only(r, "charge.succeeded")))
	pass(r, p)
	inbox(r, "charge.succeeded parked")
	is(r, "it fits no payment yet", "SELECT why FROM inbox_message")
	r.Later(time.Second)
	if report := p.Intake.Pass(t.Context()); report.Picked != 0 {
		t.Errorf("tried again at once: %+v", report)
	}
	r.During(operation.PointBeforeRecord, func(slow *rig.Replica) { pay(r, slow, "key-1", rig.Order{Reference: "order-1"}) }, func() {
		r.Later(5 * time.Second)
		pass(r, p)
		is(r, "paid", "SELECT status FROM payment")
	})
	inbox(r, "charge.succeeded applied")
	if len(r.Movements()) != 1 || r.Receipts() != 1 {
		t.Errorf("%d movements, %d receipts", len(r.Movements()), r.Receipts())
	}
	r.Verify("I-13") // the permit of the lost interval is lost
}

// TestCase036_AnOldCopyIsNotWrittenBack: Create stands after its call with its copy of the payment while news of money, and of
// money given back, is applied.
func TestCase036_AnOldCopyIsNotWrittenBack(t *testing.T) {
	r, other := open(t)
	r.During(operation.PointBeforeRecord, func(p *rig.Replica) {
		if a, err := p.Pay("key-1", rig.Order{Reference: "order-1"}); err != nil || a.Status != 201 {
			t.Errorf("told %d, %v", a.Status, err)
		}
	}, func() {
		charges, err := r.Acquirer.Charges(t.Context(), "")
		if err != nil || len(charges) != 1 {
			t.Fatalf("%d charges, %v", len(charges), err)
		}
		if _, err := r.Acquirer.RefundByHand(t.Context(), charges[0].ID, 1000); err != nil {
			t.Fatal(err)
		}
		for _, m := range r.Told() {
			took(r, other.Deliver(m))
		}
		pass(r, other)
		is(r, "paid 1000", "SELECT status || ' ' || refunded_amount FROM payment")
	})
	is(r, "paid 1000", "SELECT status || ' ' || refunded_amount FROM payment")
	if r.Receipts() != 1 {
		t.Errorf("%d receipts", r.Receipts())
	}
	r.Verify()
}

// failing makes every change of a payment that matches fail, as a database that is ill.
func failing(r *rig.Rig, where string) (mend func()) {
	r.T.Helper()
	run := func(sql string) {
		if _, err := r.Owner.Exec(context.WithoutCancel(r.T.Context()), sql); err != nil {
			r.T.Fatal(err)
		}
	}
	run(`CREATE FUNCTION ill() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF ` + where + ` THEN RAISE EXCEPTION 'ill'; END IF; RETURN NEW; END $$`)
	run("CREATE TRIGGER ill BEFORE UPDATE ON payment FOR EACH ROW EXECUTE FUNCTION ill()")
	var once sync.Once
	mend = func() { once.Do(func() { run("DROP TRIGGER ill ON payment"); run("DROP FUNCTION ill()") }) }
	r.T.Cleanup(mend)
	return mend
}

// TestCase038_SeenAndAppliedAreOne: the database fails on the state update of E once, after E was stored; the acquirer sends
// E again.
func TestCase038_SeenAndAppliedAreOne(t *testing.T) {
	r, p := open(t)
	lostAnswers(r)
	pay(r, p, "key-1", rig.Order{Reference: "order-1"})
	e := only(r, "charge.succeeded")
	took(r, p.Deliver(e))
	mend := failing(r, "true")
	if report := p.Intake.Pass(t.Context()); report.Picked != 1 || report.Failed != 1 {
		t.Fatalf("%+v", report)
	}
	inbox(r, " received")
	is(r, "a fault: see the log", "SELECT why FROM inbox_message WHERE due_at > now()")
	is(r, "unknown", "SELECT status FROM payment")
	counts(r, 0, "SELECT count(*) FROM evidence WHERE source = 'webhook'")
	mend()
	took(r, p.Deliver(e))
	is(r, "1", "SELECT repeats::text FROM inbox_message")
	r.Later(aLease)
	pass(r, p)
	inbox(r, "charge.succeeded applied")
	is(r, "paid", "SELECT status FROM payment")
	counts(r, 1, "SELECT count(*) FROM evidence WHERE source = 'webhook'")
	r.Verify()
}

// TestCase038_PoisonIsSeenAndStopsNobody: ten messages that cannot be applied, before one that can.
func TestCase038_PoisonIsSeenAndStopsNobody(t *testing.T) {
	r, p := open(t)
	lostAnswers(r)
	for n := range 11 {
		key := fmt.Sprintf("key-%02d", n)
		pay(r, p, key, rig.Order{Reference: key})
	}
	for _, m := range r.Told("charge.succeeded") {
		took(r, p.Deliver(m))
	}
	mend := failing(r, "NEW.status <> OLD.status AND NEW.idempotency_key < 'key-10'")
	if report := p.Intake.Pass(t.Context()); report.Picked != 11 || report.Failed != 10 {
		t.Errorf("%+v", report)
	}
	is(r, "paid", "SELECT status FROM payment WHERE idempotency_key = 'key-10'")
	counts(r, 10, "SELECT count(*) FROM inbox_message WHERE state = 'received' AND attempts = 1 AND why <> '' AND due_at > now()")
	r.Later(aLease)
	if report := p.Intake.Pass(t.Context()); report.Failed != 10 {
		t.Errorf("%+v", report)
	}
	r.Later(aLease) // the second lease is twice as long
	if report := p.Intake.Pass(t.Context()); report.Picked != 0 {
		t.Errorf("%+v", report)
	}
	mend()
	r.Later(aLease)
	pass(r, p)
	counts(r, 11, "SELECT count(*) FROM payment WHERE status = 'paid'")
	r.Verify()
}

// TestCase039_TwentyAtOnce: twenty deliveries of one event over three replicas, all past any look before the insert.
func TestCase039_TwentyAtOnce(t *testing.T) {
	r, p := open(t)
	lostAnswers(r)
	pay(r, p, "key-1", rig.Order{Reference: "order-1"})
	e := only(r, "charge.succeeded")
	replicas := []*rig.Replica{p, r.Replica(), r.Replica()}
	// Somebody else is about to store the same message: all twenty wait at the index for how that ends.
	tx, err := r.Owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `INSERT INTO inbox_message (merchant_id, id, account_id, message_id, raw, raw_hash, trust, due_at)
		VALUES ($1, $1, $2, $3, $4, sha256($4), 'signed', now())`, r.Merchant.ID, r.Merchant.Account, e.ID, []byte(e.Body)); err != nil {
		t.Fatal(err)
	}
	answers := make(chan int, 20)
	for n := range 20 {
		go func() { answers <- replicas[n%3].Deliver(e).Status }()
	}
	r.DB.WaitBlocked(t, 20)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if status := <-answers; status != http.StatusOK {
			t.Errorf("answered %d", status)
		}
	}
	is(r, "1 19", "SELECT count(*) || ' ' || max(repeats) FROM inbox_message")
	var passes sync.WaitGroup
	for _, q := range replicas {
		passes.Go(func() { q.Intake.Pass(context.WithoutCancel(t.Context())) })
	}
	passes.Wait()
	inbox(r, "charge.succeeded applied")
	counts(r, 1, "SELECT count(*) FROM evidence WHERE source = 'webhook'")
	is(r, "paid", "SELECT status FROM payment")
	if r.Receipts() != 1 || len(r.Events()) != 1 {
		t.Errorf("%d receipts, events %v", r.Receipts(), r.Events())
	}
	r.Verify()
}

// TestCase042_AgeIsJudgedAtTheDoor: taken in time, and worked on twenty minutes later by another process.
func TestCase042_AgeIsJudgedAtTheDoor(t *testing.T) {
	r, p := open(t)
	lostAnswers(r)
	pay(r, p, "key-1", rig.Order{Reference: "order-1"})
	e := only(r, "charge.succeeded")
	took(r, p.Deliver(e))
	r.Later(20 * time.Minute)
	restarted := r.Replica()
	pass(r, restarted)
	inbox(r, "charge.succeeded applied")
	is(r, "paid", "SELECT status FROM payment")
	// The same message, signed when it was made and delivered as late as it was worked on: the door takes none of it.
	if res := restarted.Tell(r.Merchant, r.Signed(e.ID, time.Now().Add(-20*time.Minute), e.Body), e.Body); res.Status != 401 {
		t.Errorf("answered %d %s", res.Status, res.Body)
	}
	r.Verify()
}

// TestCase046_ModesDoNotCross: signed test news for a payment of a live merchant, and the reverse.
func TestCase046_ModesDoNotCross(t *testing.T) {
	r, p := open(t)
	lostAnswers(r)
	for _, mode := range []string{"live", "test"} {
		t.Run(mode, func(t *testing.T) {
			r.Merchant = r.AddMerchant(nil)
			if _, err := r.Owner.Exec(t.Context(), "UPDATE merchant SET mode = $2 WHERE merchant_id = $1", r.Merchant.ID, mode); err != nil {
				t.Fatal(err)
			}
			pay(r, p, "key-1", rig.Order{Reference: "order-1"})
			key := r.Text("SELECT acquirer_key FROM payment WHERE merchant_id = $1", r.Merchant.ID)
			told, err := r.Acquirer.Messages(t.Context(), key)
			if err != nil || len(told) != 1 {
				t.Fatalf("%d messages, %v", len(told), err)
			}
			other := rewritten(r, told[0], "evt_other_mode", func(body, _ map[string]any) { body["livemode"] = mode == "test" })
			took(r, p.Deliver(other))
			pass(r, p)
			is(r, "unknown", "SELECT status FROM payment WHERE merchant_id = $1", r.Merchant.ID)
			is(r, "ignored", "SELECT state FROM inbox_message WHERE merchant_id = $1", r.Merchant.ID)
			counts(r, 0, "SELECT count(*) FROM evidence WHERE merchant_id = $1 AND source = 'webhook'", r.Merchant.ID)
			took(r, p.Deliver(rewritten(r, told[0], "evt_own_mode", func(body, _ map[string]any) { body["livemode"] = mode == "live" })))
			pass(r, p)
			is(r, "paid", "SELECT status FROM payment WHERE merchant_id = $1", r.Merchant.ID)
		})
	}
	r.Verify()
}

// TestCase047_PaidWithAnotherAmount: news of 100 instead of 10 000, of USD instead of KZT, of more than asked.
func TestCase047_PaidWithAnotherAmount(t *testing.T) {
	for _, row := range []struct {
		name, currency string
		minor          int64
	}{{"less", "KZT", 100}, {"currency", "USD", 10_000}, {"more", "KZT", 10_001}} {
		t.Run(row.name, func(t *testing.T) {
			r, p := open(t)
			lostAnswers(r)
			pay(r, p, "key-1", rig.Order{Reference: "order-1", Minor: 10_000})
			took(r, p.Deliver(rewritten(r, only(r, "charge.succeeded"), "evt_other", func(_, data map[string]any) {
				data["amount"], data["captured_amount"], data["currency"] = row.minor, row.minor, row.currency
			})))
			pass(r, p)
			inbox(r, "charge.succeeded applied")
			is(r, "unknown", "SELECT status FROM payment")
			is(r, "amount_mismatch", "SELECT reason FROM review WHERE decided_at IS NULL")
			is(r, fmt.Sprintf("unapplied %d %s", row.minor, row.currency), "SELECT state || ' ' || amount || ' ' || currency FROM movement")
			is(r, fmt.Sprintf("%d %s", row.minor, row.currency), "SELECT amount || ' ' || currency FROM ledger_entry WHERE amount > 0")
			if r.Receipts() != 0 {
				t.Errorf("%d receipts", r.Receipts())
			}
			r.Verify("I-1", "I-7", "I-14") // the acquirer's register does not know what its message said
		})
	}
}

// TestCase048_TheAcquirersIDIsLost: the charge is known by our reference alone, and news of it is no second credit.
func TestCase048_TheAcquirersIDIsLost(t *testing.T) {
	r, p := open(t)
	lostAnswers(r)
	pay(r, p, "key-1", rig.Order{Reference: "order-1"})
	is(r, "", "SELECT COALESCE(acquirer_reference, '') FROM payment")
	paid := only(r, "charge.succeeded")
	forged := rewritten(r, paid, "evt_forged", func(_, data map[string]any) { data["status"] = "succeeded" })
	if res := p.Tell(r.Merchant, http.Header{"Webhook-Id": {"evt_forged"}}, forged.Body); res.Status != 401 {
		t.Errorf("a notification from elsewhere is answered %d %s", res.Status, res.Body)
	}
	counts(r, 0, "SELECT count(*) FROM inbox_message")
	took(r, p.Deliver(paid))
	pass(r, p)
	is(r, "paid", "SELECT status FROM payment")
	p.Settle(time.Hour)
	counts(r, 1, "SELECT count(*) FROM payment")
	if len(r.Movements()) != 1 || r.Receipts() != 1 {
		t.Errorf("%d movements, %d receipts", len(r.Movements()), r.Receipts())
	}
	r.Verify()
}

// TestCase048_UnsignedNewsMakesUsAsk: where the acquirer does not sign, news leads to a question, and only its answer counts.
func TestCase048_UnsignedNewsMakesUsAsk(t *testing.T) {
	r, p := open(t)
	r.Unsigned(r.Merchant)
	lostAnswers(r)
	pay(r, p, "key-1", rig.Order{Reference: "order-1", Minor: 10_000})
	pay(r, p, "key-2", rig.Order{Reference: "order-2", Method: "pm_declined_expired_card"})
	paid := only(r, "charge.succeeded")
	forged := rewritten(r, paid, "evt_forged", func(_, data map[string]any) { data["amount"], data["captured_amount"] = 100, 100 })
	took(r, p.Tell(r.Merchant, nil, forged.Body))
	pass(r, p)
	is(r, "paid 10000", "SELECT status || ' ' || captured_amount FROM payment WHERE idempotency_key = 'key-1'")
	counts(r, 0, "SELECT count(*) FROM evidence WHERE source = 'webhook'")
	counts(r, 1, "SELECT count(*) FROM movement")
	is(r, "hint asked: moved", "SELECT trust || ' ' || why FROM inbox_message")
	// Forged for the refused one: the acquirer is asked, and knows of no money.
	key := r.Text("SELECT acquirer_key FROM payment WHERE idempotency_key = 'key-2'")
	stolen := rewritten(r, paid, "evt_stolen", func(_, data map[string]any) {
		data["charge_reference"], data["reference"], data["id"] = key, key, "ch_stolen"
	})
	took(r, p.Tell(r.Merchant, nil, stolen.Body))
	pass(r, p)
	is(r, "declined", "SELECT status FROM payment WHERE idempotency_key = 'key-2'")
	if len(r.Movements()) != 1 || r.Receipts() != 1 {
		t.Errorf("%d movements, %d receipts", len(r.Movements()), r.Receipts())
	}
	r.Verify()
}

// TestCase056_ARepeatTellsNobodyTwice: a webhook that was worked on comes again before any cleaning up.
func TestCase056_ARepeatTellsNobodyTwice(t *testing.T) {
	r, p := open(t)
	lostAnswers(r)
	pay(r, p, "key-1", rig.Order{Reference: "order-1"})
	e := only(r, "charge.succeeded")
	took(r, p.Deliver(e))
	pass(r, p)
	outbox := r.Text("SELECT string_agg(event_id::text, ' ' ORDER BY version) FROM outbox")
	took(r, p.Deliver(e))
	took(r, p.Deliver(rewritten(r, e, "evt_other_id", func(map[string]any, map[string]any) {})))
	pass(r, p)
	is(r, outbox, "SELECT string_agg(event_id::text, ' ' ORDER BY version) FROM outbox")
	if outbox == "" || len(r.Events()) != 1 {
		t.Errorf("outbox %q, events %v", outbox, r.Events())
	}
	r.Verify()
}

// TestCase065_TheSweepWritesNoOldState: the sweep stands between what it was told and its record; the payment is finished by
// a webhook; the sweep goes on.
func TestCase065_TheSweepWritesNoOldState(t *testing.T) {
	for _, fault := range []string{"lookup_not_found", "lookup_silent"} {
		t.Run(fault, func(t *testing.T) {
			r, other := open(t)
			lostAnswers(r)
			pay(r, other, "key-1", rig.Order{Reference: "order-1"})
			if err := r.Acquirer.SetFaults(t.Context(), 0, sandbox.Rule{Fault: fault}); err != nil {
				t.Fatal(err)
			}
			r.Later(time.Minute)
			var version string
			var sent int
			r.During(operation.PointBeforeRecord, func(p *rig.Replica) { p.Sweep.Pass(context.WithoutCancel(t.Context())) }, func() {
				took(r, other.Deliver(only(r, "charge.succeeded")))
				pass(r, other)
				is(r, "paid", "SELECT status FROM payment")
				version, sent = r.Text("SELECT version::text FROM payment"), len(r.Charges())
			}, rig.Hasty)
			is(r, "paid", "SELECT status FROM payment")
			is(r, version, "SELECT version::text FROM payment")
			is(r, "completed", "SELECT state FROM operation")
			if len(r.Charges()) != sent || r.Receipts() != 1 {
				t.Errorf("%d sends instead of %d, %d receipts", len(r.Charges()), sent, r.Receipts())
			}
			r.Verify()
		})
	}
}
