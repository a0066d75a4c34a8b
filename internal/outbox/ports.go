package outbox

import (
	"context"
	"time"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
)

// Store is what the relay needs of the database. Each function is one short transaction, or a few.
type Store interface {
	// AddEventSinks notes that these sinks take every merchant's events: from now on each event is kept for them, whoever numbers it.
	AddEventSinks(ctx context.Context, names []string) error
	// NumberEvents gives committed events their places in their merchants' feeds, and makes a delivery for each noted sink and
	// each endpoint that wants the event. It says how many were numbered; busy: more may be left.
	NumberEvents(ctx context.Context) (numbered int, busy bool, err error)
	// PickDeliveries claims messages that are due, no two of one subject at one sink, and counts the try.
	PickDeliveries(ctx context.Context, p Pick) ([]Message, error)
	// SettleDeliveries writes what the tries under a claim brought. Success is a fact; a failure holds only while the claim is
	// still the last one.
	SettleDeliveries(ctx context.Context, claim id.ID, done []Settled) error
	// PurgeDeliveries deletes up to limit rows that ended longer ago than retention.
	PurgeDeliveries(ctx context.Context, retention time.Duration, limit int) (int, error)
}

// Pick says what a relay can take on now.
type Pick struct {
	Sink    string   // empty: the webhook endpoints that are enabled
	Busy    []string // endpoints that are still at work
	Rows    int      // most messages
	PerLane int      // of them, of one merchant at one sink
	Lease   time.Duration
	Claim   id.ID
}

// Settled is a message with what its try brought.
type Settled struct {
	Message
	Result
	Delay time.Duration // until the next try; only where it failed and is not abandoned
}

// Runtime is time, chance and concurrency as the relay sees them: a part of operation.Runtime.
type Runtime interface {
	wire.Clock
	Go(f func())
	NewSignal() operation.Signal
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
	Sleep(ctx context.Context, d time.Duration)
	NewID() id.ID
	Jitter() float64
}

// Watcher counts what operators alert on. Methods return at once.
type Watcher interface {
	// Delivered tells of one acknowledged message, with the time since its event was written.
	Delivered(sink string, after time.Duration)
	// DeliveryFailed tells of one try that failed.
	DeliveryFailed(sink string)
}

// Points at which a test lets a relay vanish or wait.
const (
	PointAfterNumber = "relay-after-number" // events have their places in the feed
	PointBeforeSend  = "relay-before-send"  // messages are picked
	PointAfterSend   = "relay-after-send"   // the sink has answered, and nothing is written of it
)

// Points of the mail sink.
const (
	PointMailBegun = "mail-begun" // the mail is written as being sent, and nothing has left
	PointMailSent  = "mail-sent"  // the server's answer is here, and not written yet
)

// Points lists them.
var Points = []string{PointAfterNumber, PointBeforeSend, PointAfterSend, PointMailBegun, PointMailSent}
