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

// truthOf is what one ownership brings to its record.
func (f *Flow) truthOf(g operation.Guard, w *operation.Work, found findings) truth {
	return truth{row: Row{w.Op.Merchant, w.Op.Payment}, intent: w.Op.Intent, contract: found.contract,
		observations: found.observations,
		owner:        &owner{w.Op.Ref, w.Op.Fence, w.Unsent, found.notBefore, w.Lost() || w.Op.Epoch < g.Epoch}}
}

// Record implements operation.Caller.
func (k *createPayment) Record(ctx context.Context, tx Tx, g operation.Guard, w *operation.Work, r operation.Result) error {
	return k.f.apply(ctx, tx, g, []truth{k.f.truthOf(g, w, r.(findings))})
}

// Follow implements operation.Caller: an operation that follows another one is finished by what finishes that one; this
// is the net under it (PROTOCOL K7).
func (k *createPayment) Follow(ctx context.Context, tx Tx, g operation.Guard, op operation.Operation) error {
	return k.f.apply(ctx, tx, g, []truth{{row: Row{op.Merchant, op.Payment}, intent: op.Intent}})
}

// subject is one payment under its locks, with everything that changes on it in this transaction.
type subject struct {
	truth
	order    *payment.Intent
	was, now payment.Payment
	mods     []payment.Modification // as they are now
	modsWas  map[id.ID]payment.Modification
	disputes []payment.Dispute
	ops      []operation.Operation
	leader   *operation.Operation // the unfinished operation that makes the payment; nil: none
	mine     *operation.Operation // the one whose fence the owner still holds; nil: none
	early    []evidence.Observation
	fresh    acquirer.Outcome // what a lookup of the charge said in this truth
	charge   bool             // an observation of the charge itself moved the payment: a cancel that waits for it goes on

	decisions []decided
}

// decided is a decision with the operation whose work it is about.
type decided struct {
	payment.Decision
	op *operation.Operation
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
		f.judgeEarly(w, s, one)
		if err := w.compensateByPolicy(ctx, tx, one, s); err != nil {
			return err
		}
		w.collect(one, s)
	}
	return w.flush(ctx, tx)
}

// loaded is what apply reads under its locks.
type loaded struct {
	intents   map[Row]*payment.Intent
	subjects  []*subject
	movements []payment.Movement
	mods      []payment.Modification
	disputes  []payment.Dispute
	early     []evidence.Observation
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
	if s.mods, err = tx.ModificationsOf(ctx, rows); err != nil {
		return nil, err
	}
	if err := s.beside(ctx, tx, payments); err != nil {
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

// maxEarly bounds the stored observations of one transaction that wait for what must come before them.
const maxEarly = 64

// beside reads what few payments have: disputes, and evidence that came too early.
func (s *loaded) beside(ctx context.Context, tx Tx, payments []payment.Payment) (err error) {
	var early, disputed []Row
	for _, p := range payments {
		if p.Early {
			early = append(early, Row{p.Merchant, p.ID})
		}
		if p.Captured > 0 {
			disputed = append(disputed, Row{p.Merchant, p.ID})
		}
	}
	if len(early) > 0 {
		if s.early, err = tx.EarlyEvidence(ctx, early, maxEarly); err != nil {
			return err
		}
	}
	if len(disputed) > 0 {
		s.disputes, err = tx.DisputesOf(ctx, disputed)
	}
	return err
}

// pair joins each truth with its rows.
func (s *loaded) pair(truths []truth, payments map[Row]payment.Payment, ops []operation.Operation) error {
	for _, t := range truths {
		p, ok := payments[t.row]
		intent := s.intents[Row{t.row.Merchant, t.intent}]
		if !ok || intent == nil {
			return fmt.Errorf("payment %s or its intent is gone", t.row.ID)
		}
		one := &subject{truth: t, order: intent, was: p, now: p, modsWas: map[id.ID]payment.Modification{}}
		own := func(merchant, pay id.ID) bool { return merchant == p.Merchant && pay == p.ID }
		for _, op := range ops {
			if own(op.Merchant, op.Payment) {
				one.ops = append(one.ops, op)
			}
		}
		for _, m := range s.mods {
			if own(m.Merchant, m.Payment) {
				one.mods, one.modsWas[m.ID] = append(one.mods, m), m
			}
		}
		for _, x := range s.disputes {
			if own(x.Merchant, x.Payment) {
				one.disputes = append(one.disputes, x)
			}
		}
		for _, o := range s.early {
			if own(o.Merchant, o.Payment) {
				one.early = append(one.early, o)
			}
		}
		one.findOwner()
		s.subjects = append(s.subjects, one)
	}
	return nil
}

// findOwner finds the operation that makes the payment, and the one whose fence the bringer still holds.
func (one *subject) findOwner() {
	for n := range one.ops {
		op := &one.ops[n]
		if !op.Follows.IsZero() {
			continue
		}
		if op.Modification.IsZero() {
			one.leader = op
		}
		if o := one.owner; o != nil && op.Ref == o.ref && op.Fence == o.fence {
			one.mine = op
			op.Unsent += o.unsent
		}
	}
}

// opOf gives the unfinished operation that an observation is about: of the modification, else the one that makes the payment.
func (one *subject) opOf(m *payment.Modification) *operation.Operation {
	if m == nil {
		return one.leader
	}
	for n := range one.ops {
		if one.ops[n].Modification == m.ID && one.ops[n].Follows.IsZero() {
			return &one.ops[n]
		}
	}
	return nil
}

// situation is what one observation of the subject is judged against.
func (one *subject) situation(s *loaded, o evidence.Observation, m *payment.Modification, now time.Time) payment.Situation {
	op := one.opOf(m)
	isOwner := op != nil && op == one.mine
	action := o.About
	if m == nil && one.now.Flow == payment.Hosted {
		action = acquirer.ActionSession
	}
	st := evidence.Standing{Contract: one.contract.For(action),
		Owner:    isOwner || one.gate && one.leader == nil || o.Source == evidence.FromPerson,
		Expected: one.now.Amount, Key: one.now.AcquirerKey, Sends: unknownSends}
	var last time.Time
	if op != nil {
		st.Sends, st.Unsent, last = op.Sends, op.Unsent, op.LastPermitAt
	}
	if one.owner != nil {
		st.Lost = one.owner.lost
	}
	var mine []payment.Movement
	for _, mv := range s.movements {
		if mv.Merchant == one.now.Merchant && (mv.Intent == one.order.ID || mv.Payment.IsZero() && mv.AcquirerKey == one.now.AcquirerKey) {
			mine = append(mine, mv)
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
	return payment.Situation{Intent: *one.order, Payment: one.now, Modification: m, Modifications: one.mods, Disputes: one.disputes,
		Standing: st, Movements: mine, Reviews: open, LastPermitAt: last, Fresh: one.fresh, Now: now}
}

// unknownSends is read where the operation is gone: never one, so that no inference can rest on it (PROTOCOL O1).
const unknownSends = 2

// judge decides one observation and carries the decision over to the subject, so that the next one sees it.
func (f *Flow) judge(w *writes, s *loaded, one *subject, o *evidence.Observation) {
	m := payment.MatchModification(one.mods, *o)
	if m != nil {
		o.Modification = m.ID
	}
	aboutCharge := o.About == acquirer.ActionCharge || o.About == acquirer.ActionSession || o.About == ""
	if aboutCharge && o.Source == evidence.FromLookup {
		one.fresh = o.Outcome
	}
	d := payment.Apply(one.situation(s, *o, m, w.g.Now), *o)
	o.Effect = d.Effect
	if d.Why != "" {
		o.Why = d.Why
	}
	if d.Effect == evidence.Stale {
		f.watch.Count("stale_inference")
	} else if one.owner != nil && one.mine == nil && d.Effect == evidence.Moved {
		f.watch.Count("stale_fact")
	}
	if o.Outcome == acquirer.OutcomeKeyReused {
		f.watch.Alarm("key_used_with_other_parameters", o.Merchant.String(), o.Intent.String(), o.Payment.String())
	}
	one.charge = one.charge || aboutCharge && d.Payment != one.now
	if one.take(w, s, &d); d.Created != nil {
		o.Modification = d.Created.ID
	}
	one.decisions = append(one.decisions, decided{d, one.opOf(m)})
	f.watch.Observed(one.sighting(*o, m))
	if d.Review != "" {
		w.review(one, d, o, one.opOf(m))
	}
	w.evidence = append(w.evidence, *o)
}

// take carries a decision over to the subject and to what is loaded.
func (one *subject) take(w *writes, s *loaded, d *payment.Decision) {
	one.now = d.Payment
	if d.Conflict {
		one.now.Conflict, one.order.Conflict = true, true
	}
	if m := d.Modification; m != nil {
		for n := range one.mods {
			if one.mods[n].ID == m.ID {
				one.mods[n] = *m
			}
		}
	}
	if m := d.Created; m != nil {
		w.created(one, m)
	}
	if x := d.Dispute; x != nil {
		one.disputed(w, x)
	}
	for n := range d.Book {
		d.Book[n].ID = w.f.rt.NewID()
		s.movements = append(s.movements, d.Book[n])
		w.book(one, d.Book[n])
	}
	for _, m := range d.Change {
		for n := range s.movements {
			if s.movements[n].ID == m.ID {
				s.movements[n] = m
			}
		}
		w.moved = append(w.moved, m)
	}
	for _, p := range d.Posts {
		w.post(one.ledgerSubject(), p)
	}
	if d.Close {
		w.cancelPage(one)
	}
}

func (one *subject) disputed(w *writes, x *payment.Dispute) {
	for n := range one.disputes {
		if one.disputes[n].Reference == x.Reference {
			one.disputes[n] = *x
			w.disputes = append(w.disputes, *x)
			return
		}
	}
	x.ID = w.f.rt.NewID()
	one.disputes = append(one.disputes, *x)
	w.disputes = append(w.disputes, *x)
}

func (one *subject) sighting(o evidence.Observation, m *payment.Modification) Sighting {
	s := Sighting{Observation: o, Status: one.now.Status}
	if op := one.opOf(m); op != nil {
		s.KeyHash = operation.KeyHash(op.Key)
	}
	return s
}

// judgeEarly judges again what came before what it needs: once that is known, in any order, the result is the same
// (PROTOCOL E1). What still waits keeps waiting.
func (f *Flow) judgeEarly(w *writes, s *loaded, one *subject) {
	waiting := one.early
	for _, o := range one.observations {
		if o.Effect == evidence.Early {
			waiting = append(waiting, o)
		}
	}
	for progress := true; progress && len(waiting) > 0; {
		progress = false
		var left []evidence.Observation
		one.now.Early = false
		for _, o := range waiting {
			m := payment.MatchModification(one.mods, o)
			again := payment.Apply(one.situation(s, o, m, w.g.Now), o)
			switch again.Effect {
			case evidence.Early:
				left = append(left, o)
			case evidence.Repeat, evidence.Behind:
			default:
				o.ID, o.Effect, o.Why = f.rt.NewID(), "", "told early: what it needed is known now"
				f.judge(w, s, one, &o)
				progress = true
			}
		}
		waiting = left
	}
	one.now.Early = len(waiting) > 0
}
