package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/money"
)

// Told is one answer that a replica gave to a client.
type Told struct {
	Ref     operation.Ref
	Status  int
	Code    problem.Code // of a refusal
	Body    string
	Final   bool
	Retry   time.Duration
	Payment id.ID // zero: the answer shows none
	State   string
	Altered bool // the request had other parameters than the first one with its key
	command command
}

// command is one idempotent command, as it can be sent any number of times.
type command struct {
	ref  operation.Ref
	what string
	do   func(context.Context, *flow.Flow) (operation.Answer, error)
	// other has the same key and other parameters; nil: there are none.
	other func(context.Context, *flow.Flow) (operation.Answer, error)
}

// altered gives the command with other parameters.
func (c command) altered() command {
	c.do, c.what = c.other, c.what+" altered"
	return c
}

// refused says that the client was told: no money moved.
func (t Told) refused() bool { return t.Final && (t.Status == 402 || t.Status == 422) }

// buyer is a client with one order.
type buyer struct {
	w        *World
	n        int
	merchant id.ID
	order    string
	amount   int64
	key      string
	keys     int
	intent   id.ID // known after a first step
	method   string
	flow     payment.Flow
	capture  payment.CaptureMethod
	payment  id.ID  // known after a first answer that shows it
	state    string // of the payment, as last heard
	code     string // one-time code, where the shop was given one
}

// Limits of a client.
const (
	maxAsks     = 40
	maxPayTries = 3
	maxChanges  = 5
	clientWait  = 12 * time.Second
)

func (w *World) openShop() {
	for n := range w.Config.Orders {
		b := &buyer{w: w, n: n, merchant: w.merchants[n%len(w.merchants)], order: fmt.Sprintf("order-%d", n), amount: 1000 + int64(n),
			flow: payment.Direct, capture: payment.CaptureAutomatic}
		b.mean()
		b.newKey()
		w.shopping++
		w.Scheduler.After(w.Scheduler.Between(0, 20*time.Second), func() {
			w.clients.Go(func() {
				b.shop()
				w.shopping--
				w.Scheduler.Note("done", b.order)
			})
		})
	}
}

// mean decides how the order is to be paid.
func (b *buyer) mean() {
	s, h := b.w.Scheduler, b.w.Config.Habits
	if s.Odds(h.Manual) {
		b.capture = payment.CaptureManual
	}
	b.method = "pm_ok"
	switch {
	case s.Odds(h.Hosted):
		b.flow, b.method = payment.Hosted, ""
	case s.Odds(h.Step):
		b.method = methodStep
	}
}

func (b *buyer) newKey() {
	b.keys++
	b.key = fmt.Sprintf("key-%d-%d", b.n, b.keys)
}

// shop pays the order, and does afterwards what shops do with payments.
func (b *buyer) shop() {
	b.pay()
	s := b.w.Scheduler
	for range maxChanges {
		if b.payment.IsZero() || !s.Odds(b.w.Config.Habits.Change) {
			return
		}
		b.w.clients.Sleep(context.Background(), s.Between(time.Second, 3*time.Hour))
		b.change()
	}
}

// pay asks until it knows, as a client should: the same key on every repeat, a new one after a refusal only.
func (b *buyer) pay() {
	s, h := b.w.Scheduler, b.w.Config.Habits
	tries := 1
	if s.Odds(h.TwoSteps) {
		b.makeIntent(b.amount)
	}
	for range maxAsks {
		b.mischief()
		t, heard := b.ask(b.payCommand(), false)
		pause := s.Between(2*time.Second, 15*time.Second)
		switch {
		case heard && t.Final && t.Status == 201, heard && (t.Code == problem.AlreadyPaid || t.Code == problem.PaymentConflict || t.Code == problem.IntentExpired):
			return
		case heard && t.refused():
			if tries == maxPayTries || !s.Odds(h.NewTry) {
				return
			}
			tries++
			b.newKey()
		case heard && t.Code == problem.KeyReuse: // somebody else's request had this key first
			b.newKey()
		case heard && t.Retry > 0:
			pause = max(pause, t.Retry)
		}
		if s.Odds(h.LoseKey) {
			b.newKey()
		}
		if !b.payment.IsZero() && s.Odds(h.EarlyChange) {
			b.change()
		}
		if s.Odds(h.LongPause) {
			pause = s.Between(time.Minute, 3*time.Hour)
		}
		b.w.clients.Sleep(context.Background(), pause)
	}
}

// mischief is what clients do beside asking properly.
func (b *buyer) mischief() {
	s, h := b.w.Scheduler, b.w.Config.Habits
	if s.Odds(h.Twice) { // a library, a balancer or a finger sends it twice
		again := b.payCommand()
		b.w.clients.Go(func() { b.ask(again, false) })
	}
	if s.Odds(h.OtherParameters) {
		c := b.payCommand().altered()
		b.w.clients.Go(func() { b.ask(c, true) })
	}
	if s.Odds(h.Amend) {
		b.makeIntent(b.amount + 7)
	}
}

// payCommand is the command as the client means it.
func (b *buyer) payCommand() command {
	c := flow.CreatePaymentCommand{Merchant: b.merchant, Key: b.key, RequestID: b.request(), Method: b.method, Flow: b.flow}
	if b.flow == payment.Hosted {
		back := "https://shop.example/back"
		c.ReturnURL = &back
	}
	if b.intent.IsZero() {
		c.Inline = b.fields(b.amount)
	} else {
		c.IntentID = b.intent
	}
	other := c
	other.Method = "pm_other"
	return command{ref: operation.Ref{Merchant: c.Merchant, Kind: operation.CreatePayment, Key: c.Key}, what: "pay",
		do:    func(ctx context.Context, f *flow.Flow) (operation.Answer, error) { return f.CreatePayment(ctx, c) },
		other: func(ctx context.Context, f *flow.Flow) (operation.Answer, error) { return f.CreatePayment(ctx, other) }}
}

func (b *buyer) fields(amount int64) *flow.IntentFields {
	order, capture := b.order, b.capture
	return &flow.IntentFields{Amount: money.Must(amount, "EUR"), ClientReference: &order, Capture: &capture}
}

func (b *buyer) request() string {
	return "req-" + strconv.Itoa(len(b.w.Told)) + "-" + strconv.Itoa(b.n)
}

// makeIntent creates the intent, or amends it, and keeps its id.
func (b *buyer) makeIntent(amount int64) {
	c := flow.CreateIntentCommand{Merchant: b.merchant, Key: fmt.Sprintf("intent-%d-%d", b.n, amount), RequestID: b.request(), Intent: *b.fields(amount)}
	a, err, heard := b.post(func(ctx context.Context, f *flow.Flow) (operation.Answer, error) { return f.CreateIntent(ctx, c) })
	if !heard || err != nil || !a.Final {
		return
	}
	if i, err := id.Parse(id.Intent, a.Location[strings.LastIndex(a.Location, "/")+1:]); err == nil && amount == b.amount {
		b.intent = i
	}
}

// ask sends one request; heard says whether its answer came back.
func (b *buyer) ask(c command, altered bool) (t Told, heard bool) {
	b.w.Scheduler.Note("asks", c.what, c.ref.Key)
	_, _, heard = b.post(func(ctx context.Context, f *flow.Flow) (operation.Answer, error) {
		a, err := c.do(ctx, f)
		t = b.w.tell(c.ref, a, err)
		t.Altered, t.command = altered, c
		b.w.Told = append(b.w.Told, t)
		return a, err
	})
	if heard && !altered && !t.Payment.IsZero() {
		b.payment, b.state = t.Payment, t.State
	}
	return t, heard
}

// post brings a request to some replica and its answer back, unless either is lost.
func (b *buyer) post(handle func(ctx context.Context, f *flow.Flow) (operation.Answer, error)) (a operation.Answer, err error, heard bool) {
	w, s := b.w, b.w.Scheduler
	p := w.pods[s.Chance.IntN(len(w.pods))]
	done := w.clients.NewSignal()
	leave := func() {}
	early := s.Odds(w.Config.Habits.LeaveEarly)
	s.After(s.Between(time.Millisecond, 50*time.Millisecond), func() {
		r, f := p.replica, p.flow
		if r.Dead() {
			return // the connection is refused, which a client takes for silence here
		}
		ctx, cancel := r.WithCancel(context.Background())
		leave = cancel
		r.Go(func() {
			got, failed := handle(ctx, f)
			s.After(s.Between(time.Millisecond, 50*time.Millisecond), func() {
				a, err = got, failed
				done.Set()
			})
		})
	})
	wait := clientWait
	if early {
		wait = s.Between(0, 3*time.Second)
	}
	heard = done.Wait(context.Background(), wait)
	if !heard {
		leave()
	}
	return a, err, heard
}

// tell notes an answer; an error that is no refusal is a fault.
func (w *World) tell(ref operation.Ref, a operation.Answer, err error) Told {
	t := Told{Ref: ref, Status: a.Status, Body: string(a.Body), Final: a.Final, Retry: a.RetryAfter}
	var p *problem.Problem
	switch {
	case errors.As(err, &p):
		t = Told{Ref: ref, Status: p.Row().Status, Code: p.Code, Retry: p.RetryAfter}
	case ref.Kind == checks && (errors.Is(err, operation.ErrNothingDone) || errors.Is(err, operation.ErrCommitUnknown)):
		t.Status = 503 // the database is away: whoever asked asks again
	case err != nil:
		w.Faults = append(w.Faults, "answer to "+ref.Key+": "+err.Error())
	}
	var body struct {
		ID     string `json:"id"`
		Status string `json:"status"`
	}
	if json.Unmarshal(a.Body, &body) == nil {
		if shown, err := id.Parse(id.Payment, body.ID); err == nil {
			t.Payment = shown
		}
		t.State = body.Status
	}
	w.Scheduler.Note("answers", ref.Key, strconv.Itoa(t.Status), string(t.Code), t.State)
	w.Counts["told "+strconv.Itoa(t.Status)+" "+string(t.Code)+t.State]++
	return t
}
