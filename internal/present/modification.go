package present

import (
	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
)

// RefundPath is where a refund or compensation is read: the value of Location.
func RefundPath(refund id.ID) string { return refundsPath + refund.Text(id.Refund) }

// ModificationBody is the form in which a capture or cancel leaves the house, within its payment.
type ModificationBody struct {
	_           struct{}     `additionalProperties:"true"`
	ID          string       `json:"id"`
	Type        string       `json:"type" enum:"capture,cancel"`
	Status      string       `json:"status" enum:"pending,unknown,succeeded,failed" doc:"succeeded and failed are final"`
	Amount      int64        `json:"amount" doc:"Minor units"`
	Currency    string       `json:"currency" doc:"ISO 4217, upper case"`
	Failure     *FailureBody `json:"failure,omitempty"`
	Explanation string       `json:"explanation" doc:"What the status means and what to do, in words"`
}

var modificationPrefix = map[payment.ModificationType]string{payment.Capture: id.Capture, payment.Cancel: id.Cancel}

func viewModification(m payment.Modification) *ModificationBody {
	return &ModificationBody{
		ID: m.ID.Text(modificationPrefix[m.Type]), Type: string(m.Type), Status: string(m.Status),
		Amount: m.Amount.Minor(), Currency: m.Amount.Currency().String(),
		Failure: failureOf(m.Failure), Explanation: modificationWords(m),
	}
}

// RefundBody is the form in which money given back leaves the house: asked for by the merchant, made by hand at the
// acquirer, or a compensation (PROTOCOL X3, X4).
type RefundBody struct {
	_                 struct{}     `additionalProperties:"true"`
	ID                string       `json:"id"`
	Object            string       `json:"object" enum:"refund"`
	Payment           string       `json:"payment"`
	PaymentIntent     string       `json:"payment_intent"`
	Type              string       `json:"type" enum:"refund,reversal,compensation" doc:"reversal undoes the taking on the same day; compensation gives back money that should not have moved"`
	Amount            int64        `json:"amount" doc:"Minor units"`
	Currency          string       `json:"currency" doc:"ISO 4217, upper case"`
	Status            string       `json:"status" enum:"pending,unknown,succeeded,failed" doc:"failed is final. What succeeded may still come back from the payer's bank, once"`
	Reason            *string      `json:"reason"`
	External          bool         `json:"external" doc:"Made by hand at the acquirer"`
	AcquirerReference *string      `json:"acquirer_reference" doc:"The acquirer's id, once known"`
	Failure           *FailureBody `json:"failure,omitempty"`
	Explanation       string       `json:"explanation" doc:"What the status means and what to do, in words"`
	CreatedAt         string       `json:"created_at" format:"date-time"`
	UpdatedAt         string       `json:"updated_at" format:"date-time"`
}

// RefundReading is what a look-up of one refund or compensation finds.
type RefundReading struct{ payment.Modification }

// JSON renders the refund as Refund does.
func (r RefundReading) JSON() []byte {
	return Refund(payment.Intent{ID: r.Intent}, payment.Payment{ID: r.Payment}, r.Modification)
}

// Refund renders a refund or compensation of the payment. The same arguments give the same bytes.
func Refund(i payment.Intent, p payment.Payment, m payment.Modification) []byte {
	return encode(RefundBody{
		ID: m.ID.Text(id.Refund), Object: "refund", Payment: p.ID.Text(id.Payment), PaymentIntent: i.ID.Text(id.Intent),
		Type: refundType(m), Amount: m.Amount.Minor(), Currency: m.Amount.Currency().String(), Status: string(m.Status),
		Reason: orNull(m.Reason), External: m.External, AcquirerReference: orNull(m.AcquirerReference),
		Failure: failureOf(m.Failure), Explanation: refundWords(m),
		CreatedAt: Time(m.CreatedAt), UpdatedAt: Time(m.UpdatedAt),
	})
}

func refundType(m payment.Modification) string {
	switch {
	case m.Type == payment.Compensation:
		return "compensation"
	case m.Action == acquirer.ActionReverse:
		return "reversal"
	}
	return "refund"
}

// CancelCodeBody is the form in which an issued one-time code leaves the house: never with the code (PROTOCOL X1).
type CancelCodeBody struct {
	_         struct{} `additionalProperties:"true"`
	Object    string   `json:"object" enum:"cancel_code"`
	Payment   string   `json:"payment"`
	Ordinal   int      `json:"ordinal" doc:"From 1 within the payment. The code with the highest one counts"`
	ExpiresAt string   `json:"expires_at" format:"date-time"`
	TriesLeft int      `json:"tries_left" doc:"As of when the code was issued"`
}

// CancelCode renders an issued code, without the code itself.
func CancelCode(c payment.CancelCode) []byte {
	return encode(CancelCodeBody{Object: "cancel_code", Payment: c.Payment.Text(id.Payment), Ordinal: c.Ordinal,
		ExpiresAt: Time(c.ExpiresAt), TriesLeft: max(payment.CodeTries-c.Tries, 0)})
}
