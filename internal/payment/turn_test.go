package payment_test

import (
	"slices"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/ledger"
	"github.com/hapaxpay/hapax/internal/payment"
)

// turn is one transaction of a story: what is open is read once, under its locks.
type turn struct {
	*story
	owner   *id.ID         // of whose operation the bringer holds the fence; nil: of none
	open    bool           // the operation that makes the payment
	sent    map[id.ID]bool // the operations of modifications that are open
	fresh   acquirer.Outcome
	changed []payment.Movement
}

// sentOften is what flow assumes where an operation is gone.
const sentOften = 2

func (t *turn) situation(o evidence.Observation) payment.Situation {
	m := payment.MatchModification(t.mods, o)
	action := o.About
	if m == nil && t.p.Flow == payment.Hosted {
		action = acquirer.ActionSession
	}
	st := evidence.Standing{Contract: t.terms.For(action), Expected: t.p.Amount, Key: t.p.AcquirerKey, Sends: sentOften}
	if m == nil && t.open || m != nil && t.sent[m.ID] {
		st.Sends = 1
	}
	st.Owner = t.owner != nil && (m == nil && t.owner.IsZero() || m != nil && m.ID == *t.owner)
	var open []payment.ReviewReason
	for _, r := range t.reviews {
		open = append(open, r.reason)
	}
	return payment.Situation{Intent: t.intent, Payment: t.p, Modification: m, Modifications: t.mods, Disputes: t.disputes,
		Movements: t.movements, Standing: st, Reviews: open, LastPermitAt: start, Fresh: t.fresh, Now: t.now}
}

func (t *turn) judge(o evidence.Observation) payment.Decision {
	if aboutCharge := o.About == acquirer.ActionCharge || o.About == acquirer.ActionSession; aboutCharge && o.Source == evidence.FromLookup {
		t.fresh = o.Outcome
	}
	d := payment.Apply(t.situation(o), o)
	t.check(o, d)
	t.take(d, payment.MatchModification(t.mods, o))
	return d
}

// check holds one decision against what is never done (I-3, the table, E1).
func (t *turn) check(o evidence.Observation, d payment.Decision) {
	was, is := t.p, d.Payment
	row := slices.ContainsFunc(payment.Table, func(r payment.Transition) bool { return r.From == was.Status && r.To == is.Status })
	switch {
	case d.Effect == "" || d.Why == "":
		t.fails("no reason: %+v", d)
	case was.Status != is.Status && !row:
		t.fails("%s moved to %s", was.Status, is.Status)
	case was.Status.Final() && (is.Failure != was.Failure || !is.RefusedAt.Equal(was.RefusedAt)):
		t.fails("a final payment changed: %+v to %+v", was, is)
	case d.Effect == evidence.Early && (len(d.Book)+len(d.Change)+len(d.Posts) > 0 || d.Modification != nil):
		t.fails("early, and something changes: %+v", d)
	}
}

func (t *turn) take(d payment.Decision, about *payment.Modification) {
	t.p = d.Payment
	if d.Conflict {
		t.p.Conflict, t.intent.Conflict = true, true
	}
	if m := d.Modification; m != nil {
		n := slices.IndexFunc(t.mods, func(x payment.Modification) bool { return x.ID == m.ID })
		m.UpdatedAt = t.now
		t.mods[n] = *m
	}
	if d.Created != nil {
		d.Created.ID = t.next()
		if d.Created.AcquirerKey == "" {
			d.Created.AcquirerKey = payment.ExternalKey("seed", d.Created.AcquirerReference)
		}
		t.mods = append(t.mods, *d.Created)
	}
	if x := d.Dispute; x != nil {
		n := slices.IndexFunc(t.disputes, func(y payment.Dispute) bool { return y.Reference == x.Reference })
		if n < 0 {
			t.disputes = append(t.disputes, *x)
		} else {
			t.disputes[n] = *x
		}
	}
	for n := range d.Book {
		m := &d.Book[n]
		m.ID = t.next()
		if slices.ContainsFunc(t.movements, func(k payment.Movement) bool { return k.Reference == m.Reference && k.Kind == m.Kind }) {
			t.fails("%s %s is booked twice", m.Kind, m.Reference)
		}
		t.movements = append(t.movements, *m)
	}
	for _, m := range d.Change {
		n := slices.IndexFunc(t.movements, func(k payment.Movement) bool { return k.ID == m.ID })
		t.movements[n] = m
	}
	t.changed = append(t.changed, d.Change...)
	t.post(d.Posts)
	t.review(d, about)
}

func (t *turn) post(posts []ledger.Posting) {
	for _, p := range posts {
		entries, err := ledger.Post(ledger.Subject{Merchant: merchant, Payment: t.p.ID, Account: t.p.Account, Base: "seed:auth:1"}, p)
		if err != nil {
			t.fails("%v", err)
			return
		}
		if t.keys[entries[0].TxKey] {
			t.fails("posted twice: %s", entries[0].TxKey)
		}
		t.keys[entries[0].TxKey] = true
		for _, e := range entries {
			t.entries[e.Account] += e.Amount.Minor()
		}
	}
}

func (t *turn) review(d payment.Decision, about *payment.Modification) {
	if d.Review == "" {
		return
	}
	r := openReview{reason: d.Review, movement: d.ReviewOn}
	switch {
	case !r.movement.IsZero():
	case len(d.Book) > 0:
		r.movement = d.Book[0].ID
	case len(d.Change) > 0:
		r.movement = d.Change[0].ID
	}
	if about != nil {
		r.of = about.ID
	}
	if !slices.Contains(t.reviews, r) {
		t.reviews = append(t.reviews, r)
	}
}

// again judges what came too early, for as long as that brings anything.
func (t *turn) again() {
	for progress := true; progress; {
		progress = false
		waiting := t.early
		t.early, t.p.Early = nil, false
		for _, o := range waiting {
			switch payment.Apply(t.situation(o), o).Effect {
			case evidence.Early:
				t.early = append(t.early, o)
			case evidence.Repeat, evidence.Behind:
			default:
				t.judge(o)
				progress = true
			}
		}
	}
	t.p.Early = len(t.early) > 0
}

// fit counts what had gone back beyond what was left, where it fits now.
func (t *turn) fit() {
	for {
		d, more := payment.Fit(t.situation(evidence.Observation{}))
		if !more {
			return
		}
		t.take(d, nil)
	}
}

// resolve closes the reviews of money that found its place, and with the last of them the conflict, as flow does.
func (t *turn) resolve() {
	left := t.reviews[:0:0]
	for _, r := range t.reviews {
		found := slices.ContainsFunc(t.changed, func(m payment.Movement) bool { return m.ID == r.movement && m.State != payment.Unapplied })
		over := r.movement.IsZero() && !r.of.IsZero() && slices.ContainsFunc(t.mods, func(m payment.Modification) bool { return m.ID == r.of && !m.Status.Open() })
		if !found && (!over || r.reason == payment.ReviewContradiction) {
			left = append(left, r)
		}
	}
	t.reviews = left
	stands := slices.ContainsFunc(left, func(r openReview) bool {
		return r.reason != payment.ReviewAmountMismatch && r.reason != payment.ReviewNoProof
	})
	giving := slices.ContainsFunc(t.mods, func(m payment.Modification) bool { return m.Type == payment.Compensation && m.Status.Open() })
	if len(t.changed) > 0 && !stands && !giving {
		t.p.Conflict, t.intent.Conflict = false, false
	}
}
