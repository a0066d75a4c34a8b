package brokers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/outbox"
	"github.com/hapaxpay/hapax/internal/rig"
)

// Sizes of TestTheRelayOnRealBrokers.
const (
	orders     = 60 // each paid and refunded
	poisonRows = 10
)

// The whole way: payments on a database, several relays, a broker. A relay dies after the broker's word, ten rows cannot be
// taken, the broker is killed, the link is cut, the broker stands still: the consumer meets every event, in order, with the
// same bytes; and another sink never waits.
func TestTheRelayOnRealBrokers(t *testing.T) {
	eachBroker(t, func(t *testing.T, b *broker) {
		r := rig.New(t, nil)
		other := &rig.Listener{}
		otherName := map[string]string{outbox.SinkKafka: outbox.SinkNATS, outbox.SinkNATS: outbox.SinkKafka}[b.kind]
		mine := []rig.Option{rig.With(b.configure), rig.WithSink(otherName, other)}

		crash := rig.CrashAt(outbox.PointAfterSend, 1)
		dying := r.Replica(append(mine, rig.WithFaults(crash))...)
		pay(t, r, dying, 0, poisonRows)
		if _, err := dying.Relay.Pass(t.Context()); err != nil && !errors.Is(err, operation.ErrVanished) {
			t.Fatal(err)
		}
		if !crash.Happened() {
			t.Fatal("the relay did not die")
		}
		poison(t, r)
		r.Later(2 * outbox.Lease)

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var relays sync.WaitGroup
		replicas := []*rig.Replica{r.Replica(mine...), r.Replica(mine...)}
		for _, p := range replicas {
			relays.Go(func() { p.Relay.Run(ctx) })
		}
		b.trouble(r, replicas[0], other)
		b.waiting(r, poisonRows)
		cancel()
		relays.Wait()

		c := count(t, b.stored(), given(t, r))
		t.Logf("%s: %v; %d kills of the broker, %d connections cut by chance; %d tries at the sink for %d events", b.name, c, b.kills,
			b.link.cuts, r.Count("SELECT sum(attempts)::int FROM delivery WHERE sink = $1", b.kind), r.Count("SELECT count(*) FROM event"))
		r.Verify()
	})
}

// trouble pays and refunds while the broker is killed, cut off, and stopped.
func (b *broker) trouble(r *rig.Rig, p *rig.Replica, other *rig.Listener) {
	b.t.Helper()
	part := (orders - poisonRows) / 3
	pay(b.t, r, p, poisonRows, part)
	b.kill()
	pay(b.t, r, p, poisonRows+part, part)
	b.start()
	b.link.flaky(seed, 3_000, 60_000)
	b.waiting(r, poisonRows)
	b.link.flaky(0, 0, 0)

	b.process.pause()
	pay(b.t, r, p, poisonRows+2*part, part)
	eventually(b.t.Context(), b.t, "the other sink waits for a broker that stands still", func() error {
		if n, all := distinct(other), r.Count("SELECT count(*) FROM event"); n < all {
			return fmt.Errorf("it heard %d of %d events", n, all)
		}
		return nil
	})
	if r.Count("SELECT count(*) FROM delivery WHERE sink = $1 AND state = 'waiting'", b.kind) <= poisonRows {
		b.t.Error("nothing waits for the broker that stands still: this tries nothing")
	}
	b.process.resume()
}

// waiting waits until only so many rows are left for the broker.
func (b *broker) waiting(r *rig.Rig, n int) {
	b.t.Helper()
	eventually(b.t.Context(), b.t, "rows are left", func() error {
		left := r.Count("SELECT count(*) FROM delivery WHERE sink = $1 AND state = 'waiting'", b.kind) + r.Count("SELECT count(*) FROM outbox")
		if left != n {
			return fmt.Errorf("%d, want %d; the last error: %s", left, n,
				r.Text("SELECT coalesce(max(error), 'none') FROM delivery WHERE sink = $1 AND state = 'waiting' AND error NOT LIKE '%arge%'", b.kind))
		}
		return nil
	})
}

// pay pays so many orders and refunds each: an intent with several events.
func pay(t *testing.T, r *rig.Rig, p *rig.Replica, from, n int) {
	t.Helper()
	for i := from; i < from+n; i++ {
		key := fmt.Sprintf("order-%d", i)
		if a, err := p.Pay(key, rig.Order{Reference: key}); err != nil || a.Status != 201 {
			t.Fatalf("payment %d: %+v, %v", i, a, err)
		}
		if i < poisonRows {
			continue // what is poison comes next
		}
		if a, err := p.Refund("refund-"+key, r.PaymentOf(key), 100); err != nil || a.Status >= 300 {
			t.Fatalf("refund %d: %+v, %v", i, a, err)
		}
	}
}

// poison adds to each of the first orders an event that is too large for the broker.
func poison(t *testing.T, r *rig.Rig) {
	t.Helper()
	const sql = `WITH i AS (SELECT * FROM payment_intent WHERE client_reference = $1 FOR UPDATE), e AS (
		INSERT INTO event (merchant_id, intent_id, version, id, event_key, type, payload)
		SELECT merchant_id, id, event_version + 1, gen_random_uuid(), key_seed || ':event:' || event_version + 1, 'payment.in_review', $2 FROM i
		RETURNING merchant_id, intent_id, version, id), u AS (
		UPDATE payment_intent p SET event_version = p.event_version + 1 FROM i WHERE p.merchant_id = i.merchant_id AND p.id = i.id)
		INSERT INTO outbox (merchant_id, subject_id, version, event_id) SELECT merchant_id, intent_id, version, id FROM e`
	for i := range poisonRows {
		payload := fmt.Appendf(nil, `{"subject":"pi_%d","more":%q}`, i, incompressible(maxMessage))
		if _, err := r.Owner.Exec(t.Context(), sql, fmt.Sprintf("order-%d", i), payload); err != nil {
			t.Fatal(err)
		}
	}
}

// given are the bytes of the events that the broker can take, by id.
func given(t *testing.T, r *rig.Rig) map[string]string {
	t.Helper()
	rows, err := r.Owner.Query(t.Context(), "SELECT id, payload FROM event WHERE octet_length(payload) < $1", maxMessage)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	all := map[string]string{}
	for rows.Next() {
		var event id.ID
		var payload []byte
		if err := rows.Scan(&event, &payload); err != nil {
			t.Fatal(err)
		}
		all[event.Text(id.Event)] = string(payload)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func distinct(l *rig.Listener) int {
	all := map[id.ID]bool{}
	for _, m := range l.Heard() {
		all[m.ID] = true
	}
	return len(all)
}
