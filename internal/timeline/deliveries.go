package timeline

import (
	"context"
	"fmt"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
)

// deliveryRow is one event at one sink, or, without a sink, its place in the feed.
type deliveryRow struct {
	version             int64
	position            *int64 // none: the event was not numbered yet
	sink, state, error  string
	attempts, resends   int
	numbered, due, over *time.Time
}

// heard tells where the events went.
func (t *teller) heard(ctx context.Context) error {
	var now time.Time
	if err := t.tx.QueryRow(ctx, `SELECT now()`).Scan(&now); err != nil {
		return err
	}
	var d deliveryRow
	var last int64
	return t.each(ctx, "deliveries", `
SELECT e.version, f.position, f.numbered_at, coalesce(d.sink, ''), coalesce(d.state, ''), coalesce(d.error, ''), coalesce(d.attempts, 0), coalesce(d.resends, 0), d.due_at, d.ended_at
  FROM event e LEFT JOIN feed f ON f.merchant_id = e.merchant_id AND f.event_id = e.id
  LEFT JOIN delivery d ON d.merchant_id = e.merchant_id AND d.event_id = e.id
 WHERE e.merchant_id = $1::uuid AND e.intent_id = $2::uuid AND (f.position IS NOT NULL OR EXISTS (SELECT FROM outbox o
       WHERE o.merchant_id = e.merchant_id AND o.subject_id = e.intent_id AND o.version = e.version))
 ORDER BY e.version, d.sink`, t.of(),
		[]any{&d.version, &d.position, &d.numbered, &d.sink, &d.state, &d.error, &d.attempts, &d.resends, &d.due, &d.over}, func() {
			if d.version != last { // the first of its rows
				last = d.version
				if d.position == nil {
					t.say(now, ofNow, id.ID{}, "now", fmt.Sprintf("Event %d waits for its place in the merchant's feed.", d.version))
					return
				}
				t.say(*d.numbered, ofPlace, id.ID{}, "event", fmt.Sprintf("Event %d has place %d in the merchant's feed.", d.version, *d.position))
			}
			switch d.state {
			case "":
			case "waiting":
				t.say(now, ofNow, id.ID{}, "now", d.sentence())
			default:
				t.say(*d.over, ofDelivery, id.ID{}, "event", d.sentence())
			}
		})
}

// to names the sink.
func (d deliveryRow) to() string {
	switch d.sink {
	case "kafka":
		return "Kafka"
	case "nats":
		return "NATS"
	case "mail":
		return "mail"
	}
	if x, err := id.ParseUUID(d.sink); err == nil {
		return "endpoint " + x.Text(id.Endpoint)
	}
	return d.sink
}

func (d deliveryRow) sentence() string {
	text := fmt.Sprintf("Event %d ", d.version)
	switch d.state {
	case "delivered":
		text += "was acknowledged by " + d.to() + " at " + d.tries()
	case "abandoned":
		text += "is not tried at " + d.to() + " any more, after " + d.tries()
	default:
		text += "waits for " + d.to() + " after " + d.tries() + ", to be tried at " + d.due.UTC().Format(time.DateTime)
	}
	if d.resends > 0 {
		text += fmt.Sprintf(", sent again by hand (%d)", d.resends)
	}
	if d.error != "" {
		text += ": " + d.error
	}
	return text + "."
}

func (d deliveryRow) tries() string {
	switch {
	case d.state == "delivered":
		return fmt.Sprintf("try %d", d.attempts)
	case d.attempts == 0:
		return "no try"
	case d.attempts == 1:
		return "1 try"
	}
	return fmt.Sprintf("%d tries", d.attempts)
}
