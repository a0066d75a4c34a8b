package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/outbox"
	"github.com/hapaxpay/hapax/internal/store"
)

const there = outbox.SinkNATS

var errAway = errors.New("away")

// events writes intents with so many events each, as committed records would.
func (sh *shop) events(merchant id.ID, intents, each int) {
	sh.t.Helper()
	sh.owner(`WITH i AS (
		INSERT INTO payment_intent (merchant_id, id, amount, currency, capture_method, pay_before, key_seed, event_version)
		SELECT $1, gen_random_uuid(), 1, 'EUR', 'automatic', now(), gen_random_uuid()::text, $3 FROM generate_series(1, $2::int) RETURNING merchant_id, id, key_seed), e AS (
		INSERT INTO event (merchant_id, intent_id, version, id, event_key, type, payload)
		SELECT merchant_id, id, v, gen_random_uuid(), key_seed || ':event:' || v, 'payment.paid', '{}' FROM i, generate_series(1, $3::int) v
		RETURNING merchant_id, intent_id, version, id)
		INSERT INTO outbox (merchant_id, subject_id, version, event_id) SELECT merchant_id, intent_id, version, id FROM e`, merchant.String(), intents, each)
}

func (sh *shop) number() {
	sh.t.Helper()
	if err := sh.s.AddEventSinks(sh.t.Context(), []string{there}); err != nil {
		sh.t.Fatal(err)
	}
	for busy := true; busy; {
		var err error
		if _, busy, err = sh.s.NumberEvents(sh.t.Context()); err != nil {
			sh.t.Fatal(err)
		}
	}
}

// take picks for the sink that takes every event.
func (sh *shop) take(rows, perLane int) (claim id.ID, picked []outbox.Message) {
	sh.t.Helper()
	claim = newID()
	picked, err := sh.s.PickDeliveries(sh.t.Context(), outbox.Pick{Sink: there, Rows: rows, PerLane: perLane, Lease: outbox.Lease, Claim: claim})
	if err != nil {
		sh.t.Fatal(err)
	}
	return claim, picked
}

// settle writes one outcome for all of them.
func (sh *shop) settle(claim id.ID, messages []outbox.Message, err error, delay time.Duration) {
	sh.t.Helper()
	done := make([]outbox.Settled, len(messages))
	for n, m := range messages {
		done[n] = outbox.Settled{Message: m, Result: outbox.Result{Err: err}, Delay: delay}
	}
	if err := sh.s.SettleDeliveries(sh.t.Context(), claim, done); err != nil {
		sh.t.Fatal(err)
	}
}

func (sh *shop) many(sql string, args ...any) (n int) {
	sh.t.Helper()
	if err := sh.db.OwnerPool(sh.t).QueryRow(sh.t.Context(), sql, args...).Scan(&n); err != nil {
		sh.t.Fatal(err)
	}
	return n
}

// holding runs a statement in a transaction that stays open until it is committed, or left.
func (sh *shop) holding(sql string) (commit, leave func()) {
	sh.t.Helper()
	tx, err := sh.db.OwnerPool(sh.t).Begin(sh.t.Context())
	if err != nil {
		sh.t.Fatal(err)
	}
	leave = func() {
		if err := tx.Rollback(context.WithoutCancel(sh.t.Context())); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
			sh.t.Error(err)
		}
	}
	if _, err := tx.Exec(sh.t.Context(), sql); err != nil {
		leave()
		sh.t.Fatal(err)
	}
	return func() {
		if err := tx.Commit(sh.t.Context()); err != nil {
			sh.t.Error(err)
		}
	}, leave
}

// onBoth tries what holds on plain PostgreSQL and where SKIP LOCKED across merchants is not to be had.
func onBoth(t *testing.T, f func(t *testing.T, sh *shop)) {
	for _, distributed := range []bool{false, true} {
		t.Run(fmt.Sprintf("distributed=%v", distributed), func(t *testing.T) {
			f(t, newShop(t, func(c *store.Config) { c.Distributed = distributed }))
		})
	}
}

// Merchants take turns: a long and old backlog of one does not starve a new event of another, in numbering and in picking.
func TestMerchantsTakeTurns(t *testing.T) {
	onBoth(t, func(t *testing.T, sh *shop) {
		sh.events(sh.merchant, 50, 1)
		sh.number()
		sh.db.Age(t, time.Hour)
		second, _ := sh.addMerchant()
		third, _ := sh.addMerchant()
		sh.events(second, 1, 1)
		sh.events(third, 1, 2)
		sh.number()
		_, picked := sh.take(4, 50)
		of := map[id.ID]int{}
		for _, m := range picked {
			of[m.Merchant]++
		}
		if of[sh.merchant] != 2 || of[second] != 1 || of[third] != 1 {
			t.Errorf("picked %v", of)
		}
		if _, picked = sh.take(100, 10); len(picked) != 10 {
			t.Errorf("%d of one merchant in one pick", len(picked))
		}
	})
}

// More merchants than one numbering takes: the last get their places, also while the first are never done.
func TestNumberingGoesRoundTheMerchants(t *testing.T) {
	sh := newShop(t)
	sh.owner(`INSERT INTO merchant (merchant_id, name, mode) SELECT gen_random_uuid(), 'm' || n, 'test' FROM generate_series(1, $1::int) n`, outbox.NumberMerchants+5)
	sh.owner(`WITH i AS (INSERT INTO payment_intent (merchant_id, id, amount, currency, capture_method, pay_before, key_seed, event_version)
		SELECT m.merchant_id, gen_random_uuid(), 1, 'EUR', 'automatic', now(), gen_random_uuid()::text, 1
		  FROM (SELECT merchant_id, row_number() OVER (ORDER BY merchant_id) AS n FROM merchant) m,
		       generate_series(1, CASE WHEN m.n <= $1::int THEN $2::int + 1 ELSE 1 END) RETURNING merchant_id, id), e AS (
		INSERT INTO event (merchant_id, intent_id, version, id, event_key, type, payload)
		SELECT merchant_id, id, 1, gen_random_uuid(), id::text, 'payment.paid', '{}' FROM i RETURNING merchant_id, intent_id, version, id)
		INSERT INTO outbox (merchant_id, subject_id, version, event_id) SELECT merchant_id, intent_id, version, id FROM e`,
		outbox.NumberMerchants, outbox.NumberPerMerchant)
	for range 2 {
		if _, busy, err := sh.s.NumberEvents(t.Context()); err != nil || !busy {
			t.Fatalf("busy %v, %v", busy, err)
		}
	}
	if left := sh.many("SELECT count(DISTINCT merchant_id) FROM outbox"); left != outbox.NumberMerchants {
		t.Errorf("events of %d merchants wait after two rounds, want one of each of the first %d", left, outbox.NumberMerchants)
	}
	sh.number()
	if n := sh.many("SELECT count(*) FROM (SELECT max(position) m, count(*) c FROM feed GROUP BY merchant_id) x WHERE m <> c"); n != 0 {
		t.Errorf("%d feeds have gaps", n)
	}
}

// Two relays pick at one moment: the second passes over what the first holds, and takes what is behind.
func TestRelaysPickSideBySide(t *testing.T) {
	sh := newShop(t)
	sh.events(sh.merchant, 6, 1)
	sh.number()
	_, leave := sh.holding("SELECT FROM delivery WHERE position <= 3 FOR UPDATE")
	defer leave()
	_, picked := sh.take(3, 3)
	if len(picked) != 3 || picked[0].Position != 4 {
		t.Errorf("picked %d, the first at %v", len(picked), picked)
	}
}

// One that picks where nothing can be passed over waits, and gets nothing that the other has taken.
func TestAPickThatWaitedTakesNothingTwice(t *testing.T) {
	sh := newShop(t, func(c *store.Config) { c.Distributed = true })
	sh.events(sh.merchant, 3, 1)
	sh.number()
	commit, leave := sh.holding("UPDATE delivery SET due_at = now() + interval '1 minute', claim_id = gen_random_uuid()")
	defer leave()
	taken := make(chan int, 1)
	go func() {
		picked, err := sh.s.PickDeliveries(t.Context(), outbox.Pick{Sink: there, Rows: 3, PerLane: 3, Lease: outbox.Lease, Claim: newID()})
		if err != nil {
			t.Error(err)
		}
		taken <- len(picked)
	}()
	sh.db.WaitBlocked(t, 1)
	commit()
	if n := <-taken; n != 0 {
		t.Errorf("%d messages belong to two relays", n)
	}
}

// Only the first of a subject is tried, what waits behind a failure waits as long, also what is numbered later, and all goes
// on at once when it is over.
func TestWhatWaitsBehindAFailure(t *testing.T) {
	onBoth(t, func(t *testing.T, sh *shop) {
		sh.events(sh.merchant, 1, 3)
		sh.number()
		claim, picked := sh.take(10, 10)
		if len(picked) != 1 || picked[0].Version != 1 {
			t.Fatalf("picked %v", picked)
		}
		sh.settle(claim, picked, errAway, time.Hour)
		sh.owner(`WITH i AS (UPDATE payment_intent SET event_version = 4 RETURNING merchant_id, id, key_seed), e AS (
			INSERT INTO event (merchant_id, intent_id, version, id, event_key, type, payload)
			SELECT merchant_id, id, 4, gen_random_uuid(), key_seed || ':event:4', 'dispute.opened', '{}' FROM i RETURNING merchant_id, intent_id, version, id)
			INSERT INTO outbox (merchant_id, subject_id, version, event_id) SELECT merchant_id, intent_id, version, id FROM e`)
		sh.number()
		const early = "SELECT count(*) FROM delivery WHERE due_at < now() + interval '59 minutes'"
		if n := sh.many(early); n != 0 {
			t.Errorf("%d rows are looked at before anybody could try them", n)
		}
		sh.owner("UPDATE delivery SET due_at = now() WHERE position = 1")
		for want := int64(1); want <= 4; want++ {
			claim, picked = sh.take(10, 10)
			if len(picked) != 1 || picked[0].Version != want {
				t.Fatalf("picked %v, want version %d", picked, want)
			}
			sh.settle(claim, picked, nil, 0)
		}
	})
}

// A relay whose claim is over has no say: neither about the row, nor about those behind it. What it knows for a fact counts.
func TestALateRelayPutsNothingOff(t *testing.T) {
	sh := newShop(t)
	sh.events(sh.merchant, 1, 2)
	sh.number()
	late, first := sh.take(1, 1)
	sh.db.Age(t, time.Hour, "delivery")
	next, again := sh.take(1, 1)
	sh.settle(late, first, errAway, 12*time.Hour)
	if n := sh.many("SELECT count(*) FROM delivery WHERE error IS NOT NULL OR due_at > now() + interval '3 minutes'"); n != 0 {
		t.Errorf("a late failure was written over %d rows", n)
	}
	sh.settle(next, again, nil, 0)
	late, first = sh.take(1, 1)
	sh.db.Age(t, time.Hour, "delivery")
	sh.take(1, 1)
	sh.settle(late, first, nil, 0)
	if n := sh.many("SELECT count(*) FROM delivery WHERE state = 'delivered'"); n != 2 {
		t.Errorf("%d rows are delivered: what was acknowledged late was dropped", n)
	}
}

// The pick puts a row off before anything is sent, longer each time.
func TestAPickPutsOff(t *testing.T) {
	sh := newShop(t)
	sh.events(sh.merchant, 1, 1)
	sh.number()
	for _, minutes := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10} {
		if _, picked := sh.take(1, 1); len(picked) != 1 {
			t.Fatalf("%d picked", len(picked))
		}
		if n := sh.many("SELECT round(extract(epoch FROM due_at - now()) / 60)::int FROM delivery"); n != minutes {
			t.Errorf("put off by %d minutes, want %d", n, minutes)
		}
		sh.owner("UPDATE delivery SET due_at = now()")
	}
}

// Events are kept for a sink that somebody has, whoever numbers them; until a person says that nobody has it any more.
func TestEventsAreKeptForEverySinkThatWasNoted(t *testing.T) {
	sh := newShop(t)
	ctx := t.Context()
	if err := sh.s.AddEventSinks(ctx, []string{outbox.SinkKafka}); err != nil {
		t.Fatal(err)
	}
	other := again(t, sh.db) // a process that knows nothing of Kafka
	sh.events(sh.merchant, 5, 1)
	if n, _, err := other.NumberEvents(ctx); err != nil || n != 5 {
		t.Fatalf("%d numbered, %v", n, err)
	}
	if n := sh.many("SELECT count(*) FROM delivery WHERE sink = 'kafka' AND state = 'waiting'"); n != 5 {
		t.Fatalf("%d events are kept", n)
	}
	if n, err := sh.s.ForgetSink(ctx, outbox.SinkKafka, "gone", 2); err != nil || n != 5 {
		t.Errorf("%d given up, %v", n, err)
	}
	if names, err := sh.s.EventSinks(ctx); err != nil || len(names) != 0 {
		t.Errorf("%v, %v", names, err)
	}
	if _, err := sh.s.ForgetSink(ctx, outbox.SinkKafka, "gone", 2); !errors.Is(err, store.ErrNoSuchSink) {
		t.Errorf("again: %v", err)
	}
}

// What a person sends again is due with all that must go before it; what ended is sent anew and holds back nothing.
func TestRetryDelivery(t *testing.T) {
	sh := newShop(t)
	ctx := t.Context()
	sh.events(sh.merchant, 1, 3)
	sh.number()
	events := sh.eventIDs("SELECT event_id::text FROM delivery ORDER BY position")
	claim, picked := sh.take(1, 1)
	if found, sent, err := sh.s.RetryDelivery(ctx, sh.merchant, events[0], there); err != nil || !found || sent {
		t.Errorf("while it is tried: %v %v %v", found, sent, err)
	}
	sh.settle(claim, picked, errAway, time.Hour)
	if found, sent, err := sh.s.RetryDelivery(ctx, sh.merchant, events[1], there); err != nil || !found || !sent {
		t.Errorf("behind a failure: %v %v %v", found, sent, err)
	}
	if n := sh.many("SELECT count(*) FROM delivery WHERE due_at <= now() AND position <= 2 AND resends = 0"); n != 2 {
		t.Errorf("%d of the two are due", n)
	}
	for range 3 {
		sh.owner("UPDATE delivery SET due_at = now() WHERE state = 'waiting'")
		claim, picked = sh.take(1, 1)
		sh.settle(claim, picked, nil, 0)
	}
	if found, sent, err := sh.s.RetryDelivery(ctx, sh.merchant, events[1], there); err != nil || !found || !sent {
		t.Errorf("delivered: %v %v %v", found, sent, err)
	}
	if n := sh.many("SELECT count(*) FROM delivery WHERE state = 'waiting' AND resends = 1 AND attempts = 0 AND since > created_at"); n != 1 {
		t.Errorf("%d rows are sent anew", n)
	}
	if found, _, err := sh.s.RetryDelivery(ctx, sh.merchant, newID(), there); err != nil || found {
		t.Errorf("nobody's event: %v %v", found, err)
	}
	stranger, _ := sh.addMerchant()
	if found, _, err := sh.s.RetryDelivery(ctx, stranger, events[1], there); err != nil || found {
		t.Errorf("another merchant's event: %v %v", found, err)
	}
}

func (sh *shop) eventIDs(sql string) (all []id.ID) {
	sh.t.Helper()
	rows, err := sh.db.OwnerPool(sh.t).Query(sh.t.Context(), sql)
	if err != nil {
		sh.t.Fatal(err)
	}
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		sh.t.Fatal(err)
	}
	for _, text := range texts {
		x, err := id.ParseUUID(text)
		if err != nil {
			sh.t.Fatal(err)
		}
		all = append(all, x)
	}
	return all
}

// The list shows the oldest first, and an error without its control characters.
func TestDeliveriesAreListed(t *testing.T) {
	sh := newShop(t)
	sh.events(sh.merchant, 3, 1)
	sh.number()
	claim, picked := sh.take(2, 2)
	sh.settle(claim, picked[:1], errors.New("bad\x00 "+strings.Repeat("é", 1000)+"\xff"), time.Hour)
	done := outbox.Settled{Message: picked[1], Result: outbox.Result{Err: errAway, Abandon: true}}
	if err := sh.s.SettleDeliveries(t.Context(), claim, []outbox.Settled{done}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		filter store.OutboxFilter
		want   []int64
	}{
		"waiting":       {store.OutboxFilter{State: store.DeliveryWaiting}, []int64{1, 3}},
		"failing":       {store.OutboxFilter{State: store.DeliveryWaiting, Failing: true, Sink: there}, []int64{1}},
		"another sink":  {store.OutboxFilter{State: store.DeliveryWaiting, Sink: outbox.SinkKafka}, nil},
		"abandoned":     {store.OutboxFilter{State: store.DeliveryAbandoned}, []int64{2}},
		"not delivered": {store.OutboxFilter{State: "delivered"}, nil},
	} {
		found, err := sh.s.Outbox(t.Context(), c.filter, 10)
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		for _, d := range found {
			got = append(got, d.Position)
			if len(d.Error) > 500 {
				t.Errorf("%d bytes of an error", len(d.Error))
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A pick reads what it takes and little more, whatever the planner believes: with a long backlog, and with rows that wait behind
// failures of a sink that has been away for long.
func TestAPickReadsLittle(t *testing.T) {
	sh := newShop(t, func(c *store.Config) { c.MaxConns = 1 })
	const intents, each, most = 2000, 3, 2000
	sh.events(sh.merchant, intents, each)
	sh.number()
	claim, picked := sh.take(intents, intents)
	sh.settle(claim, picked, errAway, 12*time.Hour)
	sh.events(sh.merchant, intents, 1)
	sh.number()
	pool := sh.db.OwnerPool(t)
	read := func() (n int64) {
		t.Helper()
		const q = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'delivery'"
		if err := pool.QueryRow(t.Context(), q).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	settled := func() int64 { // sessions hand in what they counted when they end
		var was int64 = -1
		dbtest.Eventually(t, func() bool {
			now := read()
			same := now == was
			was = now
			return same
		})
		return was
	}
	sh.s.Close()
	before := settled()
	sh.s = again(t, sh.db)
	if _, picked := sh.take(outbox.Batch, outbox.PerSink); len(picked) != outbox.PerSink {
		t.Fatalf("%d picked", len(picked))
	}
	sh.s.Close()
	dbtest.Eventually(t, func() bool { return read() > before })
	if n := settled() - before; n > most {
		t.Errorf("a pick of %d read %d rows, want at most %d", outbox.PerSink, n, most)
	}
}

// TestCase057_ABatchOfPoison: as many rows that always fail as a batch takes do not fill the next one: the good one behind them goes out.
func TestCase057_ABatchOfPoison(t *testing.T) {
	onBoth(t, func(t *testing.T, sh *shop) {
		sh.events(sh.merchant, 10, 1)
		sh.number()
		sh.events(sh.merchant, 1, 1)
		sh.number()
		claim, poison := sh.take(10, 10)
		if len(poison) != 10 || poison[9].Position != 10 {
			t.Fatalf("%d picked", len(poison))
		}
		if _, good := sh.take(10, 10); len(good) != 1 || good[0].Position != 11 {
			t.Errorf("while the others are tried: %v", good)
		}
		sh.owner("UPDATE delivery SET due_at = now() WHERE position = 11")
		sh.settle(claim, poison, errAway, time.Minute)
		if _, good := sh.take(10, 10); len(good) != 1 || good[0].Position != 11 {
			t.Errorf("after they failed: %v", good)
		}
	})
}
