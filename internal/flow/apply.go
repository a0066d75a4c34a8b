package flow

import (
	"context"
	"fmt"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
)

// truth is what came in about one payment: observations in the order in which they were made, and who brought them.
type truth struct {
	row          Row   // the payment
	intent       id.ID // its intent
	contract     acquirer.Contract
	observations []evidence.Observation
	owner        *owner // nil: brought by nobody who owns an operation
	gate         bool   // asked about a gate: nothing is open that anybody could own, and no permit is granted any more
}

// owner is who brings an inference: it holds only if the fence is still current (PROTOCOL K3).
type owner struct {
	ref       operation.Ref
	fence     int64
	unsent    int
	notBefore time.Duration
	lost      bool
}

// Record implements operation.Caller.
func (k *createPayment) Record(ctx context.Context, tx Tx, g operation.Guard, w *operation.Work, r operation.Result) error {
	found := r.(findings)
	return k.f.apply(ctx, tx, g, []truth{{row: Row{w.Op.Merchant, w.Op.Payment}, intent: w.Op.Intent, contract: found.contract,
		observations: found.observations,
		owner:        &owner{w.Op.Ref, w.Op.Fence, w.Unsent, found.notBefore, w.Lost() || w.Op.Epoch < g.Epoch}}})
}

// Follow implements operation.Caller: an operation that follows another one is finished by what finishes that one; this
// is the net under it (PROTOCOL K7).
func (k *createPayment) Follow(ctx context.Context, tx Tx, g operation.Guard, op operation.Operation) error {
	return k.f.apply(ctx, tx, g, []truth{{row: Row{op.Merchant, op.Payment}, intent: op.Intent}})
}

// subject is one payment under its locks, with everything that changes on it in this transaction.
type subject struct {
	truth
	order     *payment.Intent
	was, now  payment.Payment
	ops       []operation.Operation
	leader    *operation.Operation // the unfinished operation that does the work; nil: none
	isOwner   bool
	decisions []payment.Decision
}

// apply is the one way for truth to enter (PROTOCOL section 8). It locks intents, payments and operations in order (P4),
// lets internal/payment decide about each observation, and writes everything that follows, in this transaction.
func (f *Flow) apply(ctx context.Context, tx Tx, g operation.Guard, truths []truth) error {
	s, err := f.load(ctx, tx, truths)
	if err != nil {
		return err
	}
	w := &writes{f: f, g: g, intents: s.intents}
	for _, one := range s.subjects {
		for n := range one.observations {
			f.judge(w, s, one, &one.observations[n])
		}
		if err := w.collect(one, s); err != nil {
			return err
		}
	}
	return w.flush(ctx, tx)
}

// loaded is what apply reads under its locks.
type loaded struct {
	intents   map[Row]*payment.Intent
	subjects  []*subject
	movements []payment.Movement
	reviews   []payment.Review
}

func (f *Flow) load(ctx context.Context, tx Tx, truths []truth) (*loaded, error) {
	s := &loaded{intents: map[Row]*payment.Intent{}}
	var refs []IntentRef
	var rows, intentRows []Row
	for _, t := range truths {
		row := Row{t.row.Merchant, t.intent}
		if _, again := s.intents[row]; !again {
			s.intents[row] = nil
			refs, intentRows = append(refs, IntentRef{Merchant: row.Merchant, ID: row.ID}), append(intentRows, row)
		}
		rows = append(rows, t.row)
	}
	locked, err := tx.LockIntents(ctx, refs)
	if err != nil {
		return nil, err
	}
	for n := range locked {
		s.intents[Row{locked[n].Merchant, locked[n].ID}] = &locked[n].Intent
	}
	payments, err := tx.LockPayments(ctx, rows)
	if err != nil {
		return nil, err
	}
	byRow := map[Row]payment.Payment{}
	keys := make([]string, 0, len(payments))
	for _, p := range payments {
		byRow[Row{p.Merchant, p.ID}] = p
		keys = append(keys, p.AcquirerKey)
	}
	ops, err := tx.OpenOperations(ctx, rows)
	if err != nil {
		return nil, err
	}
	if s.movements, err = tx.MovementsOf(ctx, intentRows, keys); err != nil {
		return nil, err
	}
	var strays []Row
	for _, m := range s.movements {
		if m.Payment.IsZero() {
			strays = append(strays, Row{m.Merchant, m.ID})
		}
	}
	if s.reviews, err = tx.ReviewsOf(ctx, intentRows, strays); err != nil {
		return nil, err
	}
	return s, s.pair(truths, byRow, ops)
}

// pair joins each truth with its rows.
func (s *loaded) pair(truths []truth, payments map[Row]payment.Payment, ops []operation.Operation) error {
	for _, t := range truths {
		p, ok := payments[t.row]
		intent := s.intents[Row{t.row.Merchant, t.intent}]
		if !ok || intent == nil {
			return fmt.Errorf("payment %s or its intent is gone", t.row.ID)
		}
		one := &subject{truth: t, order: intent, was: p, now: p}
		for _, op := range ops {
			if op.Merchant != p.Merchant || op.Payment != p.ID {
				continue
			}
			one.ops = append(one.ops, op)
		}
		for n := range one.ops {
			if one.ops[n].Follows.IsZero() {
				one.leader = &one.ops[n]
			}
		}
		if o := t.owner; o != nil && one.leader != nil {
			one.isOwner = one.leader.Ref == o.ref && one.leader.Fence == o.fence
			if one.isOwner {
				one.leader.Unsent += o.unsent
			}
		}
		s.subjects = append(s.subjects, one)
	}
	return nil
}

// situation is what one observation of the subject is judged against.
func (one *subject) situation(s *loaded, o evidence.Observation, now time.Time) payment.Situation {
	st := evidence.Standing{Contract: one.contract, Owner: one.isOwner || one.gate && one.leader == nil || o.Source == evidence.FromPerson,
		Expected: one.now.Amount, Key: one.now.AcquirerKey, Sends: unknownSends}
	var last time.Time
	if one.leader != nil {
		st.Sends, st.Unsent, last = one.leader.Sends, one.leader.Unsent, one.leader.LastPermitAt
	}
	if one.owner != nil {
		st.Lost = one.owner.lost
	}
	var mine []payment.Movement
	for _, m := range s.movements {
		if m.Merchant == one.now.Merchant && (m.Intent == one.order.ID || m.Payment.IsZero() && m.AcquirerKey == one.now.AcquirerKey) {
			mine = append(mine, m)
		}
	}
	var open []payment.ReviewReason
	for _, r := range s.reviews {
		if r.Payment == one.now.ID {
			open = append(open, r.Reason)
		}
	}
	for _, d := range one.decisions {
		open = append(open, d.Review)
	}
	return payment.Situation{Intent: *one.order, Payment: one.now, Standing: st, Movements: mine, Reviews: open, LastPermitAt: last, Now: now}
}

// unknownSends is read where the operation is gone: never one, so that no inference can rest on it (PROTOCOL O1).
const unknownSends = 2

// judge decides one observation and carries the decision over to the subject, so that the next one sees it.
func (f *Flow) judge(w *writes, s *loaded, one *subject, o *evidence.Observation) {
	d := payment.Apply(one.situation(s, *o, w.g.Now), *o)
	o.Effect = d.Effect
	if d.Why != "" {
		o.Why = d.Why
	}
	if d.Effect == evidence.Stale {
		f.watch.Count("stale_inference")
	} else if one.owner != nil && !one.isOwner && d.Effect == evidence.Moved {
		f.watch.Count("stale_fact")
	}
	if o.Outcome == acquirer.OutcomeKeyReused {
		f.watch.Alarm("key_used_with_other_parameters", o.Merchant.String(), o.Intent.String(), o.Payment.String())
	}
	one.decisions = append(one.decisions, d)
	one.move(d, o, w.g.Now)
	f.watch.Observed(one.sighting(*o))
	if d.Book != nil {
		m := *d.Book
		m.ID = f.rt.NewID()
		d.Book.ID = m.ID
		s.movements = append(s.movements, m)
		w.book(one, m)
	}
	if d.Adopt != nil {
		for n := range s.movements {
			if s.movements[n].ID == d.Adopt.ID {
				s.movements[n] = *d.Adopt
			}
		}
		w.adopt(one, *d.Adopt)
	}
	if d.Review != "" {
		w.review(one, d, o)
	}
	w.evidence = append(w.evidence, *o)
}

func (one *subject) sighting(o evidence.Observation) Sighting {
	s := Sighting{Observation: o, Status: one.now.Status}
	if one.leader != nil {
		s.KeyHash = operation.KeyHash(one.leader.Key)
	}
	return s
}

// move carries a decision over to the payment and its intent.
func (one *subject) move(d payment.Decision, o *evidence.Observation, now time.Time) {
	p := &one.now
	if p.AcquirerReference == "" && o.Reference != "" && o.Outcome != acquirer.OutcomeRejected {
		p.AcquirerReference = o.Reference
	}
	if d.Conflict {
		p.Conflict, one.order.Conflict = true, true
	}
	if d.OpenGate {
		p.GateOpen, p.DueAt = true, time.Time{}
	}
	if d.To == p.Status {
		return
	}
	p.Status = d.To
	switch {
	case d.To == payment.Paid:
		p.AcquirerReference = o.Reference
		if m := d.Book; m != nil {
			p.Captured = m.Amount.Minor()
		} else if m := d.Adopt; m != nil {
			p.Captured = m.Amount.Minor()
		}
	case d.To.Refusal():
		p.Failure, p.RefusedAt = d.Failure, now
		p.GateOpen, p.DueAt = d.GateOpen, d.GateDue
	}
}
