package flow

import (
	"context"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/problem"
)

// checkMods bounds the open modifications that one check asks about, newest first.
const checkMods = 8

// Check asks the acquirer now about a payment and what was done to it, and applies what it says, like any other evidence:
// any number of checks, with sweep and webhooks, apply a result once. It takes no key, and its answer is never stored. A payment
// that is not the merchant's does not exist (PROTOCOL W1, I-15). Where the acquirer cannot be asked, the answer is what is known.
func (f *Flow) Check(ctx context.Context, merchant, pay id.ID, requestID string) (operation.Answer, error) {
	at, mods, now, err := f.standing(ctx, merchant, pay)
	if err != nil {
		return operation.Answer{}, err
	}
	if r, err := f.routeFor(ctx, merchant, at.Payment.Account); err == nil {
		if err := f.ask(ctx, r.adapter, at, mods, now, requestID); err != nil {
			return operation.Answer{}, err
		}
	}
	if at, _, _, err = f.standing(ctx, merchant, pay); err != nil {
		return operation.Answer{}, err
	}
	return f.checked(ctx, at)
}

// standing reads the payment as it is, with its open modifications.
func (f *Flow) standing(ctx context.Context, merchant, pay id.ID) (at Attempt, open []payment.Modification, now time.Time, err error) {
	err = f.store.InTx(ctx, "check", func(ctx context.Context, tx Tx) error {
		open = nil
		g, err := tx.Guard(ctx)
		if err != nil {
			return err
		}
		found, err := tx.ReadPayments(ctx, []Row{{merchant, pay}})
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return problem.New(problem.NotFound, "")
		}
		mods, err := tx.ModificationsOf(ctx, []Row{{merchant, pay}})
		for n := len(mods) - 1; n >= 0 && len(open) < checkMods; n-- {
			if mods[n].Status.Open() && mods[n].Action != "" {
				open = append(open, mods[n])
			}
		}
		at, now = found[0], g.Now
		return err
	})
	return at, open, now, err
}

// ask looks the charge and the open modifications up and applies what is told.
func (f *Flow) ask(ctx context.Context, adapter acquirer.Adapter, at Attempt, mods []payment.Modification, now time.Time, requestID string) error {
	p := at.Payment
	told, _, ok := f.inquire(ctx, adapter, at, mods, now, requestID)
	if !ok {
		return nil
	}
	if err := f.faults.Hit(ctx, operation.PointAfterLookup); err != nil {
		return err
	}
	return f.store.InTx(ctx, "checked", func(ctx context.Context, tx Tx) error {
		g, err := tx.Guard(ctx)
		if err != nil {
			return err
		}
		fresh := append([]evidence.Observation(nil), told...) // a second run judges them anew
		return f.apply(ctx, tx, g, []truth{{row: Row{p.Merchant, p.ID}, intent: p.Intent, contract: f.contract(adapter), observations: fresh}})
	})
}

// inquire looks the charge and the open modifications up, within the bounds of the account; ok is false where it has no place.
// answered says whether the acquirer answered about the charge, where it can be asked.
func (f *Flow) inquire(ctx context.Context, adapter acquirer.Adapter, at Attempt, mods []payment.Modification, now time.Time,
	requestID string) (told []evidence.Observation, answered, ok bool) {
	p, contract := at.Payment, f.contract(adapter)
	leave, ok := f.limits.enter(p.Account, contract.ParallelBound(), f.rt.Instant().Mono)
	if !ok {
		return nil, false, false
	}
	answered = true
	if action := chargeAction(p); contract.For(action).CanLookup() {
		told = f.look(ctx, adapter, p, now, requestID)
		answered = told[0].Answered
	}
	for _, m := range mods {
		if contract.For(m.Action).CanLookup() {
			reply := adapter.Lookup(ctx, acquirer.Query{Action: m.Action, Key: m.AcquirerKey, Object: objectOf(p, m)})
			for _, o := range f.observations(p, m.Action, evidence.FromLookup, reply, now, requestID) {
				o.Modification = m.ID
				told = append(told, o)
			}
		}
	}
	leave(answered, f.rt.Instant().Mono)
	return told, answered, true
}

// objectOf is the acquirer's id of what a modification is about.
func objectOf(p payment.Payment, m payment.Modification) string {
	if m.Action == acquirer.ActionClose {
		return p.Session
	}
	return p.AcquirerReference
}

// checked tells what is true now: a check of a refused payment is no refusal of the check.
func (f *Flow) checked(ctx context.Context, at Attempt) (operation.Answer, error) {
	var out operation.Answer
	err := f.store.InTx(ctx, "current", func(ctx context.Context, tx Tx) error {
		x, err := waiting(ctx, tx, at.Payment)
		out = answerOf(at, x)
		return err
	})
	if out.Final {
		out.Status, out.Final = 200, false
	}
	return out, err
}
