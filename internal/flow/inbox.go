package flow

import (
	"context"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
)

// Message is what an acquirer told an account of ours, stored as it came (PROTOCOL V3).
type Message struct {
	Merchant, ID, Account id.ID
	NoticeID              string // the acquirer's id of it, else a digest; with Hash it is one message of the account
	Raw                   []byte
	Hash                  [32]byte // SHA-256 of Raw
	Trust                 acquirer.Trust
	Type                  string // the acquirer's name for it; empty until it was read
	State                 MessageState
	Why                   string // in words
	Intent, Payment       id.ID  // zero: fits none yet
	Attempts              int    // picks
	Repeats               int    // further deliveries of the same bytes
	Claim                 id.ID  // of the last pick
	DueAt                 time.Time
	ReceivedAt, EndedAt   time.Time
}

// MessageState is where a message stands.
type MessageState string

// The states of a message. The first two have a due time, the others are the end of it.
const (
	MessageReceived   MessageState = "received"
	MessageParked     MessageState = "parked"     // fits no payment yet
	MessageApplied    MessageState = "applied"    // what it tells is evidence
	MessageIgnored    MessageState = "ignored"    // not for this merchant, or nothing that concerns a payment; the reason stands beside
	MessageUnreadable MessageState = "unreadable" // genuine, and not of a form that the adapter knows
)

// Open says whether something is left to do.
func (s MessageState) Open() bool { return s == MessageReceived || s == MessageParked }

// Mailbox is an account with the mode of its merchant.
type Mailbox struct {
	Account
	Live bool
}

// Inbox is what a transaction does with messages.
type Inbox interface {
	// Mailboxes reads the accounts that exist.
	Mailboxes(ctx context.Context, accounts []Row) ([]Mailbox, error)
	// KeepMessage stores a message, due at once. Where it is there already, its repeats grow by one and fresh is false.
	KeepMessage(ctx context.Context, m Message) (fresh bool, err error)
	// PickMessages takes up to limit due messages, oldest first, at most perMerchant of one merchant: the due time moves by
	// the lease, doubled with each pick that came before, and Claim names the picker.
	PickMessages(ctx context.Context, limit, perMerchant int, lease time.Duration, claim func() id.ID) ([]Message, error)
	// SaveMessage writes state, reason, type, intent, payment and due time, if Claim is still the last pick and the message
	// has not ended. The result says whether it was written.
	SaveMessage(ctx context.Context, m Message) (bool, error)
	// PaymentsBySession finds the payments of an account that were registered with these pages, by the acquirer's ids.
	PaymentsBySession(ctx context.Context, account Row, sessions []string) ([]payment.Payment, error)
}
