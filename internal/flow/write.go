package flow

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/ledger"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/present"
)

// writes collects what one transaction of apply writes, in arrays. State, ledger, events, evidence and stored answers
// exist together or not at all (PROTOCOL I-6).
type writes struct {
	f       *Flow
	g       operation.Guard
	intents map[Row]*payment.Intent

	payments []PaymentChange
	ops      []operation.Operation
	booked   []payment.Movement
	moved    []payment.Movement
	entries  []ledger.Entry
	events   []payment.Event
	evidence []evidence.Observation
	reviews  []payment.Review
	closed   []payment.Review
	notes    []operation.Note
	postErr  error
}

func (one *subject) ledgerSubject() ledger.Subject {
	return ledger.Subject{Merchant: one.now.Merchant, Intent: one.order.ID, Payment: one.now.ID, Account: one.now.Account,
		Base: payment.ChargeKey(one.order.KeySeed, one.now.N)}
}

// post keeps the first error: it fails the transaction in flush.
func (w *writes) post(entries []ledger.Entry, err error) {
	if err != nil && w.postErr == nil {
		w.postErr = err
	}
	for _, e := range entries {
		e.ID = w.f.rt.NewID()
		w.entries = append(w.entries, e)
	}
}

// book writes money that moved, applied or kept aside.
func (w *writes) book(one *subject, m payment.Movement) {
	w.booked = append(w.booked, m)
	if m.State == payment.Applied {
		w.post(ledger.Received(one.ledgerSubject(), m.Amount))
		return
	}
	w.post(ledger.ReceivedUnapplied(one.ledgerSubject(), m.Reference, m.Amount))
	w.f.watch.Alarm("unapplied_money", one.now.Merchant.String(), one.order.ID.String(), one.now.ID.String())
}

// adopt applies money that was booked before its payment was known.
func (w *writes) adopt(one *subject, m payment.Movement) {
	w.moved = append(w.moved, m)
	if m.State == payment.Applied {
		w.post(ledger.Apply(one.ledgerSubject(), m.Reference, m.Amount))
	}
}

// review opens an entry; the unique index keeps it single (PROTOCOL K6).
func (w *writes) review(one *subject, d payment.Decision, o *evidence.Observation) {
	r := payment.Review{Merchant: one.now.Merchant, ID: w.f.rt.NewID(), Intent: one.order.ID, Payment: one.now.ID,
		Reason: d.Review, Detail: o.Why, OpenedAt: w.g.Now}
	if one.leader != nil {
		r.Operation = one.leader.ID
	}
	if d.Book != nil {
		r.Movement = d.Book.ID
	} else if d.Adopt != nil {
		r.Movement = d.Adopt.ID
	}
	w.reviews = append(w.reviews, r)
}

// collect turns what was decided about a subject into rows.
func (w *writes) collect(one *subject, s *loaded) error {
	before := one.was
	if one.now != before {
		one.now.Version, one.now.UpdatedAt = before.Version+1, w.g.Now
		w.payments = append(w.payments, PaymentChange{ExpectedStatus: before.Status, ExpectedVersion: before.Version, New: one.now})
	}
	for _, d := range one.decisions {
		for _, t := range d.Events {
			w.event(one.order, one.now, t, false)
		}
		if d.Review != "" && !d.Conflict && !s.reviewed(one, d) {
			w.event(one.order, one.now, payment.EventReview, d.Review == payment.ReviewAmountMismatch)
		}
	}
	if one.now.Status.Final() {
		w.settle(one, s)
		return nil
	}
	w.wait(one)
	return nil
}

// reviewed says whether the review that a decision asks for was open before: nobody is told twice.
func (s *loaded) reviewed(one *subject, d payment.Decision) bool {
	return d.Book == nil && d.Adopt == nil && slices.ContainsFunc(s.reviews, func(r payment.Review) bool {
		return r.Payment == one.now.ID && r.Reason == d.Review && r.Movement.IsZero()
	})
}

// event appends to the intent's events, under its lock: their order is the version (DESIGN data rule 8).
func (w *writes) event(i *payment.Intent, p payment.Payment, t payment.EventType, keptAside bool) {
	i.EventVersion++
	e := payment.Event{Merchant: i.Merchant, ID: w.f.rt.NewID(), Intent: i.ID, Payment: p.ID, Version: i.EventVersion,
		Key: payment.EventKey(i.KeySeed, i.EventVersion), Type: t, At: w.g.Now}
	e.Payload = present.Event(e, *i, p, keptAside)
	w.events = append(w.events, e)
}

// settle completes every operation of a payment that is final, with its answer, and closes what evidence decided.
func (w *writes) settle(one *subject, s *loaded) {
	answer := answerOf(Attempt{*one.order, one.now}, present.Extra{})
	for _, op := range one.ops {
		op.State, op.AnswerStatus, op.AnswerBody = operation.Completed, answer.Status, answer.Body
		w.ops = append(w.ops, op)
		w.note(op, operation.WhatCompleted, string(one.now.Status))
	}
	for _, r := range s.reviews {
		if w.settled(one, r) {
			r.Decision = "settled by evidence"
			w.closed = append(w.closed, r)
		}
	}
}

// settled says whether an open review has nothing left to decide: about the payment that is final now, or about money
// that found its payment.
func (w *writes) settled(one *subject, r payment.Review) bool {
	if r.Movement.IsZero() {
		return r.Payment == one.now.ID && r.Reason != payment.ReviewContradiction && (one.was.Status.Open() || one.now.GateOpen)
	}
	for _, d := range one.decisions {
		if d.Adopt != nil && d.Adopt.ID == r.Movement {
			return r.Reason == payment.ReviewUnattributed
		}
	}
	return false
}

// wait moves the operation on while the payment is open: due again, or in review (PROTOCOL K5, K6).
func (w *writes) wait(one *subject) {
	if one.leader == nil {
		return
	}
	op := *one.leader
	reviewed := false
	for _, d := range one.decisions {
		reviewed = reviewed || d.Review != ""
	}
	if !one.isOwner && !reviewed {
		return
	}
	switch {
	case reviewed || op.State == operation.InReview:
		op.State = operation.InReview
	default:
		op.State = operation.AwaitingResult
	}
	delay := evidence.Backoff(op.Checks, op.State == operation.InReview, w.f.rt.Jitter())
	if one.owner != nil {
		delay = max(delay, one.owner.notBefore)
	}
	if len(one.observations) > 0 {
		op.Checks++
	} else { // nothing was asked: the acquirer had no place, and the back-off does not grow
		delay = one.owner.notBefore
	}
	op.DueAt = w.g.Now.Add(delay)
	w.ops = append(w.ops, op)
}

func (w *writes) note(op operation.Operation, what, why string) {
	w.notes = append(w.notes, operation.Note{Merchant: op.Merchant, ID: w.f.rt.NewID(), Intent: op.Intent, Payment: op.Payment,
		Operation: op.ID, Kind: op.Kind, What: what, Why: why, KeyHash: operation.KeyHash(op.Key), Fence: op.Fence})
}

// flush writes all arrays. What an index refuses although the locks are held is a defect and fails the transaction.
func (w *writes) flush(ctx context.Context, tx Tx) error {
	if w.postErr != nil {
		return w.postErr
	}
	// The ids of a call's observations are made before the first run: a row that is there means that this very record was
	// committed by a COMMIT whose answer was lost, and that nothing may be counted or told twice (PROTOCOL K10, O1).
	fresh, err := tx.InsertEvidence(ctx, w.evidence)
	if err != nil || slices.Contains(fresh, false) {
		return err
	}
	fresh, err = tx.InsertMovements(ctx, w.booked)
	if err != nil {
		return err
	}
	for n := range fresh {
		if !fresh[n] {
			return fmt.Errorf("movement %s: %w", w.booked[n].Reference, errBookedElsewhere)
		}
	}
	if len(w.events) > 0 || w.anyConflict() {
		if err := tx.SaveIntents(ctx, w.changedIntents()); err != nil {
			return err
		}
	}
	for _, step := range []func() error{
		func() error { return tx.SaveMovements(ctx, w.moved) },
		func() error { return tx.SavePayments(ctx, w.payments) },
		func() error { return tx.InsertEntries(ctx, w.entries) },
		func() error { return tx.InsertEvents(ctx, w.events) },
		func() error { _, err := tx.OpenReviews(ctx, w.reviews); return err },
		func() error { return tx.CloseReviews(ctx, w.closed) },
		func() error { return w.saveOperations(ctx, tx) },
		func() error { return tx.NoteHistory(ctx, w.notes) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// errBookedElsewhere says that a movement belongs to another payment, or was booked a moment ago. A record fails, and the
// next one sees it.
var errBookedElsewhere = errors.New("booked elsewhere")

func (w *writes) saveOperations(ctx context.Context, tx Tx) error {
	saved, err := tx.SaveOperations(ctx, w.ops, w.f.cfg.Retention)
	if err != nil {
		return err
	}
	for n := range saved {
		if !saved[n] { // locked and unfinished: only a defect gets here
			return fmt.Errorf("operation %s changed under its lock", w.ops[n].ID)
		}
	}
	return nil
}

func (w *writes) anyConflict() bool {
	for _, i := range w.intents {
		if i != nil && i.Conflict {
			return true
		}
	}
	return false
}

func (w *writes) changedIntents() []payment.Intent {
	var out []payment.Intent
	for _, row := range sortedRows(w.intents) {
		i := *w.intents[row]
		i.UpdatedAt = w.g.Now
		out = append(out, i)
	}
	return out
}

// movementReview is an entry about money that fits no payment.
func (w *writes) movementReview(m payment.Movement, detail string) {
	w.reviews = append(w.reviews, payment.Review{Merchant: m.Merchant, ID: w.f.rt.NewID(), Movement: m.ID,
		Reason: payment.ReviewUnattributed, Detail: detail, OpenedAt: w.g.Now, Intent: id.ID{}})
}

func sortedRows(m map[Row]*payment.Intent) []Row {
	rows := make([]Row, 0, len(m))
	for row, i := range m {
		if i != nil {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(bytes.Compare(a.Merchant[:], b.Merchant[:]), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return rows
}
