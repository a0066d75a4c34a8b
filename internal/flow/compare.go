package flow

import (
	"context"
	"fmt"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/ledger"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
)

// Limits of the comparison after a failover.
const (
	compareAccounts = 16
	compareBatch    = 64
	clockMargin     = 5 * time.Minute // by which an acquirer's clock may differ from the database's
)

// CompareLost compares the lost interval of a failover or restore with the movements of each acquirer account, so that
// every movement is attributed or in review, and ends the hold (PROTOCOL A8, I-18). It returns how many accounts it
// compared; an account whose acquirer lists no movements waits for a person (`hapax epoch acknowledge`).
func (f *Flow) CompareLost(ctx context.Context) (int, error) {
	var g operation.Guard
	var accounts []Account
	err := f.store.InTx(ctx, "uncompared", func(ctx context.Context, tx Tx) (err error) {
		if g, err = tx.Guard(ctx); err != nil || !g.Held {
			return err
		}
		accounts, err = tx.UncomparedAccounts(ctx, g.Epoch, compareAccounts)
		return err
	})
	if err != nil {
		return 0, err
	}
	done := 0
	var first error
	for _, a := range accounts {
		ok, err := f.compare(ctx, g, a)
		if err != nil && first == nil {
			first = err
		}
		if ok {
			done++
		}
	}
	return done, first
}

func (f *Flow) compare(ctx context.Context, g operation.Guard, a Account) (bool, error) {
	adapter, err := f.acquirers.For(a)
	if err != nil {
		return false, err
	}
	c := f.contract(adapter)
	if !c.ListsMovements {
		return false, nil
	}
	margin := c.Flight() + c.LookupLag
	if g.Now.Before(g.LostTo.Add(margin)) {
		return false, nil // what left before the failover may still arrive
	}
	// Up to now, and not only to the interval's end: what is listed beyond it is recognised, and clocks differ.
	moved, err := adapter.Movements(ctx, g.LostFrom.Add(-margin-clockMargin), g.Now.Add(clockMargin))
	if err != nil {
		return false, fmt.Errorf("movements of account %s: %w", a.ID, err)
	}
	for len(moved) > 0 {
		n := min(compareBatch, len(moved))
		if err := f.attribute(ctx, a, c, moved[:n], g.Now); err != nil {
			return false, err
		}
		moved = moved[n:]
	}
	err = f.store.InTx(ctx, "compared", func(ctx context.Context, tx Tx) error {
		return tx.MarkCompared(ctx, Row{a.Merchant, a.ID}, g.Epoch)
	})
	return err == nil, err
}

// attribute applies movements to the payments whose keys they carry, and keeps the others aside with a review.
func (f *Flow) attribute(ctx context.Context, a Account, c acquirer.Contract, moved []acquirer.Movement, asked time.Time) error {
	return f.store.InTx(ctx, "attribute", func(ctx context.Context, tx Tx) error {
		g, err := tx.Guard(ctx)
		if err != nil {
			return err
		}
		keys := make([]string, len(moved))
		for n, m := range moved {
			keys[n] = m.OurReference
		}
		found, err := tx.PaymentsByAcquirerKey(ctx, a.Merchant, keys)
		if err != nil {
			return err
		}
		owners, err := f.ownersOf(ctx, tx, a, moved, found)
		if err != nil {
			return err
		}
		var truths []truth
		var strays []stray
		for _, m := range moved {
			p, ok := owners[chargeOf(m)]
			if !ok && payment.Foreign(f.cfg.Environment, a.Merchant, m.OurReference) {
				continue // another tenant's or installation's, through the same acquirer account
			}
			if !ok {
				strays = append(strays, stray{m, f.movementSeen(payment.Payment{Merchant: a.Merchant, Account: a.ID}, m, moved, g.Now)})
				continue
			}
			truths = append(truths, truth{row: Row{p.Merchant, p.ID}, intent: p.Intent, contract: c,
				observations: []evidence.Observation{f.movementSeen(p, m, moved, asked)}})
		}
		for _, t := range truths { // one after another: two movements of one payment must see each other
			if err := f.apply(ctx, tx, g, []truth{t}); err != nil {
				return err
			}
		}
		return f.keepAside(ctx, tx, g, a, strays)
	})
}

// chargeOf is the acquirer's id of the charge that a listed movement is about.
func chargeOf(m acquirer.Movement) string {
	if m.Object != "" {
		return m.Object
	}
	return m.Reference
}

// ownersOf finds the payment of each charge in the list: by the key that was sent for it, or by what is booked of it.
func (f *Flow) ownersOf(ctx context.Context, tx Tx, a Account, moved []acquirer.Movement, byKey []payment.Payment) (map[string]payment.Payment, error) {
	owners := map[string]payment.Payment{}
	var charges []string
	for _, m := range moved {
		charges = append(charges, chargeOf(m))
	}
	known, err := tx.PaymentsByCharge(ctx, Row{a.Merchant, a.ID}, charges)
	if err != nil {
		return nil, err
	}
	for _, k := range known {
		owners[k.Charge] = k.Payment
	}
	for _, p := range byKey {
		for _, m := range moved {
			if m.OurReference == p.AcquirerKey {
				owners[chargeOf(m)] = p
			}
		}
	}
	return owners, nil
}

// movementSeen tells of a listed movement in the words of a lookup.
func (f *Flow) movementSeen(p payment.Payment, m acquirer.Movement, all []acquirer.Movement, asked time.Time) evidence.Observation {
	o := evidence.Observation{Merchant: p.Merchant, ID: f.rt.NewID(), Intent: p.Intent, Payment: p.ID, Account: p.Account,
		Source: evidence.FromMovements, AskedAt: asked, MovedAt: m.At, Reply: acquirer.Reply{Outcome: acquirer.OutcomeSucceeded,
			Class: "listed_movement", Reference: m.Reference, OurReference: m.OurReference, Object: m.Object, Amount: m.Amount}}
	switch m.Kind {
	case acquirer.MovementCapture:
		o.About = acquirer.ActionCapture
	case acquirer.MovementRefund:
		o.About = acquirer.ActionRefund
	case acquirer.MovementChargeback:
		o.About, o.Code = acquirer.ActionChargeback, string(payment.DisputeOpened)
	case acquirer.MovementReverse:
		undone(&o, m, all)
	default:
		o.About, o.Object = acquirer.ActionCharge, ""
	}
	return o
}

// undone tells what a listed reversal undid: a refund that came back from the bank, a chargeback that was won, or the charge.
func undone(o *evidence.Observation, m acquirer.Movement, all []acquirer.Movement) {
	o.About = acquirer.ActionReverse
	if m.Undoes == "" || m.Undoes == m.Object {
		return
	}
	o.About, o.Reference, o.OurReference = acquirer.ActionRefund, m.Undoes, ""
	o.Outcome, o.Failure = acquirer.OutcomeDeclined, "failed_at_bank"
	for _, other := range all {
		if other.Reference == m.Undoes && other.Kind == acquirer.MovementChargeback {
			o.About, o.Outcome, o.Failure, o.Code = acquirer.ActionChargeback, acquirer.OutcomeSucceeded, "", string(payment.DisputeWon)
		}
	}
}

// stray is money that moved and fits no payment of ours, with what told of it.
type stray struct {
	moved acquirer.Movement
	seen  evidence.Observation
}

// keepAside books strays, each with a review (PROTOCOL I-14).
func (f *Flow) keepAside(ctx context.Context, tx Tx, g operation.Guard, a Account, strays []stray) error {
	w := &writes{f: f, g: g}
	rows := make([]payment.Movement, len(strays))
	for n, one := range strays {
		m := one.moved
		rows[n] = payment.Movement{Merchant: a.Merchant, ID: f.rt.NewID(), Account: a.ID, Reference: m.Reference, Object: m.Object, Kind: m.Kind,
			AcquirerKey: m.OurReference, Amount: m.Amount, State: payment.Unapplied, Cause: string(payment.ReviewUnattributed), At: m.At}
	}
	fresh, err := tx.InsertMovements(ctx, rows)
	if err != nil {
		return err
	}
	for n, m := range rows {
		o := strays[n].seen
		if !fresh[n] {
			o.Effect, o.Why = evidence.Repeat, "this movement is booked already"
			w.evidence = append(w.evidence, o)
			continue
		}
		s := ledger.Subject{Merchant: m.Merchant, Account: m.Account, Base: unattributedBase(m)}
		rule := ledger.Excess
		if m.Taken() {
			rule = ledger.ReceivedUnapplied
		}
		w.post(s, ledger.Posting{Rule: rule, Reference: m.Reference, Amount: m.Amount})
		w.movementReview(m, "money moved at the acquirer under a key of which this database has no payment")
		o.Effect, o.Why = evidence.Booked, m.Cause
		w.evidence = append(w.evidence, o)
		f.watch.Alarm("unapplied_money", m.Merchant.String(), "", "")
	}
	return w.flush(ctx, tx)
}

func unattributedBase(m payment.Movement) string { return "account:" + m.Account.String() }
