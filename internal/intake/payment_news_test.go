package intake_test

import (
	"slices"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// TestCase021_NewsFindsTheRowOfADeadProcess: the process dies between the acquirer's answer and our save; the news carries our
// reference, and finds the row that was there before the call. Nobody has to wait for the lease of the dead.
func TestCase021_NewsFindsTheRowOfADeadProcess(t *testing.T) {
	for _, point := range []string{operation.PointAfterReply, operation.PointBeforeRecord, operation.PointInRecord} {
		t.Run(point, func(t *testing.T) {
			r, p := wired(t, nil)
			crash := rig.CrashAt(point, 1)
			if _, err := r.Replica(rig.WithFaults(crash)).Pay("key-1", rig.Order{Reference: "order-1", Minor: 1000}); err == nil || !crash.Happened() {
				t.Fatal("the process was to vanish")
			}
			is(r, "in_progress pending", "SELECT o.state || ' ' || p.status FROM operation o, payment p WHERE o.lease_until > now()")
			tells(r, p, only(r, "charge.succeeded"))
			inbox(r, "charge.succeeded applied")
			is(r, "paid", "SELECT status FROM payment")
			told(r, 201)(p.Pay("key-1", rig.Order{Reference: "order-1", Minor: 1000}))
			if len(r.Charges()) != 1 || len(r.Lookups()) != 0 {
				t.Errorf("%d charges and %d questions at the acquirer; want 1 and none", len(r.Charges()), len(r.Lookups()))
			}
			counts(r, 0, "SELECT count(*) FROM operation WHERE state <> 'completed'")
			money(r, 1000, "payment.paid")
		})
	}
}

// TestCase021_NewsOfNobodysMoneyIsKept: money that fits nothing of ours is not dropped with a 200: it waits, seen, and then for a
// person.
func TestCase021_NewsOfNobodysMoneyIsKept(t *testing.T) {
	r, p := wired(t, nil)
	done[sandbox.Charge](r)(r.Acquirer.ChargeByMistake(t.Context(), sandbox.HandCharge{Amount: 1000, Currency: "KZT", Reference: "terminal-7"}))
	tells(r, p, only(r, "charge.succeeded"))
	inbox(r, "charge.succeeded parked")
	if n := metric(r, p, "hapax_messages_parked"); n != 1 {
		t.Errorf("operators see %v parked messages", n)
	}
	r.Later(25 * time.Hour)
	pass(r, p)
	inbox(r, "charge.succeeded applied")
	is(r, "unattributed_money", "SELECT reason FROM review WHERE decided_at IS NULL")
	is(r, "unapplied 1000 KZT", "SELECT state || ' ' || amount || ' ' || currency FROM movement")
	counts(r, 0, "SELECT count(*) FROM payment")
	if n := metric(r, p, `hapax_alarms_total{reason="unapplied_money"}`); n != 1 {
		t.Errorf("%v alarms", n)
	}
	r.Verify()
}

// TestCase024_NewsOfTwoPaymentsOfOneOrder: two tabs get one page. The acquirer takes money twice for it all the same, and tells of
// both: the second one is an excess with an alarm and a way back, in whichever order the news comes.
func TestCase024_NewsOfTwoPaymentsOfOneOrder(t *testing.T) {
	for _, first := range []string{"the page is told first", "the excess is told first"} {
		t.Run(first, func(t *testing.T) {
			r, p := wired(t, nil)
			order := rig.Order{Reference: "order-1", Minor: 1000}
			told(r, 201)(p.Hosted("tab-1", order))
			told(r, 200)(p.Hosted("tab-2", order))
			counts(r, 1, "SELECT count(*) FROM payment")
			pay := r.PaymentOf("tab-1")
			key := r.Text("SELECT acquirer_key FROM payment")
			done[sandbox.Session](r)(r.Acquirer.PaySession(t.Context(), r.SessionOf(pay).ID)) // there is one
			done[sandbox.Charge](r)(r.Acquirer.ChargeByMistake(t.Context(), sandbox.HandCharge{Amount: 1000, Currency: "KZT", Reference: key, IdempotencyKey: key}))
			both := r.Told("charge.succeeded")
			if len(both) != 2 {
				t.Fatalf("%d messages, want 2", len(both))
			}
			if first == "the excess is told first" {
				slices.Reverse(both)
			}
			tells(r, p, both[0])
			is(r, "paid", "SELECT status FROM payment")
			tells(r, p, both[1], both[0], both[1])
			took(r, p.Deliver(again(r, both[1])))
			pass(r, p)
			is(r, "paid true", "SELECT status || ' ' || conflict FROM payment")
			is(r, "1000 "+both[1].ObjectID, "SELECT amount || ' ' || reference FROM movement WHERE state = 'unapplied'")
			is(r, "second_movement", "SELECT reason FROM review WHERE decided_at IS NULL")
			if n := metric(r, p, `hapax_alarms_total{reason="unapplied_money"}`); n != 1 {
				t.Errorf("%v alarms, want 1", n)
			}
			if r.Receipts() != 1 {
				t.Errorf("%d receipts, want 1", r.Receipts())
			}
			r.Verify("I-1") // the acquirer's mistake stands until it is given back

			review := done[id.ID](r)(id.ParseUUID(r.Text("SELECT id::text FROM review")))
			told(r, 201)(p.Flow.DecideReview(t.Context(), flow.DecideReviewCommand{Merchant: r.Merchant.ID, Key: "click", RequestID: "req_person",
				Review: review, Verdict: flow.VerdictCompensate, Person: "support", Reason: "seen at the acquirer"}))
			p.Settle(time.Hour)
			tells(r, p, r.Told()...) // of what was given back too
			counts(r, 0, "SELECT count(*) FROM movement WHERE state = 'unapplied'")
			counts(r, 1, "SELECT count(*) FROM modification")
			money(r, 1000, "payment.registered", "payment.paid", "payment.conflict", "compensation.succeeded", "payment.conflict_resolved")
		})
	}
}

// TestCase025_NewsThatAnOldPageRanOut: it ends its own try and no other, told before the later try is paid, or after.
func TestCase025_NewsThatAnOldPageRanOut(t *testing.T) {
	for _, by := range []string{"news alone, and again", "expired last", "expired first"} {
		t.Run(by, func(t *testing.T) {
			r, p := wired(t, nil)
			order := rig.Order{Reference: "order-1", Minor: 1000}
			told(r, 201)(p.Hosted("try-1", order))
			first := r.PaymentOf("try-1")
			done[sandbox.Session](r)(r.Acquirer.ExpireSession(t.Context(), r.SessionOf(first).ID))
			expired := only(r, "session.expired")
			if by == "news alone, and again" {
				tells(r, p, expired)
				if len(r.Lookups()) != 0 {
					t.Errorf("%d questions, want none", len(r.Lookups()))
				}
			} else {
				told(r, 200)(p.Check(first)) // the news is late
			}
			is(r, "canceled", "SELECT status FROM payment WHERE idempotency_key = 'try-1'")
			told(r, 201)(p.Hosted("try-2", order))
			second := r.PaymentOf("try-2")
			done[sandbox.Session](r)(r.Acquirer.PaySession(t.Context(), r.SessionOf(second).ID))
			paid := only(r, "charge.succeeded")
			if by == "expired first" {
				tells(r, p, expired)
				is(r, "registered", "SELECT status FROM payment WHERE idempotency_key = 'try-2'")
				tells(r, p, paid)
			} else {
				tells(r, p, paid)
				is(r, "paid", "SELECT status FROM payment WHERE idempotency_key = 'try-2'")
				tells(r, p, expired)
			}
			took(r, p.Deliver(again(r, expired)))
			pass(r, p)
			is(r, "canceled", "SELECT status FROM payment WHERE idempotency_key = 'try-1'")
			is(r, "paid", "SELECT status FROM payment WHERE idempotency_key = 'try-2'")
			if _, err := p.Hosted("try-3", order); !problem.Is(err, problem.AlreadyPaid) {
				t.Errorf("a third try is told %v", err)
			}
			counts(r, 0, "SELECT count(*) FROM inbox_message WHERE state <> 'applied'")
			money(r, 1000, "payment.registered", "payment.canceled", "payment.registered", "payment.paid")
		})
	}
}
