package flow

import (
	"context"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
)

// gatePostpone is how far a gate's due time moves when it is picked (PROTOCOL S2).
const gatePostpone = 5 * time.Minute

// OpenGates asks about payments that are due by themselves: refused ones whose flight time is over, to open their gates where
// nothing moved (PROTOCOL P6 d), and holds that should be over (S4). It returns how many it looked at. Errors of one payment do not stop the others: the first is returned.
func (f *Flow) OpenGates(ctx context.Context, limit, perMerchant int) (int, error) {
	var due []payment.Payment
	var now time.Time
	err := f.store.InTx(ctx, "gates", func(ctx context.Context, tx Tx) error {
		g, err := tx.Guard(ctx)
		if err != nil {
			return err
		}
		now = g.Now
		due, err = tx.DuePayments(ctx, limit, perMerchant, gatePostpone)
		return err
	})
	if err != nil {
		return 0, err
	}
	var first error
	for _, p := range due {
		look := f.openGate
		if !p.Status.Refusal() {
			look = f.holdDue
		}
		if err := look(ctx, p, now); err != nil && first == nil {
			first = err
		}
	}
	return len(due), first
}

// holdDue asks about a hold that should be over by now: a local time proves nothing, only the acquirer ends it (PROTOCOL S4).
// One that cannot be asked about is for a person.
func (f *Flow) holdDue(ctx context.Context, p payment.Payment, now time.Time) error {
	r, err := f.routeFor(ctx, p.Merchant, p.Account)
	if err != nil {
		return err
	}
	told, err := f.askCharge(ctx, p.Merchant, p.ID, r.adapter, "")
	if err != nil {
		return err
	}
	if len(told) == 0 {
		told = []evidence.Observation{{Merchant: p.Merchant, ID: f.rt.NewID(), Intent: p.Intent, Payment: p.ID, Account: p.Account,
			Source: evidence.FromLookup, AskedAt: now, Reply: acquirer.Reply{Class: "no_lookup", About: chargeAction(p)},
			Inference: evidence.InferGiveUp, Note: string(payment.ReviewNoProof), Why: "the hold should be over, and the acquirer cannot be asked"}}
	}
	return f.store.InTx(ctx, "hold", func(ctx context.Context, tx Tx) error {
		g, err := tx.Guard(ctx)
		if err != nil {
			return err
		}
		return f.apply(ctx, tx, g, []truth{{row: Row{p.Merchant, p.ID}, intent: p.Intent, contract: f.contract(r.adapter), gate: true, observations: told}})
	})
}

func (f *Flow) openGate(ctx context.Context, p payment.Payment, now time.Time) error {
	r, err := f.routeFor(ctx, p.Merchant, p.Account)
	if err != nil {
		return err
	}
	base := f.contract(r.adapter)
	c := base.For(chargeAction(p))
	o := evidence.Observation{Merchant: p.Merchant, ID: f.rt.NewID(), Intent: p.Intent, Payment: p.ID, Account: p.Account,
		Source: evidence.FromLookup, AskedAt: now}
	why := "refused, but whether an earlier request still moved money cannot be asked"
	proven := false
	if c.CanLookup() {
		// By the key, never by the refused object's own id: what matters is whether anything else moved under the key.
		o.Reply = r.adapter.Lookup(ctx, acquirer.Query{Action: chargeAction(p), Key: p.AcquirerKey})
		why = "refused, and nothing is found any more, which proves nothing at this acquirer"
		proven = o.Outcome != acquirer.OutcomeNotFound || c.NotFoundProves(now.Sub(p.CreatedAt))
		if o.Outcome == acquirer.OutcomeUnknown && now.Sub(p.RefusedAt) > evidence.Patience(c) {
			proven, why = false, "refused, and the acquirer has not told for long whether anything else moved money"
		}
	} else {
		o.Class = "no_lookup"
	}
	switch {
	case !proven:
		o.Inference, o.Note, o.Why = evidence.InferGiveUp, string(payment.ReviewNoProof), why
	case o.Outcome == acquirer.OutcomeNotFound:
		o.Inference = evidence.InferNotExecuted
	}
	return f.store.InTx(ctx, "gate", func(ctx context.Context, tx Tx) error {
		g, err := tx.Guard(ctx)
		if err != nil {
			return err
		}
		return f.apply(ctx, tx, g, []truth{{row: Row{p.Merchant, p.ID}, intent: p.Intent, contract: base, gate: true,
			observations: f.split(o)}})
	})
}

// split makes one observation of each thing that a lookup told, the conclusion with the first of them.
func (f *Flow) split(o evidence.Observation) []evidence.Observation {
	also := o.Also
	o.Also = nil
	all := []evidence.Observation{o}
	for _, r := range also {
		more := o
		more.ID, more.Reply, more.Inference, more.Note = f.rt.NewID(), r, evidence.InferNothing, ""
		all = append(all, more)
	}
	return all
}

// contractOf reads the contract of a payment's account inside a transaction.
func (f *Flow) contractOf(ctx context.Context, tx Tx, p payment.Payment) (acquirer.Contract, error) {
	accounts, err := tx.Accounts(ctx, []id.ID{p.Merchant})
	if err != nil {
		return acquirer.Contract{}, err
	}
	for _, a := range accounts {
		if a.ID != p.Account {
			continue
		}
		adapter, err := f.acquirers.For(a)
		if err != nil {
			return acquirer.Contract{}, nil // the strictest reading
		}
		return f.contract(adapter), nil
	}
	return acquirer.Contract{}, nil
}

var _ operation.Caller[Tx] = (*createPayment)(nil)
