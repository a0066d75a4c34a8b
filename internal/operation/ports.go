package operation

import (
	"context"
	"errors"
	"time"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/id"
)

// Errors of a Store.
var (
	// ErrNothingDone wraps every error after which it is proven that the transaction did not commit.
	ErrNothingDone = errors.New("nothing was committed")
	// ErrCommitUnknown wraps an error after which the transaction may have committed (PROTOCOL K10).
	ErrCommitUnknown = errors.New("the outcome of COMMIT is not known")
	// ErrNotDurable says that the database is read-only, a replica, or would lose commits (PROTOCOL K9).
	ErrNotDurable = errors.New("the database is not a durable primary")
	// ErrOnHold says that this database may have lost commits and nobody has said how to go on (PROTOCOL A8).
	ErrOnHold = errors.New("sends are on hold after a database failover or restore")
	// ErrVanished comes from Faults only: the process would be gone here. Nothing more is done.
	ErrVanished = errors.New("vanished at a crash point")
)

// Store runs short transactions. T is the transaction as the kinds of operation see it.
type Store[T any] interface {
	// InTx runs f in one transaction and commits it. f may run several times (serialization failures, deadlocks), so it
	// must not change anything outside the transaction that a second run would not overwrite. The context that f gets
	// forbids network calls (wire.ForbidNetwork). The error of f is returned as it is after a rollback; other errors
	// wrap ErrNothingDone or ErrCommitUnknown. The commit itself has no deadline (PROTOCOL K12).
	InTx(ctx context.Context, name string, f func(ctx context.Context, tx T) error) error
}

// Guard is what a claim or permit learns about its database, in its own transaction (PROTOCOL K9, A8).
type Guard struct {
	Now   time.Time // the transaction's now()
	Epoch int64
	// Held says that commits of the interval [LostFrom, LostTo] may be lost and were not compared yet.
	Held             bool
	LostFrom, LostTo time.Time
}

// Tx is what the engine needs of a transaction. Every statement works on arrays; one row is an array of one.
type Tx interface {
	// Guard checks that the database is a durable primary of the known epoch. It fails with ErrNotDurable or ErrOnHold.
	Guard(ctx context.Context) (Guard, error)
	// InsertOperations claims: the primary key decides (PROTOCOL K1). The result says for each row whether it is new.
	// ClaimedAt, CreatedAt, LeaseUntil and DueAt are set by the database: now() and now() + lease.
	InsertOperations(ctx context.Context, rows []Operation, lease time.Duration) ([]bool, error)
	// DeleteOperations undoes claims of this very transaction: the key stays free.
	DeleteOperations(ctx context.Context, refs []Ref) error
	// ReadOperations reads the rows that exist, without locking them.
	ReadOperations(ctx context.Context, refs []Ref) ([]Operation, error)
	// LockOperations locks in order and reads the rows that exist (PROTOCOL P4, last level).
	LockOperations(ctx context.Context, refs []Ref) ([]Operation, error)
	// TakeOver adds one to the fence of each row that is unfinished, due by the database's clock, follows nobody, and
	// still has the expected fence. It returns the rows taken.
	TakeOver(ctx context.Context, takes []Take) ([]Operation, error)
	// PickDue moves due_at of up to limit due rows and takes them over, oldest first, at most perMerchant of one merchant.
	PickDue(ctx context.Context, limit, perMerchant int, base time.Duration, claim func() id.ID) ([]Operation, error)
	// Permit counts one more send before any byte leaves (PROTOCOL A0).
	Permit(ctx context.Context, ask PermitAsk) (PermitAnswer, error)
	// SaveOperations writes state, due time, checks, unsent, answer and links of each row that still has its fence and
	// is not completed. The result says for each row whether it was written.
	SaveOperations(ctx context.Context, rows []Operation, retention time.Duration) ([]bool, error)
	// NoteHistory appends to the history of an intent (PROTOCOL E4).
	NoteHistory(ctx context.Context, notes []Note) error
}

// Take asks for one takeover.
type Take struct {
	Ref
	Fence   int64
	ClaimID id.ID
	Lease   time.Duration
}

// PermitAsk asks for the right to send one request now.
type PermitAsk struct {
	Ref
	Fence    int64
	PermitID id.ID
	// Unsent is added to the row's unsent: earlier permits of this owner that saw zero bytes leave.
	Unsent int
	// MaxSends bounds sends − unsent + 1; CutOff counts from the first permit, zero where only one send may ever leave.
	MaxSends int
	CutOff   time.Duration
	// ClientWaiting allows a send after send_until.
	ClientWaiting bool
	// Family are the acquirer's keys of this intent, of any ordinal: money kept aside under one of them forbids the send
	// (PROTOCOL P7). Empty: the row's own key alone.
	Family []string
	// HeldOK allows a send while the database's hold is on: never true for a row from before it (PROTOCOL A8).
	HeldOK bool
}

// PermitAnswer says whether a permit was granted, and if not why.
type PermitAnswer struct {
	Granted bool
	// Denied is one of the Denied constants.
	Denied string
	Op     Operation // the row after a grant
}

// Why a permit is denied.
const (
	DeniedStale     = "stale_owner"    // the fence or the state is not ours any more
	DeniedCutOff    = "cut_off"        // past the key's cut-off
	DeniedBudget    = "budget"         // no more sends for this payment
	DeniedHold      = "hold"           // A8
	DeniedLate      = "send_until"     // nobody waits, and it is too late to begin
	DeniedExpired   = "intent_expired" // past pay_before
	DeniedMoney     = "money_or_conflict"
	DeniedCanceling = "canceling" // a cancel waits for the charge: it is asked about, never sent again
	MaxSendsEver    = 16          // permits per operation, unsent ones included
)

// Note is one line of the history of an intent: what happened beside the evidence (claims, repeats, takeovers, permits).
type Note struct {
	Merchant, ID    id.ID
	Intent, Payment id.ID
	Operation       id.ID
	Kind            Kind
	What            string // one of the What constants
	Why             string
	Request         string // our request id
	KeyHash         string // hash of the idempotency key, never the key
	Fence           int64
	Reference       string
}

// What a note tells.
const (
	WhatClaimed   = "claimed" // with the first permit
	WhatBegun     = "begun"   // with nothing to send yet
	WhatRepeat    = "repeat_served"
	WhatReuse     = "key_reused"
	WhatJoined    = "joined_live_payment"
	WhatTakeover  = "taken_over"
	WhatPermit    = "permit_granted"
	WhatDenied    = "permit_denied"
	WhatStale     = "stale_owner"
	WhatDecided   = "decided"
	WhatRefused   = "request_refused"
	WhatCompleted = "completed"
)

// Runtime is time, chance and concurrency as the engine sees them. A simulation swaps all of them.
type Runtime interface {
	wire.Clock
	// Go runs f beside the caller.
	Go(f func())
	// NewSignal makes a one-time signal.
	NewSignal() Signal
	// WithTimeout limits ctx by the runtime's clock.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
	// Sleep waits for d or until ctx is done.
	Sleep(ctx context.Context, d time.Duration)
	// NewID makes a row's identifier; random parts come from the runtime.
	NewID() id.ID
	// Jitter gives a number in [0, 1).
	Jitter() float64
}

// Signal is set once and waited for by anybody.
type Signal interface {
	Set()
	// Wait returns true when the signal is set, false when d has passed or ctx is done.
	Wait(ctx context.Context, d time.Duration) bool
}

// Faults makes a process vanish, stop or wait at named points; inert in production.
type Faults interface {
	// Hit returns nil to go on, or ErrVanished.
	Hit(ctx context.Context, point string) error
}

// The crash points, in the order in which a request meets them.
const (
	PointInClaim      = "in-claim"
	PointAfterClaim   = "after-claim"
	PointBeforeWrite  = "before-write"
	PointAfterWrite   = "after-write"
	PointAfterReply   = "after-reply"
	PointBeforeLookup = "before-lookup"
	PointAfterLookup  = "after-lookup"
	PointBeforePermit = "before-permit"
	PointAfterPermit  = "after-permit"
	PointBeforeRecord = "before-record"
	PointInRecord     = "in-record"
	PointAfterRecord  = "after-record"
)

// The points on the way of an acquirer's message, from the door to what it tells.
const (
	PointAfterStore    = "after-store"
	PointBeforeReceive = "before-receive"
	PointInReceive     = "in-receive"
)

// MessagePoints lists them.
var MessagePoints = []string{PointAfterStore, PointBeforeReceive, PointInReceive}

// Points lists every crash point of an operation.
var Points = []string{PointInClaim, PointAfterClaim, PointBeforeWrite, PointAfterWrite, PointAfterReply, PointBeforeLookup, PointAfterLookup,
	PointBeforePermit, PointAfterPermit, PointBeforeRecord, PointInRecord, PointAfterRecord}
