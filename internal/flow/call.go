package flow

import (
	"context"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
)

// findings are what a call learned: the result that Call hands to Record.
type findings struct {
	observations []evidence.Observation
	contract     acquirer.Contract
	notBefore    time.Duration // the next question not sooner than this
}

// Pause before the one repeat in a request (PROTOCOL A3), with jitter.
const (
	repeatPause  = 200 * time.Millisecond
	repeatJitter = 200 * time.Millisecond
)

// Call implements operation.Caller: it sends under the permit of the claim, or asks after a takeover.
func (k *createPayment) Call(ctx context.Context, w *operation.Work) (operation.Result, error) {
	r, ok := w.Data.(route)
	if !ok {
		var err error
		if r, err = k.f.routeFor(ctx, w.Op.Merchant, w.Op.Account); err != nil {
			// The account cannot be used now: nothing was asked, the operation stays due.
			return findings{notBefore: unusableAccount}, nil
		}
	}
	c := &caller{f: k.f, w: w, adapter: r.adapter, out: findings{contract: k.f.contract(r.adapter)}}
	var err error
	if w.Takeover {
		err = c.recover(ctx)
	} else {
		err = c.charge(ctx)
	}
	return c.out, err
}

const unusableAccount = time.Minute

// routeFor reads the account in a short transaction of its own, before anything is sent.
func (f *Flow) routeFor(ctx context.Context, merchant, account id.ID) (route, error) {
	var r route
	err := f.store.InTx(ctx, "account", func(ctx context.Context, tx Tx) error {
		accounts, err := tx.Accounts(ctx, []id.ID{merchant})
		for _, a := range accounts {
			if a.ID == account {
				r.account = a
			}
		}
		return err
	})
	if err != nil {
		return route{}, err
	}
	r.adapter, err = f.acquirers.For(r.account)
	return r, err
}

// caller makes the calls of one ownership.
type caller struct {
	f       *Flow
	w       *operation.Work
	adapter acquirer.Adapter
	out     findings
}

func (c *caller) prepared() acquirer.Prepared {
	return acquirer.Prepared{Action: c.w.Op.Action, Key: c.w.Op.AcquirerKey, Body: c.w.Op.RequestBody}
}

// charge sends the first request, and repeats it at most once: the same stored bytes, where zero bytes left or where the
// acquirer honours the key, with a permit of its own, inside the budget (PROTOCOL A3).
func (c *caller) charge(ctx context.Context) error {
	first := c.send(ctx, c.w.Permit)
	if err := c.w.Hit(ctx, operation.PointAfterReply); err != nil {
		return err
	}
	mayRepeat := first.Outcome == acquirer.OutcomeNotSent ||
		first.Outcome == acquirer.OutcomeUnknown && !first.Answered && c.out.contract.Repeatable()
	if !mayRepeat {
		return nil
	}
	c.f.rt.Sleep(ctx, repeatPause+time.Duration(c.f.rt.Jitter()*float64(repeatJitter)))
	if ctx.Err() != nil {
		return nil
	}
	permit, _, err := c.w.AskPermit(ctx, c.terms())
	if err != nil || permit == nil {
		return err
	}
	c.send(ctx, permit)
	return nil
}

func (c *caller) terms() operation.PermitTerms {
	return operation.PermitTerms{MaxSends: c.out.contract.MaxSends(), CutOff: c.out.contract.CutOff(),
		HeldOK: c.out.contract.Repeatable() && !c.w.Lost()}
}

// send makes the one request that the permit allows, and keeps what it learned.
func (c *caller) send(ctx context.Context, permit *wire.Permit) acquirer.Reply {
	reply := c.adapter.Send(ctx, c.prepared(), permit)
	if reply.Outcome == acquirer.OutcomeNotSent {
		c.w.Unsent++
	}
	c.note(evidence.FromCall, reply, evidence.InferNothing, "", "")
	return reply
}

// recover asks what the acquirer holds, and does what PROTOCOL section 7 allows.
func (c *caller) recover(ctx context.Context) error {
	leave, ok := c.f.limits.enter(c.w.Op.Account, c.out.contract.ParallelBound(), c.f.rt.Instant().Mono)
	if !ok {
		c.out.notBefore = breakFor
		return nil
	}
	if err := c.w.Hit(ctx, operation.PointBeforeLookup); err != nil {
		return err
	}
	reply := acquirer.Reply{Outcome: acquirer.OutcomeUnknown, Class: "no_lookup"}
	if c.out.contract.CanLookup() {
		reply = c.adapter.Lookup(ctx, acquirer.Query{Key: c.w.Op.AcquirerKey})
		leave(reply.Answered, c.f.rt.Instant().Mono)
	} else {
		leave(true, c.f.rt.Instant().Mono)
	}
	if err := c.w.Hit(ctx, operation.PointAfterLookup); err != nil {
		return err
	}
	return c.follow(ctx, reply, c.maySend())
}

func (c *caller) maySend() bool {
	op := c.w.Op
	return op.State != operation.InReview && (c.w.ClientWaiting || c.w.Now.Before(op.SendUntil))
}

func (c *caller) plan(reply acquirer.Reply, maySend bool) evidence.Plan {
	op := c.w.Op
	return evidence.Next(evidence.Asked{Contract: c.out.contract, Reply: reply, AskedAt: c.w.Now, FirstPermitAt: op.FirstPermitAt,
		LastPermitAt: op.LastPermitAt, Sends: op.Sends, Unsent: op.Unsent, MaySend: maySend, Lost: c.w.Lost(),
		InReview: op.State == operation.InReview})
}

// follow carries out the step that the lookup's answer leads to.
func (c *caller) follow(ctx context.Context, reply acquirer.Reply, maySend bool) error {
	p := c.plan(reply, maySend)
	switch p.Step {
	case evidence.NotExecutedStep:
		c.note(evidence.FromLookup, reply, evidence.InferNotExecuted, "", p.Why)
	case evidence.GiveUp:
		c.note(evidence.FromLookup, reply, evidence.InferGiveUp, p.Review, p.Why)
	case evidence.SendAgain:
		return c.sendAgain(ctx, reply)
	default:
		c.note(evidence.FromLookup, reply, evidence.InferNothing, "", p.Why)
		c.out.notBefore = p.NotBefore
	}
	return nil
}

// sendAgain sends the same stored request under a permit, once per takeover; a denied permit is followed as if sending
// had never been possible.
func (c *caller) sendAgain(ctx context.Context, reply acquirer.Reply) error {
	permit, denied, err := c.w.AskPermit(ctx, c.terms())
	if err != nil {
		return err
	}
	if permit != nil {
		c.note(evidence.FromLookup, reply, evidence.InferNothing, "", "not found: the same request is sent again")
		c.send(ctx, permit)
		return nil
	}
	switch denied {
	case operation.DeniedLate, operation.DeniedExpired, operation.DeniedBudget, operation.DeniedCutOff:
		return c.follow(ctx, reply, false)
	}
	c.note(evidence.FromLookup, reply, evidence.InferNothing, "", "no permit: "+denied)
	return nil
}

// note keeps one observation. A call's answer and a lookup count as of when the owner took over, which is before both.
func (c *caller) note(source evidence.Source, reply acquirer.Reply, inference evidence.Inference, review, why string) {
	op := c.w.Op
	c.out.observations = append(c.out.observations, evidence.Observation{Merchant: op.Merchant, ID: c.f.rt.NewID(),
		Intent: op.Intent, Payment: op.Payment, Operation: op.ID, Account: op.Account, Source: source, Reply: reply,
		AskedAt: c.w.Now, Fence: op.Fence, Inference: inference, Note: review, Why: why, Request: c.w.RequestID})
}
