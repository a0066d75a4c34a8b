package payment

import (
	"slices"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
)

// Endpoint is where a merchant hears of events by webhook.
type Endpoint struct {
	Merchant, ID id.ID
	URL          string
	Description  string
	Types        []EventType // that it hears of, sorted, each once; empty: all
	Enabled      bool
	DisabledWhy  DisabledWhy // empty while it is enabled
	FailingSince time.Time   // the first failed try since the last one that succeeded; zero: it does not fail
	KeySeed      string      // of the keys of its events (PROTOCOL section 10)
	EventVersion int64
	Version      int64
	CreatedAt    time.Time
	UpdatedAt    time.Time
}

// DisabledWhy says why nothing is sent to an endpoint.
type DisabledWhy string

// Why an endpoint is disabled.
const (
	DisabledByMerchant DisabledWhy = "requested"
	DisabledGone       DisabledWhy = "gone"    // it answered 410
	DisabledFailing    DisabledWhy = "failing" // every try failed for too long
)

// EndpointSecret is one secret by which webhooks to an endpoint are signed.
type EndpointSecret struct {
	Merchant, Endpoint id.ID
	Ordinal            int
	Sealed             []byte
	CreatedAt          time.Time
	ExpiresAt          time.Time // zero: it is the newest
}

// Limits of endpoints.
const (
	MaxEndpoints    = 20             // of one merchant
	MaxSecrets      = 4              // that are good at once
	DefaultOverlap  = 24 * time.Hour // in which old and new secret are good
	MaxOverlap      = 7 * 24 * time.Hour
	MaxResend       = 10_000 // deliveries that one command puts in line
	MaxEndpointText = 1000   // bytes of a description
)

// Tried is what the last tries at an endpoint have shown.
type Tried int

// What tries can show.
const (
	TriedGood   Tried = iota // it took one of them
	TriedFailed              // it took none
	TriedGone                // it answered that it is gone for good
)

// After applies what tries at now have shown: an endpoint whose tries all failed for longer than patience is disabled, one
// that is gone at once. changed says that there is something to write.
func (e Endpoint) After(t Tried, now time.Time, patience time.Duration) (_ Endpoint, changed bool) {
	switch {
	case !e.Enabled, t == TriedGood && e.FailingSince.IsZero():
		return e, false
	case t == TriedGood:
		e.FailingSince = time.Time{}
	case t == TriedGone:
		e = e.Disable(DisabledGone)
	case e.FailingSince.IsZero():
		e.FailingSince = now
	case now.Sub(e.FailingSince) >= patience:
		e = e.Disable(DisabledFailing)
	default:
		return e, false
	}
	return e, true
}

// Disable gives the endpoint that nothing is sent to.
func (e Endpoint) Disable(why DisabledWhy) Endpoint {
	e.Enabled, e.DisabledWhy = false, why
	return e
}

// Enable gives the endpoint that is sent to again; what it did before is forgotten.
func (e Endpoint) Enable() Endpoint {
	e.Enabled, e.DisabledWhy, e.FailingSince = true, "", time.Time{}
	return e
}

// EventTypesOf sorts and compacts; ok says that all exist.
func EventTypesOf(names []string) (types []EventType, ok bool) {
	for _, n := range names {
		if !slices.Contains(EventTypes, EventType(n)) {
			return nil, false
		}
		types = append(types, EventType(n))
	}
	slices.Sort(types)
	return slices.Compact(types), true
}
