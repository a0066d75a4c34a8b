package payment

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/id"
)

// ChangeRefusal says why a change to a payment may not begin; empty: it may.
type ChangeRefusal string

// The refusals.
const (
	ChangeOpen       ChangeRefusal = "another capture or cancel is under way"
	ChangeConflict   ChangeRefusal = "the intent has an open conflict"
	NotCapturable    ChangeRefusal = "no hold stands on the payment"
	NotOffered       ChangeRefusal = "the acquirer does not offer it"
	NotCancelable    ChangeRefusal = "the payment is final"
	PartlyCaptured   ChangeRefusal = "a part of the hold was taken"
	ExceedsRemaining ChangeRefusal = "more than is left"
	RefundUnsettled  ChangeRefusal = "a refund of the payment has no proven outcome"
	OtherCurrency    ChangeRefusal = "another currency than the payment's"
)

// Changing is a payment under its lock, with what was done to it and what its acquirer offers.
type Changing struct {
	Payment       Payment
	Conflict      bool // of the intent
	Modifications []Modification
	Movements     []Movement // of the intent
	Contract      acquirer.Contract
	Now           time.Time
}

// refundable is what is left to give back: less what went back beyond that, whether a person has looked at it or not (PROTOCOL X5).
func (c Changing) refundable() int64 {
	left := c.Payment.Remaining()
	for _, m := range c.Movements {
		if m.Payment == c.Payment.ID && m.Cause == string(ReviewExcess) && m.State != Returned {
			left -= m.Amount.Minor()
		}
	}
	return left
}

// OpenChange finds the capture or cancel that is under way; nil: none (PROTOCOL X2).
func (c Changing) OpenChange() *Modification {
	for n := range c.Modifications {
		if m := &c.Modifications[n]; (m.Type == Capture || m.Type == Cancel) && m.Status.Open() {
			return m
		}
	}
	return nil
}

// NextK is the ordinal of the next modification of a type: it grows after a proven refusal, and with each further capture.
func (c Changing) NextK(t ModificationType) int {
	k := 1
	for _, m := range c.Modifications {
		if m.Type == t {
			k = max(k, m.K+1)
		}
	}
	return k
}

// AdmitCapture decides whether so much may be captured; nil means all that is left, and final not said means that the rest
// is released when nothing is left or nothing more could be captured (PROTOCOL X2).
func (c Changing) AdmitCapture(minor *int64, final *bool) (amount int64, last bool, no ChangeRefusal) {
	p := c.Payment
	amount = p.Capturable()
	if minor != nil {
		amount = *minor
	}
	last = amount == p.Capturable() || !c.Contract.SeveralCaptures
	if final != nil {
		last = last || *final
	}
	switch {
	case p.Status == Authorized && c.OpenChange() != nil, p.Status == Canceling:
		return 0, false, ChangeOpen
	case p.Status != Authorized:
		return 0, false, NotCapturable
	case c.Conflict:
		return 0, false, ChangeConflict
	case amount <= 0 || amount > p.Capturable():
		return 0, false, ExceedsRemaining
	case !c.Contract.Offers(acquirer.ActionCapture):
		return 0, false, NotOffered
	}
	return amount, last, ""
}

// AdmitCancel decides whether the payment may be given up; join is the cancel that is under way already: a second one sees the
// first (PROTOCOL X1).
func (c Changing) AdmitCancel() (join *Modification, no ChangeRefusal) {
	p := c.Payment
	open := c.OpenChange()
	switch {
	case p.Status.Final():
		return nil, NotCancelable
	case open != nil && open.Type == Cancel:
		return open, ""
	case open != nil, p.Status == Canceling:
		return nil, ChangeOpen
	case p.Captured > 0:
		return nil, PartlyCaptured
	case p.Status == Authorized && !c.Contract.Offers(acquirer.ActionReverse),
		p.Flow == Hosted && p.Status != Authorized && !c.Contract.Offers(acquirer.ActionClose):
		return nil, NotOffered
	}
	return nil, ""
}

// AdmitRefund decides whether so much may be given back; nil means all that is left. Its amount is reserved from then on
// (PROTOCOL X3). While the outcome of a refund is unknown no other one begins: whoever presses again means the same money.
func (c Changing) AdmitRefund(minor *int64, reversal bool) (amount int64, no ChangeRefusal) {
	p, left := c.Payment, c.refundable()
	amount = left
	if minor != nil {
		amount = *minor
	}
	for _, m := range c.Modifications {
		if m.Type == Refund && m.Status == ModUnknown {
			return 0, RefundUnsettled
		}
	}
	switch {
	case !p.Status.Final(), amount <= 0, amount > left:
		return 0, ExceedsRemaining
	case reversal && amount != p.Captured:
		return 0, ExceedsRemaining
	case reversal && (c.Contract.ReverseCaptured <= 0 || !c.Contract.Offers(acquirer.ActionReverse)),
		!reversal && !c.Contract.Offers(acquirer.ActionRefund), amount != p.Captured && !c.Contract.PartialRefunds:
		return 0, NotOffered
	}
	return amount, ""
}

// CodeLife and CodeTries bound a one-time code (PROTOCOL X1).
const (
	CodeLife  = 10 * time.Minute
	CodeTries = 5
	codeTen   = 1_000_000 // six digits
)

// CodeFor derives a one-time code from a secret, the payment, the action, the amount and an ordinal: it is computed when it is
// delivered or checked, and stands nowhere.
func CodeFor(secret []byte, merchant, pay id.ID, amount int64, ordinal int) string {
	h := hmac.New(sha256.New, secret)
	for _, part := range []string{"cancel", merchant.String(), pay.String(), strconv.FormatInt(amount, 10), strconv.Itoa(ordinal)} {
		writeSized(h, part)
	}
	return fmt.Sprintf("%06d", binary.BigEndian.Uint64(h.Sum(nil))%codeTen)
}

// CodeVerdict says what a try with a code means.
type CodeVerdict int

// The verdicts.
const (
	CodeRight CodeVerdict = iota
	CodeWrong             // counted
	CodeOver              // expired, used, or tried too often: a new one is needed
	CodeNone              // none was issued
)

// Check judges a try; found says whether a code was issued at all. now is database time.
func (c CancelCode) Check(found bool, code string, secret []byte, amount int64, now time.Time) CodeVerdict {
	switch {
	case !found:
		return CodeNone
	case c.Over(now), c.Amount != amount:
		return CodeOver
	case !c.Matches(code, secret):
		return CodeWrong
	}
	return CodeRight
}

// Over says whether the code opens nothing any more: it was used, has expired, or was tried too often. now is database time.
func (c CancelCode) Over(now time.Time) bool {
	return !c.ConsumedAt.IsZero() || !now.Before(c.ExpiresAt) || c.Tries >= CodeTries
}

// Matches compares a code in constant time, whether or not it may still be used.
func (c CancelCode) Matches(code string, secret []byte) bool {
	return hmac.Equal([]byte(code), []byte(CodeFor(secret, c.Merchant, c.Payment, c.Amount, c.Ordinal)))
}
