// Package operation is the engine: claim, call, record, with lease, fence, permit and takeover.
//
// Owns the row of one idempotent command and its states (PROTOCOL sections 3, 6 and 7); knows no payment.
// Never starts a goroutine, reads a clock or touches a network of its own: all come through the interfaces in ports.go.
// Read next: ports.go, engine.go (a client's request), run.go (call and record), then internal/flow (the kinds).
package operation

import (
	"time"

	"github.com/hapaxpay/hapax/internal/id"
)

// Kind is the kind of command; with merchant and key it names one operation (PROTOCOL section 2).
type Kind string

// The kinds that exist.
const (
	CreateIntent   Kind = "create_intent"
	CreatePayment  Kind = "create_payment"
	DecideReview   Kind = "decide_review"
	CapturePayment Kind = "capture"
	CancelPayment  Kind = "cancel"
	IssueCode      Kind = "cancel_code"
	CreateRefund   Kind = "refund"
	Compensate     Kind = "compensate"

	CreateEndpoint  Kind = "create_endpoint"
	UpdateEndpoint  Kind = "update_endpoint"
	DisableEndpoint Kind = "disable_endpoint"
	EnableEndpoint  Kind = "enable_endpoint"
	RotateSecret    Kind = "rotate_secret"
	TestEndpoint    Kind = "test_endpoint"
	ResendEvent     Kind = "resend_event"
	ResendFailed    Kind = "resend_failed"
)

// State of an operation. Nothing but the transitions of PROTOCOL section 3 exists.
type State string

// The states.
const (
	InProgress     State = "in_progress"
	AwaitingResult State = "awaiting_result"
	InReview       State = "in_review"
	Completed      State = "completed"
)

// Moves lists where each state may go (PROTOCOL section 3).
var Moves = map[State][]State{
	InProgress:     {AwaitingResult, InReview, Completed},
	AwaitingResult: {InReview, Completed},
	InReview:       {Completed, AwaitingResult},
	Completed:      {},
}

// Ref names an operation by what the client knows.
type Ref struct {
	Merchant id.ID
	Kind     Kind
	Key      string
}

// Operation is one idempotent command. The row holds the key, the lease and the fence.
type Operation struct {
	Ref
	ID          id.ID
	Fingerprint [32]byte
	FPVersion   int
	RequestID   string // of the request that claimed it first

	State      State
	Fence      int64     // grows by one with every claim, from 1
	ClaimID    id.ID     // random, by whoever claimed last (PROTOCOL K10)
	ClaimedAt  time.Time // database time of the last claim or takeover
	LeaseUntil time.Time // database time; a means of recovery, not of exclusion
	DueAt      time.Time // when the sweep looks at it; equal to LeaseUntil while somebody works on it
	Checks     int       // questions asked since the first call ended without proof

	AnswerStatus int    // 0 while not completed
	AnswerBody   []byte // stored bytes (PROTOCOL W4)
	CompletedAt  time.Time
	ExpiresAt    time.Time // zero while not completed
	CreatedAt    time.Time

	// Intent, Payment and Modification are what the command is about; Follows is the operation that does the work for this
	// one, when a second key met what is under way.
	Intent, Payment, Modification, Follows id.ID

	// What is sent, stored before the first call and replayed from here (PROTOCOL A1). Empty where nothing is sent.
	Account     id.ID
	Action      string
	AcquirerKey string
	Object      string // the acquirer's id of what the call is about; empty for what makes a new object
	RequestBody []byte

	Sends, Unsent               int       // permits granted; permits whose own holder saw zero bytes leave (PROTOCOL O1)
	FirstPermitAt, LastPermitAt time.Time // database time
	PermitID                    id.ID     // random, by whoever asked last (PROTOCOL K10)
	SendUntil                   time.Time // with no client waiting, nothing is sent after this (PROTOCOL W3)
	Epoch                       int64     // of the database, when it was claimed (PROTOCOL A8)
	Lost                        bool      // claimed during a hold: it may be the twin of a row that a failover lost
}

// Answer is what a client is told: a stored final answer, or the current state.
type Answer struct {
	Status     int
	First      int // status for the request that did the work, where it differs from that of a repeat; 0: it does not
	Body       []byte
	Final      bool // stored, or about to be
	Replayed   bool // these bytes were given before
	RetryAfter time.Duration
	Location   string
	KeyExpires time.Time // zero: not told
	Original   string    // request id of the first request with this key
}

// Meeting is what a repeat of a key meets.
type Meeting int

// The meetings, in the order in which they are checked (PROTOCOL section 2).
const (
	MeetsOther      Meeting = iota // other parameters: checked first
	MeetsAnswer                    // finished: the stored bytes
	MeetsOwner                     // being worked on now
	MeetsUnanswered                // not known yet, or worked on for longer than the client waits: current state
	MeetsNobody                    // unfinished and due: take it over
)

// Meet decides what a repeat meets; now is database time (PROTOCOL section 2, K1, K2).
func (o Operation) Meet(fingerprint [32]byte, now time.Time, answerWithin time.Duration) Meeting {
	switch {
	case o.Fingerprint != fingerprint:
		return MeetsOther
	case o.State == Completed:
		return MeetsAnswer
	case o.Follows.IsZero() && o.State != InReview && !now.Before(o.DueAt):
		return MeetsNobody
	case o.State == InProgress && now.Sub(o.ClaimedAt) < answerWithin:
		return MeetsOwner
	}
	return MeetsUnanswered
}

// Lease gives the length of the lease of a claim with this fence: it doubles with each takeover, up to a cap
// (PROTOCOL K2), so that an owner slower than the lease is not dispossessed for ever.
func Lease(base time.Duration, fence int64) time.Duration {
	for range min(max(fence-1, 0), maxLeaseDoublings) {
		base *= 2
	}
	return base
}

const maxLeaseDoublings = 4
