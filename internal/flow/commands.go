package flow

import (
	"strconv"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/money"
)

// IntentFields are what a client says of an intent. A nil pointer was not sent, which is part of the fingerprint (W2).
type IntentFields struct {
	Amount          money.Amount
	ClientReference *string
	Customer        *string
	Description     *string
	Metadata        *string // canonical JSON object, digits kept
	Receipt         *string // the mail address that gets the receipt
	Capture         *payment.CaptureMethod
	PayBefore       *time.Time
}

// CreateIntentCommand asks for an intent, or for the amendment of the one with the same client reference (W3).
type CreateIntentCommand struct {
	Merchant  id.ID // from authentication, never from a body
	Key       string
	RequestID string
	Intent    IntentFields
}

// CreatePaymentCommand asks for a payment of an intent that exists, or of one found or created in the same claim.
type CreatePaymentCommand struct {
	Merchant  id.ID
	Key       string
	RequestID string

	IntentID id.ID         // zero: inline
	Inline   *IntentFields // nil: by id
	// Amount beside an intent id is optional and must be equal to the intent's; nil: not sent. A currency sent alone or an
	// amount sent alone is checked alone.
	Minor    *int64
	Currency *money.Currency

	Method    string
	Flow      payment.Flow
	ReturnURL *string
}

// DecideReviewCommand is a person's decision about a review. A double click with one key is one decision (section 14).
type DecideReviewCommand struct {
	Merchant  id.ID
	Key       string
	RequestID string
	Review    id.ID
	Verdict   string
	Reference string // the acquirer's id, for VerdictPaid
	Person    string
	Second    string
	Reason    string
}

// CapturePaymentCommand takes held funds: part of them, or the rest where Minor is nil.
type CapturePaymentCommand struct {
	Merchant  id.ID
	Key       string
	RequestID string
	Payment   id.ID
	Minor     *int64 // nil: all that is left
	// Currency is optional and must be the payment's; nil: not sent.
	Currency *money.Currency
	// Final releases what is not captured; nil: not sent, which means true when all that is left is captured, or when the
	// acquirer takes one capture only.
	Final *bool
}

// CancelPaymentCommand gives a payment up: it releases the hold or closes the page.
type CancelPaymentCommand struct {
	Merchant  id.ID
	Key       string
	RequestID string
	Payment   id.ID
	// Code is the one-time code, where one is demanded. It is no part of the fingerprint (PROTOCOL W2).
	Code string
}

// IssueCancelCodeCommand issues a one-time code for a cancel (PROTOCOL X1).
type IssueCancelCodeCommand struct {
	Merchant  id.ID
	Key       string
	RequestID string
	Payment   id.ID
}

// CreateRefundCommand gives captured money back.
type CreateRefundCommand struct {
	Merchant  id.ID
	Key       string
	RequestID string
	Payment   id.ID
	Minor     *int64 // nil: all that is left
	Currency  *money.Currency
	Reason    *string
	// Reversal undoes the capture instead, on the same day, all of it (PROTOCOL section 9).
	Reversal bool
}

func text(name string, v *string) payment.Field { return payment.Field{Name: name, Value: v} }

func words(name, v string) payment.Field { return payment.Field{Name: name, Value: &v} }

// fields gives the intent's part of a fingerprint, in a fixed order.
func (f IntentFields) fields() []payment.Field {
	var capture, before *string
	if f.Capture != nil {
		s := string(*f.Capture)
		capture = &s
	}
	if f.PayBefore != nil {
		s := f.PayBefore.UTC().Format(time.RFC3339Nano)
		before = &s
	}
	all := []payment.Field{
		words("amount", f.Amount.String()),
		text("client_reference", f.ClientReference),
		text("customer", f.Customer),
		text("description", f.Description),
		text("metadata", f.Metadata),
		text("capture_method", capture),
		text("pay_before", before),
	}
	if f.Receipt != nil { // it came later: what was sent without it has the fingerprint that it had
		all = append(all, words("receipt_email", *f.Receipt))
	}
	return all
}

// Fingerprint covers what the client sent and means (PROTOCOL W2).
func (c CreateIntentCommand) Fingerprint() [32]byte {
	return payment.Fingerprint(append([]payment.Field{words("kind", "create_intent")}, c.Intent.fields()...)...)
}

// Fingerprint covers what the client sent and means (PROTOCOL W2).
func (c CreatePaymentCommand) Fingerprint() [32]byte {
	f := []payment.Field{words("kind", "create_payment")}
	if c.Inline != nil {
		f = append(f, c.Inline.fields()...)
	} else {
		f = append(f, words("payment_intent", c.IntentID.String()))
		f = append(f, text("amount", minorText(c.Minor)), text("currency", currencyText(c.Currency)))
	}
	f = append(f, words("payment_method", c.Method), words("flow", string(c.Flow)), text("return_url", c.ReturnURL))
	return payment.Fingerprint(f...)
}

func minorText(v *int64) *string {
	if v == nil {
		return nil
	}
	s := strconv.FormatInt(*v, 10)
	return &s
}

func currencyText(v *money.Currency) *string { return (*string)(v) }

// Fingerprint covers what the client sent and means (PROTOCOL W2).
func (c CapturePaymentCommand) Fingerprint() [32]byte {
	var final *string
	if c.Final != nil {
		s := strconv.FormatBool(*c.Final)
		final = &s
	}
	return payment.Fingerprint(words("kind", "capture"), words("payment", c.Payment.String()), text("amount", minorText(c.Minor)),
		text("currency", currencyText(c.Currency)), text("final", final))
}

// Fingerprint covers what the client sent and means: not the one-time code (PROTOCOL W2).
func (c CancelPaymentCommand) Fingerprint() [32]byte {
	return payment.Fingerprint(words("kind", "cancel"), words("payment", c.Payment.String()))
}

// Fingerprint covers what the client sent and means (PROTOCOL W2).
func (c IssueCancelCodeCommand) Fingerprint() [32]byte {
	return payment.Fingerprint(words("kind", "cancel_code"), words("payment", c.Payment.String()))
}

// Fingerprint covers what the client sent and means (PROTOCOL W2).
func (c CreateRefundCommand) Fingerprint() [32]byte {
	return payment.Fingerprint(words("kind", "refund"), words("payment", c.Payment.String()), text("amount", minorText(c.Minor)),
		text("currency", currencyText(c.Currency)), text("reason", c.Reason), words("reversal", strconv.FormatBool(c.Reversal)))
}

// Fingerprint covers the decision, not who clicked twice.
func (c DecideReviewCommand) Fingerprint() [32]byte {
	return payment.Fingerprint(words("kind", "decide_review"), words("review", c.Review.String()),
		words("verdict", c.Verdict), words("reference", c.Reference), words("person", c.Person),
		words("second", c.Second), words("reason", c.Reason))
}
