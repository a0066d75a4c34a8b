package payment

import (
	"slices"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/ledger"
	"github.com/hapaxpay/hapax/money"
)

// MatchModification finds the modification that an observation is about: by our key, or by the acquirer's id. Nil: none of
// ours, or about the charge itself.
func MatchModification(all []Modification, o evidence.Observation) *Modification {
	if o.About == acquirer.ActionCharge || o.About == acquirer.ActionSession || o.About == acquirer.ActionChargeback || o.About == "" {
		return nil
	}
	for n := range all {
		m := &all[n]
		byID := o.Reference != "" && m.AcquirerReference == o.Reference
		if m.ID == o.Modification || byID || o.OurReference != "" && m.AcquirerKey == o.OurReference {
			return m
		}
	}
	return nil
}

// change gives the modification that changes with this decision.
func (s Situation) change(d *Decision) *Modification {
	if d.Modification == nil {
		m := *s.Modification
		d.Modification = &m
	}
	return d.Modification
}

// succeed notes the result of the modification that was asked for.
func (s Situation) succeed(d *Decision, reference string) {
	m := s.change(d)
	m.Status, m.Failure = ModSucceeded, Failure{}
	if reference != "" {
		m.AcquirerReference = reference
	}
}

// fail notes that the modification is proven not to have been done, and frees what it had reserved (PROTOCOL X2, X3).
func (s Situation) fail(d *Decision, f Failure) {
	m := s.change(d)
	m.Status, m.Failure = ModFailed, f
	s.release(d, *m)
}

// release frees the amount that an open capture had reserved: there is one at a time, and what was captured by hand meanwhile has
// taken its place. What refunds have reserved follows from those that are open.
func (s Situation) release(d *Decision, m Modification) {
	if m.Type == Capture {
		d.Payment.Capturing = 0
	}
}

// reserve keeps what open refunds ask for, as far as what really went back leaves room for it: the acquirer will refuse the rest
// (PROTOCOL X3).
func (s Situation) reserve(d *Decision) {
	open := int64(0)
	for _, m := range s.Modifications {
		if d.Modification != nil && d.Modification.ID == m.ID {
			m = *d.Modification
		}
		if m.Type == Refund && m.Status.Open() {
			open += m.Amount.Minor()
		}
	}
	d.Payment.Refunding = min(open, d.Payment.returnable())
}

// ours judges what was said of a modification of ours that is not done: it says whether that was all.
func (s Situation) ours(d *Decision, o evidence.Observation, v evidence.Verdict, failed EventType) bool {
	m := s.Modification
	if m == nil {
		d.Why = "nothing was done, and nobody of ours asked"
		return v != evidence.Done && v != evidence.DoneOtherwise
	}
	switch v {
	case evidence.Done, evidence.DoneOtherwise:
		return false
	case evidence.Declined, evidence.NotExecuted:
		if !m.Status.Open() {
			d.Effect, d.Why = evidence.Behind, "its result is known already"
			return v == evidence.NotExecuted || m.Status == ModFailed || m.Type == Capture || m.Type == Cancel
		}
		fallback := "declined"
		if v == evidence.NotExecuted {
			fallback = map[acquirer.Outcome]string{acquirer.OutcomeNotSent: "acquirer_unreachable", acquirer.OutcomeRejected: "rejected"}[o.Outcome]
			if fallback == "" {
				fallback = "not_executed"
			}
			if o.Source == evidence.FromPerson {
				fallback = FailureDecided
			}
		}
		s.fail(d, failureOf(o.Reply, fallback))
		if o.Reference != "" && o.Outcome == acquirer.OutcomeDeclined {
			d.Modification.AcquirerReference = o.Reference // what is told of this object later is older, or newer, news of it
		}
		d.Effect, d.Why = evidence.Moved, string(m.Type)+" refused: "+d.Modification.Failure.Code
		d.tell(failed)
	case evidence.StaleInference:
		d.Effect, d.Why = evidence.Stale, staleReason
	default:
		s.unclear(d, o)
	}
	return true
}

// unclear keeps a modification open while nothing is proven.
func (s Situation) unclear(d *Decision, o evidence.Observation) {
	if !s.Modification.Status.Open() {
		d.Effect, d.Why = evidence.Behind, "its result is known already"
		return
	}
	d.Why = "nothing proven: " + o.Outcome.String()
	switch {
	case o.Outcome == acquirer.OutcomePending: // the acquirer is working on it
		if o.Reference != "" && s.Modification.AcquirerReference == "" {
			s.change(d).AcquirerReference = o.Reference
		}
	case !s.Standing.Owner && o.Fence == 0:
	case !s.Standing.Owner:
		d.Effect, d.Why = evidence.Stale, staleReason
	case s.Modification.Status == ModPending:
		s.change(d).Status = ModUnknown
		d.Effect = evidence.Moved
	}
	if o.Inference == evidence.InferGiveUp {
		d.Review, d.Why = ReviewReason(o.Note), o.Why
	}
}

// capture judges what is said of a capture: ours, or one that was made by hand at the acquirer.
func (s Situation) capture(d *Decision, o evidence.Observation) {
	v := evidence.Prove(o, s.expecting(o))
	if s.ours(d, o, v, EventCaptureFailed) {
		return
	}
	mv := s.movement(o, acquirer.MovementCapture)
	if known, ok := s.known(mv); ok {
		if known.Amount != mv.Amount {
			s.contradiction(d)
			return
		}
		d.Effect, d.Why = evidence.Repeat, "this capture is booked already"
		s.settleKnown(d, known)
		if o.Final {
			s.strayHoldOver(d, known)
		}
		if o.Final && known.State == Applied && !s.last(d) && s.Payment.Status == Canceling {
			s.endHold(d) // it is over, and what was taken of it was told before
		}
		return
	}
	p := s.Payment
	room := mv.Amount.Currency() == p.Amount.Currency() && p.Captured+mv.Amount.Minor() <= p.Amount.Minor()
	same := s.applied() == 0 || slices.ContainsFunc(s.Movements, func(m Movement) bool {
		return m.Payment == p.ID && m.State == Applied && m.Taken() && m.Charge() == mv.Charge()
	})
	switch {
	case v == evidence.DoneOtherwise && s.Modification != nil && s.Modification.Status.Open():
		s.aside(d, mv, ledger.ReceivedUnapplied, asideWhy)
	case p.Status.Refusal(), !room, !same, s.Intent.Conflict && p.Captured == 0:
		s.stray(d, mv, ledger.ReceivedUnapplied, s.lateReason())
		if o.Final {
			s.strayHoldOver(d, mv)
		}
	default:
		s.captured(d, mv, o)
	}
}

// strayHoldOver notes that a hold which was kept aside is over with its last capture: nothing of it is left to release.
func (s Situation) strayHoldOver(d *Decision, taken Movement) {
	for _, m := range s.Movements {
		if m.Kind == acquirer.MovementHold && m.State == Unapplied && m.Reference == taken.Charge() && m.Account == taken.Account {
			m.State, m.Cause = Returned, ""
			d.Change = append(d.Change, m)
		}
	}
}

// settleKnown ends an open modification whose money turns out to be booked: somebody told it without our reference before, or a
// person decided about it. Where that money is kept aside, a person looks first; where it went the other way again, the
// modification counts for nothing.
func (s Situation) settleKnown(d *Decision, known Movement) {
	m := s.Modification
	switch {
	case m == nil || !m.Status.Open() || known.State == Unapplied:
		return
	case known.State == Returned && m.Type == Capture:
		s.fail(d, failureOf(acquirer.Reply{Failure: FailureGivenBack}, FailureGivenBack))
		d.tell(EventCaptureFailed)
	case known.State == Returned && m.Type == Refund:
		s.fail(d, failureOf(acquirer.Reply{Failure: FailureGivenBack}, FailureGivenBack))
		d.tell(EventRefundFailed)
	default:
		s.release(d, *m)
		s.succeed(d, known.Reference)
		switch { // nobody was told when it was booked
		case m.Type == Compensation:
			d.tell(EventCompensated)
		case m.Type == Refund && known.Cause == string(ReviewExcess):
			d.tell(EventRefundSucceeded)
		}
	}
	d.Modification.AcquirerReference = known.Reference
	d.Effect, d.Why = evidence.Moved, "what was booked before is the "+string(m.Type)+" that was asked for"
	if d.Modification.Status == ModFailed {
		d.Why += ", and its money went the other way again"
	}
}

// captured applies captured money. A capture implies a hold: where it is told first, the hold is booked with it, so that
// the books are the same in any order (PROTOCOL E1).
func (s Situation) captured(d *Decision, mv Movement, o evidence.Observation) {
	if s.Payment.Authorized == 0 {
		hold := mv
		hold.Kind, hold.Reference, hold.Object, hold.Amount = acquirer.MovementHold, mv.Charge(), "", s.Payment.Amount
		hold.AcquirerKey = s.Payment.AcquirerKey
		s.hold(d, hold, o.ExpiresAt)
		if d.to(FundsHeld) {
			d.tell(EventAuthorized)
		}
	}
	d.Book = append(d.Book, mv)
	d.post(ledger.Captured, mv.Reference, mv)
	d.Payment.Captured += mv.Amount.Minor()
	d.Payment.AcquirerReference = mv.Charge()
	if m := s.Modification; m != nil && m.Status != ModSucceeded {
		if m.Status.Open() {
			s.release(d, *m)
		}
		s.succeed(d, mv.Reference)
	}
	d.Payment.Capturing = min(d.Payment.Capturing, d.Payment.Authorized-d.Payment.Captured)
	d.Effect, d.Why = evidence.Booked, "held funds were captured"
	switch {
	case d.Payment.Status == Paid: // a part that is told after the last one
		d.tell(EventCaptured)
	case !o.Final && d.Payment.Captured < d.Payment.Authorized:
		d.tell(EventCaptured)
	case s.last(d):
	default: // canceling: the hold is over, and only the reversal's result moves the payment
		s.endHold(d)
		s.cancelTooLate(d)
	}
}

// last ends a hold of which nothing more can be captured; false where the payment does not wait for that.
func (s Situation) last(d *Decision) bool {
	if !d.to(LastCapture) {
		return false
	}
	d.tell(EventPaid)
	s.endHold(d)
	if s.keptAside() {
		d.Conflict = true
		d.tell(EventConflict)
	}
	return true
}

// expecting gives what the judgement of an observation expects: of a modification of ours its own amount, of one made by
// hand whatever it was.
func (s Situation) expecting(o evidence.Observation) evidence.Standing {
	st := s.Standing
	st.Expected, st.Key = o.Amount, o.OurReference
	if m := s.Modification; m != nil {
		st.Expected, st.Key = m.Amount, m.AcquirerKey
		if m.Type == Cancel || m.Type == Compensation && m.Action == acquirer.ActionReverse { // a hold is released
			st.Expected = money.Amount{}
		}
	}
	return st
}

// reversal judges what is said of a reversal or of the closing of a page. Its amount is the money that it gave back: zero
// where it released a hold or closed a page.
func (s Situation) reversal(d *Decision, o evidence.Observation) {
	m, v := s.Modification, evidence.Prove(o, s.expecting(o))
	switch {
	case m == nil && v == evidence.Done && !o.Amount.IsPositive():
		o.Reference = o.Object // by hand, or by us and told without our reference: that charge is over
		s.over(d, o)
		return
	case m == nil || m.Type != Cancel:
		s.refund(d, o) // money that was given back, or a hold that was kept aside
		return
	}
	switch {
	case v == evidence.Done || v == evidence.DoneOtherwise:
		s.cancelDone(d, o)
	case v == evidence.Declined && m.Status.Open():
		s.reversalRefused(d, o)
	default:
		s.ours(d, o, v, EventCancelFailed)
		if d.Modification != nil && d.Modification.Status == ModFailed { // proven that it never arrived: the payment goes on
			s.reversalRefused(d, o)
		}
	}
}

// cancelDone ends a cancel by the acquirer's word, and keeps what it gave back.
func (s Situation) cancelDone(d *Decision, o evidence.Observation) {
	back := s.movement(o, acquirer.MovementReverse)
	_, known := s.known(back)
	if s.Payment.Status == Canceling {
		s.reversed(d, o.Reference)
	} else {
		if m := s.Modification; m.Status.Open() || m.Status == ModSucceeded && m.AcquirerReference == "" {
			s.succeed(d, o.Reference)
		}
		d.Effect, d.Why = evidence.Behind, "not above the present state"
	}
	if known || !o.Amount.IsPositive() {
		return
	}
	// Money of this charge that is told later was given back already: no conflict (PROTOCOL section 4).
	if strays, _ := s.ofCharge(back.Charge()); len(strays) > 0 {
		s.strayBack(d, back, strays)
		return
	}
	d.Book = append(d.Book, back)
}

// reversed ends a cancel: the hold is released, the page is closed, and money that was taken meanwhile was given back with it.
func (s Situation) reversed(d *Decision, reference string) {
	d.Payment.Failure = failureOf(acquirer.Reply{Failure: "canceled"}, "canceled")
	d.to(ReversalProven)
	d.Payment.RefusedAt, d.Payment.GateOpen = s.Now, true // its object is confirmed closed (PROTOCOL P6 c)
	d.tell(EventCanceled)
	s.endCancel(d, ModSucceeded, Failure{})
	if d.Modification != nil && reference != "" {
		d.Modification.AcquirerReference = reference
	}
	s.endHold(d)
	for _, mv := range s.Movements {
		if mv.Payment == s.Payment.ID && mv.Taken() && mv.State == Applied {
			mv.State = Returned
			d.Change = append(d.Change, mv)
			d.post(ledger.Refunded, mv.Reference, mv)
			d.Payment.Captured -= mv.Amount.Minor()
		}
	}
	d.Payment.DueAt = time.Time{}
}

// reversalRefused ends a cancel that was finally refused, in the state that a fresh lookup proves; while none proves
// anything, it stays open and is asked about again (PROTOCOL section 4).
func (s Situation) reversalRefused(d *Decision, o evidence.Observation) {
	by, ok := s.proven(o.Source == evidence.FromPerson)
	if !ok || s.Payment.Status != Canceling {
		d.Modification = nil
		d.Events = nil
		if s.Payment.Status != Canceling {
			d.Effect, d.Why = evidence.Behind, "not above the present state"
			return
		}
		d.Why = "the reversal was refused, and what is true is not proven yet"
		s.unclear(d, o)
		return
	}
	d.Events = nil
	why := failureOf(o.Reply, "declined")
	if d.Modification != nil { // it never arrived
		why = d.Modification.Failure
	}
	s.cancelFailed(d, by, why)
}

// proven gives the cause by which a refused reversal ends. A person has looked at the acquirer, which is as good as a fresh
// lookup.
func (s Situation) proven(seen bool) (Cause, bool) {
	switch {
	case s.Payment.Captured > 0 && !s.holds():
		return ReversalTooLate, true
	case s.Payment.Captured > 0 && s.Payment.Captured == s.Payment.Authorized:
		return ReversalTooLate, true
	case s.holds() && (seen || s.Fresh == acquirer.OutcomeHeld):
		return ReversalRefused, true
	case s.Fresh == acquirer.OutcomeRegistered, seen && !s.holds() && s.Payment.RedirectURL != "":
		return ReversalPageOpen, true
	}
	return "", false
}

// cancelFailed ends the open cancel, and the payment goes on where it is.
func (s Situation) cancelFailed(d *Decision, by Cause, f Failure) {
	s.endCancel(d, ModFailed, f)
	d.to(by)
	d.tell(EventCancelFailed)
	if d.Payment.Status == Paid {
		d.tell(EventPaid)
		s.endHold(d)
	}
	if d.Payment.Status == Authorized {
		d.Payment.DueAt = d.Payment.ExpiresAt
	}
}

// cancelTooLate ends a cancel that waited for the charge and finds that the money moved: nothing was sent for it, and
// nothing will be. A cancel whose call is under way ends by its own result.
func (s Situation) cancelTooLate(d *Decision) {
	m := s.openCancel()
	if m == nil || m.Action != "" {
		return
	}
	s.cancelFailed(d, ReversalTooLate, failureOf(acquirer.Reply{Failure: "already_captured"}, "already_captured"))
}

// openCancel is the cancel that is under way; nil: none.
func (s Situation) openCancel() *Modification {
	n := slices.IndexFunc(s.Modifications, func(m Modification) bool { return m.Type == Cancel && m.Status.Open() })
	if n < 0 {
		return nil
	}
	return &s.Modifications[n]
}

// endCancel gives the open cancel its result.
func (s Situation) endCancel(d *Decision, status ModificationStatus, f Failure) {
	m := s.openCancel()
	if m == nil {
		return
	}
	done := *m
	if d.Modification != nil && d.Modification.ID == m.ID {
		done = *d.Modification
	}
	done.Status, done.Failure = status, f
	d.Modification = &done
}
