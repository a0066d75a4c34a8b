package intake_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer/signature"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/host"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/intake"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// TestWhatTheDoorRefuses: nothing of it is stored; a body in any form that is signed is.
func TestWhatTheDoorRefuses(t *testing.T) {
	r, p := open(t)
	now, body := time.Now(), `{"anything":1}`
	other := signature.NewSecret([signature.NewSecretBytes]byte{9})
	many := r.Signed("evt_1", now, body, other)
	many.Set("Webhook-Signature", strings.Repeat(many.Get("Webhook-Signature")+" ", signature.MaxSignatures)+r.Signed("evt_1", now, body).Get("Webhook-Signature"))
	long := r.Signed("evt_1", now, body)
	long.Set("Webhook-Signature", strings.Repeat("v1,x ", signature.MaxHeaderBytes))
	for name, header := range map[string]http.Header{
		"no headers": {}, "wrong": r.Signed("evt_1", now, body, other), "of another body": r.Signed("evt_1", now, body+" "),
		"old": r.Signed("evt_1", now.Add(-6*time.Minute), body), "from the future": r.Signed("evt_1", now.Add(6*time.Minute), body),
		"beyond the many that are looked at": many, "a header over its bound": long,
	} {
		if res := p.Tell(r.Merchant, header, body); res.Status != 401 && res.Status != 431 || res.Status == 401 && res.Member("code") != "signature_invalid" {
			t.Errorf("%s: %d %s", name, res.Status, res.Body)
		}
	}
	nobody := rig.Merchant{ID: r.Merchant.ID, Account: r.Merchant.ID}
	if res := p.Tell(nobody, r.Signed("evt_1", now, body), body); res.Status != 404 {
		t.Errorf("another account: %d %s", res.Status, res.Body)
	}
	over := strings.Repeat("x", intake.MaxBody+1)
	if res := p.Tell(r.Merchant, r.Signed("evt_1", now, over), over); res.Status != 413 {
		t.Errorf("over the limit: %d %s", res.Status, res.Body)
	}
	counts(r, 0, "SELECT count(*) FROM inbox_message")
	took(r, p.Tell(r.Merchant, r.Signed("evt_1", now.Add(-4*time.Minute), body, other, rig.HookSecret), body))
	counts(r, 1, "SELECT count(*) FROM inbox_message")
}

// TestNewsThatConcernsNoPayment: each is stored, answered with success, seen with its reason, and moves nothing.
func TestNewsThatConcernsNoPayment(t *testing.T) {
	r, p := open(t)
	lostAnswers(r)
	pay(r, p, "key-1", rig.Order{Reference: "order-1"})
	paid := only(r, "charge.succeeded")
	stranger := "hpx" + strings.Repeat("z", 61)
	for _, m := range []sandbox.Message{
		{ID: "evt_1", Body: `{ not JSON`},
		{ID: "evt_2", Body: `{"id":"evt_2","type":"payout.paid","created_at":"2026-01-02T03:04:05Z","livemode":false,"data":{}}`},
		rewritten(r, paid, "evt_3", func(_, data map[string]any) { data["charge_reference"], data["reference"] = stranger, stranger }),
		rewritten(r, paid, "evt_4", func(_, data map[string]any) { delete(data, "amount") }),
	} {
		took(r, p.Deliver(m))
	}
	pass(r, p)
	inbox(r, " unreadable", "payout.paid ignored", "charge.succeeded ignored", " unreadable")
	counts(r, 4, "SELECT count(*) FROM inbox_message WHERE why <> '' AND ended_at IS NOT NULL AND due_at IS NULL")
	is(r, "unknown", "SELECT status FROM payment")
	counts(r, 0, "SELECT count(*) FROM evidence WHERE source = 'webhook'")
	// Given back to be tried again, where a new version could read it; this one cannot.
	row, err := id.ParseUUID(r.Text("SELECT id::text FROM inbox_message WHERE message_id = 'evt_4'"))
	if err != nil {
		t.Fatal(err)
	}
	if found, err := p.Store.RetryMessage(t.Context(), r.Merchant.ID, row); err != nil || !found {
		t.Errorf("%v, %v", found, err)
	}
	if report := p.Intake.Pass(t.Context()); report.Picked != 1 {
		t.Errorf("%+v", report)
	}
	r.Verify()
}

// TestAnotherReplicaFinishes: a process vanishes with a message in its hands; whoever comes after it applies the message, once.
func TestAnotherReplicaFinishes(t *testing.T) {
	for _, point := range operation.MessagePoints {
		t.Run(point, func(t *testing.T) {
			r, p := open(t)
			lostAnswers(r)
			pay(r, p, "key-1", rig.Order{Reference: "order-1"})
			e := only(r, "charge.succeeded")
			crash := rig.CrashAt(point, 1)
			dying := r.Replica(rig.WithFaults(crash))
			res := dying.Deliver(e)
			if told := res.Status == 200; told == (point == operation.PointAfterStore) {
				t.Errorf("answered %d", res.Status)
			}
			if res.Status != 200 {
				took(r, p.Deliver(e)) // the acquirer sends again what was not acknowledged
			} else {
				dying.Intake.Pass(t.Context())
			}
			if !crash.Happened() {
				t.Fatal("the point was not met")
			}
			is(r, "unknown", "SELECT status FROM payment")
			counts(r, 0, "SELECT count(*) FROM evidence WHERE source = 'webhook'")
			r.Later(aLease)
			pass(r, p)
			inbox(r, "charge.succeeded applied")
			is(r, "paid", "SELECT status FROM payment")
			counts(r, 1, "SELECT count(*) FROM evidence WHERE source = 'webhook'")
			r.Verify()
		})
	}
}

// TestAPickThatWasPausedWritesNothing: a worker stands with its message for longer than its lease, while another one applies it.
func TestAPickThatWasPausedWritesNothing(t *testing.T) {
	r, other := open(t)
	lostAnswers(r)
	pay(r, other, "key-1", rig.Order{Reference: "order-1"})
	took(r, other.Deliver(only(r, "charge.succeeded")))
	r.During(operation.PointBeforeReceive, func(p *rig.Replica) {
		if report := p.Intake.Pass(context.WithoutCancel(t.Context())); report.Picked != 1 || report.Failed != 0 {
			t.Errorf("%+v", report)
		}
	}, func() {
		r.Later(aLease)
		pass(r, other)
		inbox(r, "charge.succeeded applied")
	})
	counts(r, 1, "SELECT count(*) FROM evidence WHERE source = 'webhook'")
	is(r, "2", "SELECT attempts::text FROM inbox_message")
	r.Verify()
}

// slow holds the first message of each payment until all payments have begun, and notes who is at work on which.
type slow struct {
	intake.Flow
	mu       sync.Mutex
	at       map[string]int
	begun    int
	together chan struct{}
	crossed  bool
}

func (f *slow) Receive(ctx context.Context, r flow.Reading) error {
	f.mu.Lock()
	f.at[r.Subject()]++
	f.crossed = f.crossed || f.at[r.Subject()] > 1
	if f.begun++; f.begun == payments {
		close(f.together)
	}
	f.mu.Unlock()
	<-f.together
	err := f.Flow.Receive(ctx, r)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at[r.Subject()]--
	return err
}

const payments = 3

// TestOneAfterAnother: messages of one payment are worked on one after another, those of different payments side by side
// (PROTOCOL V4).
func TestOneAfterAnother(t *testing.T) {
	r, p := open(t)
	lostAnswers(r)
	for n := range payments {
		key := fmt.Sprintf("key-%d", n)
		pay(r, p, key, rig.Order{Reference: key})
	}
	for _, m := range r.Told("charge.succeeded") {
		took(r, p.Deliver(m))
		took(r, p.Deliver(rewritten(r, m, m.ID+"_again", func(map[string]any, map[string]any) {})))
	}
	held := &slow{Flow: p.Flow, at: map[string]int{}, together: make(chan struct{})}
	n := intake.New(intake.Config{Lease: time.Minute, Retention: time.Hour}, intake.Parts{Store: p.Store, Runtime: &host.Runtime{}, Flow: held, House: p.Store,
		Report: func(where string, err error) { t.Errorf("%s: %v", where, err) }})
	if report := n.Pass(t.Context()); report.Picked != 2*payments || report.Failed != 0 {
		t.Errorf("%+v", report)
	}
	if held.crossed {
		t.Error("two messages of one payment at once")
	}
	counts(r, payments, "SELECT count(*) FROM payment WHERE status = 'paid'")
	counts(r, 2*payments, "SELECT count(*) FROM inbox_message WHERE state = 'applied'")
	r.Verify()
}

// TestMoneyOfAnUnknownPayment: it waits for a day, and then for a person; a hint does not.
func TestMoneyOfAnUnknownPayment(t *testing.T) {
	r, p := open(t)
	hints := r.AddMerchant(nil)
	r.Unsigned(hints)
	r.Lose(func() { pay(r, p, "key-1", rig.Order{Reference: "order-1"}) })
	paid := only(r, "charge.succeeded")
	held := rewritten(r, paid, "evt_held", func(body, data map[string]any) {
		body["type"], data["status"], data["capture"], data["captured_amount"], data["id"] = "charge.held", "held", false, 0, "ch_held"
	})
	took(r, p.Deliver(paid))
	took(r, p.Deliver(held))
	hint := rewritten(r, paid, "", func(_, data map[string]any) { data["charge_reference"], data["reference"] = "another", "another" })
	took(r, p.Tell(hints, nil, hint.Body))
	for _, after := range []time.Duration{0, 10 * time.Second, time.Hour, 22 * time.Hour} {
		r.Later(after)
		pass(r, p)
		inbox(r, "charge.succeeded parked", "charge.held parked", "charge.succeeded parked")
	}
	r.Later(2 * time.Hour)
	pass(r, p)
	inbox(r, "charge.succeeded applied", "charge.held parked", "charge.succeeded ignored")
	is(r, "unattributed_money", "SELECT reason FROM review WHERE decided_at IS NULL")
	is(r, "unapplied 499000", "SELECT state || ' ' || amount FROM movement")
	counts(r, 1, "SELECT count(*) FROM evidence WHERE source = 'webhook' AND payment_id IS NULL")
	r.Verify("I-13") // the permit of the lost interval is lost
}

// TestAnotherAccountOfTheMerchant: an account vouches for its own payments only; news of another's makes us ask there.
func TestAnotherAccountOfTheMerchant(t *testing.T) {
	r, p := open(t)
	lostAnswers(r)
	pay(r, p, "key-1", rig.Order{Reference: "order-1", Minor: 10_000})
	other := rig.Merchant{ID: r.Merchant.ID, Account: r.AddAccount(r.Merchant)}
	lie := rewritten(r, only(r, "charge.succeeded"), "evt_lie", func(_, data map[string]any) { data["amount"], data["captured_amount"] = 1, 1 })
	took(r, p.Tell(other, r.Signed(lie.ID, time.Now(), lie.Body), lie.Body))
	r.Later(aLag)
	pass(r, p)
	inbox(r, "charge.succeeded applied")
	is(r, "paid 10000", "SELECT status || ' ' || captured_amount FROM payment")
	counts(r, 0, "SELECT count(*) FROM evidence WHERE source = 'webhook'")
	r.Verify()
}

// TestAHintWaitsForAnAnswer: as long as the acquirer says nothing, the hint is due again; one that cannot be asked ends it.
func TestAHintWaitsForAnAnswer(t *testing.T) {
	r, _ := open(t)
	p := r.Replica(rig.Hasty)
	r.Unsigned(r.Merchant)
	lostAnswers(r)
	pay(r, p, "key-1", rig.Order{Reference: "order-1"})
	if err := r.Acquirer.SetFaults(t.Context(), 0, sandbox.Rule{Fault: "lookup_silent"}); err != nil {
		t.Fatal(err)
	}
	took(r, p.Tell(r.Merchant, nil, only(r, "charge.succeeded").Body))
	if report := p.Intake.Pass(t.Context()); report.Failed != 1 {
		t.Errorf("%+v", report)
	}
	is(r, "received: the acquirer did not answer the question that the message led to", "SELECT state || ': ' || why FROM inbox_message")
	is(r, "unknown", "SELECT status FROM payment")
	if err := r.Acquirer.SetFaults(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	r.Later(aLease)
	pass(r, p)
	is(r, "paid", "SELECT status FROM payment")
	r.Verify()
}

// TestAnAccountThatCannotBeUsed: its messages wait until it can be, and are not answered with success meanwhile.
func TestAnAccountThatCannotBeUsed(t *testing.T) {
	r, p := open(t)
	lostAnswers(r)
	pay(r, p, "key-1", rig.Order{Reference: "order-1"})
	e := only(r, "charge.succeeded")
	took(r, p.Deliver(e))
	secrets := r.Text("SELECT encode(secrets, 'hex') FROM acquirer_account")
	change := func(hex string) {
		if _, err := r.Owner.Exec(t.Context(), "UPDATE acquirer_account SET secrets = decode($1, 'hex')", hex); err != nil {
			t.Fatal(err)
		}
	}
	change("00")
	if res := p.Deliver(e); res.Status != 503 {
		t.Errorf("answered %d %s", res.Status, res.Body)
	}
	if report := p.Intake.Pass(t.Context()); report.Failed != 1 {
		t.Errorf("%+v", report)
	}
	is(r, "received: the acquirer account cannot be used", "SELECT state || ': ' || why FROM inbox_message")
	change(secrets)
	r.Later(aLease)
	pass(r, p)
	is(r, "paid", "SELECT status FROM payment")
	r.Verify()
}

// TestTheLoopIsWoken: what the door stores is applied by the loop of the same process, however rarely that polls.
func TestTheLoopIsWoken(t *testing.T) {
	r, _ := open(t)
	p := r.Replica(rig.Rarely)
	lostAnswers(r)
	pay(r, p, "key-1", rig.Order{Reference: "order-1"})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var loop sync.WaitGroup
	loop.Go(func() { p.Intake.Run(ctx) })
	took(r, p.Deliver(only(r, "charge.succeeded")))
	r.Eventually(func() bool { return r.Status("key-1") == "paid" })
	stop()
	loop.Wait()
	r.Verify()
}

// TestSentByTheAcquirerItself: whole lives, told twice at once, reordered and late, to a replica that works.
func TestSentByTheAcquirerItself(t *testing.T) {
	r, _ := open(t)
	p := r.Replica(rig.Rarely)
	r.HooksTo(p, func(w *sandbox.Webhooks) { w.Duplicate, w.Reorder, w.DelayMS = 2, true, 20 })
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var loop sync.WaitGroup
	loop.Go(func() { p.Intake.Run(ctx) })
	defer loop.Wait()
	defer stop()
	for n := range 4 {
		key := fmt.Sprintf("key-%d", n)
		if _, err := p.Hold(key, rig.Order{Reference: key}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Capture("capture-"+key, r.PaymentOf(key), 1000, nil); err != nil {
			t.Fatal(err)
		}
		charge := r.ChargeOf(r.PaymentOf(key))
		if _, err := r.Acquirer.CaptureByHand(t.Context(), charge.ID, 2000); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Acquirer.RefundByHand(t.Context(), charge.ID, 500); err != nil {
			t.Fatal(err)
		}
	}
	r.Eventually(func() bool {
		return r.Count("SELECT count(*) FROM payment WHERE captured_amount = 3000 AND refunded_amount = 500") == 4
	})
	r.Eventually(func() bool { return r.Count("SELECT count(*) FROM inbox_message WHERE state <> 'applied'") == 0 })
	if _, err := r.Acquirer.WaitMessages(t.Context(), "", sandbox.MessageDelivered, len(r.Told())); err != nil {
		t.Fatal(err)
	}
	counts(r, len(r.Told()), "SELECT count(*) FROM inbox_message")
	r.Verify()
}
