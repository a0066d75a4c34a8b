package flow

import (
	"context"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/problem"
)

// EndpointCommand asks for something about a webhook endpoint. A nil pointer was not sent, which is part of the fingerprint.
type EndpointCommand struct {
	Kind      operation.Kind
	Merchant  id.ID // from authentication, never from a body
	Key       string
	RequestID string
	Endpoint  id.ID // zero: it is to be created

	URL         *string
	Description *string
	Types       *[]payment.EventType // sorted, each once; empty: all
	Overlap     *time.Duration       // in which old secrets stay good
	Event       id.ID                // to be sent again
	Since       time.Time            // of events that are to be sent again
	// Target is why the address in URL is refused; nil: it is not. It was looked at before the claim, since that takes the
	// network, and is no part of the fingerprint: the answer of a repeat does not depend on what names resolve to by now.
	Target *problem.Problem
}

// EndpointDone is what a command about an endpoint did: its identity, which is kept for ever (PROTOCOL K8), and what a late
// repeat is told.
type EndpointDone struct {
	Merchant, Endpoint id.ID
	By                 payment.Command
	Status             int
	Event              id.ID // that was sent, by a test or again; zero: none
	Sends              int   // deliveries that were put in line
	More               bool  // some were left out, beyond the limit of one command
}

// EndpointTx is what a transaction can do about webhook endpoints.
type EndpointTx interface {
	// LockFeed keeps everybody from numbering the merchant's events, and from another change of its endpoints.
	LockFeed(ctx context.Context, merchant id.ID) error
	// EndpointsOf reads the merchant's endpoints, the newest first.
	EndpointsOf(ctx context.Context, merchant id.ID) ([]payment.Endpoint, error)
	// LockEndpoint locks and reads one, and tells the time.
	LockEndpoint(ctx context.Context, row Row) (e payment.Endpoint, now time.Time, found bool, err error)
	InsertEndpoint(ctx context.Context, e payment.Endpoint) error
	// SaveEndpoint writes what can change of a locked endpoint; changed says that it counts as an update.
	SaveEndpoint(ctx context.Context, e payment.Endpoint, changed bool) error

	// LiveSecrets reads the secrets that are good now, the newest first.
	LiveSecrets(ctx context.Context, endpoint Row) ([]payment.EndpointSecret, error)
	// AddSecret keeps a new one. The others end at retire at the latest, and those that ended before now are deleted.
	AddSecret(ctx context.Context, s payment.EndpointSecret, retire time.Time) error

	// SendAgain puts one event in line for the endpoint, whatever became of it there; false: the merchant has no such
	// event in its feed.
	SendAgain(ctx context.Context, endpoint Row, event id.ID) (bool, error)
	// SendFailed puts in line what failed or was given up of the events since then, and what was never sent of the types that
	// the endpoint wants, at most limit; more says that some are left.
	SendFailed(ctx context.Context, e payment.Endpoint, since time.Time, limit int) (n int, more bool, err error)

	// EndpointDoneBy finds what a purged operation did.
	EndpointDoneBy(ctx context.Context, ref CommandRef) (EndpointDone, bool, error)
	InsertEndpointDone(ctx context.Context, d EndpointDone) error
}
