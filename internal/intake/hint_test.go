package intake_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// unsigned is an installation whose acquirer signs nothing, with a payment that is paid and what was told of it.
func unsigned(t *testing.T) (*rig.Rig, *rig.Replica, sandbox.Message) {
	t.Helper()
	r, p := open(t)
	r.Unsigned(r.Merchant)
	pay(r, p, "key-1", rig.Order{Reference: "order-1"})
	return r, p, only(r, "charge.succeeded")
}

// TestTheSameHintAgainIsAskedAboutAnew: an acquirer whose messages say that something changed, and not what, sends the same bytes
// for each change (Mollie's are "id=tr_…"). The second one is no repeat of the first.
func TestTheSameHintAgainIsAskedAboutAnew(t *testing.T) {
	r, p, hint := unsigned(t)
	took(r, p.Tell(r.Merchant, nil, hint.Body))
	r.Later(aLag)
	pass(r, p)
	inbox(r, "charge.succeeded applied")
	if _, err := r.Acquirer.RefundByHand(t.Context(), r.ChargeOf(r.PaymentOf("key-1")).ID, 1000); err != nil {
		t.Fatal(err)
	}
	took(r, p.Tell(r.Merchant, nil, hint.Body))
	r.Later(aLag)
	pass(r, p)
	is(r, "paid 1000", "SELECT status || ' ' || refunded_amount FROM payment")
	is(r, "applied 1", "SELECT state || ' ' || repeats FROM inbox_message")
	r.Verify()
}

// afterAnswer does something once, when the acquirer has answered a question and its answer is under way.
type afterAnswer struct {
	wire.Doer
	once *sync.Once
	do   func()
}

func (d afterAnswer) Do(ctx context.Context, call wire.Call) wire.Result {
	res := d.Doer.Do(ctx, call)
	d.once.Do(d.do)
	return res
}

// TestAHintThatComesWhileItIsAskedAbout: the answer that is under way is from before the change that it tells.
func TestAHintThatComesWhileItIsAskedAbout(t *testing.T) {
	r, other, hint := unsigned(t)
	took(r, other.Tell(r.Merchant, nil, hint.Body))
	r.Later(aLag)
	again := func() {
		if _, err := r.Acquirer.RefundByHand(t.Context(), r.ChargeOf(r.PaymentOf("key-1")).ID, 1000); err != nil {
			t.Error(err)
		}
		took(r, other.Tell(r.Merchant, nil, hint.Body))
	}
	client, err := wire.New(wire.Config{BaseURL: r.Server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	p := r.Replica(rig.WithDoer(afterAnswer{client, &sync.Once{}, again}))
	pass(r, p)
	r.Later(aLag)
	pass(r, p)
	is(r, "paid 1000", "SELECT status || ' ' || refunded_amount FROM payment")
	inbox(r, "charge.succeeded applied")
	r.Verify()
}

// TestAHintIsAskedAboutUntilTheLookupCannotLag: an answer from within the lag may be from before the change.
func TestAHintIsAskedAboutUntilTheLookupCannotLag(t *testing.T) {
	r := rig.New(t, rig.Terms{"lookup_lag": "1h"})
	r.Hooks(nil)
	p := r.Replica()
	r.Unsigned(r.Merchant)
	terms := sandbox.DefaultContract()
	terms.LookupLagMS = time.Hour.Milliseconds()
	if err := r.Acquirer.SetContract(t.Context(), terms); err != nil {
		t.Fatal(err)
	}
	lostAnswers(r)
	pay(r, p, "key-1", rig.Order{Reference: "order-1"})
	took(r, p.Tell(r.Merchant, nil, only(r, "charge.succeeded").Body))
	pass(r, p)
	is(r, "unknown", "SELECT status FROM payment")
	inbox(r, "charge.succeeded received")
	if report := p.Intake.Pass(t.Context()); report.Picked != 0 {
		t.Errorf("asked again at once: %+v", report)
	}
	r.Later(time.Hour)
	pass(r, p)
	is(r, "paid", "SELECT status FROM payment")
	inbox(r, "charge.succeeded applied")
	r.Verify()
}

// TestAHintThatCannotBeReadIsNotKept: anybody can send such, and nobody needs to look at it.
func TestAHintThatCannotBeReadIsNotKept(t *testing.T) {
	r, p, _ := unsigned(t)
	took(r, p.Tell(r.Merchant, nil, "{ not JSON"))
	pass(r, p)
	inbox(r, " ignored")
	r.Later(r.Config().KeyRetention + time.Hour)
	pass(r, p)
	counts(r, 0, "SELECT count(*) FROM inbox_message")
	r.Verify()
}
