package outbox

import (
	"context"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
)

// Names of the sinks that are no webhook endpoint; an endpoint's name is its id in the form of a UUID.
const (
	SinkKafka = "kafka"
	SinkNATS  = "nats"
	SinkMail  = "mail"
)

// Message is one event on its way to one sink. Everything but Attempt and Since is the same on each try (PROTOCOL V1).
type Message struct {
	Merchant, ID id.ID
	Subject      id.ID // the intent, or the endpoint: events of one subject come in order
	Payment      id.ID // zero: the event tells of no payment
	Sink         string
	Type         string
	Key          string // derived key of the event (PROTOCOL section 10)
	Version      int64  // within the subject
	Position     int64  // in the merchant's feed
	Payload      []byte
	At           time.Time // of the event
	Attempt      int       // this try, from 1
	Since        time.Time // when the event was first due at this sink
}

// Result is what one try brought. The zero value means: delivered.
type Result struct {
	Err error // nil: the sink has acknowledged it. Shown to people: holds no secret
	// Retry is how long to wait before the next try; zero: the relay's own back-off.
	Retry time.Duration
	// Abandon says that it is never tried again by itself; Err says why.
	Abandon bool
	// Unasked says that nothing was asked of the sink, so that the try does not count: Attempt will be the same on the next one.
	Unasked bool
	// Log is kept where it is not nil: what a webhook endpoint was asked and what it said.
	Log *Attempt
}

// Attempt is one try at a webhook endpoint, for its delivery log.
type Attempt struct {
	ID       id.ID // given by the relay
	URL      string
	Status   int    // 0: no answer
	Answer   string // its beginning, at most MaxAnswer bytes of valid UTF-8
	Error    string
	Duration time.Duration
}

// MaxAnswer bounds what is kept of an endpoint's answer, in bytes.
const MaxAnswer = 2048

// Sink takes messages to where they are heard. It is used by several goroutines at once.
type Sink interface {
	// Deliver tries each message once, and gives a result for each, in order. The messages of one call are of different
	// subjects. It ends soon after ctx is done; what is not acknowledged by then has failed, and comes again: an
	// acknowledgement that was lost means a repeat with the same id and the same bytes (PROTOCOL V1). It asks Over right
	// before it sends, and sends nothing when the time is over.
	Deliver(ctx context.Context, messages []Message) []Result
}
