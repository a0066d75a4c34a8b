package store

import (
	"context"
	"errors"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/store/dbgen"
	"github.com/jackc/pgx/v5/pgtype"
)

// OutboxRow is one event at one sink that has not acknowledged it, as operators see it.
type OutboxRow struct {
	Merchant, Event, Subject id.ID
	Sink, Type, State, Error string // State: waiting or abandoned; Error: of the last try
	Position                 int64
	Attempts, Resends        int
	DueAt, CreatedAt         time.Time
}

// The states of a delivery that is not over well.
const (
	DeliveryWaiting   = "waiting"
	DeliveryAbandoned = "abandoned"
)

// OutboxFilter says which of them are wanted.
type OutboxFilter struct {
	State   string // DeliveryWaiting or DeliveryAbandoned
	Sink    string // empty: all
	Failing bool   // only those of which a try has failed
}

// Outbox lists at most limit of them, the oldest first, of all merchants.
func (s *Store) Outbox(ctx context.Context, f OutboxFilter, limit int) (found []OutboxRow, err error) {
	err = s.look(ctx, "deliveries", func(ctx context.Context, q *dbgen.Queries) error {
		rows, err := q.ListOutbox(ctx, dbgen.ListOutboxParams{State: f.State, Sink: f.Sink, Failing: f.Failing, MaxRows: int32(limit)})
		found = column(rows, func(r dbgen.ListOutboxRow) OutboxRow {
			return OutboxRow{Merchant: domainID(r.MerchantID), Event: domainID(r.EventID), Subject: domainID(r.SubjectID), Sink: r.Sink, Type: r.Type,
				State: r.State, Error: r.Error, Position: r.Position, Attempts: int(r.Attempts), Resends: int(r.Resends),
				DueAt: domainAt(r.DueAt), CreatedAt: domainAt(r.CreatedAt)}
		})
		return err
	})
	return found, err
}

// RetryDelivery makes an event due at a sink now, whatever became of it there, and with it what waits before it. It says whether
// the merchant has such a delivery; sent: whether this one is due now. It is not where somebody tries it at this moment.
func (s *Store) RetryDelivery(ctx context.Context, merchant, event id.ID, sink string) (found, sent bool, err error) {
	err = s.change(ctx, "retry delivery", func(ctx context.Context, q *dbgen.Queries) error {
		found, sent = false, false
		rows, err := q.RetryDelivery(ctx, dbgen.RetryDeliveryParams{MerchantID: dbID(merchant), Sink: sink, EventID: dbID(event)})
		if err != nil {
			return err
		}
		for _, r := range rows {
			sent = sent || r == dbID(event)
		}
		if found = sent; !found {
			found, err = q.HasDelivery(ctx, dbgen.HasDeliveryParams{MerchantID: dbID(merchant), Sink: sink, EventID: dbID(event)})
		}
		return err
	})
	return found, sent, err
}

// EventSinks names the sinks that every event is kept for.
func (s *Store) EventSinks(ctx context.Context) (names []string, err error) {
	err = s.look(ctx, "event sinks", func(ctx context.Context, q *dbgen.Queries) (err error) {
		names, err = q.EventSinks(ctx)
		return err
	})
	return names, err
}

// ErrNoSuchSink says that no event is kept for a sink of this name.
var ErrNoSuchSink = errors.New("no event is kept for a sink of this name")

// ForgetSink ends the keeping of events for a sink, and gives up what waits there, in batches of limit. It says how many
// events were given up, also where it fails in between; again, it goes on.
func (s *Store) ForgetSink(ctx context.Context, name, why string, limit int) (abandoned int, err error) {
	known := false
	err = s.change(ctx, "forget sink", func(ctx context.Context, q *dbgen.Queries) error {
		n, err := q.DeleteEventSink(ctx, name)
		known = n > 0
		return err
	})
	for more := err == nil; more; {
		var n int64
		err = s.change(ctx, "abandon deliveries", func(ctx context.Context, q *dbgen.Queries) (err error) {
			n, err = q.AbandonDeliveries(ctx, dbgen.AbandonDeliveriesParams{Error: pgtype.Text{String: why, Valid: true}, Sink: name, MaxRows: int32(limit)})
			return err
		})
		abandoned, more = abandoned+int(n), err == nil && n == int64(limit)
	}
	if err == nil && !known && abandoned == 0 {
		err = ErrNoSuchSink
	}
	return abandoned, err
}
