package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/outbox"
	"github.com/hapaxpay/hapax/internal/payment"
)

// listener writes an endpoint of the shop's merchant that hears of everything.
func (sh *shop) listener() payment.Endpoint {
	sh.t.Helper()
	e := payment.Endpoint{Merchant: sh.merchant, ID: newID()}
	sh.owner("INSERT INTO webhook_endpoint (merchant_id, id, url, key_seed) VALUES ($1, $2, 'https://shop.example', 's')", e.Merchant.String(), e.ID.String())
	return e
}

// hand picks for the endpoints.
func (sh *shop) hand() (claim id.ID, picked []outbox.Message) {
	sh.t.Helper()
	claim = newID()
	picked, err := sh.s.PickDeliveries(sh.t.Context(), outbox.Pick{Rows: 10, PerLane: 10, Lease: outbox.Lease, Claim: claim})
	if err != nil {
		sh.t.Fatal(err)
	}
	return claim, picked
}

func (sh *shop) resend(e payment.Endpoint, event id.ID) {
	sh.t.Helper()
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		_, err := tx.Endpoints().SendAgain(ctx, flow.Row{Merchant: e.Merchant, ID: e.ID}, event)
		return err
	})
}

func (sh *shop) resendFailed(e payment.Endpoint) {
	sh.t.Helper()
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		_, _, err := tx.Endpoints().SendFailed(ctx, e, time.Now().Add(-time.Hour), 100)
		return err
	})
}

// What waited behind a failure does not wait for the time of a try that a person has made needless.
func TestWhatWaitsBehindAFailureGoesOnWhenThatIsSentAgain(t *testing.T) {
	for name, again := range map[string]func(*shop, payment.Endpoint, id.ID){
		"one": (*shop).resend, "all": func(sh *shop, e payment.Endpoint, _ id.ID) { sh.resendFailed(e) }} {
		t.Run(name, func(t *testing.T) {
			sh := newShop(t)
			e := sh.listener()
			sh.events(sh.merchant, 1, 3)
			sh.number()
			claim, picked := sh.hand()
			sh.settle(claim, picked, errAway, 24*time.Hour)
			again(sh, e, picked[0].ID)
			for want := int64(1); want <= 3; want++ {
				claim, picked := sh.hand()
				if len(picked) != 1 || picked[0].Version != want {
					t.Fatalf("picked %v, want version %d", picked, want)
				}
				sh.settle(claim, picked, nil, 0)
			}
		})
	}
}

// A try that was under way when a person sent the event again has no say about the tries that begin then.
func TestAnOldTryDoesNotEndWhatWasSentAgain(t *testing.T) {
	for name, again := range map[string]func(*shop, payment.Endpoint, id.ID){
		"one": (*shop).resend, "all": func(sh *shop, e payment.Endpoint, _ id.ID) { sh.resendFailed(e) }} {
		t.Run(name, func(t *testing.T) {
			sh := newShop(t)
			e := sh.listener()
			sh.events(sh.merchant, 1, 1)
			sh.number()
			claim, picked := sh.hand()
			sh.settle(claim, picked, errAway, 0)
			claim, picked = sh.hand()
			again(sh, e, picked[0].ID)
			last := outbox.Settled{Message: picked[0], Result: outbox.Result{Err: errAway, Abandon: true}}
			if err := sh.s.SettleDeliveries(t.Context(), claim, []outbox.Settled{last}); err != nil {
				t.Fatal(err)
			}
			if _, picked := sh.hand(); len(picked) != 1 || picked[0].Attempt != 1 {
				t.Errorf("picked %v", picked)
			}
		})
	}
}

// What a person sent again and fails puts off nothing else.
func TestWhatWasSentAgainPutsOffNothing(t *testing.T) {
	sh := newShop(t)
	e := sh.listener()
	sh.events(sh.merchant, 1, 2)
	sh.number()
	claim, first := sh.hand()
	sh.settle(claim, first, nil, 0)
	sh.resend(e, first[0].ID)
	claim, both := sh.hand()
	if len(both) != 2 {
		t.Fatalf("%d picked", len(both))
	}
	sh.settle(claim, both[1:], errAway, 0)
	sh.settle(claim, both[:1], errAway, 24*time.Hour)
	if _, picked := sh.hand(); len(picked) != 1 || picked[0].Version != 2 {
		t.Errorf("picked %v", picked)
	}
}

// A pick locks what it takes and little more, however many merchants wait for a sink that was away, and is as fair as among few.
func TestAPickLocksLittleOfManyMerchants(t *testing.T) {
	onBoth(t, func(t *testing.T, sh *shop) {
		const merchants, each, rows, most = 100, 40, 64, 5 * 64
		sh.owner("INSERT INTO merchant (merchant_id, name, mode) SELECT gen_random_uuid(), 'm' || n, 'test' FROM generate_series(1, $1::int) n", merchants)
		sh.owner(`WITH i AS (
			INSERT INTO payment_intent (merchant_id, id, amount, currency, capture_method, pay_before, key_seed, event_version)
			SELECT merchant_id, gen_random_uuid(), 1, 'EUR', 'automatic', now(), gen_random_uuid()::text, 1 FROM merchant, generate_series(1, $1::int)
			RETURNING merchant_id, id, key_seed), e AS (
			INSERT INTO event (merchant_id, intent_id, version, id, event_key, type, payload)
			SELECT merchant_id, id, 1, gen_random_uuid(), key_seed || ':event:1', 'payment.paid', '{}' FROM i RETURNING merchant_id, intent_id, version, id)
			INSERT INTO outbox (merchant_id, subject_id, version, event_id) SELECT merchant_id, intent_id, version, id FROM e`, each)
		sh.number()
		sh.owner("VACUUM FULL delivery") // forgets the locks of before
		_, picked := sh.take(rows, outbox.PerSink)
		of := map[id.ID]int{}
		for _, m := range picked {
			of[m.Merchant]++
		}
		if len(picked) != rows || len(of) != rows {
			t.Errorf("%d picked, of %d merchants", len(picked), len(of))
		}
		if n := sh.many("SELECT count(*) FROM delivery WHERE xmax <> 0"); n > most {
			t.Errorf("a pick of %d locked %d rows, want at most %d", rows, n, most)
		}
	})
}
