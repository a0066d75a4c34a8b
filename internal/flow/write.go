package flow

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

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
	mods     []ModificationChange
	newMods  []payment.Modification
	disputes []payment.Dispute
	started  []operation.Operation
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

// post adds the entries of one posting. The first error fails the transaction in flush.
func (w *writes) post(subject ledger.Subject, p ledger.Posting) {
	entries, err := ledger.Post(subject, p)
	if err != nil && w.postErr == nil {
		w.postErr = err
	}
	for _, e := range entries {
		e.ID = w.f.rt.NewID()
		w.entries = append(w.entries, e)
	}
}

// book keeps money that moved, applied or kept aside.
func (w *writes) book(one *subject, m payment.Movement) {
	w.booked = append(w.booked, m)
	if m.State == payment.Unapplied {
		w.f.watch.Alarm("unapplied_money", one.now.Merchant.String(), one.order.ID.String(), one.now.ID.String())
	}
}

// created keeps what was done by hand at the acquirer, or by ourselves before a failover, as a modification of its own.
func (w *writes) created(one *subject, m *payment.Modification) {
	m.ID, m.K = w.f.rt.NewID(), one.nextK(m.Type)
	if m.AcquirerKey == "" {
		m.AcquirerKey = payment.ExternalKey(one.order.KeySeed, m.AcquirerReference)
	}
	m.By = payment.Command{Kind: "external_" + string(m.Type), Key: m.AcquirerKey, FPVersion: payment.FingerprintVersion,
		Fingerprint: payment.Fingerprint(words("external", m.AcquirerKey))}
	one.mods = append(one.mods, *m)
}

// nextK is the ordinal of the next modification of a type.
func (one *subject) nextK(t payment.ModificationType) int {
	k := 1
	for _, m := range one.mods {
		if m.Type == t && m.K >= k {
			k = m.K + 1
		}
	}
	return k
}

// review opens an entry; the unique index keeps it single (PROTOCOL K6).
func (w *writes) review(one *subject, d payment.Decision, o *evidence.Observation, op *operation.Operation) {
	r := payment.Review{Merchant: one.now.Merchant, ID: w.f.rt.NewID(), Intent: one.order.ID, Payment: one.now.ID,
		Reason: d.Review, Detail: o.Why, OpenedAt: w.g.Now, Movement: d.ReviewOn}
	if op != nil {
		r.Operation = op.ID
	}
	switch {
	case !r.Movement.IsZero():
	case len(d.Book) > 0:
		r.Movement = d.Book[0].ID
	case len(d.Change) > 0:
		r.Movement = d.Change[0].ID
	}
	w.reviews = append(w.reviews, r)
}

// collect turns what was decided about a subject into rows.
func (w *writes) collect(one *subject, s *loaded) {
	w.fit(one, s)
	w.resolve(one, s)
	one.stamp(w.g.Now)
	for n, d := range one.decisions {
		for _, t := range d.Events {
			w.event(one, t, d.Decision, false)
		}
		if d.Review != "" && !d.Conflict && !s.reviewed(one, d.Decision) {
			w.event(one, payment.EventReview, one.decisions[n].Decision, d.Review == payment.ReviewAmountMismatch)
		}
	}
	for _, op := range one.ops {
		if done, answer := w.done(one, op); done {
			op.State, op.AnswerStatus, op.AnswerBody = operation.Completed, answer.Status, answer.Body
			w.ops = append(w.ops, op)
			w.note(op, operation.WhatCompleted, string(one.now.Status))
		} else if op.Follows.IsZero() {
			w.wait(one, op)
		}
	}
	if one.now != one.was {
		w.payments = append(w.payments, PaymentChange{ExpectedStatus: one.was.Status, ExpectedVersion: one.was.Version, New: one.now})
	}
	for _, m := range one.mods {
		if was, known := one.modsWas[m.ID]; !known {
			w.newMods = append(w.newMods, m)
		} else if m != was {
			w.mods = append(w.mods, ModificationChange{ExpectedStatus: was.Status, ExpectedVersion: was.Version, New: m})
		}
	}
}

// fit counts what had gone back beyond what was left, where this transaction has made room for it (PROTOCOL E1).
func (w *writes) fit(one *subject, s *loaded) {
	for {
		d, more := payment.Fit(one.situation(s, evidence.Observation{}, nil, w.g.Now))
		if !more {
			return
		}
		one.take(w, s, &d)
		one.decisions = append(one.decisions, decided{d, nil})
	}
}

// stamp counts the new version of what changed, before it is shown to anybody.
func (one *subject) stamp(now time.Time) {
	if one.now != one.was {
		one.now.Version, one.now.UpdatedAt = one.was.Version+1, now
	}
	for n := range one.mods {
		m := &one.mods[n]
		if was, known := one.modsWas[m.ID]; known && *m != was {
			m.Version, m.UpdatedAt = was.Version+1, now
		}
	}
}

// modification finds one of the subject's modifications as it is now.
func (one *subject) modification(row id.ID) *payment.Modification {
	for n := range one.mods {
		if one.mods[n].ID == row {
			return &one.mods[n]
		}
	}
	return nil
}

// done says whether an operation has its final answer now, and which: what made the payment ends with it, or with the hold
// that it asked for; a modification ends by its own result.
func (w *writes) done(one *subject, op operation.Operation) (bool, operation.Answer) {
	at := Attempt{*one.order, one.now}
	if op.Modification.IsZero() {
		if !one.now.Status.Final() && one.now.Status != payment.Authorized {
			return false, operation.Answer{}
		}
		answer := finalAnswer(at)
		if op.Follows.IsZero() {
			one.now.AnsweredStatus = answer.Status
		}
		return true, answer
	}
	m := one.modification(op.Modification)
	if m == nil || m.Status.Open() {
		return false, operation.Answer{}
	}
	answer := modificationAnswer(at, *m)
	m.AnsweredStatus = answer.Status
	return true, answer
}

// reviewed says whether the review that a decision asks for was open before: nobody is told twice.
func (s *loaded) reviewed(one *subject, d payment.Decision) bool {
	return len(d.Book) == 0 && len(d.Change) == 0 && slices.ContainsFunc(s.reviews, func(r payment.Review) bool {
		return r.Payment == one.now.ID && r.Reason == d.Review && r.Movement.IsZero()
	})
}

// event appends to the intent's events, under its lock: their order is the version (DESIGN data rule 8).
func (w *writes) event(one *subject, t payment.EventType, d payment.Decision, keptAside bool) {
	i := one.order
	i.EventVersion++
	e := payment.Event{Merchant: i.Merchant, ID: w.f.rt.NewID(), Intent: i.ID, Payment: one.now.ID, Version: i.EventVersion,
		Key: payment.EventKey(i.KeySeed, i.EventVersion), Type: t, At: w.g.Now}
	m := d.Modification
	if m == nil {
		m = d.Created
	}
	if m != nil && t.OfRefund() {
		e.Payload = present.EventRefund(e, *i, one.now, *one.modification(m.ID))
	} else {
		e.Payload = present.Event(e, *i, one.now, keptAside)
	}
	w.events = append(w.events, e)
}

// resolve closes the reviews that evidence has settled, and with the last of them the conflict.
func (w *writes) resolve(one *subject, s *loaded) {
	settled := 0
	for n := range s.reviews {
		r := &s.reviews[n]
		if r.DecidedAt.IsZero() && w.settled(one, *r) {
			r.Decision, r.DecidedAt = "settled by evidence", w.g.Now
			w.closed = append(w.closed, *r)
			settled++
		}
	}
	for n := range w.reviews { // of money of which this transaction was told as well that it is back
		if r := &w.reviews[n]; !r.Movement.IsZero() && w.settled(one, *r) {
			r.Decision, r.DecidedAt = "settled by evidence", w.g.Now
			w.closed = append(w.closed, *r)
		}
	}
	for _, d := range one.decisions {
		settled += len(d.Change)
		if m := d.Modification; m != nil && m.Type == payment.Compensation && !m.Status.Open() {
			settled++ // the conflict lasts while money is being given back
		}
	}
	if settled > 0 {
		w.endConflict(one, s)
	}
}

// settled says whether an open review has nothing left to decide: about money that found its place, a modification that has
// its result, or the payment that is final now.
func (w *writes) settled(one *subject, r payment.Review) bool {
	if !r.Movement.IsZero() {
		for _, d := range one.decisions {
			for _, m := range d.Change {
				if m.ID == r.Movement {
					return r.Reason == payment.ReviewUnattributed || m.State != payment.Unapplied
				}
			}
		}
		return false
	}
	if r.Payment != one.now.ID || r.Reason == payment.ReviewContradiction {
		return false
	}
	for _, op := range one.ops {
		if op.ID == r.Operation && !op.Modification.IsZero() {
			m := one.modification(op.Modification)
			return m != nil && !m.Status.Open()
		}
	}
	over := one.now.Status.Final() || one.now.Status == payment.Authorized
	return over && (one.was.Status.Open() && one.was.Status != payment.Authorized || one.now.GateOpen)
}

// wait moves an operation on while its result is open: due again, or in review (PROTOCOL K5, K6).
func (w *writes) wait(one *subject, op operation.Operation) {
	mine := one.mine != nil && one.mine.ID == op.ID
	reviewed := false
	for _, d := range one.decisions {
		reviewed = reviewed || d.Review != "" && d.op != nil && d.op.ID == op.ID
	}
	if m := one.modification(op.Modification); m != nil && m.Type == payment.Cancel && m.Action == "" && one.charge && !mine {
		op.DueAt = w.g.Now // what it waited for is known
		w.ops = append(w.ops, op)
		return
	}
	if !mine && !reviewed {
		return
	}
	if reviewed || op.State == operation.InReview {
		op.State = operation.InReview
	} else {
		op.State = operation.AwaitingResult
	}
	delay := evidence.Backoff(op.Checks, op.State == operation.InReview, w.f.rt.Jitter())
	if one.owner != nil {
		delay = max(delay, one.owner.notBefore)
	}
	if len(one.observations) > 0 {
		op.Checks++
	} else if one.owner != nil { // nothing was asked: the acquirer had no place, and the back-off does not grow
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
		func() error { return tx.SaveModifications(ctx, w.mods) },
		func() error { return w.start(ctx, tx) },
		func() error { return tx.SaveDisputes(ctx, w.disputes) },
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
