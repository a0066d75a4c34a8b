package payment

import (
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/money"
)

// Flow says how the payer pays.
type Flow string

// Direct charges a token now. Hosted sends the payer to the acquirer's page.
const (
	Direct Flow = "direct"
	Hosted Flow = "hosted"
)

// CaptureMethod says whether money is taken at once or held first.
type CaptureMethod string

// The capture methods.
const (
	CaptureAutomatic CaptureMethod = "automatic"
	CaptureManual    CaptureMethod = "manual"
)

// Command is the identity of what created or changed a row: kept for ever, under a unique index (PROTOCOL K8).
type Command struct {
	Kind        string
	Key         string
	Fingerprint [32]byte
	FPVersion   int
}

// Intent is what a merchant wants to be paid (PROTOCOL W3).
type Intent struct {
	Merchant, ID    id.ID
	ClientReference string // order number; empty: none
	Customer        string
	Description     string
	Metadata        []byte // JSON object as the client sent it, canonical; nil: none
	Amount          money.Amount
	Capture         CaptureMethod
	PayBefore       time.Time
	KeySeed         string // PROTOCOL section 10
	Version         int    // grows with each amendment, from 1
	EventVersion    int64  // version of the last event, from 0 (DESIGN data rule 8)
	Conflict        bool   // an open conflict exists (PROTOCOL P7)
	By              Command
	CreatedAt       time.Time
	UpdatedAt       time.Time
}

// Failure is why a payment was refused, as clients see it.
type Failure struct {
	Code    string // from acquirer.FailureCodes
	Message string
}

// Payment is one attempt to pay an intent.
type Payment struct {
	Merchant, ID, Intent id.ID
	N                    int // ordinal within the intent, from 1
	Flow                 Flow
	Status               Status
	Conflict             bool
	Amount               money.Amount
	Captured             int64 // minor units taken and applied
	Refunded             int64 // minor units given back
	Method               string
	Account              id.ID  // acquirer account
	AcquirerKey          string // what leaves the house as key and reference (PROTOCOL D2)
	AcquirerReference    string // the acquirer's id, once known
	Failure              Failure
	RefusedAt            time.Time // zero while not refused
	GateOpen             bool      // P6: the next payment of the intent may start
	DueAt                time.Time // zero: nothing to do beside its operation
	Version              int64     // K4
	By                   Command
	CreatedAt, UpdatedAt time.Time
}

// MovementState says what became of money that moved.
type MovementState string

// The states of a movement: applied to the payment, kept aside until decided, given back.
const (
	Applied   MovementState = "applied"
	Unapplied MovementState = "unapplied"
	Returned  MovementState = "returned"
)

// Movement is money that really moved at an acquirer, booked once by the acquirer's reference (PROTOCOL E5).
type Movement struct {
	Merchant, ID    id.ID
	Account         id.ID
	Reference       string // the acquirer's id: unique within the account and kind
	Kind            acquirer.MovementKind
	AcquirerKey     string // our key as the acquirer echoed it; empty: not told
	Intent, Payment id.ID  // zero: nothing of ours fits yet
	Amount          money.Amount
	State           MovementState
	Cause           string // why it is unapplied
	At              time.Time
}

// ReviewReason says why only a person may decide (PROTOCOL section 14).
type ReviewReason string

// The reasons.
const (
	ReviewNoProof           ReviewReason = "no_proof"            // the contract offers nothing more to try
	ReviewWindowOver        ReviewReason = "window_over"         // past the cut-off
	ReviewProcessingTooLong ReviewReason = "processing_too_long" // longer than the contract's longest processing
	ReviewAmountMismatch    ReviewReason = "amount_mismatch"     // success with another amount, currency or reference
	ReviewMoneyAfterRefusal ReviewReason = "money_after_refusal" // conflict
	ReviewSecondMovement    ReviewReason = "second_movement"     // conflict
	ReviewContradiction     ReviewReason = "contradiction"       // refused and paid for one payment: conflict
	ReviewUnattributed      ReviewReason = "unattributed_money"  // a movement that fits no payment
	ReviewRepeatsForbidden  ReviewReason = "repeats_forbidden"   // sent once, no answer, neither key nor lookup
)

// Review is one entry of the queue of people.
type Review struct {
	Merchant, ID        id.ID
	Intent, Payment     id.ID // zero for unattributed money
	Operation           id.ID // zero when it hangs on a movement
	Movement            id.ID // zero when no movement is in question
	Reason              ReviewReason
	Detail              string
	OpenedAt, DecidedAt time.Time
	Decision            string
}

// EventType is the name of an event, stable.
type EventType string

// The events of the direct flow.
const (
	EventPaid         EventType = "payment.paid"
	EventDeclined     EventType = "payment.declined"
	EventFailed       EventType = "payment.failed"
	EventCanceled     EventType = "payment.canceled"
	EventConflict     EventType = "payment.conflict"
	EventConflictOver EventType = "payment.conflict_resolved"
	EventReview       EventType = "payment.in_review"
)

// Event is one row of the outbox: its bytes never change (PROTOCOL V1).
type Event struct {
	Merchant, ID    id.ID
	Intent, Payment id.ID
	Version         int64  // order within the intent
	Key             string // <intent>:event:<version>
	Type            EventType
	Payload         []byte
	At              time.Time
}
