package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/problem"
)

// codeHeader tells an issued one-time code where Config.ShowCancelCode is set: never in a body, which is stored.
const codeHeader = "Cancel-Code"

// The kinds of a refund that a client may ask for.
const (
	kindRefund   = "refund"
	kindReversal = "reversal"
)

// CheckRequest is the body of POST /v1/payments/{id}/check: nothing can be said.
type CheckRequest struct{}

// CaptureRequest is the body of POST /v1/payments/{id}/capture.
type CaptureRequest struct {
	Amount   *int64  `json:"amount,omitempty" minimum:"1" doc:"Minor units; default all that is still held"`
	Currency *string `json:"currency,omitempty" pattern:"^[A-Z]{3}$" doc:"Optional; must be the payment's"`
	Final    *bool   `json:"final,omitempty" doc:"Releases what is not captured. Default: true when all that is held is captured, or when the acquirer takes one capture only"`
}

// CancelRequest is the body of POST /v1/payments/{id}/cancel.
type CancelRequest struct {
	Code *string `json:"code,omitempty" minLength:"1" maxLength:"64" doc:"The one-time code, where one is demanded"`
}

// CancelCodeRequest is the body of POST /v1/payments/{id}/cancel_code: nothing can be said.
type CancelCodeRequest struct{}

// RefundRequest is the body of POST /v1/refunds.
type RefundRequest struct {
	Payment  *string `json:"payment,omitempty" doc:"What was paid"`
	Amount   *int64  `json:"amount,omitempty" minimum:"1" doc:"Minor units; default all that is left"`
	Currency *string `json:"currency,omitempty" pattern:"^[A-Z]{3}$" doc:"Optional; must be the payment's"`
	Reason   *string `json:"reason,omitempty" maxLength:"1000"`
	Kind     *string `json:"kind,omitempty" enum:"refund,reversal" doc:"reversal undoes the taking of the money on the same day, all that is left of it; default refund"`
}

// TransformSchema completes the contract: what must be there.
func (RefundRequest) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Required = []string{"payment"}
	return s
}

// command judges the body. Merchant, key, request id and payment are the caller's to fill in.
func (b CaptureRequest) command(maxAmount int64) (flow.CapturePaymentCommand, *problem.Problem) {
	var j judge
	c := flow.CapturePaymentCommand{Minor: j.minor(b.Amount, maxAmount), Currency: j.currency(b.Currency), Final: b.Final}
	return c, j.first
}

// command judges the body. Merchant, key, request id and payment are the caller's to fill in.
func (b CancelRequest) command() (flow.CancelPaymentCommand, *problem.Problem) {
	var j judge
	c := flow.CancelPaymentCommand{Code: j.code(b.Code)}
	return c, j.first
}

// command judges the body. Merchant, key and request id are the caller's to fill in.
func (b RefundRequest) command(maxAmount int64) (flow.CreateRefundCommand, *problem.Problem) {
	if p := missing(member{"payment", b.Payment != nil}); p != nil {
		return flow.CreateRefundCommand{}, p
	}
	payment, err := id.Parse(id.Payment, *b.Payment)
	if err != nil {
		return flow.CreateRefundCommand{}, problem.New(problem.NotFound, "").On("payment")
	}
	var j judge
	c := flow.CreateRefundCommand{Payment: payment, Minor: j.minor(b.Amount, maxAmount), Currency: j.currency(b.Currency),
		Reason: j.words("reason", b.Reason, maxReason), Reversal: j.reversal(b.Kind)}
	return c, j.first
}

// change reads what every change to a payment needs beside its body: the payment and the key.
func (x *exchange) change() (payment id.ID, key string, err error) {
	if key, err = x.idempotencyKey(); err != nil {
		return payment, key, err
	}
	payment, err = x.pathID(id.Payment)
	return payment, key, err
}

// check takes no key: whatever stands in the header is not looked at.
func (d *door) check(ctx context.Context, x *exchange) (reply, error) {
	payment, err := x.pathID(id.Payment)
	if err != nil {
		return reply{}, err
	}
	return x.answered(d.cfg.Service.Check(ctx, x.key.Merchant, payment, x.requestID))
}

func (d *door) capture(ctx context.Context, x *exchange) (reply, error) {
	payment, key, err := x.change()
	if err != nil {
		return reply{}, err
	}
	var body CaptureRequest
	decode(x.body, &body)
	c, p := body.command(d.cfg.MaxAmount)
	if p != nil {
		return reply{}, p
	}
	c.Merchant, c.Key, c.RequestID, c.Payment = x.key.Merchant, key, x.requestID, payment
	return x.answered(d.cfg.Service.Capture(ctx, c))
}

func (d *door) cancel(ctx context.Context, x *exchange) (reply, error) {
	payment, key, err := x.change()
	if err != nil {
		return reply{}, err
	}
	var body CancelRequest
	decode(x.body, &body)
	c, p := body.command()
	if p != nil {
		return reply{}, p
	}
	c.Merchant, c.Key, c.RequestID, c.Payment = x.key.Merchant, key, x.requestID, payment
	return x.answered(d.cfg.Service.Cancel(ctx, c))
}

func (d *door) cancelCode(ctx context.Context, x *exchange) (reply, error) {
	payment, key, err := x.change()
	if err != nil {
		return reply{}, err
	}
	out, err := x.answered(d.cfg.Service.IssueCancelCode(ctx, flow.IssueCancelCodeCommand{Merchant: x.key.Merchant, Key: key,
		RequestID: x.requestID, Payment: payment}))
	if err == nil && d.cfg.ShowCancelCode != nil {
		d.showCode(ctx, x, payment, out)
	}
	return out, err
}

// showCode adds the code to an answer that tells of an issued one. The code is issued, whether it can be shown or not.
func (d *door) showCode(ctx context.Context, x *exchange, payment id.ID, out reply) {
	var issued present.CancelCodeBody
	if err := json.Unmarshal(out.body, &issued); err != nil || issued.Ordinal == 0 {
		return // it is not known yet whether one was issued
	}
	code, err := d.cfg.ShowCancelCode(ctx, x.key.Merchant, payment, issued.Ordinal)
	switch {
	case err != nil:
		d.fault(x, err)
	case code != "":
		out.header.Set(codeHeader, code)
	}
}

func (d *door) refund(ctx context.Context, x *exchange) (reply, error) {
	key, err := x.idempotencyKey()
	if err != nil {
		return reply{}, err
	}
	var body RefundRequest
	decode(x.body, &body)
	c, p := body.command(d.cfg.MaxAmount)
	if p != nil {
		return reply{}, p
	}
	c.Merchant, c.Key, c.RequestID = x.key.Merchant, key, x.requestID
	return x.answered(d.cfg.Service.Refund(ctx, c))
}

func (d *door) refundByID(ctx context.Context, x *exchange) (reply, error) {
	refund, err := x.pathID(id.Refund)
	if err != nil {
		return reply{}, err
	}
	found, err := d.cfg.Service.RefundByID(ctx, x.key.Merchant, refund)
	if err != nil {
		return reply{}, err
	}
	return reply{status: http.StatusOK, body: found.JSON()}, nil
}

func (d *door) refunds(ctx context.Context, x *exchange) (reply, error) {
	f, page, p := readQuery(x.r.URL.RawQuery, refundFilters)
	if p != nil {
		return reply{}, p
	}
	payment, err := id.Parse(id.Payment, f.value)
	if err != nil {
		return reply{}, problem.New(problem.NotFound, "").On(f.name)
	}
	found, more, err := d.cfg.Service.Refunds(ctx, x.key.Merchant, payment, page)
	return listed(found, more, func(r present.RefundReading) id.ID { return r.ID }), err
}
