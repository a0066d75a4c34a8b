package payment

import (
	"slices"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
)

// Situation is everything that one observation is judged against, read under the lock of the intent (PROTOCOL P4).
type Situation struct {
	Intent   Intent
	Payment  Payment
	Standing evidence.Standing
	// Movements are those of the intent, and unattributed ones that carry this payment's key.
	Movements []Movement
	// Reviews are the reasons of the payment's open reviews, those of this transaction too.
	Reviews      []ReviewReason
	LastPermitAt time.Time // zero: not known any more
	Now          time.Time // database time
}

// Decision is what the observation changes. It is a value: internal/flow writes it in one transaction.
type Decision struct {
	Effect evidence.Effect
	Why    string
	// To is the new state; equal to the old one where nothing moves.
	To      Status
	Failure Failure
	// GateOpen and GateDue say when the next payment of the intent may start, for refusals (PROTOCOL P6).
	GateOpen bool
	GateDue  time.Time
	// OpenGate opens the gate of a payment that was refused before.
	OpenGate bool
	// Book is money to be booked for the first time; Adopt is booked money without a payment that turns out to be this one's.
	Book     *Movement
	Adopt    *Movement
	Conflict bool // opens a conflict on payment and intent
	Review   ReviewReason
	Events   []EventType
}

// Apply decides what one observation does to one payment: the only road by which a state changes (PROTOCOL section 8).
// The same observation twice changes nothing; contradicting ones book the same money in any order and open a conflict.
func Apply(s Situation, o evidence.Observation) Decision {
	d := Decision{To: s.Payment.Status, Effect: evidence.Noted}
	switch evidence.Prove(o, s.Standing) {
	case evidence.MoneyTaken:
		s.money(&d, o, true)
	case evidence.MoneyMismatch:
		s.money(&d, o, false)
	case evidence.Declined:
		s.refused(&d, o)
	case evidence.NotExecuted:
		s.notExecuted(&d, o)
	case evidence.StaleInference:
		d.Effect, d.Why = evidence.Stale, staleReason
	default:
		s.unproven(&d, o)
	}
	return d
}

const staleReason = "an inference of an owner whose fence is over is not recorded"

// money applies, keeps aside, or recognises money that moved.
func (s Situation) money(d *Decision, o evidence.Observation, exact bool) {
	mv := Movement{Merchant: s.Payment.Merchant, Account: s.Payment.Account, Reference: o.Reference,
		Kind: acquirer.MovementCharge, AcquirerKey: s.Payment.AcquirerKey, Intent: s.Intent.ID, Payment: s.Payment.ID,
		Amount: o.Amount, State: Applied, At: o.MovedAt}
	for _, known := range s.Movements {
		if known.Reference != mv.Reference || known.Kind != mv.Kind || known.Account != mv.Account {
			continue
		}
		if known.Payment.IsZero() && s.Payment.Status.Open() {
			s.found(d, known, exact)
			return
		}
		if known.Amount != mv.Amount { // one object, two amounts: what is booked stays, and a person looks
			s.contradiction(d)
			return
		}
		d.Effect, d.Why = evidence.Repeat, "this movement is booked already"
		s.openGate(d, o) // where it was given back, nothing stands in the way any more
		return
	}
	d.Book = &mv
	switch {
	case !exact:
		mv.State, mv.Cause = Unapplied, "amount, currency or reference differ from what was asked"
		d.Effect, d.Why, d.Review = evidence.Booked, mv.Cause, ReviewAmountMismatch
		if s.Payment.Status.Final() {
			s.conflict(d, &mv, s.lateReason())
		} else if to, ok := s.Payment.Status.Next(NoProof); ok {
			d.To, d.Effect = to, evidence.Moved
		}
	case s.Payment.Status.Open() && s.appliedCount() == 0 && !s.Intent.Conflict:
		s.pay(d, "money taken")
	default:
		s.conflict(d, &mv, s.lateReason())
	}
}

// found gives money that was booked without a payment to the open payment that it belongs to.
func (s Situation) found(d *Decision, known Movement, exact bool) {
	if known.State == Returned {
		// A person gave it back before its payment was known: nothing was paid, and only a person can say that it is over.
		d.Review, d.Why = ReviewNoProof, "the money of this payment was given back by a decision"
		if to, ok := s.Payment.Status.Next(NoProof); ok {
			d.To, d.Effect = to, evidence.Moved
		}
		return
	}
	known.Intent, known.Payment = s.Intent.ID, s.Payment.ID
	d.Adopt = &known
	if exact && s.appliedCount() == 0 && !s.Intent.Conflict {
		known.State, known.Cause = Applied, ""
		s.pay(d, "money that was booked without a payment belongs here")
		return
	}
	known.Cause = "amount, currency or reference differ from what was asked"
	d.Effect, d.Why, d.Review = evidence.Booked, known.Cause, ReviewAmountMismatch
	if exact {
		s.conflict(d, &known, ReviewSecondMovement)
	} else if to, ok := s.Payment.Status.Next(NoProof); ok {
		d.To, d.Effect = to, evidence.Moved
	}
}

func (s Situation) pay(d *Decision, why string) {
	to, ok := s.Payment.Status.Next(MoneyTaken)
	if !ok { // canceling, authorized: booked, and only the reversal's or the capture's own result moves them
		d.Effect, d.Why = evidence.Booked, why
		return
	}
	d.To, d.Effect, d.Why = to, evidence.Moved, why
	d.Events = append(d.Events, EventPaid)
	if s.keptAside() {
		// Two movements for one intent. The other one waits in a review of its own, whose decision ends the conflict.
		d.Conflict, d.Events = true, append(d.Events, EventConflict)
	}
}

// conflict keeps money aside that contradicts what is settled, and tells everybody (PROTOCOL E2, E5).
func (s Situation) conflict(d *Decision, mv *Movement, reason ReviewReason) {
	if mv != nil {
		mv.State, mv.Cause = Unapplied, string(reason)
	}
	d.Effect, d.Conflict, d.Review = evidence.Conflict, true, reason
	d.Why = map[ReviewReason]string{
		ReviewMoneyAfterRefusal: "money moved for a payment that was finally refused",
		ReviewSecondMovement:    "a second movement for an intent that is paid",
		ReviewContradiction:     "what the acquirer says contradicts what it said before",
	}[reason]
	d.Events = append(d.Events, EventConflict)
}

// contradiction opens its review, unless it is open: beside a conflict of another cause it is one more.
func (s Situation) contradiction(d *Decision) {
	if slices.Contains(s.Reviews, ReviewContradiction) {
		d.Effect, d.Why = evidence.Repeat, "the contradiction is open already"
		return
	}
	s.conflict(d, nil, ReviewContradiction)
}

func (s Situation) lateReason() ReviewReason {
	if s.Payment.Status.Refusal() && s.appliedCount() == 0 {
		return ReviewMoneyAfterRefusal
	}
	return ReviewSecondMovement
}

func (s Situation) appliedCount() int {
	n := 0
	for _, m := range s.Movements {
		if m.State == Applied && !m.Payment.IsZero() {
			n++
		}
	}
	return n
}

// keptAside says whether money of this payment waits for a person.
func (s Situation) keptAside() bool {
	return slices.ContainsFunc(s.Movements, func(m Movement) bool { return m.Payment == s.Payment.ID && m.State == Unapplied })
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
		s.end(d, Refused, failureOf(o.Reply, "declined"), EventDeclined)
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
	s.end(d, NotExecuted, failureOf(o.Reply, fallback), EventFailed)
	// Given back: the money was the answer to the only send that left.
	answered := o.Failure == FailureGivenBack && s.answered()
	s.gate(d, o, answered || o.Outcome == acquirer.OutcomeNotSent || o.Outcome == acquirer.OutcomeRejected)
}

// hasMoney says whether money that was not given back stands under this payment.
func (s Situation) hasMoney() bool {
	for _, m := range s.Movements {
		mine := m.Payment == s.Payment.ID || m.Payment.IsZero() && m.AcquirerKey == s.Payment.AcquirerKey
		if mine && m.State != Returned {
			return true
		}
	}
	return false
}

func (s Situation) end(d *Decision, by Cause, f Failure, event EventType) {
	to, ok := s.Payment.Status.Next(by)
	if !ok { // the table has no such row: stored, moves nothing
		d.Effect, d.Why = evidence.Behind, "not above the present state"
		return
	}
	d.To, d.Effect, d.Why, d.Failure = to, evidence.Moved, string(by), f
	d.Events = append(d.Events, event)
}

// answered says whether what came is the answer to the only send that left (PROTOCOL P6 a). A row of a lost interval does
// not know how many left (O1).
func (s Situation) answered() bool { return s.Standing.Left() <= 1 && !s.Standing.Lost }

// gate opens the way for the next payment at once, or when the longest flight time after the last permit was over
// before the acquirer was asked (PROTOCOL P6).
func (s Situation) gate(d *Decision, o evidence.Observation, atOnce bool) {
	if !d.To.Refusal() || s.Payment.Status.Refusal() {
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
		d.GateOpen = true
		return
	}
	d.GateDue = opens
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
		d.OpenGate, d.Why = true, "nothing can arrive any more: the intent is free"
	}
}

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
		if to, ok := s.Payment.Status.Next(NoProof); ok {
			d.To, d.Effect = to, evidence.Moved
		}
	}
	if o.Inference == evidence.InferGiveUp {
		d.Review, d.Why = ReviewReason(o.Note), o.Why
	}
}

// Failure codes that are no acquirer's own words.
const (
	FailureDecided   = "decided_not_executed"
	FailureGivenBack = "given_back"
)

func failureOf(r acquirer.Reply, fallback string) Failure {
	code := r.Failure
	if _, known := acquirer.FailureCodes[code]; !known {
		code = fallback
	}
	f := Failure{Code: code, Message: acquirer.FailureCodes[code]}
	if general := code == "declined" || code == "rejected"; general && r.Code != code && printable(r.Code) {
		f.Message += " Its own code for it: " + r.Code + "."
	}
	return f
}

// printable says whether an acquirer's code can be shown: bounded, visible ASCII.
func printable(code string) bool {
	outside := func(r rune) bool { return r <= ' ' || r > '~' }
	return code != "" && len(code) <= acquirer.MaxCode && strings.IndexFunc(code, outside) < 0
}
