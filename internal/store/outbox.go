package store

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/outbox"
	"github.com/hapaxpay/hapax/internal/store/dbgen"
	"github.com/jackc/pgx/v5/pgtype"
)

var _ outbox.Store = (*Store)(nil)

// NumberEvents implements outbox.Store. The lock of a merchant's feed head is taken in a statement before, so that the one that
// numbers sees everything that was numbered and committed until then (PROTOCOL V2, DESIGN data rule 8).
func (s *Store) NumberEvents(ctx context.Context) (numbered int, busy bool, err error) {
	after := s.numberedTo()
	var found []pgtype.UUID
	err = s.change(ctx, "number events", func(ctx context.Context, q *dbgen.Queries) error {
		numbered = 0
		var err error
		if found, err = q.MerchantsToNumber(ctx, dbgen.MerchantsToNumberParams{After: pgtype.UUID{Bytes: after, Valid: true}, MaxRows: outbox.NumberMerchants}); err != nil || len(found) == 0 {
			return err
		}
		if err := q.InsertFeedHeads(ctx, found); err != nil {
			return err
		}
		heads, err := s.lockFeedHeads(ctx, q, found)
		if err != nil || len(heads) == 0 {
			return err
		}
		n, err := q.NumberEvents(ctx, dbgen.NumberEventsParams{
			Merchants:   column(heads, func(h dbgen.FeedHead) pgtype.UUID { return h.MerchantID }),
			Positions:   column(heads, func(h dbgen.FeedHead) int64 { return h.Position }),
			PerMerchant: outbox.NumberPerMerchant})
		numbered = int(n)
		return err
	})
	if err != nil {
		return 0, false, err
	}
	// The next look goes on behind the last merchant of this one; behind the last of all it begins anew.
	var next id.ID
	if len(found) == outbox.NumberMerchants {
		next = domainID(found[len(found)-1])
	}
	s.numbered.Store(&next)
	return numbered, numbered > 0 || len(found) == 0 && !after.IsZero(), nil
}

// numberedTo is the merchant behind which the next look begins: zero, before all of them.
func (s *Store) numberedTo() id.ID {
	if last := s.numbered.Load(); last != nil {
		return *last
	}
	return id.ID{}
}

func (s *Store) lockFeedHeads(ctx context.Context, q *dbgen.Queries, merchants []pgtype.UUID) ([]dbgen.FeedHead, error) {
	if s.cfg.Distributed {
		return q.LockFeedHeadsWaiting(ctx, merchants)
	}
	return q.LockFeedHeads(ctx, merchants)
}

// PickDeliveries implements outbox.Store.
func (s *Store) PickDeliveries(ctx context.Context, p outbox.Pick) (picked []outbox.Message, err error) {
	params := dbgen.PickDeliveriesParams{Sink: p.Sink, Busy: nonNil(p.Busy), LeaseUs: p.Lease.Microseconds(), ClaimID: dbID(p.Claim),
		MaxRows: int32(p.Rows), PerLane: int32(p.PerLane)}
	err = s.change(ctx, "pick deliveries", func(ctx context.Context, q *dbgen.Queries) (err error) {
		var rows []dbgen.PickDeliveriesRow
		if s.cfg.Distributed {
			var waited []dbgen.PickDeliveriesWaitingRow
			waited, err = q.PickDeliveriesWaiting(ctx, dbgen.PickDeliveriesWaitingParams(params))
			rows = column(waited, func(r dbgen.PickDeliveriesWaitingRow) dbgen.PickDeliveriesRow { return dbgen.PickDeliveriesRow(r) })
		} else {
			rows, err = q.PickDeliveries(ctx, params)
		}
		picked = column(rows, domainMessage)
		return err
	})
	return picked, err
}

func domainMessage(r dbgen.PickDeliveriesRow) outbox.Message {
	return outbox.Message{Merchant: domainID(r.MerchantID), ID: domainID(r.EventID), Subject: domainID(r.SubjectID),
		Payment: domainID(r.PaymentID), Sink: r.Sink, Type: r.Type, Key: r.EventKey, Version: r.Version, Position: r.Position,
		Payload: r.Payload, At: domainAt(r.CreatedAt), Attempt: int(r.Attempts), Since: domainAt(r.Since)}
}

func nonNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// SettleDeliveries implements outbox.Store.
func (s *Store) SettleDeliveries(ctx context.Context, claim id.ID, done []outbox.Settled) error {
	return s.change(ctx, "settle deliveries", func(ctx context.Context, q *dbgen.Queries) error {
		var good, bad, over []outbox.Settled
		for _, d := range done {
			if d.Err == nil {
				good = append(good, d)
			} else {
				bad = append(bad, d)
			}
			if d.Err == nil || d.Abandon {
				over = append(over, d)
			}
		}
		for _, step := range []func() error{
			func() error { return s.delivered(ctx, q, good) },
			func() error { return s.undelivered(ctx, q, claim, bad) },
			func() error { return s.release(ctx, q, over) },
			func() error { return s.log(ctx, q, done) },
		} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Store) delivered(ctx context.Context, q *dbgen.Queries, rows []outbox.Settled) error {
	if len(rows) == 0 {
		return nil
	}
	_, err := q.DeliveriesDone(ctx, dbgen.DeliveriesDoneParams{Merchants: column(rows, settledMerchant), Sinks: column(rows, settledSink),
		Events: column(rows, settledEvent)})
	return err
}

func (s *Store) undelivered(ctx context.Context, q *dbgen.Queries, claim id.ID, rows []outbox.Settled) error {
	if len(rows) == 0 {
		return nil
	}
	delay := func(d outbox.Settled) int64 { return d.Delay.Microseconds() }
	written, err := q.DeliveriesFailed(ctx, dbgen.DeliveriesFailedParams{Merchants: column(rows, settledMerchant), Sinks: column(rows, settledSink),
		Events: column(rows, settledEvent), Errors: column(rows, func(d outbox.Settled) string { return short(d.Err.Error(), maxError) }),
		DelaysUs: column(rows, delay), Abandoned: column(rows, func(d outbox.Settled) bool { return d.Abandon }),
		Unasked: column(rows, func(d outbox.Settled) bool { return d.Unasked }), ClaimID: dbID(claim)})
	if err != nil {
		return err
	}
	// Who has lost the claim has no say about what comes behind either. What was given up, or sent again, holds back nothing.
	holding := slices.DeleteFunc(slices.Clone(rows), func(d outbox.Settled) bool {
		return d.Abandon || !slices.Contains(written, dbgen.DeliveriesFailedRow{MerchantID: dbID(d.Merchant), Sink: d.Sink, EventID: dbID(d.ID)})
	})
	if len(holding) == 0 {
		return nil
	}
	_, err = q.HoldBackDeliveries(ctx, dbgen.HoldBackDeliveriesParams{Merchants: column(holding, settledMerchant), Sinks: column(holding, settledSink),
		Subjects: column(holding, settledSubject), Positions: column(holding, func(d outbox.Settled) int64 { return d.Position }), DelaysUs: column(holding, delay), MaxRows: maxBehind})
	return err
}

// release makes due what waited behind messages that are over now. Whether they failed before cannot be told by their tries,
// which are counted anew where somebody had them sent again.
func (s *Store) release(ctx context.Context, q *dbgen.Queries, rows []outbox.Settled) error {
	if len(rows) == 0 {
		return nil
	}
	_, err := q.ReleaseDeliveries(ctx, dbgen.ReleaseDeliveriesParams{Merchants: column(rows, settledMerchant), Sinks: column(rows, settledSink),
		Subjects: column(rows, settledSubject)})
	return err
}

// maxBehind bounds what one failure puts off of its subject: a row beyond it is only looked at in vain.
const maxBehind = 100

// maxError bounds what is kept of an error, in bytes.
const maxError = 500

// log keeps the tries at webhook endpoints.
func (s *Store) log(ctx context.Context, q *dbgen.Queries, done []outbox.Settled) error {
	var rows []outbox.Settled
	for _, d := range done {
		if d.Log != nil {
			rows = append(rows, d)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	return q.InsertAttempts(ctx, dbgen.InsertAttemptsParams{Merchants: column(rows, settledMerchant),
		Ids:   column(rows, func(d outbox.Settled) pgtype.UUID { return dbID(d.Log.ID) }),
		Sinks: column(rows, settledSink), Events: column(rows, settledEvent),
		Attempts:    column(rows, func(d outbox.Settled) int32 { return int32(d.Attempt) }),
		Urls:        column(rows, func(d outbox.Settled) string { return d.Log.URL }),
		Statuses:    column(rows, func(d outbox.Settled) int32 { return int32(d.Log.Status) }),
		Answers:     column(rows, func(d outbox.Settled) string { return short(d.Log.Answer, outbox.MaxAnswer) }),
		Errors:      column(rows, func(d outbox.Settled) string { return short(d.Log.Error, maxError) }),
		DurationsMs: column(rows, func(d outbox.Settled) int32 { return int32(d.Log.Duration.Milliseconds()) })})
}

func settledMerchant(d outbox.Settled) pgtype.UUID { return dbID(d.Merchant) }
func settledEvent(d outbox.Settled) pgtype.UUID    { return dbID(d.ID) }
func settledSubject(d outbox.Settled) pgtype.UUID  { return dbID(d.Subject) }
func settledSink(d outbox.Settled) string          { return d.Sink }

// short cuts a text to so many bytes of valid UTF-8 that PostgreSQL takes.
func short(s string, most int) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\uFFFD")
	for len(s) > most {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:max(len(s)-size, 0)]
	}
	return s
}

// PurgeDeliveries implements outbox.Store.
func (s *Store) PurgeDeliveries(ctx context.Context, retention time.Duration, limit int) (int, error) {
	var gone int64
	err := s.change(ctx, "purge deliveries", func(ctx context.Context, q *dbgen.Queries) error {
		n, err := q.PurgeDeliveries(ctx, dbgen.PurgeDeliveriesParams{RetentionUs: retention.Microseconds(), MaxRows: int32(limit)})
		if err != nil {
			return err
		}
		m, err := q.PurgeAttempts(ctx, dbgen.PurgeAttemptsParams{RetentionUs: retention.Microseconds(), MaxRows: int32(limit)})
		gone = n + m
		return err
	})
	return int(gone), err
}

// AddEventSinks implements outbox.Store.
func (s *Store) AddEventSinks(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	return s.change(ctx, "add event sinks", func(ctx context.Context, q *dbgen.Queries) error { return q.AddEventSinks(ctx, names) })
}
