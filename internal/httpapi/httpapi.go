// Package httpapi is the HTTP door of Hapax: who is asking, what is asked, and how it is told.
//
// Owns routes, decoding, the judgement of values, idempotency keys as they arrive, rate limits, and problem documents.
// Never decides about a payment, opens a transaction, echoes a refused value, or answers 500 to bad input.
// Read next: contract.go (what there is), door.go (the way in and out), scan.go (the form of a body), judge.go (its meaning).
package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hapaxpay/hapax/internal/auth"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/money"
)

// Service is what the door leads to. A refusal is a *problem.Problem; any other error is a fault. Everything is asked
// for one merchant, the one of the API key: what belongs to another is not found (I-15).
type Service interface {
	CreateIntent(ctx context.Context, c flow.CreateIntentCommand) (operation.Answer, error)
	CreatePayment(ctx context.Context, c flow.CreatePaymentCommand) (operation.Answer, error)
	Capture(ctx context.Context, c flow.CapturePaymentCommand) (operation.Answer, error)
	Cancel(ctx context.Context, c flow.CancelPaymentCommand) (operation.Answer, error)
	IssueCancelCode(ctx context.Context, c flow.IssueCancelCodeCommand) (operation.Answer, error)
	Refund(ctx context.Context, c flow.CreateRefundCommand) (operation.Answer, error)

	// Check asks the acquirer now about a payment. Its answer is never stored.
	Check(ctx context.Context, merchant, payment id.ID, requestID string) (operation.Answer, error)

	// Intent, Payment and RefundByID fail with the problem not_found.
	Intent(ctx context.Context, merchant, intent id.ID) (present.IntentReading, error)
	Payment(ctx context.Context, merchant, payment id.ID) (present.PaymentReading, error)
	RefundByID(ctx context.Context, merchant, refund id.ID) (present.RefundReading, error)
	// IntentByReference says false where there is none.
	IntentByReference(ctx context.Context, merchant id.ID, reference string) (present.IntentReading, bool, error)
	// IntentsByCustomer and Payments give at most page.Limit items, newest first (by id, descending), beginning below
	// page.After, and say whether more follow.
	IntentsByCustomer(ctx context.Context, merchant id.ID, customer string, page Page) ([]present.IntentReading, bool, error)
	Payments(ctx context.Context, merchant id.ID, q PaymentQuery, page Page) ([]present.PaymentReading, bool, error)
	// Refunds does the same for what was given back of one payment. It fails with not_found where the merchant has no such
	// payment: an empty list would read as "nothing was refunded yet".
	Refunds(ctx context.Context, merchant, payment id.ID, page Page) ([]present.RefundReading, bool, error)

	// Event gives the bytes of one event. It fails with the problem not_found.
	Event(ctx context.Context, merchant, event id.ID) ([]byte, error)
	// Events gives at most q.Limit events of the merchant's feed behind q.After, oldest first.
	Events(ctx context.Context, merchant id.ID, q EventQuery) (EventPage, error)

	// Endpoint runs a command about a webhook endpoint.
	Endpoint(ctx context.Context, c flow.EndpointCommand) (operation.Answer, error)
	// WebhookEndpoints gives all of the merchant, the newest first. EndpointByID, EndpointSecrets and Deliveries fail with the
	// problem not_found where there is no such endpoint.
	WebhookEndpoints(ctx context.Context, merchant id.ID) ([]payment.Endpoint, error)
	EndpointByID(ctx context.Context, merchant, endpoint id.ID) (payment.Endpoint, error)
	EndpointSecrets(ctx context.Context, merchant, endpoint id.ID) ([]present.OpenSecret, error)
	Deliveries(ctx context.Context, merchant, endpoint id.ID, q DeliveryQuery, page Page) ([]present.Delivery, bool, error)
}

// Config is what the door needs. Service, Keys and Log must be set.
type Config struct {
	Service Service
	Keys    auth.Finder
	Log     *slog.Logger
	// Messages takes what acquirers tell; nil: nothing is taken.
	Messages Messages

	// Ready gives the reasons why this process cannot serve now, in words for an operator; nil: always ready.
	Ready func(ctx context.Context) []Reason
	// Metrics is served at /metrics; nil: not served.
	Metrics http.Handler
	// Register takes the door's own metrics; nil: not counted.
	Register prometheus.Registerer

	MaxAmount     int64 // minor units (HAPAX_MAX_AMOUNT); zero: money.MaxMinor
	RatePerSecond int   // requests of one merchant whose own limit is not set (HAPAX_RATE_LIMIT); zero: DefaultRate

	// Target says why webhooks are not sent to an address, in words without it; nil: each https address is taken.
	Target func(ctx context.Context, url string) error
	// AllowLoopbackReturn takes return addresses by http on this machine; for dev only.
	AllowLoopbackReturn bool
	// ShowCancelCode gives the text of an issued one-time code, which is told in a header; empty where another code of the
	// payment counts by now. For dev only. nil: the code leaves by webhook or mail alone (PROTOCOL X1).
	ShowCancelCode func(ctx context.Context, merchant, payment id.ID, ordinal int) (string, error)

	Version string           // told in the contract; empty: "dev"
	Now     func() time.Time // nil: time.Now
	NewID   func() id.ID     // of requests; nil: from Now and the system's randomness
}

// DefaultRate is how many requests a merchant may make in a second. In one moment it may make twice as many.
const DefaultRate = 100

func (c Config) withDefaults() Config {
	if c.MaxAmount == 0 {
		c.MaxAmount = money.MaxMinor
	}
	if c.RatePerSecond == 0 {
		c.RatePerSecond = DefaultRate
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.NewID == nil {
		c.NewID = newID(c.Now)
	}
	return c
}

// Times that one connection may take (PROTOCOL A4: an answer comes within HAPAX_ANSWER_WITHIN, counted from the claim).
const (
	headerWithin = 5 * time.Second
	bodyWithin   = 15 * time.Second
	writeWithin  = 15 * time.Second // beside the time in which an answer comes
	idleWithin   = 2 * time.Minute
	maxHeader    = 16 << 10
)

// NewServer gives an HTTP server with every time and size limited. answerWithin is HAPAX_ANSWER_WITHIN.
func NewServer(h http.Handler, answerWithin time.Duration, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerWithin,
		ReadTimeout:       bodyWithin,
		WriteTimeout:      bodyWithin + answerWithin + writeWithin,
		IdleTimeout:       idleWithin,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}
