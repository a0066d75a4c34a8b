package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/problem"
)

// maxChangeAsks bounds how often a client asks for one change.
const maxChangeAsks = 15

// ends are the refusals after which asking again is pointless.
var ends = []problem.Code{problem.NotCapturable, problem.NotCancelable, problem.ExceedsRemaining, problem.PaymentConflict, problem.InvalidValue, problem.NotFound}

// change does something to the payment: mostly what its state allows, now and then what it does not.
func (b *buyer) change() {
	kinds := map[string][]operation.Kind{
		"authorized": {operation.CapturePayment, operation.CapturePayment, operation.CapturePayment, operation.CancelPayment},
		"paid":       {operation.CreateRefund, operation.CreateRefund, operation.CreateRefund},
		"registered": {operation.CancelPayment, ""},
		"unknown":    {operation.CancelPayment, "", ""},
		"pending":    {operation.CancelPayment, "", ""},
	}[b.state]
	kinds = append(slices.Clone(kinds), operation.CapturePayment, operation.CancelPayment, operation.CreateRefund, "")
	kind := kinds[b.w.Scheduler.Chance.IntN(len(kinds))]
	if kind == "" {
		b.check(b.payment)
		return
	}
	b.persist(kind)
}

// persist asks for one change until it knows.
func (b *buyer) persist(kind operation.Kind) {
	s, h := b.w.Scheduler, b.w.Config.Habits
	draw := b.changeCommand(kind)
	c := draw()
	for range maxChangeAsks {
		if s.Odds(h.Twice) {
			again := c
			b.w.clients.Go(func() { b.ask(again, false) })
		}
		if s.Odds(h.OtherParameters) && c.other != nil {
			other := c.altered()
			b.w.clients.Go(func() { b.ask(other, true) })
		}
		t, heard := b.ask(c, false)
		pause := s.Between(time.Second, 20*time.Second)
		switch {
		case heard && (t.Final || slices.Contains(ends, t.Code)):
			return
		case heard && (t.Code == problem.CodeInvalid || t.Code == problem.CodeExpired):
			b.issueCode()
			c = draw() // a code is no part of what is meant, and its refusal is not kept: the key may stay or change
		case heard && t.Code == problem.KeyReuse, s.Odds(h.LoseKey):
			c = draw()
		case heard && t.Retry > 0:
			pause = max(pause, t.Retry)
		}
		if s.Odds(h.LongPause) {
			pause = s.Between(time.Minute, 3*time.Hour)
		}
		b.w.clients.Sleep(context.Background(), pause)
	}
}

// changeCommand decides what is wanted; each call of what it returns gives the same command with a key of its own.
func (b *buyer) changeCommand(kind operation.Kind) func() command {
	s, of, merchant := b.w.Scheduler, b.payment, b.merchant
	var minor *int64
	if s.Odds(600) {
		part := 1 + s.Chance.Int64N(b.amount)
		minor = &part
	}
	var final *bool
	if s.Odds(400) {
		last := s.Odds(500)
		final = &last
	}
	reversal := kind == operation.CreateRefund && s.Odds(250)
	if reversal {
		minor = nil
	}
	return func() command {
		b.keys++
		key, request := fmt.Sprintf("%s-%d-%d", kind, b.n, b.keys), b.request()
		c := command{ref: operation.Ref{Merchant: merchant, Kind: kind, Key: key}, what: string(kind)}
		make := func(minor *int64) func(context.Context, *flow.Flow) (operation.Answer, error) {
			return func(ctx context.Context, f *flow.Flow) (operation.Answer, error) {
				if kind == operation.CapturePayment {
					return f.Capture(ctx, flow.CapturePaymentCommand{Merchant: merchant, Key: key, RequestID: request, Payment: of, Minor: minor, Final: final})
				}
				return f.Refund(ctx, flow.CreateRefundCommand{Merchant: merchant, Key: key, RequestID: request, Payment: of, Minor: minor, Reversal: reversal})
			}
		}
		if kind == operation.CancelPayment {
			c.do = func(ctx context.Context, f *flow.Flow) (operation.Answer, error) {
				return f.Cancel(ctx, flow.CancelPaymentCommand{Merchant: merchant, Key: key, RequestID: request, Payment: of, Code: b.code})
			}
			return c
		}
		other := b.amount + 13
		c.do, c.other = make(minor), make(&other)
		return c
	}
}

// issueCode has a code issued and delivered; sometimes it is mistyped.
func (b *buyer) issueCode() {
	b.keys++
	c := flow.IssueCancelCodeCommand{Merchant: b.merchant, Key: fmt.Sprintf("code-%d-%d", b.n, b.keys), RequestID: b.request(), Payment: b.payment}
	b.ask(command{ref: operation.Ref{Merchant: c.Merchant, Kind: operation.IssueCode, Key: c.Key}, what: "code",
		do: func(ctx context.Context, f *flow.Flow) (operation.Answer, error) { return f.IssueCancelCode(ctx, c) }}, false)
	var last payment.CancelCode
	b.w.Store.codes.each(func(k payment.CancelCode) bool {
		if k.Payment == c.Payment && k.Ordinal > last.Ordinal {
			last = k
		}
		return true
	})
	b.code = b.w.pods[0].flow.CancelCode(b.merchant, c.Payment, last.Amount, last.Ordinal)
	if b.w.Scheduler.Odds(b.w.Config.Habits.WrongCode) {
		b.code = "000000"
	}
}

// check has a payment looked up now; it says whether that was heard.
func (b *buyer) check(pay id.ID) bool {
	asked := false
	b.w.Scheduler.Note("asks", "check", pay.String())
	request := b.request()
	_, _, heard := b.post(func(ctx context.Context, f *flow.Flow) (operation.Answer, error) {
		a, err := f.Check(ctx, b.merchant, pay, request)
		asked = err == nil
		t := b.w.tell(operation.Ref{Merchant: b.merchant, Kind: checks, Key: pay.String()}, a, err)
		if pay == b.payment && !t.Payment.IsZero() {
			b.state = t.State
		}
		return a, err
	})
	return heard && asked
}

// checks stands for the kind of what is no command: it has no key.
const checks operation.Kind = "check"

// checkAll has every payment checked once everything came to rest: what was done by hand at the acquirer is known after that.
func (w *World) checkAll() {
	w.shopping++
	w.clients.Go(func() {
		w.clients.Sleep(context.Background(), time.Hour) // longer than any lookup misses anything
		for _, k := range slices.Clone(w.Store.payments.order) {
			p := w.Store.payments.rows[k]
			b := &buyer{w: w, merchant: p.Merchant}
			for range maxAsks {
				if b.check(p.ID) {
					break
				}
				w.clients.Sleep(context.Background(), time.Hour)
			}
		}
		w.shopping--
	})
}
