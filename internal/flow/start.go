package flow

import (
	"context"
	"fmt"
	"slices"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/money"
)

// start inserts the modifications that this transaction began, and the operations of those that nobody's request began: each
// enters by a natural key in the place of an idempotency key (PROTOCOL K13), is due at once, and learns what to send when
// it is taken over. The locks of intent and payment are held, and no other transaction inserts these keys without them.
func (w *writes) start(ctx context.Context, tx Tx) error {
	fresh, err := tx.InsertModifications(ctx, w.newMods)
	if err != nil {
		return err
	}
	for n := range fresh {
		if !fresh[n] {
			return fmt.Errorf("%s %s: another one is open", w.newMods[n].Type, w.newMods[n].ID)
		}
	}
	if len(w.started) == 0 {
		return nil
	}
	if fresh, err = tx.InsertOperations(ctx, w.started, 0); err != nil {
		return err
	}
	for n := range w.started {
		if !fresh[n] {
			return fmt.Errorf("%s %s was begun before", w.started[n].Kind, w.started[n].Modification)
		}
		w.started[n].State, w.started[n].DueAt = operation.AwaitingResult, w.g.Now
	}
	_, err = tx.SaveOperations(ctx, w.started, w.f.cfg.Retention)
	return err
}

// begin makes a modification that nobody's request asked for, with its operation.
func (w *writes) begin(one *subject, kind operation.Kind, m payment.Modification, naturalKey string) {
	fingerprint := payment.Fingerprint(words("kind", string(kind)), words("payment", one.now.ID.String()), words("key", naturalKey))
	m.Merchant, m.ID, m.Intent, m.Payment = one.now.Merchant, w.f.rt.NewID(), one.order.ID, one.now.ID
	m.K, m.Status, m.Account, m.Version, m.CreatedAt, m.UpdatedAt = one.nextK(m.Type), payment.ModPending, one.now.Account, 1, w.g.Now, w.g.Now
	m.By = payment.Command{Kind: string(kind), Key: naturalKey, Fingerprint: fingerprint, FPVersion: payment.FingerprintVersion}
	one.mods = append(one.mods, m)
	op := operation.Operation{Ref: operation.Ref{Merchant: m.Merchant, Kind: kind, Key: naturalKey}, ID: w.f.rt.NewID(),
		Fingerprint: fingerprint, FPVersion: payment.FingerprintVersion, RequestID: "by-" + string(kind), State: operation.InProgress, Fence: 1,
		ClaimID: w.f.rt.NewID(), Epoch: w.g.Epoch, Lost: w.g.Held, SendUntil: w.g.Now, Intent: m.Intent, Payment: m.Payment, Modification: m.ID}
	w.started = append(w.started, op)
	w.note(op, operation.WhatBegun, "by ourselves")
}

// cancelPage closes a page whose address was lost: nobody can pay there, and nothing else may open while it could be paid.
func (w *writes) cancelPage(one *subject) {
	to, ok := one.now.Status.Next(payment.CancelClaimed)
	if !ok {
		return
	}
	one.now.Status = to
	k := one.nextK(payment.Cancel)
	w.begin(one, operation.CancelPayment, payment.Modification{Type: payment.Cancel, Amount: one.now.Amount,
		AcquirerKey: w.f.wire(*one.order, payment.CancelKey(one.order.KeySeed, one.now.N, k), one.contract.KeyLength)},
		fmt.Sprintf("close:%s:%d", one.now.ID, k))
}

// compensate begins to give a movement back (PROTOCOL X4): its key derives from the movement, so that one movement is given
// back once, whoever asks.
func (w *writes) compensate(one *subject, m payment.Movement) {
	k := 1
	for _, c := range one.mods {
		if c.Type == payment.Compensation && c.Movement == m.ID {
			k++
		}
	}
	derived := payment.CompensationKey(one.order.KeySeed, m.Reference, k)
	w.begin(one, operation.Compensate, payment.Modification{Type: payment.Compensation, Amount: m.Amount, Movement: m.ID,
		AcquirerKey: w.f.wire(*one.order, derived, one.contract.KeyLength)}, derived)
}

// compensating says whether a movement is being given back.
func (one *subject) compensating(m payment.Movement) bool {
	for _, c := range one.mods {
		if c.Type == payment.Compensation && c.Movement == m.ID && c.Status.Open() {
			return true
		}
	}
	return false
}

// compensateByPolicy gives stray money back at once, where the merchant has decided so; a person still sees the review.
func (w *writes) compensateByPolicy(ctx context.Context, tx Tx, one *subject, s *loaded) error {
	var strays []payment.Movement
	for _, d := range one.decisions {
		if d.Review != payment.ReviewSecondMovement && d.Review != payment.ReviewMoneyAfterRefusal && d.Review != payment.ReviewStrayHold {
			continue
		}
		for _, m := range s.movements { // as it is now: its giving back may have been told with it
			booked := slices.ContainsFunc(d.Book, func(b payment.Movement) bool { return b.ID == m.ID })
			if booked && m.State == payment.Unapplied && m.Kind != acquirer.MovementReverse && !one.compensating(m) {
				strays = append(strays, m)
			}
		}
	}
	if len(strays) == 0 || one.contract.KeyLength == 0 { // nothing, or an account whose contract cannot be read
		return nil
	}
	policies, err := tx.Policies(ctx, merchants(one.now.Merchant))
	if err != nil || len(policies) == 0 || !policies[0].AutoCompensate {
		return err
	}
	for _, m := range strays {
		w.compensate(one, m)
	}
	return nil
}

// wire is what leaves the house as key and reference of a derived key (PROTOCOL D2).
func (f *Flow) wire(i payment.Intent, derived string, longest int) string {
	return payment.Wire(f.cfg.Environment, i.Merchant, derived, longest)
}

// callOf says what a modification has to send, as far as it is known under the locks: false while it has to wait.
func callOf(p payment.Payment, m payment.Modification, movements []payment.Movement) (acquirer.Request, bool) {
	r := acquirer.Request{Key: m.AcquirerKey, Amount: m.Amount}
	switch m.Type {
	case payment.Capture:
		r.Action, r.Object, r.Final = acquirer.ActionCapture, p.AcquirerReference, m.Final
	case payment.Refund:
		r.Action, r.Object = acquirer.ActionRefund, p.AcquirerReference
		if m.Action == acquirer.ActionReverse {
			r.Action = acquirer.ActionReverse
		}
	case payment.Cancel:
		r.Amount = money.Amount{}
		switch {
		case p.Authorized > 0:
			r.Action, r.Object = acquirer.ActionReverse, p.AcquirerReference
		case p.Session != "":
			r.Action, r.Object = acquirer.ActionClose, p.Session
		case p.RedirectURL != "":
			r.Action, r.Object = acquirer.ActionReverse, p.AcquirerReference
		}
	case payment.Compensation:
		for _, mv := range movements {
			if mv.ID != m.Movement || mv.State != payment.Unapplied {
				continue
			}
			r.Action, r.Object = acquirer.ActionRefund, chargeBehind(mv, movements)
			if mv.Kind == acquirer.MovementHold {
				r.Action = acquirer.ActionReverse
			}
		}
	}
	return r, r.Action != "" && r.Object != ""
}

// chargeBehind is the charge whose money a movement is: of one that came back from the bank, that of the refund it undoes.
func chargeBehind(m payment.Movement, movements []payment.Movement) string {
	for _, undone := range movements {
		wentBack := undone.Kind == acquirer.MovementRefund || undone.Kind == acquirer.MovementChargeback
		if m.Kind == acquirer.MovementReverse && wentBack && undone.Reference == m.Object {
			return undone.Charge()
		}
	}
	return m.Charge()
}
