// Package present renders what clients read: payments, intents and problem documents, as JSON bytes.
//
// Owns the order of members, the form of times and amounts, and the words that explain a status (API.md).
// Never reads a clock or a database, uses a float, or gives two renderings of the same value: stored answers are these bytes (PROTOCOL W4).
// Read next: internal/flow, which stores these bytes as answers, and internal/httpapi, which sends them.
package present

import (
	"bytes"
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
)

// ProblemType is the prefix of a problem's type; the code follows (RFC 9457, docs/errors.md).
const ProblemType = "urn:hapax:problem:"

// IntentPath is where an intent is read: the value of Location and of a problem's link.
func IntentPath(intent id.ID) string { return intentsPath + intent.Text(id.Intent) }

// PaymentPath is where a payment is read: the value of Location and of a problem's link.
func PaymentPath(p id.ID) string { return paymentsPath + p.Text(id.Payment) }

// Extra is what a payment's answer tells beside the rows of payment and intent.
type Extra struct {
	InReview    bool   // an open review waits for a person
	RedirectURL string // the payer's page; empty: none
}

type failureView struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// paymentView has the members of API.md in its order.
type paymentView struct {
	ID                string       `json:"id"`
	Object            string       `json:"object"`
	PaymentIntent     string       `json:"payment_intent"`
	ClientReference   *string      `json:"client_reference"`
	Customer          *string      `json:"customer"`
	N                 int          `json:"n"`
	Flow              string       `json:"flow"`
	Status            string       `json:"status"`
	Conflict          bool         `json:"conflict"`
	Amount            int64        `json:"amount"`
	CapturedAmount    int64        `json:"captured_amount"`
	RefundedAmount    int64        `json:"refunded_amount"`
	Currency          string       `json:"currency"`
	AcquirerAccount   string       `json:"acquirer_account"`
	AcquirerReference *string      `json:"acquirer_reference"`
	RedirectURL       string       `json:"redirect_url,omitempty"`
	Failure           *failureView `json:"failure,omitempty"`
	Explanation       string       `json:"explanation"`
	CreatedAt         string       `json:"created_at"`
	UpdatedAt         string       `json:"updated_at"`
}

type intentView struct {
	ID              string          `json:"id"`
	Object          string          `json:"object"`
	ClientReference *string         `json:"client_reference"`
	Customer        *string         `json:"customer"`
	Description     *string         `json:"description"`
	Metadata        json.RawMessage `json:"metadata"`
	Amount          int64           `json:"amount"`
	Currency        string          `json:"currency"`
	CaptureMethod   string          `json:"capture_method"`
	PayBefore       string          `json:"pay_before"`
	Version         int             `json:"version"`
	Conflict        bool            `json:"conflict"`
	Payments        []paymentView   `json:"payments"`
	CreatedAt       string          `json:"created_at"`
	UpdatedAt       string          `json:"updated_at"`
}

// Payment renders one payment of the intent, amounts in minor units. The same arguments give the same bytes.
func Payment(i payment.Intent, p payment.Payment, x Extra) []byte {
	return encode(viewPayment(i, p, x))
}

// Intent renders an intent with its payments in the order given; the metadata keep their digits as they were sent.
// It panics if the metadata are not JSON: the edge stores nothing else, so that the row is damaged.
func Intent(i payment.Intent, payments []payment.Payment) []byte {
	v := intentView{
		ID: i.ID.Text(id.Intent), Object: "payment_intent",
		ClientReference: orNull(i.ClientReference), Customer: orNull(i.Customer), Description: orNull(i.Description),
		Metadata: json.RawMessage("{}"),
		Amount:   i.Amount.Minor(), Currency: i.Amount.Currency().String(),
		CaptureMethod: string(i.Capture), PayBefore: Time(i.PayBefore),
		Version: i.Version, Conflict: i.Conflict,
		Payments:  make([]paymentView, 0, len(payments)),
		CreatedAt: Time(i.CreatedAt), UpdatedAt: Time(i.UpdatedAt),
	}
	if len(i.Metadata) > 0 {
		v.Metadata = i.Metadata
	}
	for _, p := range payments {
		v.Payments = append(v.Payments, viewPayment(i, p, Extra{}))
	}
	return encode(v)
}

func viewPayment(i payment.Intent, p payment.Payment, x Extra) paymentView {
	v := paymentView{
		ID: p.ID.Text(id.Payment), Object: "payment", PaymentIntent: i.ID.Text(id.Intent),
		ClientReference: orNull(i.ClientReference), Customer: orNull(i.Customer),
		N: p.N, Flow: string(p.Flow), Status: string(p.Status), Conflict: p.Conflict,
		Amount: p.Amount.Minor(), CapturedAmount: p.Captured, RefundedAmount: p.Refunded,
		Currency:        p.Amount.Currency().String(),
		AcquirerAccount: p.Account.Text(id.Account), AcquirerReference: orNull(p.AcquirerReference),
		RedirectURL: x.RedirectURL,
		Explanation: Explanation(p.Status, x.InReview),
		CreatedAt:   Time(p.CreatedAt), UpdatedAt: Time(p.UpdatedAt),
	}
	if p.Failure.Code != "" {
		v.Failure = &failureView{p.Failure.Code, p.Failure.Message}
	}
	if p.Conflict {
		v.Explanation = conflictWords
	}
	return v
}

type problemView struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail"`
	Code      string `json:"code"`
	Field     string `json:"field,omitempty"`
	Link      string `json:"link,omitempty"`
	RequestID string `json:"request_id"`
	Do        string `json:"do"`
}

// Problem renders a refusal as an RFC 9457 document, for application/problem+json.
func Problem(p *problem.Problem, requestID string) []byte {
	row := p.Row()
	return encode(problemView{
		Type: ProblemType + string(row.Code), Title: row.Title, Status: row.Status, Detail: p.Detail,
		Code: string(row.Code), Field: p.Field, Link: p.Link, RequestID: requestID, Do: row.Do,
	})
}

type unknownView struct {
	Object      string `json:"object"`
	Status      string `json:"status"`
	Explanation string `json:"explanation"`
	KeyHash     string `json:"idempotency_key_hash"`
}

// UnknownOperation renders what a client is told with 202 when not even the state of the operation can be read:
// the outcome of the claim's COMMIT is unknown, or the database failed after a permit (PROTOCOL section 2, K10).
func UnknownOperation(keyHash string) []byte {
	return encode(unknownView{"operation", "unknown",
		"It is not known whether this request had an effect. Repeat the same key, or look it up by ?idempotency_key=; do not start another payment.",
		keyHash})
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
