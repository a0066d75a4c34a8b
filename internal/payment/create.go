package payment

import (
	"time"

	"github.com/hapaxpay/hapax/money"
)

// Wish is what a client asks of an intent, defaults applied.
type Wish struct {
	Amount      money.Amount
	Customer    string
	Description string
	Metadata    string
	Receipt     string // the address that gets the receipt; empty: nobody
	Capture     CaptureMethod
	PayBefore   time.Time // zero: not sent, the intent's own stays
}

// Same says whether the wish asks for what the intent already is: the same parameters again return the same intent (W3).
func (w Wish) Same(i Intent) bool {
	return w.Amount == i.Amount && w.Customer == i.Customer && w.Description == i.Description &&
		w.Metadata == string(i.Metadata) && w.Receipt == i.Receipt && w.Capture == i.Capture && (w.PayBefore.IsZero() || w.PayBefore.Equal(i.PayBefore))
}

// Amend gives the next version of the intent.
func (w Wish) Amend(i Intent) Intent {
	i.Amount, i.Customer, i.Description, i.Metadata, i.Capture = w.Amount, w.Customer, w.Description, []byte(w.Metadata), w.Capture
	i.Receipt = w.Receipt
	if w.Metadata == "" {
		i.Metadata = nil
	}
	if !w.PayBefore.IsZero() {
		i.PayBefore = w.PayBefore
	}
	i.Version++
	return i
}

// Standing is an intent under its lock, with its latest payment.
type Standing struct {
	Intent Intent
	Latest *Payment // highest ordinal; nil: none
	Money  bool     // a movement that was not given back stands on it
}

// Admission says what may happen to an intent for which a client asks.
type Admission int

// The admissions, as the rows of PROTOCOL section 2.
const (
	Admit        Admission = iota // a new payment, ordinal Latest.N + 1
	Join                          // the live payment is what was asked for: no second effect
	RefuseOpen                    // a live payment with other parameters
	RefusePaid                    // paid: final
	RefuseClosed                  // last payment refused, gate closed
	RefuseConflict
	RefuseExpired
)

// State says what stands in the way of a new payment, and of an amendment: Admit means nothing does.
// Join is given for a live payment here; Create refines it.
func (s Standing) State() Admission {
	switch {
	case s.Intent.Conflict:
		return RefuseConflict
	case s.Latest != nil && s.Latest.Status == Paid, s.Money && (s.Latest == nil || s.Latest.Status.Refusal()):
		return RefusePaid
	case s.Latest != nil && !s.Latest.Status.Refusal():
		return Join
	case s.Latest != nil && !s.Latest.GateOpen:
		return RefuseClosed
	}
	return Admit
}

// Create decides whether a payment may start (PROTOCOL section 2, P1, P6, P7); same says whether the request asks for
// what the live payment is; now is database time.
func (s Standing) Create(same bool, payBefore, now time.Time) Admission {
	a := s.State()
	switch {
	case a == Join && !same:
		return RefuseOpen
	case a == Admit && !now.Before(payBefore):
		return RefuseExpired
	}
	return a
}

// NextN is the ordinal of the next payment (PROTOCOL D1).
func (s Standing) NextN() int {
	if s.Latest == nil {
		return 1
	}
	return s.Latest.N + 1
}
