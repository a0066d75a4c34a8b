package httpapi

import (
	"encoding/json"
	"fmt"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/problem"
)

// freeObject is a JSON object of the client's own making, kept as bytes: never as floats (case 52).
type freeObject []byte

// UnmarshalJSON keeps the bytes; null says the same as leaving it out.
func (o *freeObject) UnmarshalJSON(raw []byte) error {
	if string(raw) != "null" {
		*o = append(freeObject(nil), raw...)
	}
	return nil
}

// Schema tells the contract what it is.
func (*freeObject) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true,
		Description: "Your own data, at most 16384 bytes; given back with all digits of its numbers"}
}

// IntentMembers are the members by which a client describes an intent.
type IntentMembers struct {
	Amount          *int64     `json:"amount,omitempty" minimum:"1" doc:"Minor units: 500 is 5.00 USD, 500 JPY, 0.500 KWD"`
	Currency        *string    `json:"currency,omitempty" pattern:"^[A-Z]{3}$" doc:"ISO 4217, upper case"`
	ClientReference *string    `json:"client_reference,omitempty" minLength:"1" maxLength:"255" doc:"Order number. With it, a lost idempotency key meets the same intent; without it, it makes a second one"`
	Customer        *string    `json:"customer,omitempty" minLength:"1" maxLength:"255"`
	Description     *string    `json:"description,omitempty" maxLength:"1000"`
	Metadata        freeObject `json:"metadata,omitempty"`
	ReceiptEmail    *string    `json:"receipt_email,omitempty" format:"email" maxLength:"254" doc:"Who gets the receipt by mail, where the merchant sends one"`
	CaptureMethod   *string    `json:"capture_method,omitempty" enum:"automatic,manual" doc:"manual holds the money until it is captured; default automatic"`
	PayBefore       *string    `json:"pay_before,omitempty" format:"date-time" doc:"No payment begins after this; default 24 hours from now"`
}

// IntentRequest is the body of POST /v1/payment_intents.
type IntentRequest struct{ IntentMembers }

// TransformSchema completes the contract: what must be there.
func (IntentRequest) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Required = []string{"amount", "currency"}
	return s
}

// PaymentRequest is the body of POST /v1/payments: of an intent that exists, or with the members of one.
type PaymentRequest struct {
	IntentMembers
	PaymentIntent *string `json:"payment_intent,omitempty" doc:"Of an intent that exists. amount and currency beside it are optional and must be equal to the intent's"`
	PaymentMethod *string `json:"payment_method,omitempty" minLength:"1" maxLength:"255" doc:"The acquirer's token. Never a card number. hosted: optional, the payer chooses on the page"`
	Flow          *string `json:"flow,omitempty" enum:"direct,hosted" doc:"hosted sends the payer to the acquirer's page, whose address is told as redirect_url; default direct"`
	ReturnURL     *string `json:"return_url,omitempty" format:"uri" maxLength:"2048" doc:"Where the payer is sent afterwards; https"`
}

// TransformSchema completes the contract: the two forms, for each of the two flows.
func (PaymentRequest) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.AnyOf = []*huma.Schema{
		{Title: "direct", Required: []string{"payment_method"}},
		{Title: "hosted", Required: []string{"flow", "return_url"},
			Properties: map[string]*huma.Schema{"flow": {Enum: []any{string(payment.Hosted)}}}},
	}
	s.OneOf = []*huma.Schema{
		{Title: "of an intent", Required: []string{"payment_intent"}},
		{Title: "inline", Required: []string{"amount", "currency"}, Not: &huma.Schema{Required: []string{"payment_intent"}}},
	}
	return s
}

// decode fills body, after the scan has shown that this cannot fail.
func decode(raw []byte, body any) {
	if err := json.Unmarshal(raw, body); err != nil {
		panic(fmt.Sprintf("httpapi: the scan let through what cannot be decoded: %T", body))
	}
}

// member is a name of the contract, and whether the client sent it.
type member struct {
	name string
	sent bool
}

// missing finds the first member that must be there and is not.
func missing(members ...member) *problem.Problem {
	for _, m := range members {
		if !m.sent {
			return malformed(m.name, "It is missing.")
		}
	}
	return nil
}

// fields judges what the members mean; amount and currency must be there.
func (m IntentMembers) fields(maxAmount int64) (flow.IntentFields, *problem.Problem) {
	if p := missing(member{"amount", m.Amount != nil}, member{"currency", m.Currency != nil}); p != nil {
		return flow.IntentFields{}, p
	}
	var j judge
	f := flow.IntentFields{
		Amount:          j.money(j.minor(m.Amount, maxAmount), j.currency(m.Currency)),
		ClientReference: j.name("client_reference", m.ClientReference, maxReference),
		Customer:        j.name("customer", m.Customer, maxCustomer),
		Description:     j.words("description", m.Description, maxDescription),
		Metadata:        j.metadata(m.Metadata),
		Receipt:         j.email("receipt_email", m.ReceiptEmail),
		Capture:         j.capture(m.CaptureMethod),
		PayBefore:       j.instant("pay_before", m.PayBefore),
	}
	return f, j.first
}

// beside finds the first member that has no place beside payment_intent.
func (m IntentMembers) beside() *problem.Problem {
	intentOnly := []member{
		{"client_reference", m.ClientReference != nil},
		{"customer", m.Customer != nil},
		{"description", m.Description != nil},
		{"metadata", m.Metadata != nil},
		{"receipt_email", m.ReceiptEmail != nil},
		{"capture_method", m.CaptureMethod != nil},
		{"pay_before", m.PayBefore != nil},
	}
	for _, s := range intentOnly {
		if s.sent {
			return malformed(s.name, "It belongs to the intent and has no place beside payment_intent.")
		}
	}
	return nil
}

// command judges the body of POST /v1/payment_intents. Merchant, key and request id are the caller's to fill in.
func (b IntentRequest) command(maxAmount int64) (flow.CreateIntentCommand, *problem.Problem) {
	fields, p := b.fields(maxAmount)
	return flow.CreateIntentCommand{Intent: fields}, p
}

// command judges the body of POST /v1/payments. Merchant, key and request id are the caller's to fill in.
// loopback: the payer may be sent back to this machine by http.
func (b PaymentRequest) command(maxAmount int64, loopback bool) (flow.CreatePaymentCommand, *problem.Problem) {
	var c flow.CreatePaymentCommand
	needed := member{"payment_method", b.PaymentMethod != nil}
	if b.Flow != nil && *b.Flow == string(payment.Hosted) {
		needed = member{"return_url", b.ReturnURL != nil}
	}
	if p := missing(needed); p != nil {
		return c, p
	}
	if p := b.subject(&c, maxAmount); p != nil {
		return c, p
	}
	var j judge
	if b.PaymentMethod != nil {
		c.Method = j.token("payment_method", *b.PaymentMethod)
	}
	c.Flow = j.flow(b.Flow)
	c.ReturnURL = j.url("return_url", b.ReturnURL, loopback)
	return c, j.first
}

// subject says what is to be paid: an intent that exists, or one that is described here.
func (b PaymentRequest) subject(c *flow.CreatePaymentCommand, maxAmount int64) *problem.Problem {
	if b.PaymentIntent == nil {
		fields, p := b.fields(maxAmount)
		c.Inline = &fields
		return p
	}
	if p := b.beside(); p != nil {
		return p
	}
	intent, err := id.Parse(id.Intent, *b.PaymentIntent)
	if err != nil {
		return problem.New(problem.NotFound, "").On("payment_intent")
	}
	var j judge
	c.IntentID, c.Minor, c.Currency = intent, j.minor(b.Amount, maxAmount), j.currency(b.Currency)
	return j.first
}
