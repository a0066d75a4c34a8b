// Package acquirer is what an adapter of an acquirer implements.
//
// Owns the port (Adapter), the Contract value and the vocabulary of replies.
// Never decides about a payment: a Reply says what the acquirer said, internal/evidence says what that proves.
// Read next: acquirer/wire (the transport that adapters must use), acquirer/acquirertest (the conformance kit).
package acquirer

import (
	"context"
	"time"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/money"
)

// Adapter speaks to one acquirer on behalf of one account. Implementations hold no state about payments,
// start no goroutine, never repeat a call, and make every call through a wire.Doer.
type Adapter interface {
	// Contract gives the declared contract. It is constant for the life of the adapter.
	Contract() Contract
	// Prepare builds the bytes of a call, the same for the same input at any time (PROTOCOL A1).
	// An error means that this call can never be sent to this acquirer; nothing was sent.
	Prepare(Request) (Prepared, error)
	// Send makes the one request that the permit allows and maps the answer. It always gives a Reply,
	// whatever happens; OutcomeUnknown is the answer to everything that is not listed (PROTOCOL section 5).
	Send(ctx context.Context, p Prepared, permit *wire.Permit) Reply
	// Lookup asks what the acquirer holds for a key, a reference or its own id. It moves no money and needs no permit.
	Lookup(ctx context.Context, q Query) Reply
	// Movements lists the money that moved on this account in [from, to), for recovery after a restore (PROTOCOL A8).
	// An error means that the list is not complete.
	Movements(ctx context.Context, from, to time.Time) ([]Movement, error)
}

// Action names a call that changes something at an acquirer, and with it the object that the call makes.
type Action string

// The actions.
const (
	ActionCharge  Action = "charge"  // take the amount now, or hold it
	ActionSession Action = "session" // register a hosted page
	ActionCapture Action = "capture" // take held funds
	ActionReverse Action = "reverse" // release a hold, close a payer's step, or undo a capture of the same day
	ActionClose   Action = "close"   // close a hosted page
	ActionRefund  Action = "refund"  // give captured money back
	// ActionChargeback is never sent: it names what an acquirer tells of a payer's bank taking money back.
	ActionChargeback Action = "chargeback"
)

// Request is what is asked of an acquirer. Which members count depends on the action.
type Request struct {
	Action        Action
	Key           string // opaque derived key (PROTOCOL D2); sent as idempotency key and as our reference
	Amount        money.Amount
	Hold          bool      // charge, session: hold the funds instead of taking them
	PaymentMethod string    // charge: the acquirer's token, never a card number
	ReturnURL     string    // session: where the payer is sent afterwards
	ExpiresAt     time.Time // session: the page takes no money after this; zero: the acquirer's own life of a session
	Object        string    // capture, reverse, refund: the acquirer's id of the charge; close: of the session
	Final         bool      // capture: the rest of the hold is released
	Description   string
}

// Prepared is a request as it will leave, stored before the first call and replayed from the row (PROTOCOL A1).
type Prepared struct {
	Action Action
	Key    string
	Object string // the acquirer's id of what the call is about; empty for what makes a new object
	Body   []byte // canonical bytes
}

// Query names what is asked about. With a key alone the answer is about everything under that key: money that moved beats
// whatever else is there. With the acquirer's own id it is about that object only.
type Query struct {
	Action    Action // what was sent under the key; empty reads as ActionCharge
	Key       string // our derived key, which is also our reference
	Reference string // the acquirer's own id of one object; empty: all under the key
	Object    string // the acquirer's id of the charge or session that the call was about
}

// Outcome is what the acquirer said, in the words of PROTOCOL section 5.
type Outcome int

// The outcomes. The zero value is the strictest.
const (
	OutcomeUnknown    Outcome = iota // no proof of anything
	OutcomeNotSent                   // zero bytes of the request were written, by the connection's own counter
	OutcomeSucceeded                 // done: money taken, hold released, page closed, money given back, by the action
	OutcomeHeld                      // funds held
	OutcomeRegistered                // payer's step needed, with address
	OutcomeDeclined                  // business refusal, final by the contract; of a refund that succeeded before: it failed at the bank
	OutcomeRejected                  // invalid, unauthorized, forbidden: Code says which
	OutcomePending                   // the acquirer says: processing
	OutcomeNotFound                  // lookup: nothing under this key or reference; of a close: the page is open still
	OutcomeDuplicate                 // "duplicate reference": an earlier request exists
	OutcomeKeyReused                 // "this key was used with other parameters": an earlier request exists, alarm
	OutcomeClosed                    // the charge or session is over and holds nothing: closed, lapsed, released
	outcomes
)

var outcomeNames = [outcomes]string{"unknown", "not_sent", "succeeded", "held", "registered", "declined",
	"rejected", "pending", "not_found", "duplicate", "key_reused", "closed"}

// String gives the name that is stored in evidence rows.
func (o Outcome) String() string {
	if o < 0 || o >= outcomes {
		return "unknown"
	}
	return outcomeNames[o]
}

// ParseOutcome reads a stored name; anything else is OutcomeUnknown.
func ParseOutcome(s string) Outcome {
	for i, n := range outcomeNames {
		if n == s {
			return Outcome(i)
		}
	}
	return OutcomeUnknown
}

// Reply is one answer of an acquirer, mapped.
type Reply struct {
	Outcome Outcome
	// Class names the row of the adapter's mapping table that this reply fell in; never empty (PROTOCOL O3, I-19).
	Class string
	// Code is the acquirer's own code of a refusal or rejection, bounded to MaxCode bytes.
	Code string
	// Failure is the code from FailureCodes that clients see; Message is ours, in words.
	Failure, Message string
	// About is the action whose object the reply tells of; empty: of the call or question itself.
	About Action
	// Reference is the acquirer's id of the object; OurReference is what it echoed of ours.
	Reference, OurReference string
	// Object is the acquirer's id of the charge that a capture, reversal, refund or chargeback is about.
	Object string
	// Session is the acquirer's id of the hosted page, where there is one.
	Session string
	// Amount is what the acquirer says was taken, held or given back; zero when it said nothing.
	Amount money.Amount
	// Final says, of a capture, that nothing more can be captured: the rest of the hold is released.
	Final bool
	// ExpiresAt is when the hold or the page lapses, as the acquirer tells it; zero: not told.
	ExpiresAt time.Time
	// At is when the money moved, as the acquirer tells it; zero: not told.
	At time.Time
	// RequestID is the acquirer's id of this exchange, for its support.
	RequestID string
	// RawHash is the SHA-256 of the raw body.
	RawHash [32]byte
	// Answered says that a complete answer was read: a repeat in the same request would learn nothing new (PROTOCOL A3).
	Answered bool
	// BytesWritten counts request bytes that left, by the connection.
	BytesWritten int64
	// RedirectURL is the payer's page, when one is needed.
	RedirectURL string
	// Also is what else a lookup found under the same key: further charges, since an acquirer that executed twice must not
	// be able to hide the second one (PROTOCOL E5), and what was done upon them: captures, reversals, refunds, chargebacks,
	// also those done by hand at the acquirer. Each has an outcome, a class, About, a reference and an amount of its own.
	Also []Reply
}

// MaxCode bounds the acquirer's codes and references that are stored, in bytes.
const MaxCode = 128

// Movement is one line of the acquirer's own list of money that moved.
type Movement struct {
	Reference    string // the acquirer's id of the object that moved it
	Object       string // the acquirer's id of the charge that it is about
	Undoes       string // reverse: the acquirer's id of the object that it undoes
	OurReference string // our key, as it was sent; empty: done by hand at the acquirer
	Kind         MovementKind
	Amount       money.Amount
	At           time.Time
}

// MovementKind says which way money went.
type MovementKind string

// The kinds, as the sandbox's register names them too.
const (
	MovementCharge     MovementKind = "charge"
	MovementCapture    MovementKind = "capture"
	MovementReverse    MovementKind = "reverse"
	MovementRefund     MovementKind = "refund"
	MovementChargeback MovementKind = "chargeback"
	// MovementHold is kept for holds, so that each is known by its id; no money moves with it.
	MovementHold MovementKind = "hold"
)

// FailureCodes are the reasons a client can be told (API.md), with the sentence that goes with each.
var FailureCodes = map[string]string{
	"insufficient_funds":   "The payer's account does not have enough money.",
	"do_not_honor":         "The payer's bank refused without saying why.",
	"expired_card":         "The card has expired.",
	"lost_or_stolen":       "The card is reported lost or stolen.",
	"limit_exceeded":       "The payer's limit is exceeded.",
	"suspected_fraud":      "The payer's bank or the acquirer suspects fraud.",
	"invalid_method":       "The payment method is not valid.",
	"declined":             "The acquirer refused the payment.",
	"rejected":             "The acquirer rejected the request before executing it.",
	"acquirer_unreachable": "The acquirer could not be reached; nothing was sent.",
	"not_executed":         "The acquirer has no record of this payment and its contract makes that final.",
	"decided_not_executed": "A person established that the payment was not executed.",
	"given_back":           "Money was moved, but not as asked, and it went back.",
	"cannot_be_sent":       "The acquirer cannot take this payment; nothing was sent.",
	"canceled":             "The payment was canceled before any money was taken.",
	"page_closed":          "The acquirer's page was closed or lapsed, and the payer did not pay.",
	"hold_expired":         "The hold lapsed or was released before the money was taken.",
	"already_captured":     "The money has been taken already: refund it instead.",
	"nothing_to_reverse":   "The acquirer has nothing to reverse.",
	"too_late":             "The acquirer does not undo this any more: refund it instead.",
	"exceeds_remaining":    "The acquirer says that less is left than was asked for.",
	"failed_at_bank":       "The payer's bank did not take the money; it came back.",
}
