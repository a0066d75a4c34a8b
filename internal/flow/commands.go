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
	return []payment.Field{
		words("amount", f.Amount.String()),
		text("client_reference", f.ClientReference),
		text("customer", f.Customer),
		text("description", f.Description),
		text("metadata", f.Metadata),
		text("capture_method", capture),
		text("pay_before", before),
	}
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
		var minor, currency *string
		if c.Minor != nil {
			s := strconv.FormatInt(*c.Minor, 10)
			minor = &s
		}
		if c.Currency != nil {
			s := string(*c.Currency)
			currency = &s
		}
		f = append(f, text("amount", minor), text("currency", currency))
	}
	f = append(f, words("payment_method", c.Method), words("flow", string(c.Flow)), text("return_url", c.ReturnURL))
	return payment.Fingerprint(f...)
}

// Fingerprint covers the decision, not who clicked twice.
func (c DecideReviewCommand) Fingerprint() [32]byte {
	return payment.Fingerprint(words("kind", "decide_review"), words("review", c.Review.String()),
		words("verdict", c.Verdict), words("reference", c.Reference), words("person", c.Person),
		words("second", c.Second), words("reason", c.Reason))
}
