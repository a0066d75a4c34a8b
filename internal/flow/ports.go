// Package flow joins store, engine and acquirers: one file for each use case.
//
// Owns the kinds of operation (create intent, create payment, decide review) and the one way for truth to enter (apply.go).
// Never starts a goroutine, reads a clock, or calls out while a transaction is open.
// Read next: create_payment.go follows one payment from claim to record; apply.go writes what internal/payment decides.
package flow

import (
	"context"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/ledger"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/routing"
)

// Row names a row by its merchant and id: the only way in which one is found (DESIGN data rule 1).
type Row struct{ Merchant, ID id.ID }

// IntentRef names an intent by id, or by client reference where the id is zero.
type IntentRef struct {
	Merchant, ID    id.ID
	ClientReference string
}

// LockedIntent is an intent under its lock, with what a new payment must know about it (PROTOCOL P7).
type LockedIntent struct {
	payment.Intent
	// Latest is the payment with the highest ordinal, locked too; nil: none yet.
	Latest *payment.Payment
	// Money says that a movement that was not given back stands on the intent; MoneyOn is its payment.
	Money   bool
	MoneyOn id.ID
}

// Attempt is a payment with its intent.
type Attempt struct {
	Intent  payment.Intent
	Payment payment.Payment
}

// CommandRef names a row by the command that created it (PROTOCOL K8).
type CommandRef struct {
	Merchant  id.ID
	Kind, Key string
}

// Joined is the identity of a command that met a live payment.
type Joined struct {
	Merchant     id.ID
	By           payment.Command
	Payment      id.ID
	Modification id.ID // zero: joined the payment itself
	Answered     int   // status code, where the join was the final answer; 0: the answer came later
}

// Account is an acquirer account of a merchant.
type Account struct {
	Merchant, ID id.ID
	Adapter      string
	Settings     []byte // JSON
	Secrets      []byte // encrypted
	Paused       bool
	// Compared is the last epoch whose lost interval was compared with the acquirer's movements (PROTOCOL A8).
	Compared int64
}

// PaymentChange is one guarded update of a payment: it names the version and the state that it expects (PROTOCOL P2, K4).
type PaymentChange struct {
	ExpectedStatus  payment.Status
	ExpectedVersion int64
	New             payment.Payment // Version is the expected one plus one
}

// ModificationChange is one guarded update of a modification.
type ModificationChange struct {
	ExpectedStatus  payment.ModificationStatus
	ExpectedVersion int64
	New             payment.Modification // Version is the expected one plus one
}

// ChargeOwner is a payment with the acquirer's id of a charge of it.
type ChargeOwner struct {
	Charge  string
	Payment payment.Payment
}

// Policy is what a merchant has decided for all its payments.
type Policy struct {
	Merchant       id.ID
	CancelCode     bool // every cancel needs a one-time code (PROTOCOL X1)
	AutoCompensate bool // stray money is given back at once, without a person (PROTOCOL X4)
}

// Tx is a transaction as the flows see it. Everything works on arrays; locks are taken in the order of PROTOCOL P4,
// and each array is sorted by the implementation before it locks or inserts.
type Tx interface {
	operation.Tx
	Inbox

	// InsertIntents creates intents and the first row of their versions. An intent whose client reference exists
	// already is left out silently: LockIntents finds the other one. CreatedAt and UpdatedAt are the database's.
	InsertIntents(ctx context.Context, rows []payment.Intent) error
	// LockIntents locks the intents that exist, their latest payments too, in order of merchant and id.
	LockIntents(ctx context.Context, refs []IntentRef) ([]LockedIntent, error)
	// AmendIntents writes new versions: row and version row. Each must be locked.
	AmendIntents(ctx context.Context, rows []payment.Intent) error
	// SaveIntents writes event version and conflict of locked intents.
	SaveIntents(ctx context.Context, rows []payment.Intent) error
	// IntentsByCommand finds the intents whose creation or amendment a purged operation was (PROTOCOL K8); By holds that
	// command, the other fields are those of the version it made.
	IntentsByCommand(ctx context.Context, refs []CommandRef) ([]payment.Intent, error)

	// InsertJoined keeps, for ever, that a command joined a live payment (PROTOCOL K8).
	InsertJoined(ctx context.Context, rows []Joined) error
	// PaymentsByCommand finds the payments that a purged operation created or joined; By holds that command.
	PaymentsByCommand(ctx context.Context, refs []CommandRef) ([]payment.Payment, error)
	// InsertPayments creates payments; the partial unique index decides (PROTOCOL P1). The result says which are new.
	InsertPayments(ctx context.Context, rows []payment.Payment) ([]bool, error)
	// BindOperations writes what a newly claimed operation is about and what it will send, and counts the first permit
	// (sends = 1, permit times now()) where Action is not empty (PROTOCOL A0).
	BindOperations(ctx context.Context, rows []operation.Operation) error
	// ReadPayments reads, without locking, the payments that exist, each with its intent.
	ReadPayments(ctx context.Context, rows []Row) ([]Attempt, error)
	// LockPayments locks in order and reads the payments that exist; their intents must be locked before.
	LockPayments(ctx context.Context, rows []Row) ([]payment.Payment, error)
	// SavePayments applies guarded updates. Zero rows for one of them is an error: the caller holds the lock.
	SavePayments(ctx context.Context, changes []PaymentChange) error
	// OpenOperations locks in order and reads the unfinished operations of the payments.
	OpenOperations(ctx context.Context, payments []Row) ([]operation.Operation, error)

	// InsertModifications creates modifications; indexes allow one open capture or cancel for each payment, and one
	// compensation for each movement that did not fail. The result says which are new.
	InsertModifications(ctx context.Context, rows []payment.Modification) ([]bool, error)
	// SaveModifications applies guarded updates: status, action, acquirer's reference, failure, answered status. The caller
	// holds the lock of the payment; zero rows for one of them is an error.
	SaveModifications(ctx context.Context, changes []ModificationChange) error
	// ModificationsOf reads the modifications of the payments, in order of their ids. The caller holds the payments' locks,
	// or only shows what it reads.
	ModificationsOf(ctx context.Context, payments []Row) ([]payment.Modification, error)
	// ModificationByID reads one.
	ModificationByID(ctx context.Context, row Row) (payment.Modification, bool, error)
	// ModificationsByCommand finds the modifications that a purged operation created or joined; By holds that command.
	ModificationsByCommand(ctx context.Context, refs []CommandRef) ([]payment.Modification, error)
	// BindCalls writes what an operation will send, which was not known when it was claimed: account, action, acquirer's
	// key, object and body of each row that has its fence, is not completed, and has no action yet. The result says which.
	BindCalls(ctx context.Context, rows []operation.Operation) ([]bool, error)

	// DisputesOf reads the disputes of the payments, whose locks the caller holds; SaveDisputes inserts or updates them by
	// account and reference.
	DisputesOf(ctx context.Context, payments []Row) ([]payment.Dispute, error)
	SaveDisputes(ctx context.Context, rows []payment.Dispute) error

	// InsertCancelCode keeps an issued code's ordinal, binding and limits; LatestCancelCode reads the one that counts.
	InsertCancelCode(ctx context.Context, c payment.CancelCode) error
	LatestCancelCode(ctx context.Context, row Row) (payment.CancelCode, bool, error)
	// SaveCancelCode writes tries and the time of consumption.
	SaveCancelCode(ctx context.Context, c payment.CancelCode) error
	// CancelCodeByCommand finds the code that a purged operation issued.
	CancelCodeByCommand(ctx context.Context, ref CommandRef) (payment.CancelCode, bool, error)

	// EarlyEvidence reads stored observations of the payments that waited for what must come before them (PROTOCOL E1),
	// oldest first, at most limit.
	EarlyEvidence(ctx context.Context, payments []Row, limit int) ([]evidence.Observation, error)
	// Policies reads what the merchants have decided; RoutingRules their rules, in order of priority and id.
	Policies(ctx context.Context, merchants []id.ID) ([]Policy, error)
	RoutingRules(ctx context.Context, merchants []id.ID) ([]routing.Rule, error)

	// MovementByID reads one movement, without locking it: whoever changes it holds its review.
	MovementByID(ctx context.Context, row Row) (payment.Movement, bool, error)
	// MovementsOf reads the movements of the intents, and those without a payment whose key is one of the keys.
	MovementsOf(ctx context.Context, intents []Row, keys []string) ([]payment.Movement, error)
	// InsertMovements books movements; (merchant, account, reference, kind) decides. The result says which are new.
	InsertMovements(ctx context.Context, rows []payment.Movement) ([]bool, error)
	// SaveMovements writes state, cause, intent and payment of movements that are unapplied until now. One that is not,
	// because somebody decided about it meanwhile, fails.
	SaveMovements(ctx context.Context, rows []payment.Movement) error

	// InsertEntries appends to the ledger. A key that exists already is a defect upstream and fails (PROTOCOL section 11).
	InsertEntries(ctx context.Context, rows []ledger.Entry) error
	InsertEvents(ctx context.Context, rows []payment.Event) error
	// InsertEvidence appends observations with their effects; a row whose id exists is left out. The result says which are new.
	InsertEvidence(ctx context.Context, rows []evidence.Observation) ([]bool, error)

	// OpenReviews inserts entries; at most one open entry for payment or movement, and reason, exists. The result says which are new.
	OpenReviews(ctx context.Context, rows []payment.Review) ([]bool, error)
	// ReadReview reads one entry without locking it; LockReview locks it, after intent, payment and operation.
	ReadReview(ctx context.Context, row Row) (payment.Review, bool, error)
	LockReview(ctx context.Context, row Row) (payment.Review, bool, error)
	// ReviewsOf reads the open entries of the intents, and of the movements.
	ReviewsOf(ctx context.Context, intents, movements []Row) ([]payment.Review, error)
	// CloseReviews marks entries decided: DecidedAt becomes now(), Decision is written.
	CloseReviews(ctx context.Context, rows []payment.Review) error
	// InsertDecision keeps a person's decision, with its command identity, for ever.
	InsertDecision(ctx context.Context, d Decision) error
	// DecisionByCommand finds the decision that a purged operation was.
	DecisionByCommand(ctx context.Context, ref CommandRef) (Decision, bool, error)

	// DuePayments reads up to limit payments that are due by themselves (gates), moving their due time by postpone.
	DuePayments(ctx context.Context, limit, perMerchant int, postpone time.Duration) ([]payment.Payment, error)

	// PaymentsByAcquirerKey reads, without locking, the payments that sent these keys.
	PaymentsByAcquirerKey(ctx context.Context, merchant id.ID, keys []string) ([]payment.Payment, error)

	// PaymentsByCharge finds the payments for which these charges of an account are booked, by the acquirer's ids.
	PaymentsByCharge(ctx context.Context, account Row, charges []string) ([]ChargeOwner, error)

	// UncomparedAccounts reads up to limit accounts, paused ones too, whose lost interval of this epoch was not compared yet.
	UncomparedAccounts(ctx context.Context, epoch int64, limit int) ([]Account, error)
	// Endpoints gives the statements about webhook endpoints.
	Endpoints() EndpointTx

	// Accounts reads the acquirer accounts of the merchants.
	Accounts(ctx context.Context, merchants []id.ID) ([]Account, error)
	// MarkCompared says that the lost interval of the epoch was compared for the account. It ends the database's hold
	// when no account is left.
	MarkCompared(ctx context.Context, account Row, epoch int64) error
}

// Store runs transactions of this kind.
type Store = operation.Store[Tx]

// Decision is what a person decided about a review.
type Decision struct {
	Merchant, ID id.ID
	Review       id.ID
	By           payment.Command
	Verdict      string // one of the Verdict constants
	Reference    string // acquirer's id that the person saw, for VerdictPaid
	Person       string
	Second       string // second person, where one is demanded
	Reason       string
	At           time.Time
}

// Verdicts that a person can give.
const (
	VerdictAskAgain    = "ask_again"    // unknown: look it up again, from the start of the back-off
	VerdictPaid        = "paid"         // unknown: the acquirer's own records show the money, with its reference
	VerdictNotExecuted = "not_executed" // unknown: the acquirer's own records show that nothing happened
	VerdictApply       = "apply"        // unapplied money: it belongs to this order
	VerdictReturned    = "returned"     // unapplied money: it was given back at the acquirer by hand
	VerdictDismiss     = "dismiss"      // contradiction: the present state is right
	VerdictCompensate  = "compensate"   // unapplied money: give it back, by an operation of our own (PROTOCOL X4)
)

// Acquirers gives the adapter of an account. An error means that it cannot be used now; nothing was sent.
type Acquirers interface {
	For(account Account) (acquirer.Adapter, error)
}
