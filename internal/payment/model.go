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
	Receipt         string // the mail address that gets the receipt; empty: nobody. In no event, log or history
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
	Capture              CaptureMethod
	Authorized           int64         // minor units that were held; stays when the hold is over
	Capturing            int64         // minor units reserved by an open capture
	Captured             int64         // minor units taken and applied
	Refunding            int64         // minor units reserved by open refunds, as far as there is room (PROTOCOL X3)
	Refunded             int64         // minor units given back
	Disputed             int64         // minor units taken back by the payer's bank, open or lost
	Dispute              DisputeStatus // opened while one is open, else lost where one was lost, else won; empty: never any
	Method               string        // empty: the payer chooses on the page
	ReturnURL            string        // hosted: where the payer is sent afterwards
	Account              id.ID         // acquirer account
	AcquirerKey          string        // what leaves the house as key and reference (PROTOCOL D2)
	AcquirerReference    string        // the acquirer's id of the charge, once known
	Session              string        // the acquirer's id of the page, once known
	RedirectURL          string        // where the payer goes on, once known
	ExpiresAt            time.Time     // of the hold or page, as the acquirer tells it; zero: not told
	Failure              Failure
	RefusedAt            time.Time // zero while not refused
	GateOpen             bool      // P6: the next payment of the intent may start
	DueAt                time.Time // zero: nothing to do beside its operation
	AnsweredStatus       int       // status code of the final answer to its command; 0: none yet (PROTOCOL K8)
	Early                bool      // stored evidence waits for what must come before it (PROTOCOL E1)
	Version              int64     // K4
	By                   Command
	CreatedAt, UpdatedAt time.Time
}

// Remaining is what may still be given back: captured, less what was given back, is under way, or is disputed.
func (p Payment) Remaining() int64 { return p.returnable() - p.Refunding }

// returnable is what can go back at all, whatever is reserved of it.
func (p Payment) returnable() int64 { return p.Captured - p.Refunded - p.Disputed }

// Capturable is what may still be captured of the hold.
func (p Payment) Capturable() int64 { return p.Authorized - p.Captured - p.Capturing }

// ModificationType says what a command asked to be done to a payment.
type ModificationType string

// The modifications (PROTOCOL section 9).
const (
	Capture      ModificationType = "capture"
	Cancel       ModificationType = "cancel"
	Refund       ModificationType = "refund"
	Compensation ModificationType = "compensation"
)

// ModificationStatus is the state of a modification.
type ModificationStatus string

// The states. A refund that succeeded may still fail at the payer's bank, once; nothing else leaves the last two.
const (
	ModPending   ModificationStatus = "pending"
	ModUnknown   ModificationStatus = "unknown"
	ModSucceeded ModificationStatus = "succeeded"
	ModFailed    ModificationStatus = "failed"
)

// Open says whether the result is not proven yet.
func (s ModificationStatus) Open() bool { return s == ModPending || s == ModUnknown }

// Modification is one change to a payment: it has a key, a call and an unknown state of its own.
type Modification struct {
	Merchant, ID         id.ID
	Intent, Payment      id.ID
	Type                 ModificationType
	Action               acquirer.Action // what is called; empty: not known yet (PROTOCOL X6)
	K                    int             // ordinal of its type within the payment, from 1
	Status               ModificationStatus
	Amount               money.Amount
	Final                bool  // capture: releases the rest
	External             bool  // refund: made by hand at the acquirer
	Movement             id.ID // compensation: the money that is given back
	Account              id.ID
	AcquirerKey          string
	AcquirerReference    string // the acquirer's id, once known
	Reason               string
	Failure              Failure
	AnsweredStatus       int
	Version              int64
	By                   Command
	CreatedAt, UpdatedAt time.Time
}

// DisputeStatus is the state of a dispute.
type DisputeStatus string

// The states (PROTOCOL X5).
const (
	DisputeOpened DisputeStatus = "opened"
	DisputeWon    DisputeStatus = "won"
	DisputeLost   DisputeStatus = "lost"
)

// Dispute is money that a payer's bank took back, by the acquirer's id.
type Dispute struct {
	Merchant, ID        id.ID
	Intent, Payment     id.ID
	Account             id.ID
	Reference           string
	Amount              money.Amount
	Status              DisputeStatus
	Aside               bool // more than was left of the payment: its money is kept aside
	OpenedAt, DecidedAt time.Time
}

// CancelCode is an issued one-time code: the code itself stands nowhere (PROTOCOL X1).
type CancelCode struct {
	Merchant, Payment id.ID
	Ordinal           int   // the highest one of a payment counts
	Amount            int64 // minor units that the code is bound to
	Tries             int
	ExpiresAt         time.Time
	ConsumedAt        time.Time // zero: not yet
	By                Command
	CreatedAt         time.Time
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
	Object          string // the acquirer's id of the charge that it is about; empty: the movement is the charge
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
	ReviewStrayHold         ReviewReason = "stray_hold"          // conflict: funds are held that should not be
	ReviewCompensation      ReviewReason = "compensation_failed" // conflict: the money could not be given back
	ReviewExcess            ReviewReason = "excess_given_back"   // conflict: more was given or taken back than was left
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

// The events.
const (
	EventRegistered        EventType = "payment.registered"
	EventAuthorized        EventType = "payment.authorized"
	EventCaptured          EventType = "payment.captured" // a part; the last part is payment.paid
	EventCaptureFailed     EventType = "payment.capture_failed"
	EventCancelFailed      EventType = "payment.cancel_failed"
	EventCancelCode        EventType = "payment.cancel_code_issued"
	EventRefundSucceeded   EventType = "refund.succeeded"
	EventRefundFailed      EventType = "refund.failed"
	EventCompensated       EventType = "compensation.succeeded"
	EventCompensationFails EventType = "compensation.failed"
	EventDisputeOpened     EventType = "dispute.opened"
	EventDisputeWon        EventType = "dispute.won"
	EventDisputeLost       EventType = "dispute.lost"

	EventPaid         EventType = "payment.paid"
	EventDeclined     EventType = "payment.declined"
	EventFailed       EventType = "payment.failed"
	EventCanceled     EventType = "payment.canceled"
	EventConflict     EventType = "payment.conflict"
	EventConflictOver EventType = "payment.conflict_resolved"
	EventReview       EventType = "payment.in_review"

	EventEndpointCreated  EventType = "webhook_endpoint.created"
	EventEndpointUpdated  EventType = "webhook_endpoint.updated"
	EventEndpointDisabled EventType = "webhook_endpoint.disabled"
	EventEndpointEnabled  EventType = "webhook_endpoint.enabled"
	EventSecretRotated    EventType = "webhook_endpoint.secret_rotated"
	EventEndpointTest     EventType = "webhook_endpoint.test"
)

// EventTypes lists every type, in the order of the catalogue.
var EventTypes = []EventType{EventRegistered, EventAuthorized, EventCaptured, EventCaptureFailed, EventPaid, EventDeclined, EventFailed,
	EventCanceled, EventCancelFailed, EventCancelCode, EventReview, EventConflict, EventConflictOver, EventRefundSucceeded,
	EventRefundFailed, EventCompensated, EventCompensationFails, EventDisputeOpened, EventDisputeWon, EventDisputeLost,
	EventEndpointCreated, EventEndpointUpdated, EventEndpointDisabled, EventEndpointEnabled, EventSecretRotated, EventEndpointTest}

// OfRefund says whether an event tells of a refund or compensation, and carries its snapshot instead of the payment's.
func (t EventType) OfRefund() bool {
	switch t {
	case EventRefundSucceeded, EventRefundFailed, EventCompensated, EventCompensationFails:
		return true
	}
	return false
}

// Notification is a kind of mail to a person.
type Notification string

// The notifications, each at most once by its derived key.
const (
	Receipt          Notification = "receipt"
	CancelCodeByMail Notification = "cancel_code"
)

// Notification says which notification hangs on an event; empty: none.
func (t EventType) Notification() Notification {
	switch t {
	case EventPaid:
		return Receipt
	case EventCancelCode:
		return CancelCodeByMail
	}
	return ""
}

// Event is one row of the outbox: its bytes never change (PROTOCOL V1).
type Event struct {
	Merchant, ID    id.ID
	Intent, Payment id.ID
	Endpoint        id.ID  // of a webhook, for events that tell of one; Intent is zero then
	Version         int64  // order within the subject: the intent, or the endpoint
	Key             string // <intent>:event:<version>
	Type            EventType
	Payload         []byte
	At              time.Time
}

// Subject is what the event tells of, and within which events are in order: the intent, or the endpoint.
func (e Event) Subject() id.ID {
	if e.Intent.IsZero() {
		return e.Endpoint
	}
	return e.Intent
}
