// Package problem is the one table of what can be refused, and how it is told.
//
// Owns the stable codes of API.md with status, retry hint and sentence; docs/errors.md is written from Table.
// Never echoes a refused value, and never carries an internal error: those are faults, logged elsewhere.
// Read next: internal/httpapi, which renders a Problem as RFC 9457.
package problem

import (
	"errors"
	"time"
)

// Code is a stable, append-only name of a refusal (API.md).
type Code string

// The codes.
const (
	Malformed            Code = "malformed"
	KeyMissing           Code = "idempotency_key_missing"
	KeyInvalid           Code = "idempotency_key_invalid"
	Unauthenticated      Code = "unauthenticated"
	Forbidden            Code = "forbidden"
	NotFound             Code = "not_found"
	OperationInProgress  Code = "operation_in_progress"
	PaymentOpen          Code = "payment_open"
	AlreadyPaid          Code = "already_paid"
	PaymentSettling      Code = "payment_settling"
	PaymentConflict      Code = "payment_conflict"
	IntentConflict       Code = "intent_conflict"
	UnsupportedMediaType Code = "unsupported_media_type"
	TooLarge             Code = "too_large"
	KeyReuse             Code = "idempotency_key_reuse"
	IntentExpired        Code = "intent_expired"
	AmountMismatch       Code = "amount_mismatch"
	InvalidValue         Code = "invalid_value"
	LooksLikeCardNumber  Code = "looks_like_card_number"
	RateLimited          Code = "rate_limited"
	TryAgain             Code = "try_again"
	SendsOnHold          Code = "sends_on_hold"
	MethodNotAllowed     Code = "method_not_allowed"
	ExceedsRemaining     Code = "exceeds_remaining"
	NotCapturable        Code = "not_capturable"
	NotCancelable        Code = "not_cancelable"
	CodeInvalid          Code = "code_invalid"
	CodeExpired          Code = "code_expired"
	RefundUnsettled      Code = "refund_unsettled"
	SignatureInvalid     Code = "signature_invalid"
	EndpointDisabled     Code = "endpoint_disabled"
	LimitReached         Code = "limit_reached"
	Internal             Code = "internal"
)

// Row is one line of the table: how a code is told.
type Row struct {
	Code   Code
	Status int
	Title  string
	// Do tells the client what to do next.
	Do string
}

// Table lists every code once.
var Table = []Row{
	{Malformed, 400, "The request is not well formed.", "Correct the request; nothing was done."},
	{KeyMissing, 400, "The Idempotency-Key header is missing.", "Send one key for one purchase, capture, cancel or refund, kept until the final answer, reused on every retry."},
	{KeyInvalid, 400, "The Idempotency-Key header is not valid.", "Send 1 to 255 visible ASCII characters, once."},
	{Unauthenticated, 401, "The API key is missing, unknown, expired or revoked.", "Send Authorization: Bearer with a valid key."},
	{SignatureInvalid, 401, "The message is not proven to come from the acquirer.", "Sign the exact bytes with a secret of this account, at the time of sending; compare the clocks. Nothing was stored."},
	{Forbidden, 403, "The API key does not allow this.", "Use a key that does."},
	{NotFound, 404, "There is no such thing, or it is not yours.", "Check the identifier and the mode (test or live) of your API key."},
	{MethodNotAllowed, 405, "This path does not take this method.", "See the Allow header."},
	{OperationInProgress, 409, "The first request with this key is still being worked on.", "Repeat the same key after Retry-After. This is not a refusal."},
	{PaymentOpen, 409, "The intent has a live payment with other parameters.", "Look at the linked payment; do not start another."},
	{AlreadyPaid, 409, "The intent is paid.", "Stop repeating; look at the linked payment."},
	{PaymentSettling, 409, "The last payment was refused, but what was sent may still arrive.", "Repeat after Retry-After."},
	{PaymentConflict, 409, "The acquirer's answers for this intent contradict each other; a person decides.", "Look at the linked payment; do not start another."},
	{IntentConflict, 409, "An intent with this client reference exists with other parameters and cannot be amended now.", "Look at the linked intent."},
	{RefundUnsettled, 409, "A refund of this payment has no proven outcome yet, and the acquirer takes no second one meanwhile.", "Look at the linked payment's refunds; repeat the same key after Retry-After, once that one is settled."},
	{EndpointDisabled, 409, "The webhook endpoint is disabled.", "Enable it first; nothing was sent."},
	{TooLarge, 413, "The request body is too large.", "Send at most 64 KiB."},
	{UnsupportedMediaType, 415, "The content type is not application/json.", "Send application/json in UTF-8."},
	{KeyReuse, 422, "This key was used with other parameters.", "Use a new key for a new purchase; the old one stays as it is. For the same order, look the payment up first."},
	{IntentExpired, 422, "The intent is past its pay_before.", "Create a new intent. What is already under way goes on."},
	{AmountMismatch, 422, "Amount or currency differ from the intent's.", "Leave them out, or send the intent's."},
	{ExceedsRemaining, 422, "The amount is more than is left of this payment.", "Look at the linked payment: what was taken, given back or disputed, or is under way, is not left. Ask for no more than the rest."},
	{NotCapturable, 422, "This payment has no held money that can be captured.", "Look at the linked payment. Only a payment with capture_method manual and status authorized is captured, while no other capture or cancellation of it is open."},
	{NotCancelable, 422, "This payment cannot be canceled.", "Look at the linked payment. If its money was taken, refund it; if it is over, there is nothing to do."},
	{CodeInvalid, 422, "The one-time code is missing or wrong.", "Send the code that was issued last. Each wrong try counts, and a few use it up."},
	{CodeExpired, 422, "The one-time code has expired, was used, or was tried too often.", "Have a new one issued with cancel_code."},
	{InvalidValue, 422, "A value is not acceptable.", "Correct the named field; nothing was done."},
	{LimitReached, 422, "There are as many of these as there may be.", "See the detail; nothing was done."},
	{LooksLikeCardNumber, 422, "A field holds what looks like a card number.", "Send the acquirer's token. Never send card numbers here."},
	{RateLimited, 429, "Too many requests.", "Slow down; repeat the same key after Retry-After. This request did nothing."},
	{Internal, 500, "Something failed on our side; whether this request had an effect is not known.", "Repeat the same key; do not start another payment. The fault is logged under request_id."},
	{TryAgain, 503, "The service could not begin; this request did nothing.", "Repeat the same key after Retry-After."},
	{SendsOnHold, 503, "Sending is on hold after a database failover; this request did nothing.", "Repeat the same key after Retry-After."},
}

var byCode = func() map[Code]Row {
	m := make(map[Code]Row, len(Table))
	for _, r := range Table {
		m[r.Code] = r
	}
	return m
}()

// Problem is a refusal on its way to the client. It is an error; it never stands for a fault of ours.
type Problem struct {
	Code       Code
	Detail     string        // in words, never with the refused value
	Do         string        // what to do next, where the table's line does not fit; empty: the table's
	Field      string        // the name of the offending field, where there is one
	Link       string        // path of the payment or intent to look at
	RetryAfter time.Duration // zero: no hint
	Cause      error         // what was behind it, for the log only; never told to a client
}

// Error gives code, detail and cause, for logs.
func (p *Problem) Error() string {
	if p.Cause != nil {
		return string(p.Code) + ": " + p.Detail + " (" + p.Cause.Error() + ")"
	}
	return string(p.Code) + ": " + p.Detail
}

// Unwrap gives the cause.
func (p *Problem) Unwrap() error { return p.Cause }

// Row gives the table's line for the problem.
func (p *Problem) Row() Row { return byCode[p.Code] }

// New makes a problem; an empty detail takes the table's title.
func New(code Code, detail string) *Problem {
	if detail == "" {
		detail = byCode[code].Title
	}
	return &Problem{Code: code, Detail: detail}
}

// On names the offending field.
func (p *Problem) On(field string) *Problem { p.Field = field; return p }

// Advise says what to do next instead of the table's line.
func (p *Problem) Advise(do string) *Problem { p.Do = do; return p }

// See links to what the client should look at.
func (p *Problem) See(path string) *Problem { p.Link = path; return p }

// Because keeps what was behind it, for the log.
func (p *Problem) Because(err error) *Problem { p.Cause = err; return p }

// After sets the retry hint.
func (p *Problem) After(d time.Duration) *Problem { p.RetryAfter = d; return p }

// Is says whether err is a problem with this code.
func Is(err error, code Code) bool {
	var p *Problem
	return errors.As(err, &p) && p.Code == code
}
