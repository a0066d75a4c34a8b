// Package present renders what clients read: payments, intents and problem documents, as JSON bytes.
//
// Owns the order of members, the form of times and amounts, and the words that explain a status (API.md).
// Never reads a clock or a database, uses a float, or gives two renderings of the same value: stored answers are these bytes (PROTOCOL W4).
// Read next: internal/flow, which stores these bytes as answers, and internal/httpapi, which sends them.
package present

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/problem"
)

// Prefixes of the paths that answers link to (API.md).
const (
	intentsPath  = "/v1/payment_intents/"
	paymentsPath = "/v1/payments/"
	refundsPath  = "/v1/refunds/"
)

// ProblemType is the prefix of a problem's type; the code follows (RFC 9457, docs/errors.md).
const ProblemType = "urn:hapax:problem:"

// IntentPath is where an intent is read: the value of Location and of a problem's link.
func IntentPath(intent id.ID) string { return intentsPath + intent.Text(id.Intent) }

// PaymentPath is where a payment is read: the value of Location and of a problem's link.
func PaymentPath(p id.ID) string { return paymentsPath + p.Text(id.Payment) }

// Extra is what a payment's answer tells beside the rows of payment and intent.
type Extra struct {
	InReview     bool                  // an open review waits for a person
	KeptAside    bool                  // it is about money that was taken, but not as asked
	Modification *payment.Modification // the capture or cancel that is answered; nil: none
}

// FailureBody is the form in which a payment's refusal leaves the house.
type FailureBody struct {
	_       struct{} `additionalProperties:"true"`
	Code    string   `json:"code" doc:"Stable code of the reason"`
	Message string   `json:"message" doc:"The reason in words"`
}

// PaymentBody is the form in which a payment leaves the house: the members of API.md in its order. The contract in
// api/openapi.yaml is written from its tags; it allows members that come later, so that a client must too.
type PaymentBody struct {
	_                 struct{}          `additionalProperties:"true"`
	ID                string            `json:"id"`
	Object            string            `json:"object" enum:"payment"`
	PaymentIntent     string            `json:"payment_intent"`
	ClientReference   *string           `json:"client_reference"`
	Customer          *string           `json:"customer"`
	N                 int               `json:"n" doc:"Ordinal of this payment within its intent, from 1"`
	Flow              string            `json:"flow" enum:"direct,hosted"`
	Status            string            `json:"status" enum:"pending,registered,unknown,authorized,paid,canceling,declined,failed,canceled" doc:"paid, declined, failed and canceled are final"`
	Conflict          bool              `json:"conflict" doc:"The acquirer's answers contradict each other; a person decides"`
	CaptureMethod     string            `json:"capture_method" enum:"automatic,manual"`
	Amount            int64             `json:"amount" doc:"Minor units"`
	AuthorizedAmount  int64             `json:"authorized_amount" doc:"Minor units that were held; it stays when the hold is over"`
	CapturedAmount    int64             `json:"captured_amount" doc:"Minor units that were taken"`
	RefundedAmount    int64             `json:"refunded_amount" doc:"Minor units that were given back"`
	DisputedAmount    int64             `json:"disputed_amount" doc:"Minor units that the payer's bank took back: while a dispute is open, and after one is lost"`
	Currency          string            `json:"currency" doc:"ISO 4217, upper case"`
	Dispute           string            `json:"dispute,omitempty" enum:"opened,won,lost" doc:"opened while one is open, else how the last one ended"`
	AcquirerAccount   string            `json:"acquirer_account"`
	AcquirerReference *string           `json:"acquirer_reference" doc:"The acquirer's id, once known"`
	RedirectURL       string            `json:"redirect_url,omitempty" doc:"Where the payer goes on; there only while the payment is registered"`
	Failure           *FailureBody      `json:"failure,omitempty"`
	Explanation       string            `json:"explanation" doc:"What the status means and what to do, in words"`
	Modification      *ModificationBody `json:"modification,omitempty" doc:"In answers to a capture or cancel: what became of it"`
	CreatedAt         string            `json:"created_at" format:"date-time"`
	UpdatedAt         string            `json:"updated_at" format:"date-time"`
}

// IntentBody is the form in which an intent leaves the house.
type IntentBody struct {
	_               struct{}        `additionalProperties:"true"`
	ID              string          `json:"id"`
	Object          string          `json:"object" enum:"payment_intent"`
	ClientReference *string         `json:"client_reference"`
	Customer        *string         `json:"customer"`
	Description     *string         `json:"description"`
	Metadata        json.RawMessage `json:"metadata" doc:"As it was sent, numbers with all their digits"`
	ReceiptEmail    *string         `json:"receipt_email" doc:"Who gets the receipt by mail, where the merchant sends one"`
	Amount          int64           `json:"amount" doc:"Minor units"`
	Currency        string          `json:"currency" doc:"ISO 4217, upper case"`
	CaptureMethod   string          `json:"capture_method" enum:"automatic,manual"`
	PayBefore       string          `json:"pay_before" format:"date-time" doc:"No payment begins after this"`
	Version         int             `json:"version" doc:"Grows with each amendment, from 1"`
	Conflict        bool            `json:"conflict" doc:"A person decides; no payment begins meanwhile"`
	Payments        []PaymentBody   `json:"payments" nullable:"false"`
	CreatedAt       string          `json:"created_at" format:"date-time"`
	UpdatedAt       string          `json:"updated_at" format:"date-time"`
}

// PaymentReading is what a look-up of one payment finds.
type PaymentReading struct {
	Intent  payment.Intent
	Payment payment.Payment
	Extra   Extra
}

// IntentReading is what a look-up of one intent finds, its payments in order of their ordinals.
type IntentReading struct {
	Intent   payment.Intent
	Payments []PaymentReading
}

// Payment renders one payment of the intent, amounts in minor units. The same arguments give the same bytes.
func Payment(i payment.Intent, p payment.Payment, x Extra) []byte {
	return encode(viewPayment(i, p, x))
}

// PaymentWith is Payment under the name that answers to a capture or cancel use: x.Modification says what became of it.
func PaymentWith(i payment.Intent, p payment.Payment, x Extra) []byte { return Payment(i, p, x) }

// Intent renders an intent with its payments in the order given; the metadata keep their digits as they were sent.
// It panics if the metadata are not JSON: the edge stores nothing else, so that the row is damaged.
func Intent(i payment.Intent, payments []payment.Payment) []byte {
	r := IntentReading{Intent: i}
	for _, p := range payments {
		r.Payments = append(r.Payments, PaymentReading{Intent: i, Payment: p})
	}
	return r.JSON()
}

// JSON renders the payment as Payment does.
func (r PaymentReading) JSON() []byte { return Payment(r.Intent, r.Payment, r.Extra) }

// JSON renders the intent as Intent does, with what stands beside each payment.
func (r IntentReading) JSON() []byte {
	i := r.Intent
	v := IntentBody{
		ID: i.ID.Text(id.Intent), Object: "payment_intent",
		ClientReference: orNull(i.ClientReference), Customer: orNull(i.Customer), Description: orNull(i.Description),
		Metadata: json.RawMessage("{}"), ReceiptEmail: orNull(i.Receipt),
		Amount: i.Amount.Minor(), Currency: i.Amount.Currency().String(),
		CaptureMethod: string(i.Capture), PayBefore: Time(i.PayBefore),
		Version: i.Version, Conflict: i.Conflict,
		Payments:  make([]PaymentBody, 0, len(r.Payments)),
		CreatedAt: Time(i.CreatedAt), UpdatedAt: Time(i.UpdatedAt),
	}
	if len(i.Metadata) > 0 {
		v.Metadata = i.Metadata
	}
	for _, p := range r.Payments {
		v.Payments = append(v.Payments, viewPayment(i, p.Payment, p.Extra))
	}
	return encode(v)
}

func viewPayment(i payment.Intent, p payment.Payment, x Extra) PaymentBody {
	v := PaymentBody{
		ID: p.ID.Text(id.Payment), Object: "payment", PaymentIntent: i.ID.Text(id.Intent),
		ClientReference: orNull(i.ClientReference), Customer: orNull(i.Customer),
		N: p.N, Flow: string(p.Flow), Status: string(p.Status), Conflict: p.Conflict, CaptureMethod: string(p.Capture),
		Amount: p.Amount.Minor(), AuthorizedAmount: p.Authorized, CapturedAmount: p.Captured,
		RefundedAmount: p.Refunded, DisputedAmount: p.Disputed,
		Currency: p.Amount.Currency().String(), Dispute: string(p.Dispute),
		AcquirerAccount: p.Account.Text(id.Account), AcquirerReference: orNull(p.AcquirerReference),
		Failure:     failureOf(p.Failure),
		Explanation: Explanation(p, x),
		CreatedAt:   Time(p.CreatedAt), UpdatedAt: Time(p.UpdatedAt),
	}
	if p.Status == payment.Registered {
		v.RedirectURL = p.RedirectURL
	}
	if x.Modification != nil {
		v.Modification = viewModification(*x.Modification)
	}
	return v
}

func failureOf(f payment.Failure) *FailureBody {
	if f.Code == "" {
		return nil
	}
	return &FailureBody{Code: f.Code, Message: f.Message}
}

// ProblemBody is an RFC 9457 document with the members that Hapax adds. It never holds the refused value.
type ProblemBody struct {
	_         struct{} `additionalProperties:"true"`
	Type      string   `json:"type" doc:"urn:hapax:problem: and the code"`
	Title     string   `json:"title"`
	Status    int      `json:"status"`
	Detail    string   `json:"detail,omitempty" doc:"What title does not say, where there is more to say"`
	Code      string   `json:"code" doc:"Stable: decide by this one"`
	Field     string   `json:"field,omitempty" doc:"The member, parameter or header that was refused"`
	Link      string   `json:"link,omitempty" doc:"Path of the payment or intent to look at"`
	RequestID string   `json:"request_id"`
	Do        string   `json:"do" doc:"What to do next"`
}

// Problem renders a refusal as an RFC 9457 document, for application/problem+json.
func Problem(p *problem.Problem, requestID string) []byte {
	row := p.Row()
	v := ProblemBody{
		Type: ProblemType + string(row.Code), Title: row.Title, Status: row.Status, Detail: p.Detail,
		Code: string(row.Code), Field: p.Field, Link: p.Link, RequestID: requestID, Do: cmp.Or(p.Do, row.Do),
	}
	if v.Detail == v.Title {
		v.Detail = ""
	}
	return encode(v)
}

// UnknownBody is told with 202 when not even the state of the operation can be read.
type UnknownBody struct {
	_           struct{} `additionalProperties:"true"`
	Object      string   `json:"object" enum:"operation"`
	Status      string   `json:"status" enum:"unknown"`
	Explanation string   `json:"explanation"`
	KeyHash     string   `json:"idempotency_key_hash"`
}

// UnknownOperation renders what a client is told with 202 when not even the state of the operation can be read:
// the outcome of the claim's COMMIT is unknown, or the database failed after a permit (PROTOCOL section 2, K10).
func UnknownOperation(keyHash string) []byte {
	return encode(UnknownBody{Object: "operation", Status: "unknown", KeyHash: keyHash,
		Explanation: "It is not known whether this request had an effect. Repeat the same key, or look it up by ?idempotency_key=; do not start another payment."})
}

type listView struct {
	Data       []json.RawMessage `json:"data"`
	HasMore    bool              `json:"has_more"`
	NextCursor *string           `json:"next_cursor"`
}

// List renders a page of rendered items; next is the cursor of the page after it, empty for the last one.
func List(items [][]byte, next string) []byte {
	v := listView{Data: make([]json.RawMessage, 0, len(items)), HasMore: next != "", NextCursor: orNull(next)}
	for _, item := range items {
		v.Data = append(v.Data, item)
	}
	return encode(v)
}

// Time gives the one form in which a time leaves the house: RFC 3339, UTC, six decimals; the zero time gives "".
func Time(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000Z")
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// encode cannot fail for these types, damaged metadata aside.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("present: a row holds what the edge never stores: %v", err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
