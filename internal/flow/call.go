package flow

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
)

// findings are what a call learned: the result that Call hands to Record.
type findings struct {
	observations []evidence.Observation
	contract     acquirer.Contract // as it stands for a charge
	notBefore    time.Duration     // the next question not sooner than this
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
			return k.f.unusable(ctx, w, err)
		}
	}
	base := k.f.contract(r.adapter)
	c := &caller{f: k.f, w: w, adapter: r.adapter, contract: base.For(acquirer.Action(w.Op.Action)), out: findings{contract: base}}
	var err error
	if w.Takeover {
		err = c.recover(ctx)
	} else {
		err = c.charge(ctx)
	}
	return c.out, err
}

const unusableAccount = time.Minute

// unusable stands in for a call where the account cannot be used: the operation stays due, and by the strictest
// contract, since none can be read, it reaches a person in the end.
func (f *Flow) unusable(ctx context.Context, w *operation.Work, err error) (operation.Result, error) {
	c := &caller{f: f, w: w}
	if errors.Is(err, errUnusable) {
		if err := c.follow(ctx, acquirer.Reply{Outcome: acquirer.OutcomeUnknown, Class: "account_unusable"}, false); err != nil {
			return nil, err
		}
	}
	c.out.notBefore = unusableAccount
	return c.out, nil
}

// errUnusable says that an account has no adapter that can be used: gone, or its settings or secrets cannot be read.
var errUnusable = errors.New("the acquirer account cannot be used")

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
	if r.adapter, err = f.acquirers.For(r.account); err != nil {
		return route{}, errors.Join(errUnusable, err)
	}
	return r, nil
}

// caller makes the calls of one ownership.
type caller struct {
	f       *Flow
	w       *operation.Work
	adapter acquirer.Adapter
	// contract is what the acquirer promises for this call.
	contract acquirer.Contract
	out      findings
}

func (c *caller) prepared() acquirer.Prepared {
	return acquirer.Prepared{Action: acquirer.Action(c.w.Op.Action), Object: c.w.Op.Object, Key: c.w.Op.AcquirerKey, Body: c.w.Op.RequestBody}
}

// charge sends the first request, and repeats it at most once: the same stored bytes, where zero bytes left or where the
// acquirer honours the key, with a permit of its own, inside the budget (PROTOCOL A3).
func (c *caller) charge(ctx context.Context) error {
	if c.w.Lost() {
		if send, err := c.askFamily(ctx); !send || err != nil {
			return err
		}
	}
	first := c.send(ctx, c.w.Permit)
	if err := c.w.Hit(ctx, operation.PointAfterReply); err != nil {
		return err
	}
	mayRepeat := first.Outcome == acquirer.OutcomeNotSent ||
		first.Outcome == acquirer.OutcomeUnknown && !first.Answered && c.contract.Repeatable()
	if !mayRepeat {
		return nil
	}
	c.f.rt.Sleep(ctx, repeatPause+time.Duration(c.f.rt.Jitter()*float64(repeatJitter)))
	if ctx.Err() != nil {
		return nil
	}
	permit, _, err := c.permit(ctx)
	if err != nil || permit == nil {
		return err
	}
	c.send(ctx, permit)
	return nil
}

// permit asks for one more send by the contract's terms.
func (c *caller) permit(ctx context.Context) (*wire.Permit, string, error) {
	making := c.w.Op.Kind == operation.CreatePayment
	t := operation.PermitTerms{MaxSends: c.contract.MaxSends(), CutOff: c.contract.CutOff(),
		HeldOK: making && c.contract.Repeatable() && !c.w.Lost()}
	if !c.contract.Repeatable() {
		t.CutOff = 0
	}
	if making && c.w.Epoch > firstEpoch {
		family, err := c.f.familyOf(ctx, c.w.Op, c.adapter)
		if err != nil {
			return nil, "database: the intent could not be read", nil
		}
		t.Family = family
	}
	return c.w.AskPermit(ctx, t)
}

// askFamily asks, before the first send of a payment that may be the twin of a lost one, about its own key and the keys
// of later payments of its intent: "the same derived key is a replay" holds only for what the acquirer remembers, and a
// lost rejection is not remembered while a later payment moved money (PROTOCOL A8). It says whether to send.
func (c *caller) askFamily(ctx context.Context) (bool, error) {
	if !c.contract.CanLookup() || c.w.Now.Sub(c.w.LostTo) <= c.contract.LookupLag {
		c.note(evidence.FromLookup, acquirer.Reply{Class: "not_asked"}, evidence.InferNothing, "", "held: what a failover lost cannot be asked yet")
		return false, nil
	}
	family, err := c.f.familyOf(ctx, c.w.Op, c.adapter)
	if err != nil {
		c.note(evidence.FromLookup, acquirer.Reply{Class: "not_asked"}, evidence.InferNothing, "", "the intent could not be read")
		return false, nil
	}
	own := c.adapter.Lookup(ctx, c.question(c.w.Op.AcquirerKey))
	if own.Outcome != acquirer.OutcomeNotFound {
		return false, c.follow(ctx, own, false)
	}
	after := family[slices.Index(family, c.w.Op.AcquirerKey)+1:]
	for _, key := range after[:min(askAhead, len(after))] {
		reply := c.adapter.Lookup(ctx, c.question(key))
		if reply.Outcome != acquirer.OutcomeNotFound && reply.Outcome != acquirer.OutcomeDeclined && reply.Outcome != acquirer.OutcomeClosed {
			c.note(evidence.FromLookup, acquirer.Reply{Class: "later_payment"}, evidence.InferGiveUp, string(payment.ReviewNoProof),
				"a later payment of this intent may exist at the acquirer: this one is not sent")
			return false, nil
		}
	}
	return true, nil
}

const (
	firstEpoch  = 1
	familyAhead = 8 // ordinals beyond the present one whose keys are looked for among money that was kept aside
	askAhead    = 3 // of them, asked at the acquirer before a send during a hold
)

// familyOf gives the acquirer's keys of all payments that the operation's intent may ever have had, in their order.
func (f *Flow) familyOf(ctx context.Context, op operation.Operation, adapter acquirer.Adapter) ([]string, error) {
	var found []Attempt
	err := f.store.InTx(ctx, "family", func(ctx context.Context, tx Tx) (err error) {
		found, err = tx.ReadPayments(ctx, []Row{{op.Merchant, op.Payment}})
		return err
	})
	if err != nil || len(found) == 0 {
		return nil, errors.Join(err, errUnusable)
	}
	return f.family(found[0].Intent, adapter, found[0].Payment.N), nil
}

func (f *Flow) family(i payment.Intent, adapter acquirer.Adapter, n int) []string {
	keys := make([]string, n+familyAhead)
	for m := range keys {
		keys[m] = f.key(i, adapter, m+1)
	}
	return keys
}

// key is what leaves the house as key and reference of the n-th payment of an intent (PROTOCOL D2).
func (f *Flow) key(i payment.Intent, adapter acquirer.Adapter, n int) string {
	return payment.Wire(f.cfg.Environment, i.Merchant, payment.ChargeKey(i.KeySeed, n), adapter.Contract().KeyLength)
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
	if c.contract.CanLookup() {
		reply = c.adapter.Lookup(ctx, c.question(c.w.Op.AcquirerKey))
		leave(reply.Answered, c.f.rt.Instant().Mono)
	} else {
		leave(true, c.f.rt.Instant().Mono)
	}
	if err := c.w.Hit(ctx, operation.PointAfterLookup); err != nil {
		return err
	}
	return c.follow(ctx, reply, c.maySend())
}

// question asks about what was sent under a key.
func (c *caller) question(key string) acquirer.Query {
	return acquirer.Query{Action: acquirer.Action(c.w.Op.Action), Key: key, Object: c.w.Op.Object}
}

// maySend says whether somebody may still want it sent: the limit of W3 is for what first takes money.
func (c *caller) maySend() bool {
	op := c.w.Op
	if op.Kind != operation.CreatePayment {
		return op.State != operation.InReview
	}
	return op.State != operation.InReview && (c.w.ClientWaiting || c.w.Now.Before(op.SendUntil))
}

func (c *caller) plan(reply acquirer.Reply, maySend bool) evidence.Plan {
	op := c.w.Op
	return evidence.Next(evidence.Asked{Contract: c.contract, Action: acquirer.Action(op.Action), Reply: reply, AskedAt: c.w.Now, FirstPermitAt: op.FirstPermitAt,
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
	permit, denied, err := c.permit(ctx)
	if err != nil {
		return err
	}
	if permit != nil {
		c.note(evidence.FromLookup, reply, evidence.InferNothing, "", "not found: the same request is sent again")
		c.send(ctx, permit)
		return nil
	}
	switch denied {
	case operation.DeniedLate, operation.DeniedExpired, operation.DeniedBudget, operation.DeniedCutOff, operation.DeniedCanceling:
		return c.follow(ctx, reply, false)
	}
	c.note(evidence.FromLookup, reply, evidence.InferNothing, "", "no permit: "+denied)
	return nil
}

// note keeps one observation. A call's answer and a lookup count as of when the owner took over, which is before both. Only
// what is said about the owner's own call is said under its fence.
func (c *caller) note(source evidence.Source, reply acquirer.Reply, inference evidence.Inference, review, why string) {
	op := c.w.Op
	asked := acquirer.Action(op.Action)
	for _, r := range append([]acquirer.Reply{reply}, reply.Also...) {
		own := r.About == "" || r.About == asked || asked == "" || asked == acquirer.ActionSession && r.About == acquirer.ActionCharge
		if r.About == "" {
			r.About = asked
		}
		r.Also = nil
		o := evidence.Observation{Merchant: op.Merchant, ID: c.f.rt.NewID(), Intent: op.Intent, Payment: op.Payment, Operation: op.ID,
			Account: op.Account, Source: source, Reply: r, AskedAt: c.w.Now, Why: why, Request: c.w.RequestID}
		if own {
			o.Fence, o.Inference, o.Note, o.Modification = op.Fence, inference, review, op.Modification
		}
		c.out.observations = append(c.out.observations, o)
	}
}
