// Package payment decides what happens to a payment intent and to its payments.
//
// Owns the states and their table, Create (may a payment start?), Apply (what does an observation change?), derived keys.
// Never reads a clock, a database or a network: everything it needs is an argument, everything it decides is a value.
// Read next: status.go (the table), apply.go (one way for truth to enter), then internal/flow, which writes what is decided.
package payment

import "slices"

// Status is the state of one payment (PROTOCOL section 4).
type Status string

// The states. Declined, Failed and Canceled are the final refusals; Paid is the final success.
const (
	Pending    Status = "pending"
	Registered Status = "registered"
	Unknown    Status = "unknown"
	Authorized Status = "authorized"
	Paid       Status = "paid"
	Canceling  Status = "canceling"
	Declined   Status = "declined"
	Failed     Status = "failed"
	Canceled   Status = "canceled"
)

// Statuses lists every state in the order of the protocol.
var Statuses = []Status{Pending, Registered, Unknown, Authorized, Paid, Canceling, Declined, Failed, Canceled}

// Cause is the kind of evidence that moves a payment, one per column of the protocol's table.
type Cause string

// The causes.
const (
	SessionOpen      Cause = "session open, with address"
	FundsHeld        Cause = "funds held"
	MoneyTaken       Cause = "money taken"
	Refused          Cause = "refused, final"
	NotExecuted      Cause = "proven not executed"
	SessionClosed    Cause = "session closed unpaid"
	FinalError       Cause = "acquirer's final error"
	NoProof          Cause = "no proof"
	CancelClaimed    Cause = "cancel claimed"
	LastCapture      Cause = "last capture, or release of the rest after a capture"
	HoldReleased     Cause = "hold released uncaptured"
	ReversalProven   Cause = "reversal proven, or session confirmed closed"
	ReversalRefused  Cause = "reversal finally refused, hold stands"
	ReversalTooLate  Cause = "reversal finally refused, money taken"
	ReversalPageOpen Cause = "reversal finally refused, session open"
)

// Transition is one row of the table.
type Transition struct {
	From Status
	By   Cause
	To   Status
}

// Table is the only place where the transitions stand (PROTOCOL section 4, P3). The state picture in docs/states,
// the CHECK constraints and the tests are made from it or compared with it.
var Table = []Transition{
	{Pending, SessionOpen, Registered},
	{Pending, FundsHeld, Authorized},
	{Pending, MoneyTaken, Paid},
	{Pending, Refused, Declined},
	{Pending, NotExecuted, Failed},
	{Pending, SessionClosed, Canceled},
	{Pending, NoProof, Unknown},
	{Pending, CancelClaimed, Canceling},
	{Unknown, SessionOpen, Registered},
	{Unknown, FundsHeld, Authorized},
	{Unknown, MoneyTaken, Paid},
	{Unknown, Refused, Declined},
	{Unknown, NotExecuted, Failed},
	{Unknown, SessionClosed, Canceled},
	{Unknown, CancelClaimed, Canceling},
	{Registered, FundsHeld, Authorized},
	{Registered, MoneyTaken, Paid},
	{Registered, SessionClosed, Canceled},
	{Registered, FinalError, Failed},
	{Registered, CancelClaimed, Canceling},
	{Authorized, LastCapture, Paid},
	{Authorized, HoldReleased, Canceled},
	{Authorized, CancelClaimed, Canceling},
	{Canceling, ReversalProven, Canceled},
	{Canceling, ReversalRefused, Authorized},
	{Canceling, ReversalTooLate, Paid},
	{Canceling, ReversalPageOpen, Registered},
}

// Next gives the state that the cause leads to, and whether the table has such a row.
func (s Status) Next(by Cause) (Status, bool) {
	i := slices.IndexFunc(Table, func(t Transition) bool { return t.From == s && t.By == by })
	if i < 0 {
		return s, false
	}
	return Table[i].To, true
}

// Refusal says whether the state is a final refusal: the only states that free the intent (PROTOCOL P1).
func (s Status) Refusal() bool { return s == Declined || s == Failed || s == Canceled }

// Final says whether nothing leaves the state.
func (s Status) Final() bool { return s == Paid || s.Refusal() }

// Open says whether the first movement of the payment is still being established.
func (s Status) Open() bool { return !s.Final() }
