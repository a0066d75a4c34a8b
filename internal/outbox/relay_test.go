package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/fault"
	"github.com/hapaxpay/hapax/internal/host"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/outbox"
	"github.com/hapaxpay/hapax/internal/rig"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const sink = outbox.SinkNATS

// pay makes so many payments, each with an event.
func pay(t *testing.T, p *rig.Replica, from, n int) {
	t.Helper()
	for i := from; i < from+n; i++ {
		key := fmt.Sprintf("order-%d", i)
		if a, err := p.Pay(key, rig.Order{Reference: key}); err != nil || a.Status != 201 {
			t.Fatalf("payment %d: %+v, %v", i, a, err)
		}
	}
}

func pass(t *testing.T, p *rig.Replica) int {
	t.Helper()
	n, err := p.Relay.Pass(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Every event is heard once where nothing fails, in the order of its intent, and the feed has no gap.
func TestEveryEventIsHeard(t *testing.T) {
	r := rig.New(t, nil)
	l := &rig.Listener{}
	p := r.Replica(rig.WithSink(sink, l))
	pay(t, p, 0, 5)
	if a, err := p.Pay("declined", rig.Order{Reference: "declined", Method: "pm_declined_do_not_honor"}); err != nil || a.Status != 402 {
		t.Fatalf("%+v, %v", a, err)
	}
	pass(t, p)
	if repeats := r.AllHeard(l); repeats != 0 {
		t.Errorf("%d repeats", repeats)
	}
	if n := r.Count("SELECT count(*) FROM outbox"); n != 0 {
		t.Errorf("%d events are not numbered", n)
	}
	if n := r.Count("SELECT count(*) FROM feed f JOIN feed_head h USING (merchant_id) WHERE f.position BETWEEN 1 AND h.position"); n != r.Count("SELECT max(position)::int FROM feed") || n != 6 {
		t.Errorf("the feed has %d positions", n)
	}
	if n := pass(t, p); n != 0 {
		t.Errorf("%d messages were tried again", n)
	}
	r.Verify()
}

// holdCommit opens a transaction that writes one more event, as a record would, and commits it only later.
func holdCommit(t *testing.T, r *rig.Rig, reference string) (finish func(commit bool)) {
	t.Helper()
	tx, err := r.Owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const sql = `WITH i AS (SELECT * FROM payment_intent WHERE client_reference = $1 FOR UPDATE), e AS (
		INSERT INTO event (merchant_id, intent_id, version, id, event_key, type, payload)
		SELECT merchant_id, id, event_version + 1, gen_random_uuid(), key_seed || ':event:' || event_version + 1, 'payment.in_review', '{}' FROM i
		RETURNING merchant_id, intent_id, version, id), u AS (
		UPDATE payment_intent p SET event_version = p.event_version + 1 FROM i WHERE p.merchant_id = i.merchant_id AND p.id = i.id)
		INSERT INTO outbox (merchant_id, subject_id, version, event_id) SELECT merchant_id, intent_id, version, id FROM e`
	if _, err := tx.Exec(t.Context(), sql, reference); err != nil {
		t.Fatal(err)
	}
	return func(commit bool) {
		t.Helper()
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		if err := end(t.Context()); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
			t.Fatal(err)
		}
	}
}

// TestCase055_LateCommitIsNotSkipped: the transaction that began first commits last, and its event goes out; one that rolls back
// stalls nothing.
func TestCase055_LateCommitIsNotSkipped(t *testing.T) {
	r := rig.New(t, nil)
	l := &rig.Listener{}
	p := r.Replica(rig.WithSink(sink, l))
	pay(t, p, 0, 2)
	pass(t, p)
	first := holdCommit(t, r, "order-0")
	gone := holdCommit(t, r, "order-1")
	pay(t, p, 2, 3)
	pass(t, p)
	if n := len(l.Heard()); n != 5 {
		t.Fatalf("%d events were heard while two transactions were open", n)
	}
	gone(false)
	first(true)
	pass(t, p)
	if n := len(l.Heard()); n != 6 {
		t.Fatalf("%d events were heard after the late commit", n)
	}
	if repeats := r.AllHeard(l); repeats != 0 {
		t.Errorf("%d repeats", repeats)
	}
	if last := l.Heard()[5]; last.Position != 6 {
		t.Errorf("the late event has position %d: a reader who saw 5 would miss it", last.Position)
	}
}

// TestCase056_KilledBetweenAckAndMark: the relay dies after the sink has taken the events and before it notes so: they come again,
// with the same id and the same bytes.
func TestCase056_KilledBetweenAckAndMark(t *testing.T) {
	r := rig.New(t, nil)
	l := &rig.Listener{}
	crash := rig.CrashAt(outbox.PointAfterSend, 1)
	dying := r.Replica(rig.WithSink(sink, l), rig.WithFaults(crash))
	pay(t, dying, 0, 3)
	if _, err := dying.Relay.Pass(t.Context()); err != nil && !errors.Is(err, operation.ErrVanished) {
		t.Fatal(err)
	}
	if !crash.Happened() || len(l.Heard()) != 3 {
		t.Fatalf("%d events were heard before the relay died", len(l.Heard()))
	}
	next := r.Replica(rig.WithSink(sink, l))
	if n := pass(t, next); n != 0 {
		t.Fatalf("%d messages were tried while the dead relay's lease ran", n)
	}
	r.Later(outbox.Lease + time.Second)
	pass(t, next)
	if repeats := r.AllHeard(l); repeats != 3 {
		t.Errorf("%d repeats, want 3", repeats)
	}
}

// The relay dies at each other point, and the next one finishes.
func TestKilledAtEachPoint(t *testing.T) {
	for _, point := range []string{outbox.PointAfterNumber, outbox.PointBeforeSend} {
		t.Run(point, func(t *testing.T) {
			r := rig.New(t, nil)
			l := &rig.Listener{}
			crash := rig.CrashAt(point, 1)
			dying := r.Replica(rig.WithSink(sink, l), rig.WithFaults(crash))
			pay(t, dying, 0, 3)
			if _, err := dying.Relay.Pass(t.Context()); !errors.Is(err, operation.ErrVanished) {
				t.Fatal(err)
			}
			next := r.Replica(rig.WithSink(sink, l))
			r.Later(outbox.Lease + time.Second)
			pass(t, next)
			if repeats := r.AllHeard(l); repeats != 0 {
				t.Errorf("%d repeats", repeats)
			}
		})
	}
}

// TestCase057_PoisonBacksOffAlone: ten events that always fail do not hold back the good one behind them; they back off, and are listed.
func TestCase057_PoisonBacksOffAlone(t *testing.T) {
	r := rig.New(t, nil)
	poison := map[string]bool{}
	l := &rig.Listener{}
	l.Refuse = func(_ context.Context, m outbox.Message) error {
		if poison[m.ID.String()] {
			return rig.ErrPoison
		}
		return nil
	}
	p := r.Replica(rig.WithSink(sink, l))
	pay(t, p, 0, 10)
	rows, err := r.Owner.Query(t.Context(), "SELECT id::text FROM event")
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range ids {
		poison[x] = true
	}
	pass(t, p)
	pay(t, p, 10, 1)
	pass(t, p)
	if n := len(l.Heard()); n != 1 {
		t.Fatalf("%d events were heard, want the good one alone", n)
	}
	const failing = "SELECT count(*) FROM delivery WHERE state = 'waiting' AND error = 'this event cannot be taken'"
	if n := r.Count(failing); n != 10 {
		t.Errorf("%d poison rows wait with their reason", n)
	}
	for range 12 { // the pause between tries grows, and is capped
		r.Later(2 * time.Minute)
		if n := pass(t, p); n < 10 { // more where a short pause is over while the pass goes on
			t.Fatalf("%d tries in two minutes", n)
		}
	}
	if longest := r.Count(`SELECT max(extract(epoch FROM due_at - now()))::int FROM delivery WHERE state = 'waiting'`); longest > 75 || longest < 30 {
		t.Errorf("after so many tries the pause is %d s", longest)
	}
	if n := r.Count(failing + " AND attempts >= 13"); n != 10 {
		t.Errorf("%d poison rows are listed with their tries", n)
	}
	clear(poison)
	r.Later(2 * time.Minute)
	pass(t, p)
	if repeats := r.AllHeard(l); repeats != 0 {
		t.Errorf("%d repeats", repeats)
	}
}

// A row that fails holds back what comes later of its own intent, and nothing else.
func TestOrderWithinAnIntentBehindAFailure(t *testing.T) {
	r := rig.New(t, nil)
	away := true
	l := &rig.Listener{}
	l.Refuse = func(_ context.Context, m outbox.Message) error {
		if away && m.Version == 1 && m.Type == "payment.paid" {
			return rig.ErrPoison
		}
		return nil
	}
	p := r.Replica(rig.WithSink(sink, l))
	pay(t, p, 0, 1)
	pass(t, p)
	holdCommit(t, r, "order-0")(true)
	pay(t, p, 1, 0)
	pass(t, p)
	if n := len(l.Heard()); n != 0 {
		t.Fatalf("%d events overtook one that failed", n)
	}
	away = false
	r.Later(time.Minute)
	pass(t, p)
	if repeats := r.AllHeard(l); repeats != 0 || len(l.Heard()) != 2 {
		t.Errorf("%d heard, %d repeats", len(l.Heard()), repeats)
	}
}

// Three relays share the work: each event is heard once, and no merchant is left out.
func TestRelaysShareTheWork(t *testing.T) {
	r := rig.New(t, nil)
	l := &rig.Listener{}
	var relays []*rig.Replica
	for range 3 {
		relays = append(relays, r.Replica(rig.WithSink(sink, l)))
	}
	other := r.AddMerchant(nil)
	pay(t, relays[0], 0, 20)
	for n := range 5 {
		c := r.Command(fmt.Sprintf("other-%d", n), rig.Order{Reference: fmt.Sprintf("other-%d", n)})
		c.Merchant = other.ID
		if a, err := relays[1].Flow.CreatePayment(t.Context(), c); err != nil || a.Status != 201 {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	var all sync.WaitGroup
	for _, p := range relays {
		all.Go(func() {
			for range 4 {
				if _, err := p.Relay.Pass(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if repeats := r.AllHeard(l); repeats != 0 {
		t.Errorf("%d repeats", repeats)
	}
	if n := r.Count("SELECT count(*) FROM feed_head WHERE position IN (5, 20)"); n != 2 {
		t.Errorf("%d feeds end where their merchants' events do", n)
	}
}

// A sink that stands still holds back no other.
func TestSinkThatStandsStillBlocksNoOther(t *testing.T) {
	r := rig.New(t, nil)
	reached, open := make(chan struct{}), make(chan struct{})
	var once sync.Once
	still := &rig.Listener{Refuse: func(context.Context, outbox.Message) error {
		once.Do(func() { close(reached) })
		<-open
		return nil
	}}
	l := &rig.Listener{}
	heard := make(chan struct{}, 64)
	l.Refuse = func(context.Context, outbox.Message) error {
		heard <- struct{}{}
		return nil
	}
	p := r.Replica(rig.WithSink(outbox.SinkKafka, still), rig.WithSink(sink, l))
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { p.Relay.Run(ctx) })
	pay(t, p, 0, 1)
	<-reached
	<-heard
	pay(t, p, 1, 4) // committed while one sink is at work
	for range 4 {
		<-heard
	}
	close(open)
	stop()
	work.Wait()
	pass(t, p)
	if a, b := r.AllHeard(l), r.AllHeard(still); a != 0 || b != 0 {
		t.Errorf("%d and %d repeats", a, b)
	}
}

// jumping is a runtime whose clocks go on while its process stands still.
type jumping struct {
	host.Runtime
	by atomic.Int64
}

func (j *jumping) Instant() wire.Instant {
	i, by := j.Runtime.Instant(), time.Duration(j.by.Load())
	i.Mono, i.Wall = i.Mono+by, i.Wall.Add(by)
	return i
}

type unwatched struct{}

func (unwatched) Delivered(string, time.Duration) {}
func (unwatched) DeliveryFailed(string)           {}

// A relay that stood still after its pick for longer than its lease sends nothing: another one has gone on meanwhile.
func TestRelayThatStoodStillSendsNoOldNews(t *testing.T) {
	r := rig.New(t, nil)
	slow, l := &rig.Listener{}, &rig.Listener{}
	picked, open := make(chan struct{}), make(chan struct{})
	p := r.Replica()
	clock := &jumping{}
	late := outbox.New(outbox.Config{Sinks: map[string]outbox.Sink{sink: slow}, Every: time.Second, Retention: time.Hour,
		Report: func(where string, err error) { t.Log(where, err) }}, p.Store, clock, fault.Func(func(_ context.Context, point string) error {
		if point == outbox.PointBeforeSend {
			close(picked)
			<-open
		}
		return nil
	}), unwatched{})
	pay(t, p, 0, 1)
	done := make(chan error, 1)
	go func() {
		_, err := late.Pass(t.Context())
		done <- err
	}()
	<-picked
	r.Later(outbox.Lease + time.Second)
	next := r.Replica(rig.WithSink(sink, l))
	pass(t, next)
	holdCommit(t, r, "order-0")(true)
	pass(t, next)
	clock.by.Store(int64(outbox.Lease))
	close(open)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := len(slow.Heard()); n != 0 {
		t.Errorf("%d old messages were sent", n)
	}
	if repeats := r.AllHeard(l); repeats != 0 {
		t.Errorf("%d repeats", repeats)
	}
	if n := r.Count("SELECT count(*) FROM delivery WHERE state <> 'delivered'"); n != 0 {
		t.Errorf("the late relay's failure was written over %d acknowledged rows", n)
	}
}

// Deliveries that are over are purged after their retention; those that wait stay.
func TestPurge(t *testing.T) {
	r := rig.New(t, nil)
	l := &rig.Listener{Refuse: func(_ context.Context, m outbox.Message) error {
		if m.Position == 2 {
			return rig.ErrPoison
		}
		return nil
	}}
	p := r.Replica(rig.WithSink(sink, l))
	pay(t, p, 0, 2)
	pass(t, p)
	r.Later(r.Config().KeyRetention + time.Hour)
	pass(t, r.Replica(rig.WithSink(sink, l))) // the first round of a relay purges
	left := r.Text("SELECT string_agg(state, ',') FROM delivery")
	if left != "waiting" {
		t.Errorf("left: %q", left)
	}
	if n := r.Count("SELECT count(*) FROM feed"); n != 2 {
		t.Errorf("%d places in the feed", n)
	}
}

// The positions that a reader sees have no gap behind them, while several relays number and transactions commit late.
func TestFeedHasNoGapAtAnyMoment(t *testing.T) {
	r := rig.New(t, nil)
	var relays []*rig.Replica
	for range 2 {
		relays = append(relays, r.Replica(rig.WithSink(sink, &rig.Listener{})))
	}
	pay(t, relays[0], 0, 1)
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for _, p := range relays {
		work.Go(func() { p.Relay.Run(ctx) })
	}
	var seen []int
	for n := 1; n <= 20; n++ {
		pay(t, relays[n%2], n, 1)
		var top, count int
		if err := r.Owner.QueryRow(t.Context(), "SELECT COALESCE(max(position), 0), count(*) FROM feed").Scan(&top, &count); err != nil {
			t.Fatal(err)
		}
		if top != count {
			t.Fatalf("position %d is seen with %d events before it", top, count)
		}
		seen = append(seen, top)
	}
	stop()
	work.Wait()
	if !slices.IsSorted(seen) {
		t.Errorf("positions went back: %v", seen)
	}
}
