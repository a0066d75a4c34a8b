package flow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/present"
)

// modify is what capture, cancel, refund and compensation have in common: claim (admit in modify_open.go), call and record.
// Each is an operation of its own, with a key, an unknown state and a person at its end, like the payment itself.
type modify struct {
	f    *Flow
	kind operation.Kind
}

var _ operation.Caller[Tx] = (*modify)(nil)

// Unconfirmed implements operation.Handler.
func (k *modify) Unconfirmed(r operation.Request) operation.Answer { return unconfirmed(r) }

// Current tells the state of the modification that the operation is about.
func (k *modify) Current(ctx context.Context, tx Tx, op operation.Operation) (operation.Answer, error) {
	found, err := tx.ReadPayments(ctx, []Row{{op.Merchant, op.Payment}})
	if err != nil {
		return operation.Answer{}, err
	}
	m, ok, err := tx.ModificationByID(ctx, Row{op.Merchant, op.Modification})
	if err != nil {
		return operation.Answer{}, err
	}
	if len(found) == 0 || !ok {
		return operation.Answer{}, fmt.Errorf("operation %s has no payment or modification", op.ID)
	}
	a := modificationAnswer(found[0], m)
	if op.State == operation.InReview {
		a.RetryAfter = retryReview
	}
	return a, nil
}

// modificationAnswer tells the state of a modification: a final answer, or the current state. A capture and a cancel tell it
// with their payment, since what is true of that is what the client needs.
func modificationAnswer(a Attempt, m payment.Modification) operation.Answer {
	out := operation.Answer{Status: 202, Location: present.PaymentPath(a.Payment.ID), RetryAfter: retryAfter}
	if m.Type == payment.Refund || m.Type == payment.Compensation {
		out.Body, out.Location = present.Refund(a.Intent, a.Payment, m), present.RefundPath(m.ID)
	} else {
		out.Body = present.PaymentWith(a.Intent, a.Payment, present.Extra{Modification: &m})
	}
	switch m.Status {
	case payment.ModSucceeded:
		out.Status, out.Final, out.RetryAfter = 201, true, 0
	case payment.ModFailed:
		out.Status, out.Final, out.RetryAfter = 422, true, 0
	}
	return out
}

// Call implements operation.Caller. The usual owner sends under the permit of the claim; who takes over asks, unless nothing was
// ever sent: then the call is made for the first time.
func (k *modify) Call(ctx context.Context, w *operation.Work) (operation.Result, error) {
	r, ok := w.Data.(route)
	if !ok {
		var err error
		if r, err = k.f.routeOf(ctx, w.Op); err != nil {
			return k.f.unusable(ctx, w, err)
		}
	}
	base := k.f.contract(r.adapter)
	c := &caller{f: k.f, w: w, adapter: r.adapter, contract: base.For(acquirer.Action(w.Op.Action)), out: findings{contract: base}}
	if w.Op.Action == "" {
		bound, err := k.bind(ctx, c)
		if err != nil || !bound {
			c.out.notBefore = waitForCharge
			return c.out, err
		}
	}
	var err error
	switch {
	case w.Op.Sends == 0 && c.maybeSent():
		err = c.askOnly(ctx)
	case w.Op.Sends == 0:
		err = c.first(ctx)
	case w.Takeover:
		err = c.recover(ctx)
	default:
		err = c.charge(ctx)
	}
	if err == nil {
		err = c.confirm(ctx)
	}
	return c.out, err
}

// waitForCharge is how often a cancel looks whether what it waits for is known; whoever learns it makes it due at once.
const waitForCharge = 30 * time.Second

// routeOf is routeFor for an operation whose account may not be bound yet.
func (f *Flow) routeOf(ctx context.Context, op operation.Operation) (route, error) {
	account := op.Account
	if account.IsZero() {
		err := f.store.InTx(ctx, "account", func(ctx context.Context, tx Tx) error {
			found, err := tx.ReadPayments(ctx, []Row{{op.Merchant, op.Payment}})
			if len(found) > 0 {
				account = found[0].Payment.Account
			}
			return err
		})
		if err != nil {
			return route{}, err
		}
	}
	return f.routeFor(ctx, op.Merchant, account)
}

// bind decides and stores what is sent, in a transaction of its own, before anything is (PROTOCOL A1).
func (k *modify) bind(ctx context.Context, c *caller) (bool, error) {
	bound, forestalled := false, false
	err := k.f.store.InTx(ctx, "bind", func(ctx context.Context, tx Tx) error {
		bound, forestalled = false, false
		op := c.w.Op
		s, err := k.f.load(ctx, tx, []truth{{row: Row{op.Merchant, op.Payment}, intent: op.Intent, contract: c.out.contract}})
		if err != nil {
			return err
		}
		one := s.subjects[0]
		m := one.modification(op.Modification)
		if m == nil || !m.Status.Open() || m.Type == payment.Cancel && one.now.Status != payment.Canceling {
			return nil
		}
		if m.Type == payment.Compensation && !keptAside(s.movements, m.Movement) {
			forestalled = true
			return nil
		}
		request, known := callOf(one.now, *m, s.movements)
		if !known || !c.out.contract.Offers(request.Action) {
			return nil
		}
		prepared, err := c.adapter.Prepare(request)
		if err != nil {
			return fmt.Errorf("%s %s: %w", m.Type, m.ID, err)
		}
		op.Account, op.Action, op.AcquirerKey = one.now.Account, string(prepared.Action), prepared.Key
		op.Object, op.RequestBody = prepared.Object, prepared.Body
		was := *m
		m.Action, m.Version, m.UpdatedAt = prepared.Action, was.Version+1, was.UpdatedAt
		if err := tx.SaveModifications(ctx, []ModificationChange{{was.Status, was.Version, *m}}); err != nil {
			return err
		}
		done, err := tx.BindCalls(ctx, []operation.Operation{op})
		if err != nil || len(done) != 1 || !done[0] {
			return errors.Join(err, errNotBound)
		}
		c.w.Op, bound = op, true
		return nil
	})
	if errors.Is(err, errNotBound) { // somebody else owns it now
		return false, nil
	}
	if forestalled && err == nil {
		c.note(evidence.FromLookup, acquirer.Reply{Class: "not_sent", About: acquirer.ActionRefund}, evidence.InferNotExecuted, "",
			"nothing was sent: what was to be given back is kept aside no more")
	}
	c.contract = c.out.contract.For(acquirer.Action(c.w.Op.Action))
	return bound && err == nil, ignoreAway(err)
}

// keptAside says whether money still waits to be given back.
func keptAside(movements []payment.Movement, row id.ID) bool {
	return slices.ContainsFunc(movements, func(m payment.Movement) bool { return m.ID == row && m.State == payment.Unapplied })
}

var errNotBound = errors.New("the operation was taken over")

// ignoreAway lets a database that is away pass: nothing was sent, and the operation stays due.
func ignoreAway(err error) error {
	if errors.Is(err, operation.ErrVanished) {
		return err
	}
	return nil
}

// maybeSent says whether a call that this row never counted may have been made all the same: by a row that a failover lost, at
// an acquirer for which a second one is no replay (PROTOCOL A8).
func (c *caller) maybeSent() bool {
	return c.w.Lost() && (!c.contract.Repeatable() || c.w.Now.Sub(c.w.Op.CreatedAt) >= c.contract.CutOff())
}

// askOnly looks up and never sends; what is not found goes to a person.
func (c *caller) askOnly(ctx context.Context) error {
	reply := acquirer.Reply{Class: "no_lookup"}
	if c.contract.CanLookup() {
		reply = c.adapter.Lookup(ctx, c.question(c.w.Op.AcquirerKey))
	}
	if p := c.plan(reply, false); p.Step == evidence.Record {
		c.note(evidence.FromLookup, reply, evidence.InferNothing, "", p.Why)
		return nil
	}
	c.note(evidence.FromLookup, reply, evidence.InferGiveUp, string(payment.ReviewNoProof), "a failover may have lost that this was sent")
	return nil
}

// first makes the call of an operation that nobody has sent for yet: nothing can be under way, so nothing is asked before.
func (c *caller) first(ctx context.Context) error {
	permit, denied, err := c.permit(ctx)
	if err != nil {
		return err
	}
	if permit == nil {
		c.note(evidence.FromLookup, acquirer.Reply{Class: "not_sent"}, evidence.InferNothing, "", "no permit: "+denied)
		return nil
	}
	c.send(ctx, permit)
	return c.w.Hit(ctx, operation.PointAfterReply)
}

// confirm asks what is true of the charge after a change to it was refused, or a cancel was not done: that says what was not done
// now, not what is true (cases 19, 26). What the charge shows is told first, so that the refusal is judged beside it. Where a cancel gave
// money back, the charge is asked as well, and told last: somebody took that money, and nobody has told it yet (I-14).
func (c *caller) confirm(ctx context.Context) error {
	canceling := c.w.Op.Kind == operation.CancelPayment
	asks := func(o evidence.Observation) bool {
		switch o.Outcome {
		case acquirer.OutcomeDeclined:
			return o.About != acquirer.ActionCharge
		case acquirer.OutcomeRejected, acquirer.OutcomeNotSent:
			return canceling && o.Source == evidence.FromCall
		}
		return canceling && o.Inference == evidence.InferNotExecuted
	}
	gaveBack := canceling && slices.ContainsFunc(c.out.observations, func(o evidence.Observation) bool {
		return o.Outcome == acquirer.OutcomeSucceeded && o.About == acquirer.ActionReverse && o.Amount.IsPositive()
	})
	if !gaveBack && !slices.ContainsFunc(c.out.observations, asks) {
		return nil
	}
	if err := c.w.Hit(ctx, operation.PointBeforeLookup); err != nil {
		return err
	}
	told, err := c.f.askCharge(ctx, c.w.Op.Merchant, c.w.Op.Payment, c.adapter, c.w.RequestID)
	if err != nil {
		return ignoreAway(err)
	}
	if gaveBack {
		told, c.out.observations = c.out.observations, told
	}
	c.out.observations = append(told, c.out.observations...)
	return c.w.Hit(ctx, operation.PointAfterLookup)
}

// askCharge looks a payment's charge up by its key and gives what is told of it and of everything done upon it, as news that
// nobody's operation stands behind.
func (f *Flow) askCharge(ctx context.Context, merchant, pay id.ID, adapter acquirer.Adapter, request string) ([]evidence.Observation, error) {
	var at Attempt
	var now time.Time
	err := f.store.InTx(ctx, "charge", func(ctx context.Context, tx Tx) error {
		g, err := tx.Guard(ctx)
		if err != nil {
			return err
		}
		now = g.Now
		found, err := tx.ReadPayments(ctx, []Row{{merchant, pay}})
		if err != nil || len(found) == 0 {
			return errors.Join(err, errUnusable)
		}
		at = found[0]
		return nil
	})
	if err != nil {
		return nil, err
	}
	action := chargeAction(at.Payment)
	if !f.contract(adapter).For(action).CanLookup() {
		return nil, nil
	}
	return f.look(ctx, adapter, at.Payment, now, request), nil
}

// look asks about the charge by its key; of a hosted payment about the page and about charges beside it, since an acquirer
// that charges without the page must not be able to hide it (PROTOCOL E5).
func (f *Flow) look(ctx context.Context, adapter acquirer.Adapter, p payment.Payment, now time.Time, request string) []evidence.Observation {
	action := chargeAction(p)
	reply := adapter.Lookup(ctx, acquirer.Query{Action: action, Key: p.AcquirerKey})
	told := f.observations(p, action, evidence.FromLookup, reply, now, request)
	if action == acquirer.ActionCharge || !reply.Answered || !adapter.Contract().CanLookup() {
		return told
	}
	beside := adapter.Lookup(ctx, acquirer.Query{Action: acquirer.ActionCharge, Key: p.AcquirerKey})
	if beside.Outcome == acquirer.OutcomeSucceeded || beside.Outcome == acquirer.OutcomeHeld {
		told = append(told, f.observations(p, acquirer.ActionCharge, evidence.FromLookup, beside, now, request)...)
	}
	return told
}

// chargeAction is the call that made a payment.
func chargeAction(p payment.Payment) acquirer.Action {
	if p.Flow == payment.Hosted {
		return acquirer.ActionSession
	}
	return acquirer.ActionCharge
}

// observations makes one observation of a reply and of each that it brought along.
func (f *Flow) observations(p payment.Payment, asked acquirer.Action, source evidence.Source, reply acquirer.Reply, at time.Time, request string) []evidence.Observation {
	var all []evidence.Observation
	for _, r := range append([]acquirer.Reply{reply}, reply.Also...) {
		if r.About == "" {
			r.About = asked
		}
		r.Also = nil
		all = append(all, evidence.Observation{Merchant: p.Merchant, ID: f.rt.NewID(), Intent: p.Intent, Payment: p.ID,
			Account: p.Account, Source: source, Reply: r, AskedAt: at, Request: request})
	}
	return all
}

// Record implements operation.Caller.
func (k *modify) Record(ctx context.Context, tx Tx, g operation.Guard, w *operation.Work, r operation.Result) error {
	return k.f.apply(ctx, tx, g, []truth{k.f.truthOf(g, w, r.(findings))})
}

// Follow implements operation.Caller.
func (k *modify) Follow(ctx context.Context, tx Tx, g operation.Guard, op operation.Operation) error {
	return k.f.apply(ctx, tx, g, []truth{{row: Row{op.Merchant, op.Payment}, intent: op.Intent}})
}
