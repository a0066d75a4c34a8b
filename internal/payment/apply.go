package payment

import (
	"slices"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/ledger"
)

// Situation is everything that one observation is judged against, read under the lock of the intent (PROTOCOL P4).
type Situation struct {
	Intent  Intent
	Payment Payment
	// Modification is the one that the observation is about; nil: about the payment itself, or done by nobody of ours.
	Modification  *Modification
	Modifications []Modification // all of the payment
	Disputes      []Dispute      // of the payment
	Standing      evidence.Standing
	// Movements are those of the intent, and unattributed ones that carry this payment's key.
	Movements []Movement
	// Reviews are the reasons of the payment's open reviews, those of this transaction too.
	Reviews      []ReviewReason
	LastPermitAt time.Time // zero: not known any more
	// Fresh is what a lookup of the charge said after the refusal that is judged here; OutcomeUnknown: none, or nothing.
	Fresh acquirer.Outcome
	Now   time.Time // database time
}

// Decision is what the observation changes. It is a value: internal/flow writes it in one transaction.
type Decision struct {
	Effect evidence.Effect
	Why    string
	// Payment and Modification are as they are now; Modification nil: none changes.
	Payment      Payment
	Modification *Modification
	// Created was done by hand at the acquirer: it becomes a modification of its own.
	Created *Modification
	// Close asks for a cancel of our own: the payer's page can never be reached (PROTOCOL section 7, point 3).
	Close bool
	// Book is money to be booked for the first time, Change is booked money of which something else becomes. The review hangs
	// on ReviewOn where that is set, else on the first of them.
	Book, Change []Movement
	ReviewOn     id.ID
	Posts        []ledger.Posting
	Dispute      *Dispute
	Conflict     bool // opens a conflict on payment and intent
	Review       ReviewReason
	Events       []EventType
}

// Apply decides what one observation does to one payment: the only road by which a state changes (PROTOCOL section 8).
// The same observation twice changes nothing; contradicting ones book the same money in any order and open a conflict.
func Apply(s Situation, o evidence.Observation) Decision {
	d := Decision{Payment: s.Payment, Effect: evidence.Noted}
	switch o.About {
	case acquirer.ActionCapture:
		s.capture(&d, o)
	case acquirer.ActionReverse, acquirer.ActionClose:
		s.reversal(&d, o)
	case acquirer.ActionRefund:
		s.refund(&d, o)
	case acquirer.ActionChargeback:
		s.chargeback(&d, o)
	default:
		s.charge(&d, o)
	}
	s.reserve(&d)
	return d
}

const staleReason = "an inference of an owner whose fence is over is not recorded"

// charge judges what is said of the charge or the page itself.
func (s Situation) charge(d *Decision, o evidence.Observation) {
	switch evidence.Prove(o, s.Standing) {
	case evidence.Done:
		s.money(d, o, true)
	case evidence.DoneOtherwise:
		s.money(d, o, false)
	case evidence.FundsHeld:
		s.held(d, o, true)
	case evidence.HeldOtherwise:
		s.held(d, o, false)
	case evidence.PageOpen:
		s.pageOpen(d, o)
	case evidence.Over:
		s.over(d, o)
	case evidence.Declined:
		s.refused(d, o)
	case evidence.NotExecuted:
		s.notExecuted(d, o)
	case evidence.StaleInference:
		d.Effect, d.Why = evidence.Stale, staleReason
	default:
		s.unproven(d, o)
	}
	if p := &d.Payment; p.AcquirerReference == "" && o.Reference != "" && o.Outcome != acquirer.OutcomeRejected {
		p.AcquirerReference = o.Reference
	}
	if p := &d.Payment; p.Session == "" {
		p.Session = o.Session // the page on which it was paid, which may be told later
	}
}

// to moves the payment by the table; false where the table has no such row, and nothing moves.
func (d *Decision) to(by Cause) bool {
	to, ok := d.Payment.Status.Next(by)
	if ok {
		d.Payment.Status, d.Effect, d.Why = to, evidence.Moved, string(by)
	}
	return ok
}

func (d *Decision) tell(t ...EventType) { d.Events = append(d.Events, t...) }

func (d *Decision) post(r ledger.Rule, reference string, m Movement) {
	d.Posts = append(d.Posts, ledger.Posting{Rule: r, Reference: reference, Amount: m.Amount})
}

// movement is money that an observation tells of.
func (s Situation) movement(o evidence.Observation, kind acquirer.MovementKind) Movement {
	at := o.MovedAt
	if at.IsZero() {
		at = o.At
	}
	key := o.OurReference
	if kind == acquirer.MovementCharge || kind == acquirer.MovementHold {
		key = s.Payment.AcquirerKey
	}
	return Movement{Merchant: s.Payment.Merchant, Account: s.Payment.Account, Reference: o.Reference, Object: o.Object, Kind: kind,
		AcquirerKey: key, Intent: s.Intent.ID, Payment: s.Payment.ID, Amount: o.Amount, State: Applied, At: at}
}

// known finds money that is booked already.
func (s Situation) known(m Movement) (Movement, bool) {
	n := slices.IndexFunc(s.Movements, func(k Movement) bool {
		return k.Reference == m.Reference && k.Kind == m.Kind && k.Account == m.Account
	})
	if n < 0 {
		return Movement{}, false
	}
	return s.Movements[n], true
}

// money applies, keeps aside, or recognises money that was taken at once.
func (s Situation) money(d *Decision, o evidence.Observation, exact bool) {
	mv := s.movement(o, acquirer.MovementCharge)
	if known, ok := s.known(mv); ok {
		switch {
		case known.Payment.IsZero() && s.Payment.Status.Open():
			s.found(d, known, exact)
		case known.Amount != mv.Amount: // one object, two amounts: what is booked stays, and a person looks
			s.contradiction(d)
		default:
			d.Effect, d.Why = evidence.Repeat, "this movement is booked already"
			s.openGate(d, o) // where it was given back, nothing stands in the way any more
		}
		return
	}
	switch {
	case !exact:
		s.aside(d, mv, ledger.ReceivedUnapplied, asideWhy)
	case s.Payment.Status.Open() && s.applied() == 0 && !s.Intent.Conflict:
		d.Book = append(d.Book, mv)
		d.post(ledger.Received, "", mv)
		s.pay(d, mv, "money taken")
	default:
		s.stray(d, mv, ledger.ReceivedUnapplied, s.lateReason())
	}
}

const asideWhy = "amount, currency or reference differ from what was asked"

// aside keeps money that was not asked for like this until a person decides.
func (s Situation) aside(d *Decision, mv Movement, rule ledger.Rule, why string) {
	if s.Payment.Status.Final() {
		s.stray(d, mv, rule, s.lateReason())
		return
	}
	mv.State, mv.Cause = Unapplied, why
	d.Book = append(d.Book, mv)
	if mv.Kind != acquirer.MovementHold {
		d.post(rule, mv.Reference, mv)
	}
	d.Effect, d.Review = evidence.Booked, ReviewAmountMismatch
	d.to(NoProof)
	d.Why = why
}

// stray keeps money aside that contradicts what is settled, and tells everybody (PROTOCOL E2, E5).
func (s Situation) stray(d *Decision, mv Movement, rule ledger.Rule, reason ReviewReason) {
	mv.State, mv.Cause = Unapplied, string(reason)
	if s.givenBack(mv) { // its giving back was told first: it is no conflict
		mv.State, mv.Cause = Returned, ""
		d.Book = append(d.Book, mv)
		d.Effect, d.Why = evidence.Booked, "money that moved and was given back"
		d.post(rule, mv.Reference, mv)
		d.post(ledger.ReturnedOutside, mv.Reference, mv)
		return
	}
	d.Book = append(d.Book, mv)
	if mv.Kind != acquirer.MovementHold {
		d.post(rule, mv.Reference, mv)
	}
	s.conflict(d, reason)
}

// givenBack says whether a reversal of the charge that moved this money is booked already.
func (s Situation) givenBack(mv Movement) bool {
	if mv.Kind != acquirer.MovementCharge && mv.Kind != acquirer.MovementCapture {
		return false
	}
	return slices.ContainsFunc(s.Movements, func(k Movement) bool {
		return k.Kind == acquirer.MovementReverse && k.Account == mv.Account && k.Object == mv.Charge() && k.State == Applied
	})
}

// Charge is the acquirer's id of the charge that the money belongs to.
func (m Movement) Charge() string {
	if m.Object != "" {
		return m.Object
	}
	return m.Reference
}

// found gives money that was booked without a payment to the open payment that it belongs to.
func (s Situation) found(d *Decision, known Movement, exact bool) {
	if known.State == Returned {
		// A person gave it back before its payment was known: nothing was paid, and only a person can say that it is over.
		d.Review = ReviewNoProof
		d.to(NoProof)
		d.Why = "the money of this payment was given back by a decision"
		return
	}
	known.Intent, known.Payment = s.Intent.ID, s.Payment.ID
	if exact && s.applied() == 0 && !s.Intent.Conflict {
		known.State, known.Cause = Applied, ""
		d.Change = append(d.Change, known)
		d.post(ledger.Apply, known.Reference, known)
		s.pay(d, known, "money that was booked without a payment belongs here")
		return
	}
	known.Cause = asideWhy
	d.Change = append(d.Change, known)
	d.Effect, d.Review = evidence.Booked, ReviewAmountMismatch
	if exact {
		s.conflict(d, ReviewSecondMovement)
	} else {
		d.to(NoProof)
		d.Why = known.Cause
	}
}

// pay counts money that is applied, and moves the payment where that is for the money alone to say.
func (s Situation) pay(d *Decision, mv Movement, why string) {
	d.Payment.Captured += mv.Amount.Minor()
	d.Payment.AcquirerReference = mv.Charge()
	by := MoneyTaken
	if s.Payment.Status == Authorized {
		by = LastCapture
	}
	if !d.to(by) { // canceling: booked, and only the reversal's own result moves it
		d.Effect, d.Why = evidence.Booked, why
		s.cancelTooLate(d)
		return
	}
	d.Why = why
	d.tell(EventPaid)
	s.endHold(d)
	if s.keptAside() {
		// Two movements for one intent. The other one waits in a review of its own, whose decision ends the conflict.
		d.Conflict = true
		d.tell(EventConflict)
	}
}

// conflict opens a conflict, with its review.
func (s Situation) conflict(d *Decision, reason ReviewReason) {
	d.Effect, d.Conflict, d.Review = evidence.Conflict, true, reason
	d.Why = map[ReviewReason]string{
		ReviewMoneyAfterRefusal: "money moved for a payment that was finally refused",
		ReviewSecondMovement:    "a second movement for an intent that is paid",
		ReviewStrayHold:         "funds are held for an intent that needs them no more",
		ReviewExcess:            "more was given or taken back than was left of the payment",
		ReviewCompensation:      "money that was to be given back came back",
		ReviewContradiction:     "what the acquirer says contradicts what it said before",
	}[reason]
	d.tell(EventConflict)
}

// contradiction opens its review, unless it is open: beside a conflict of another cause it is one more.
func (s Situation) contradiction(d *Decision) {
	if slices.Contains(s.Reviews, ReviewContradiction) {
		d.Effect, d.Why = evidence.Repeat, "the contradiction is open already"
		return
	}
	s.conflict(d, ReviewContradiction)
}

func (s Situation) lateReason() ReviewReason {
	if s.Payment.Status.Refusal() && s.applied() == 0 {
		return ReviewMoneyAfterRefusal
	}
	return ReviewSecondMovement
}

// Taken says whether a movement took money from the payer.
func (m Movement) Taken() bool {
	return m.Kind == acquirer.MovementCharge || m.Kind == acquirer.MovementCapture
}

// applied counts the charges of the intent whose money is applied: captures of one authorization are one (PROTOCOL X2).
func (s Situation) applied() int {
	seen := map[string]bool{}
	for _, m := range s.Movements {
		if m.State == Applied && m.Taken() && !m.Payment.IsZero() {
			seen[m.Account.String()+m.Charge()] = true
		}
	}
	return len(seen)
}

// keptAside says whether money of this payment waits for a person.
func (s Situation) keptAside() bool {
	return slices.ContainsFunc(s.Movements, func(m Movement) bool { return m.Payment == s.Payment.ID && m.State == Unapplied })
}

// hasMoney says whether money that was not given back, or a hold, stands under this payment.
func (s Situation) hasMoney() bool {
	for _, m := range s.Movements {
		mine := m.Payment == s.Payment.ID || m.Payment.IsZero() && m.AcquirerKey == s.Payment.AcquirerKey
		if mine && m.State != Returned && (m.Taken() || m.Kind == acquirer.MovementHold) {
			return true
		}
	}
	return false
}

// Failure codes that are no acquirer's own words.
const (
	FailureDecided   = "decided_not_executed"
	FailureGivenBack = "given_back"
)

// inferred are the failures that rest on no word of the acquirer's about the charge or page itself.
var inferred = []string{FailureDecided, FailureGivenBack, "not_executed", "acquirer_unreachable", "rejected", "cannot_be_sent"}

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

// Decide says what follows for the payment when a person has decided about money of it that was kept aside: m is what became of it.
// The zero decision: nothing beside the money itself.
func Decide(s Situation, m Movement) Decision {
	d := Decision{Payment: s.Payment}
	switch {
	case m.State == Returned && s.Payment.Status.Open() && s.Payment.Status != Authorized && (m.Taken() || m.Kind == acquirer.MovementHold):
		d.Effect = evidence.Moved // nothing was paid: the caller concludes that
	case m.State == Applied && m.Kind == acquirer.MovementCharge && s.Payment.Status.Open():
		s.pay(&d, m, "")
		d.Effect = evidence.Moved
	case m.State == Applied && m.Kind == acquirer.MovementCapture && s.Payment.Status == Authorized:
		d.Payment.Captured += m.Amount.Minor()
		d.Payment.Capturing = 0
		d.to(LastCapture) // an acquirer that takes what was not asked for is asked for nothing more
		d.tell(EventPaid)
		s.endHold(&d)
	case m.State == Applied && m.Taken() && s.Payment.Status.Refusal():
		d.Payment.Captured += m.Amount.Minor() // the status stays; what is the merchant's can be refunded
		d.Payment.AcquirerReference = m.Charge()
		d.Effect = evidence.Booked
	}
	return d
}
