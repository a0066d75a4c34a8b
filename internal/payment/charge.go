package payment

import (
	"slices"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/ledger"
)

// held places a hold, keeps it aside, or recognises it. No money moves with a hold; it stands as a movement so that each is
// known by its id.
func (s Situation) held(d *Decision, o evidence.Observation, exact bool) {
	mv := s.movement(o, acquirer.MovementHold)
	mv.Object = ""
	if known, ok := s.known(mv); ok {
		if known.State != Returned && known.Amount != mv.Amount {
			s.contradiction(d)
			return
		}
		d.Effect, d.Why = evidence.Repeat, "this hold is known already"
		if s.Payment.Status == Authorized && !o.ExpiresAt.IsZero() {
			d.Payment.ExpiresAt = o.ExpiresAt
		}
		return
	}
	if slices.ContainsFunc(s.Movements, func(m Movement) bool { return m.Account == mv.Account && m.Taken() && m.Charge() == mv.Reference }) {
		d.Effect, d.Why = evidence.Behind, "the money of this hold was taken already"
		return
	}
	if s.older(o) {
		d.Effect, d.Why = evidence.Behind, "older than the word that it is over"
		return
	}
	open := s.Payment.Status.Open() && s.applied() == 0 && !s.holds() && !s.Intent.Conflict
	switch {
	case exact && open:
		s.hold(d, mv, o.ExpiresAt)
		if d.to(FundsHeld) {
			d.tell(EventAuthorized)
			return
		}
		d.Effect, d.Why = evidence.Booked, "funds are held; the cancel goes on" // canceling: only the reversal moves it
	case !exact && s.Payment.Status.Open():
		s.aside(d, mv, "", asideWhy)
	default:
		s.stray(d, mv, "", ReviewStrayHold)
	}
}

// hold books an authorization that belongs to the payment.
func (s Situation) hold(d *Decision, mv Movement, until time.Time) {
	d.Book = append(d.Book, mv)
	d.post(ledger.Held, "", mv)
	p := &d.Payment
	p.Authorized, p.AcquirerReference = mv.Amount.Minor(), mv.Reference
	p.ExpiresAt = until
	if until.IsZero() {
		p.ExpiresAt = s.Now.Add(s.Standing.Contract.HoldLife)
	}
	p.DueAt = p.ExpiresAt // the hold is asked about when it should be over (PROTOCOL S4)
}

// holds says whether a hold stands on the payment.
func (s Situation) holds() bool {
	return slices.ContainsFunc(s.Movements, func(m Movement) bool {
		return m.Payment == s.Payment.ID && m.Kind == acquirer.MovementHold && m.State == Applied
	})
}

// endHold notes that the hold is over: taken, released or lapsed.
func (s Situation) endHold(d *Decision) {
	d.Payment.ExpiresAt = time.Time{}
	if !d.Payment.Status.Refusal() { // a refused payment is due for its gate
		d.Payment.DueAt = time.Time{}
	}
	for _, all := range []*[]Movement{&d.Book, &d.Change} {
		for n := range *all {
			if m := &(*all)[n]; m.Kind == acquirer.MovementHold && m.State == Applied {
				m.State = Returned
				d.post(ledger.Released, "", *m)
				return
			}
		}
	}
	for _, m := range s.Movements {
		if m.Payment == s.Payment.ID && m.Kind == acquirer.MovementHold && m.State == Applied {
			m.State = Returned
			d.Change = append(d.Change, m)
			d.post(ledger.Released, "", m)
			return
		}
	}
}

// pageOpen learns where the payer goes on.
func (s Situation) pageOpen(d *Decision, o evidence.Observation) {
	p := &d.Payment
	switch {
	case s.older(o):
		d.Effect, d.Why = evidence.Behind, "older than the word that it is over"
		return
	case p.Status.Refusal():
		s.contradiction(d) // a page that can be paid, of a payment that is over
		return
	case p.Status == Paid, p.Status == Authorized:
		d.Effect, d.Why = evidence.Behind, "not above the present state"
		return
	}
	if o.Session != "" {
		p.Session = o.Session
	}
	if o.RedirectURL != "" {
		p.RedirectURL = o.RedirectURL
	}
	if !o.ExpiresAt.IsZero() {
		p.ExpiresAt = o.ExpiresAt
	}
	if p.Status == Registered || p.Status == Canceling {
		d.Effect, d.Why = evidence.Repeat, "the payer's step is open"
		return
	}
	if p.RedirectURL == "" && o.Source == evidence.FromLookup {
		// Its address was lost and is told to nobody: it is closed, before a new one may open.
		d.Close = true
	}
	if d.to(SessionOpen) {
		d.tell(EventRegistered)
	}
}

// older says whether news of a charge or page is older than the acquirer's word that it is over, whatever road it took: only a
// lookup that was asked afterwards contradicts that word (PROTOCOL section 4, E1). A refusal that was inferred is no such word.
func (s Situation) older(o evidence.Observation) bool {
	p := s.Payment
	word := p.Status.Refusal() && !slices.Contains(inferred, p.Failure.Code)
	same := o.Reference == p.AcquirerReference || o.Reference == p.Session
	if p.Session == "" && o.Session != "" && o.Outcome == acquirer.OutcomeRegistered { // its charge was told before its page
		same = true
	}
	return word && same && (o.Source != evidence.FromLookup || o.AskedAt.Before(p.RefusedAt))
}

// over learns that the charge or page is over and holds nothing.
func (s Situation) over(d *Decision, o evidence.Observation) {
	if s.strayOver(d, o) {
		return
	}
	other := o.Reference != "" && s.Payment.AcquirerReference != "" && o.Reference != s.Payment.AcquirerReference
	if other && (s.Payment.Status == Authorized || s.Payment.Status == Canceling && s.holds()) {
		d.Effect, d.Why = evidence.Behind, "another charge or page than the one that holds the money"
		return
	}
	if o.Reference != "" && s.Payment.Status.Open() {
		d.Payment.AcquirerReference = o.Reference // of a page that was paid, the charge: older news of it may come later
	}
	switch s.Payment.Status {
	case Pending, Unknown, Registered:
		d.Payment.Failure = failureOf(acquirer.Reply{Failure: "page_closed"}, "page_closed")
		s.end(d, SessionClosed, EventCanceled)
		d.Payment.GateOpen, d.Payment.DueAt = true, time.Time{} // its object is confirmed closed (PROTOCOL P6 c)
	case Authorized:
		if s.Payment.Captured > 0 {
			d.to(LastCapture)
			d.tell(EventPaid)
		} else {
			d.Payment.Failure = failureOf(acquirer.Reply{Failure: "hold_expired"}, "hold_expired")
			s.end(d, HoldReleased, EventCanceled)
			d.Payment.GateOpen, d.Payment.DueAt = true, time.Time{}
		}
		s.endHold(d)
	case Canceling:
		s.reversed(d, "")
	case Paid:
		if o.Reference != "" && o.Reference == s.Payment.AcquirerReference {
			s.contradiction(d)
			return
		}
		d.Effect, d.Why = evidence.Behind, "not above the present state"
	default:
		d.Effect, d.Why = evidence.Repeat, "it is over already"
		if !s.Payment.GateOpen && !s.hasMoney() {
			d.Payment.GateOpen, d.Payment.DueAt, d.Why = true, time.Time{}, "its object is confirmed closed: the intent is free"
		}
	}
}

// strayOver notes that a hold which was kept aside is over.
func (s Situation) strayOver(d *Decision, o evidence.Observation) bool {
	for _, m := range s.Movements {
		if m.Kind == acquirer.MovementHold && m.State == Unapplied && m.Reference == o.Reference && m.Account == s.Payment.Account {
			m.State, m.Cause = Returned, ""
			d.Change = append(d.Change, m)
			d.Effect, d.Why = evidence.Booked, "the hold that was kept aside is over"
			return true
		}
	}
	return false
}

func (s Situation) refused(d *Decision, o evidence.Observation) {
	switch {
	case s.Payment.Status.Refusal():
		d.Effect, d.Why = evidence.Repeat, "refused already"
		s.openGate(d, o)
	case s.Payment.Status == Paid, s.hasMoney():
		// Money moved under this payment, applied or waiting for a person: a refusal beside it contradicts it.
		s.contradiction(d)
	default:
		d.Payment.Failure = failureOf(o.Reply, "declined")
		s.end(d, Refused, EventDeclined)
		s.gate(d, o, s.Standing.Contract.RemembersRefusals || s.answered())
	}
}

func (s Situation) notExecuted(d *Decision, o evidence.Observation) {
	if s.Payment.Status.Final() || s.hasMoney() {
		d.Effect, d.Why = evidence.Behind, "not above the present state"
		s.openGate(d, o)
		return
	}
	fallback := "not_executed"
	switch {
	case o.Source == evidence.FromPerson:
		fallback = FailureDecided
	case o.Outcome == acquirer.OutcomeNotSent:
		fallback = "acquirer_unreachable"
	case o.Outcome == acquirer.OutcomeRejected:
		fallback = "rejected"
	}
	d.Payment.Failure = failureOf(o.Reply, fallback)
	s.end(d, NotExecuted, EventFailed)
	// Given back: the money was the answer to the only send that left.
	answered := o.Failure == FailureGivenBack && s.answered()
	s.gate(d, o, answered || o.Outcome == acquirer.OutcomeNotSent || o.Outcome == acquirer.OutcomeRejected)
}

// end refuses the payment finally, with the failure that is set. While it is being canceled, a refusal is what the cancel
// wanted: nothing is left to reverse.
func (s Situation) end(d *Decision, by Cause, event EventType) {
	if s.Payment.Status == Registered && (by == Refused || d.Payment.Failure.Code == FailureGivenBack) {
		by, event = FinalError, EventFailed // the payer's step ended in a refusal, or in money that went back
	}
	if s.Payment.Status == Canceling {
		by, event = ReversalProven, EventCanceled
		s.endCancel(d, ModSucceeded, Failure{})
	}
	if !d.to(by) { // the table has no such row: stored, moves nothing
		d.Effect, d.Why, d.Payment.Failure = evidence.Behind, "not above the present state", s.Payment.Failure
		return
	}
	d.Payment.RefusedAt = s.Now
	d.tell(event)
}

// answered says whether what came is the answer to the only send that left (PROTOCOL P6 a). A row of a lost interval does
// not know how many left (O1).
func (s Situation) answered() bool { return s.Standing.Left() <= 1 && !s.Standing.Lost }

// gate opens the way for the next payment at once, or when the longest flight time after the last permit was over
// before the acquirer was asked (PROTOCOL P6).
func (s Situation) gate(d *Decision, o evidence.Observation, atOnce bool) {
	if !d.Payment.Status.Refusal() || s.Payment.Status.Refusal() {
		return
	}
	last := s.LastPermitAt
	if last.IsZero() { // not known: not earlier than now
		last = s.Now
	}
	opens := last.Add(s.Standing.Contract.Flight() + s.Standing.Contract.LookupLag)
	asked := s.Now
	if o.Source != evidence.FromPerson {
		asked = o.AskedAt // a lookup counts as of when it was asked
	}
	byThen := (o.Source == evidence.FromLookup || o.Source == evidence.FromPerson) && asked.After(opens)
	if atOnce || byThen {
		d.Payment.GateOpen, d.Payment.DueAt = true, time.Time{}
		return
	}
	d.Payment.GateOpen, d.Payment.DueAt = false, opens
}

// openGate lets the next payment start when, the longest flight time after the refusal, a lookup still says refused or
// a person says so (PROTOCOL P6 d). No permit is granted after a refusal, so the refusal is not earlier than the last one.
func (s Situation) openGate(d *Decision, o evidence.Observation) {
	if !s.Payment.Status.Refusal() || s.Payment.GateOpen || s.hasMoney() {
		return
	}
	quiet := s.Payment.RefusedAt.Add(s.Standing.Contract.Flight() + s.Standing.Contract.LookupLag)
	late := o.Source == evidence.FromLookup && o.AskedAt.After(quiet)
	if late || o.Source == evidence.FromPerson {
		d.Payment.GateOpen, d.Payment.DueAt, d.Why = true, time.Time{}, "nothing can arrive any more: the intent is free"
	}
}

// reviewedHold is how often a hold is looked at that waits for a person (PROTOCOL K6).
const reviewedHold = 12 * time.Hour

func (s Situation) unproven(d *Decision, o evidence.Observation) {
	if s.Payment.Status.Final() {
		d.Effect, d.Why = evidence.Behind, "not above the present state"
		if o.Inference == evidence.InferGiveUp && s.Payment.Status.Refusal() {
			d.Review, d.Why = ReviewReason(o.Note), o.Why
		}
		return
	}
	d.Why = "nothing proven: " + o.Outcome.String()
	switch {
	case o.Outcome == acquirer.OutcomePending: // the acquirer's own word, which moves nothing
	case !s.Standing.Owner && o.Fence == 0: // told by somebody who concludes nothing
	case !s.Standing.Owner: // "unknown" is an inference too (PROTOCOL K3)
		d.Effect, d.Why = evidence.Stale, staleReason
	default:
		why := d.Why
		if d.to(NoProof) {
			d.Why = why
		}
	}
	if o.Inference == evidence.InferGiveUp {
		d.Review, d.Why = ReviewReason(o.Note), o.Why
		if s.Payment.Status == Authorized {
			d.Payment.DueAt = s.Now.Add(reviewedHold) // a person has it now
		}
	}
}
