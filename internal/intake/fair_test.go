package intake_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/host"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/intake"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// TestASilentAcquirerHoldsUpNoOthers: while hints wait for an acquirer that does not answer, news of another merchant is applied
// by the same worker (PROTOCOL S6).
func TestASilentAcquirerHoldsUpNoOthers(t *testing.T) {
	r, _ := open(t)
	p := r.Replica()
	dark := r.Merchant
	r.Unsigned(dark)
	lostAnswers(r)
	pay(r, p, "key-1", rig.Order{Reference: "order-1"})
	hint := only(r, "charge.succeeded")
	r.Merchant = r.AddMerchant(nil)
	pay(r, p, "key-2", rig.Order{Reference: "order-2"})
	news := r.Told("charge.succeeded")[1]
	if err := r.Acquirer.SetFaults(t.Context(), 0, sandbox.Rule{Fault: "lookup_silent"}); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		took(r, p.Tell(dark, nil, hint.Body+fmt.Sprintf("%*s", n, "")))
	}
	asked := len(r.Lookups())
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var loop sync.WaitGroup
	loop.Go(func() { p.Intake.Run(ctx) })
	defer loop.Wait()
	defer stop()
	r.Eventually(func() bool { return len(r.Lookups()) > asked })
	took(r, p.Deliver(news))
	r.Eventually(func() bool { return r.Status("key-2") == "paid" })
	counts(r, 0, "SELECT count(*) FROM inbox_message WHERE trust = 'hint' AND state <> 'received'")
	if got := r.Count("SELECT count(*) FROM inbox_message WHERE why <> '' AND trust = 'hint'"); got == 3 {
		t.Error("it waited until all questions had failed")
	}
}

func defect(m flow.Message) byte { return m.Raw[len(m.Raw)] }

// panics ends with a panic at two messages: where one is read, and where one is applied.
type panics struct{ intake.Flow }

func (f panics) ReadMessage(m flow.Message, box flow.Mailbox) flow.Reading {
	if m.NoticeID == "evt_read" {
		defect(m)
	}
	return f.Flow.ReadMessage(m, box)
}

func (f panics) Receive(ctx context.Context, r flow.Reading) error {
	if r.Message.NoticeID == "evt_apply" {
		defect(r.Message)
	}
	return f.Flow.Receive(ctx, r)
}

type uncounted struct{ intake.Watcher }

func (uncounted) Count(string) {}

// TestAMessageAtWhichWeHaveADefect: it ends no process, stays due with its reason, and stops nobody.
func TestAMessageAtWhichWeHaveADefect(t *testing.T) {
	r, p := open(t)
	lostAnswers(r)
	pay(r, p, "key-1", rig.Order{Reference: "order-1"})
	paid := only(r, "charge.succeeded")
	for _, name := range []string{"evt_read", "evt_apply", "evt_good"} {
		took(r, p.Deliver(rewritten(r, paid, name, func(map[string]any, map[string]any) {})))
	}
	reported := 0
	var mu sync.Mutex
	n := intake.New(intake.Config{Lease: time.Minute, Retention: time.Hour}, intake.Parts{Store: p.Store, Runtime: &host.Runtime{}, Flow: panics{p.Flow},
		House: p.Store, Watch: uncounted{}, Report: func(string, error) { mu.Lock(); reported++; mu.Unlock() }})
	if report := n.Pass(t.Context()); report.Picked != 3 || report.Failed != 2 || reported != 2 {
		t.Errorf("%+v, %d reported", report, reported)
	}
	is(r, "paid", "SELECT status FROM payment")
	counts(r, 2, "SELECT count(*) FROM inbox_message WHERE state = 'received' AND why <> '' AND due_at > now()")
	r.Verify()
}

var errEnough = errors.New("looked")

// TestEachMerchantHasATurn: however many messages of others are due for longer, the first of each merchant is picked.
func TestEachMerchantHasATurn(t *testing.T) {
	r, p := open(t)
	due := func(m rig.Merchant, n int, ago time.Duration) {
		if _, err := r.Owner.Exec(t.Context(), `INSERT INTO inbox_message (merchant_id, id, account_id, message_id, raw, raw_hash, trust, due_at)
			SELECT $1, gen_random_uuid(), $2, 'evt_' || n, 'x', sha256('x'), 'signed', now() - $4 * interval '1 microsecond' FROM generate_series(1, $3) n`,
			m.ID, m.Account, n, ago.Microseconds()); err != nil {
			t.Fatal(err)
		}
	}
	for range intake.Batch / intake.PerMerchant {
		due(r.AddMerchant(nil), 2*intake.PerMerchant, time.Hour)
	}
	due(r.Merchant, 1, time.Second)
	var picked []flow.Message
	err := p.Store.InTx(t.Context(), "look", func(ctx context.Context, tx flow.Tx) (err error) {
		if picked, err = tx.PickMessages(ctx, intake.Batch, intake.PerMerchant, time.Minute, func() id.ID { return (&host.Runtime{}).NewID() }); err != nil {
			return err
		}
		return errEnough
	})
	if !errors.Is(err, errEnough) || len(picked) != intake.Batch {
		t.Fatalf("%d, %v", len(picked), err)
	}
	for _, m := range picked {
		if m.Merchant == r.Merchant.ID {
			return
		}
	}
	t.Error("none of the merchant with one message")
}
