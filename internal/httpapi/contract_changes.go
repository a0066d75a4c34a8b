package httpapi

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/problem"
)

// ofPayment begins an operation on one payment, whose body may be left out.
func (d *door) ofPayment(path, name, summary string, body any) route {
	op := d.operation(http.MethodPost, "/v1/payments/{id}/"+path, name, summary)
	op.Parameters = []*huma.Param{pathID("pay_")}
	request, members := d.contract.takes(body)
	request.Required = false
	op.RequestBody = request
	return route{Operation: op, body: members, bare: true}
}

func (d *door) routeCheck() route {
	c, rt := d.contract, d.ofPayment("check", "check-payment", "Ask the acquirer now, and tell what is known", CheckRequest{})
	rt.Description = "Takes no idempotency key, and its answer is never stored. Asking moves no money, however often."
	payment := c.schema(present.PaymentBody{})
	rt.Responses = c.tells(map[int]*huma.Response{
		200: c.good("What is true now: also of a refused payment, since the check itself is not refused", payment, "Location"),
		202: c.good("Not known yet", payment, "Location", "Retry-After"),
	}, problem.NotFound, problem.TooLarge, problem.UnsupportedMediaType)
	rt.handle = d.check
	return rt
}

// changes lists the answers of a capture or cancel.
func (d *door) changes(codes ...problem.Code) map[string]*huma.Response {
	c := d.contract
	payment := c.schema(present.PaymentBody{})
	return c.tells(map[int]*huma.Response{
		201: c.good("Final: done. modification tells of it", payment, answerHeaders...),
		202: c.good("Not known yet: repeat the same key, or look at Location",
			&huma.Schema{OneOf: []*huma.Schema{payment, c.schema(present.UnknownBody{})}}, answerHeaders...),
		422: c.good("Final: refused by the acquirer. modification tells the reason", payment, answerHeaders...),
	}, append(append([]problem.Code{problem.NotFound, problem.PaymentConflict}, commands...), codes...)...)
}

func (d *door) routeCapture() route {
	rt := d.ofPayment("capture", "capture-payment", "Take held money: part of it, or all that is still held", CaptureRequest{})
	rt.Parameters = append(rt.Parameters, keyParameter(aboutChange))
	rt.Responses = d.changes(problem.NotCapturable, problem.ExceedsRemaining, problem.AmountMismatch)
	rt.handle = d.capture
	return rt
}

func (d *door) routeCancel() route {
	rt := d.ofPayment("cancel", "cancel-payment", "Give a payment up: release the hold, or close the page", CancelRequest{})
	rt.Description = "A cancellation that comes after the money was taken is answered with 422 and the paid payment: refund it instead."
	rt.Parameters = append(rt.Parameters, keyParameter(aboutChange))
	rt.Responses = d.changes(problem.NotCancelable, problem.CodeInvalid, problem.CodeExpired)
	rt.handle = d.cancel
	return rt
}

func (d *door) routeCancelCode() route {
	c, rt := d.contract, d.ofPayment("cancel_code", "issue-cancel-code", "Issue a one-time code for a cancel", CancelCodeRequest{})
	rt.Description = "The code is in no answer and in no table. The one that was issued last counts; it expires, and its tries are limited."
	rt.Parameters = append(rt.Parameters, keyParameter(aboutChange))
	rt.Responses = c.tells(map[int]*huma.Response{
		201: c.good("Issued", c.schema(present.CancelCodeBody{}), append([]string{codeHeader}, answerHeaders...)...),
		202: c.good("Not known yet: repeat the same key", c.schema(present.UnknownBody{}), answerHeaders...),
	}, append(commands, problem.NotFound, problem.NotCancelable, problem.PaymentConflict)...)
	rt.handle = d.cancelCode
	return rt
}

func (d *door) routeRefund() route {
	c := d.contract
	op := d.operation(http.MethodPost, "/v1/refunds", "create-refund", "Give money back that was taken")
	op.Parameters = []*huma.Param{keyParameter(aboutChange)}
	body, members := c.takes(RefundRequest{})
	refund := c.schema(present.RefundBody{})
	op.RequestBody = body
	op.Responses = c.tells(map[int]*huma.Response{
		201: c.good("Final: given back", refund, answerHeaders...),
		202: c.good("Not known yet: repeat the same key, or look at Location",
			&huma.Schema{OneOf: []*huma.Schema{refund, c.schema(present.UnknownBody{})}}, answerHeaders...),
		422: c.good("Final: failed, with the reason", refund, answerHeaders...),
	}, append(commands, problem.NotFound, problem.ExceedsRemaining, problem.RefundUnsettled, problem.AmountMismatch, problem.PaymentConflict)...)
	return route{Operation: op, body: members, handle: d.refund}
}

func (d *door) routeRefunds() route {
	c := d.contract
	op := d.operation(http.MethodGet, "/v1/refunds", "list-refunds", "Find what was given back of a payment")
	op.Parameters = queryParameters(refundFilters)
	op.Responses = c.tells(map[int]*huma.Response{200: c.good("A page", c.list(c.schema(present.RefundBody{})))}, problem.NotFound)
	return route{Operation: op, list: true, handle: d.refunds}
}

func (d *door) routeRefundByID() route {
	c := d.contract
	op := d.operation(http.MethodGet, "/v1/refunds/{id}", "get-refund", "Look at a refund")
	op.Parameters = []*huma.Param{pathID("re_")}
	op.Responses = c.tells(map[int]*huma.Response{200: c.good("The refund", c.schema(present.RefundBody{}))}, problem.NotFound)
	return route{Operation: op, handle: d.refundByID}
}
