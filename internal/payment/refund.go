package payment

import (
	"slices"
	"strings"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/ledger"
)

// refund judges what is said of money that goes back to the payer: a refund or compensation of ours, or what was done by hand
// at the acquirer.
func (s Situation) refund(d *Decision, o evidence.Observation) {
	m := s.Modification
	if s.hadGone(o) && o.Outcome == acquirer.OutcomeDeclined {
		s.backFromBank(d, o) // a fact about an object that is known by its id, whatever is remembered of refusals
		return
	}
	v := evidence.Prove(o, s.expecting(o))
	if m == nil && o.Outcome == acquirer.OutcomeDeclined && o.About == acquirer.ActionRefund && o.Reference != "" && o.Amount.IsPositive() {
		s.failedByHand(d, o)
		return
	}
	failed := EventRefundFailed
	if m != nil && m.Type == Compensation {
		failed = EventCompensationFails
	}
	if m != nil && m.Status.Open() && v == evidence.StaleInference && o.Outcome == acquirer.OutcomeDeclined && o.Reference != "" {
		s.early(d, "that it failed is for its owner to conclude; that it came back, a fact once it went out")
		return
	}
	if s.ours(d, o, v, failed) {
		if m != nil && m.Type == Compensation && d.Modification != nil && d.Modification.Status == ModFailed && s.keptAsideStill(m.Movement) {
			s.conflict(d, ReviewCompensation) // it still has to be given back
			d.ReviewOn = m.Movement
		}
		return
	}
	if v == evidence.Declined {
		s.backFromBank(d, o)
		return
	}
	kind := acquirer.MovementRefund
	if o.About == acquirer.ActionReverse {
		kind = acquirer.MovementReverse
	}
	mv := s.movement(o, kind)
	if known, ok := s.known(mv); ok {
		if known.Amount != mv.Amount {
			s.contradiction(d)
			return
		}
		d.Effect, d.Why = evidence.Repeat, "this is booked already"
		s.settleKnown(d, known)
		return
	}
	switch {
	case m != nil && m.Status == ModFailed && m.AcquirerReference == mv.Reference && !s.after(o, *m):
		s.wentAndCame(d, mv)
	case m != nil && m.Type == Compensation:
		s.compensated(d, mv)
	case m != nil && m.Status != ModSucceeded && s.Payment.returnable() >= mv.Amount.Minor() && v == evidence.Done:
		s.refunded(d, mv) // where it had failed, it was done after all
		s.succeed(d, mv.Reference)
	case m != nil:
		s.excess(d, mv)
		if m.Status.Open() { // it stays open until a person has looked, or there is room
			s.change(d).AcquirerReference = mv.Reference
		}
	default:
		s.byHand(d, mv)
	}
}

// hadGone says whether an observation is about the very object by which our refund or compensation is known to have gone out.
func (s Situation) hadGone(o evidence.Observation) bool {
	m := s.Modification
	if m == nil || m.Status == ModFailed || o.Reference == "" || o.Reference != m.AcquirerReference {
		return false
	}
	_, booked := s.known(s.movement(o, acquirer.MovementRefund))
	return m.Status == ModSucceeded || booked
}

// after says whether the acquirer was asked after the modification got its result: only then can it tell of something newer.
func (s Situation) after(o evidence.Observation, m Modification) bool {
	return o.Source == evidence.FromLookup && o.AskedAt.After(m.UpdatedAt)
}

// wentAndCame books both ways of a refund that is known to have failed at the bank, and of which is told now that it had gone out:
// the books are those of the other order (PROTOCOL E1).
func (s Situation) wentAndCame(d *Decision, mv Movement) {
	back := mv
	back.Kind, back.Object = acquirer.MovementReverse, mv.Reference
	d.Book = append(d.Book, mv, back)
	out, in := ledger.Refunded, ledger.RefundFailed
	if s.Modification.Type == Compensation {
		out, in = ledger.Compensated, ledger.CompensationFailed
	}
	d.post(out, mv.Reference, mv)
	d.post(in, back.Reference, back)
	d.Effect, d.Why = evidence.Booked, "it went out, and came back from the payer's bank after that"
}

// refunded counts money that was given back.
func (s Situation) refunded(d *Decision, mv Movement) {
	d.Book = append(d.Book, mv)
	d.post(ledger.Refunded, mv.Reference, mv)
	d.Payment.Refunded += mv.Amount.Minor()
	d.Effect, d.Why = evidence.Booked, "given back to the payer"
	d.tell(EventRefundSucceeded)
}

// compensated notes that money which should not have moved was given back.
func (s Situation) compensated(d *Decision, mv Movement) {
	n := slices.IndexFunc(s.Movements, func(m Movement) bool { return m.ID == s.Modification.Movement && m.State == Unapplied })
	s.succeed(d, mv.Reference)
	switch {
	case n < 0 && mv.Amount.IsPositive(): // a person decided otherwise meanwhile
		s.excess(d, mv)
		return
	case n >= 0:
		stray := s.Movements[n]
		stray.State, stray.Cause = Returned, ""
		d.Change = append(d.Change, stray)
		s.endGivenBack(d, stray)
	}
	if mv.Amount.IsPositive() { // the release of a hold moves nothing
		d.Book = append(d.Book, mv)
		d.post(ledger.Compensated, mv.Reference, mv)
	}
	if d.Why = "money that should not have moved was given back"; d.Effect != evidence.Moved {
		d.Effect = evidence.Booked
	}
	d.tell(EventCompensated)
}

// excess books money that went back beyond what was left.
func (s Situation) excess(d *Decision, mv Movement) {
	mv.State, mv.Cause = Unapplied, string(ReviewExcess)
	d.Book = append(d.Book, mv)
	d.post(ledger.Excess, mv.Reference, mv)
	s.conflict(d, ReviewExcess)
}

// byHand judges money that was given back at the acquirer by hand. It belongs to the charge that it names: what goes back for
// a stray charge never touches the good one (PROTOCOL E2).
func (s Situation) byHand(d *Decision, mv Movement) {
	strays, mine := s.ofCharge(mv.Charge())
	switch {
	case len(strays) > 0 && mv.AcquirerKey == "" && slices.ContainsFunc(strays, s.compensating):
		s.early(d, "it is being given back by us, and this may be it")
	case len(strays) > 0:
		s.strayBack(d, mv, strays)
	case !mine && s.backAlready(d, mv):
	case !mine:
		s.early(d, "it is not known yet what was taken")
	case s.maybeOurs(mv):
		s.early(d, "a refund of the same amount is under way, and this may be it")
	case s.Payment.Status == Canceling:
		s.early(d, "the reversal has no result yet, and may have given it back too")
	case s.Payment.returnable() >= mv.Amount.Minor() && mv.Amount.Currency() == s.Payment.Amount.Currency():
		s.refunded(d, mv)
		d.Created = s.external(mv)
	default:
		s.excess(d, mv)
	}
}

// failedByHand keeps a refund that somebody else made and that failed: what is told of it later is older, or newer, news of it.
func (s Situation) failedByHand(d *Decision, o evidence.Observation) {
	mv := s.movement(o, acquirer.MovementRefund)
	known, ok := s.known(mv)
	switch {
	case ok && known.Cause == string(ReviewExcess):
		if s.cameBack(d, known, o); known.State != Returned {
			s.failedExternal(d, known, o)
		}
	case ok: // it gave back what was kept aside
		s.strayAgain(d, mv)
	case !s.took(mv.Charge()):
		s.early(d, "it is not known yet what was taken")
	case s.maybeOurs(mv):
		s.early(d, "a refund of the same amount is under way, and this may be it")
	default:
		s.failedExternal(d, mv, o)
		d.Effect, d.Why = evidence.Booked, "a refund that was made at the acquirer, and that failed"
	}
}

func (s Situation) failedExternal(d *Decision, mv Movement, o evidence.Observation) {
	d.Created = s.external(mv)
	d.Created.Status, d.Created.Failure = ModFailed, failureOf(o.Reply, "failed_at_bank")
	d.tell(EventRefundFailed)
}

// external is a refund that was made by hand at the acquirer, or by ourselves before a failover lost its row.
func (s Situation) external(mv Movement) *Modification {
	m := &Modification{Merchant: s.Payment.Merchant, Intent: s.Intent.ID, Payment: s.Payment.ID, Type: Refund,
		Action: acquirer.ActionRefund, Status: ModSucceeded, Amount: mv.Amount, External: true, Account: s.Payment.Account,
		AcquirerReference: mv.Reference, Version: 1, CreatedAt: s.Now, UpdatedAt: s.Now}
	if strings.HasPrefix(mv.AcquirerKey, wirePrefix) {
		m.External, m.AcquirerKey = false, mv.AcquirerKey
	}
	return m
}

// ofCharge gives what was taken by a charge and is kept aside, and whether money of it is applied to this payment.
func (s Situation) ofCharge(charge string) (strays []Movement, mine bool) {
	for _, m := range s.Movements {
		switch {
		case !m.Taken() || m.Charge() != charge:
		case m.State == Unapplied:
			strays = append(strays, m)
		case m.State == Applied && m.Payment == s.Payment.ID:
			mine = true
		}
	}
	return strays, mine
}

// took says whether it is known that a charge took money, whatever became of it.
func (s Situation) took(charge string) bool {
	return slices.ContainsFunc(s.Movements, func(m Movement) bool { return m.Taken() && m.Charge() == charge })
}

// strayBack notes that money which was kept aside was given back at the acquirer.
func (s Situation) strayBack(d *Decision, mv Movement, strays []Movement) {
	n := slices.IndexFunc(strays, func(m Movement) bool { return m.Amount == mv.Amount })
	if n < 0 {
		s.early(d, "only a part of what is kept aside was given back")
		return
	}
	m := strays[n]
	m.State, m.Cause = Returned, ""
	d.Book = append(d.Book, mv)
	d.Change = append(d.Change, m)
	d.post(ledger.ReturnedOutside, m.Reference, m)
	d.Effect, d.Why = evidence.Booked, "what was kept aside was given back at the acquirer"
	s.endGivenBack(d, m)
}

// keptAsideStill says whether money still waits to be given back.
func (s Situation) keptAsideStill(row id.ID) bool {
	return slices.ContainsFunc(s.Movements, func(m Movement) bool { return m.ID == row && m.State == Unapplied })
}

// endGivenBack ends an open payment whose only money was kept aside and is back with the payer: nothing was paid.
func (s Situation) endGivenBack(d *Decision, back Movement) {
	other := slices.ContainsFunc(s.Movements, func(m Movement) bool { return m.ID != back.ID && m.Payment == s.Payment.ID && m.State != Returned })
	waits := s.Payment.Status == Pending || s.Payment.Status == Unknown || s.Payment.Status == Registered
	if other || back.Payment != s.Payment.ID || !waits {
		return
	}
	why := d.Why
	d.Payment.Failure = failureOf(acquirer.Reply{Failure: FailureGivenBack}, FailureGivenBack)
	s.end(d, NotExecuted, EventFailed)
	s.gate(d, evidence.Observation{AskedAt: s.Now}, s.answered() && s.Modification == nil)
	d.Why = why
}

// backAlready recognises the giving back of money that is known to have been given back, and of which nobody told how.
func (s Situation) backAlready(d *Decision, mv Movement) bool {
	returned, told := int64(0), int64(0)
	for _, m := range s.Movements {
		switch {
		case m.Charge() != mv.Charge() || m.Amount.Currency() != mv.Amount.Currency():
		case m.Taken() && m.State == Returned:
			returned += m.Amount.Minor()
		case m.Kind == acquirer.MovementRefund, m.Kind == acquirer.MovementReverse, m.Kind == acquirer.MovementChargeback:
			told += m.Amount.Minor()
		}
	}
	switch {
	case returned == 0:
		return false
	case told+mv.Amount.Minor() > returned:
		s.excess(d, mv)
	default:
		d.Book = append(d.Book, mv)
		d.Effect, d.Why = evidence.Booked, "this is how the money was given back"
	}
	return true
}

// maybeOurs says whether an open refund of ours could be what an acquirer tells without our reference.
func (s Situation) maybeOurs(mv Movement) bool {
	return mv.AcquirerKey == "" && slices.ContainsFunc(s.Modifications, func(m Modification) bool {
		return m.Type == Refund && m.Status.Open() && m.Amount == mv.Amount && m.AcquirerReference == ""
	})
}

// compensating says whether money that is kept aside may have been given back by us: a compensation of it is sent, or being sent.
func (s Situation) compensating(stray Movement) bool {
	return slices.ContainsFunc(s.Modifications, func(m Modification) bool {
		return m.Type == Compensation && m.Status.Open() && m.Action != "" && m.Movement == stray.ID && m.AcquirerReference == ""
	})
}

// early keeps an observation for later: what must come before it is not known yet (PROTOCOL E1).
func (s Situation) early(d *Decision, why string) {
	d.Effect, d.Why, d.Payment.Early = evidence.Early, why, true
}

// backFromBank judges that a refund or compensation which had gone out came back from the payer's bank (PROTOCOL X3).
func (s Situation) backFromBank(d *Decision, o evidence.Observation) {
	m := s.Modification
	if !s.hadGone(o) {
		d.Effect, d.Why = evidence.Behind, "not above the present state"
		return
	}
	gone := s.movement(o, acquirer.MovementRefund)
	gone.Amount = m.Amount
	if known, ok := s.known(gone); ok {
		gone = known
	}
	failed := EventRefundFailed
	if m.Type == Compensation {
		failed = EventCompensationFails
		s.strayAgain(d, gone)
	} else {
		s.cameBack(d, gone, o)
	}
	if len(d.Book) > 0 {
		c := s.change(d)
		c.Status, c.Failure = ModFailed, failureOf(o.Reply, "failed_at_bank")
		d.tell(failed)
	}
}

// cameBack books, once, that what had gone back to the payer came back: a movement of its own, which undoes it where it was booked.
// What had been too much is so no longer.
func (s Situation) cameBack(d *Decision, gone Movement, o evidence.Observation) {
	back := s.movement(o, acquirer.MovementReverse)
	back.Object, back.Amount = gone.Reference, gone.Amount
	if _, ok := s.known(back); ok {
		d.Effect, d.Why = evidence.Repeat, "this is booked already"
		return
	}
	d.Book = append(d.Book, back)
	d.Effect, d.Why = evidence.Booked, "the payer's bank did not take the refund: the money came back"
	if s.undo(d, gone, back, ledger.RefundFailed) {
		d.Payment.Refunded -= gone.Amount.Minor()
	}
}

// undo posts that money which had gone back came back, out of where it stands. It says whether it was counted on the payment; the rule
// is of what was counted, or is borne by the merchant.
func (s Situation) undo(d *Decision, gone, back Movement, rule ledger.Rule) bool {
	if gone.Cause != string(ReviewExcess) {
		d.post(rule, back.Reference, back)
		return true
	}
	switch gone.State {
	case Unapplied: // it is too much no longer, and stands as if there had been room
		d.post(ledger.ExcessBack, back.Reference, back)
		gone.State = Applied
	case Applied: // a person had decided that the merchant bears it
		d.post(rule, back.Reference, back)
		gone.State = Returned
	default: // a person has said so before
		return false
	}
	gone.Cause = ""
	d.Change = append(d.Change, gone)
	return false
}

// chargeback judges what is said of a dispute: its code is opened, won or lost (PROTOCOL X5).
func (s Situation) chargeback(d *Decision, o evidence.Observation) {
	status := DisputeStatus(o.Code)
	if o.Outcome != acquirer.OutcomeSucceeded || o.Reference == "" || !o.Amount.IsPositive() ||
		status != DisputeOpened && status != DisputeWon && status != DisputeLost {
		d.Why = "nothing proven: " + o.Outcome.String()
		return
	}
	mv := s.movement(o, acquirer.MovementChargeback)
	n := slices.IndexFunc(s.Disputes, func(x Dispute) bool { return x.Account == mv.Account && x.Reference == mv.Reference })
	if n >= 0 {
		s.disputeMoves(d, s.Disputes[n], status, mv)
		return
	}
	if _, ok := s.known(mv); ok { // it took back what was kept aside, and is no dispute of this payment
		if d.Effect, d.Why = evidence.Repeat, "this is booked already"; status == DisputeWon {
			s.strayAgain(d, mv)
		}
		return
	}
	strays, mine := s.ofCharge(mv.Charge())
	switch {
	case len(strays) == 0 && mine:
		s.dispute(d, mv, status)
	case status == DisputeWon && s.took(mv.Charge()): // it came and went, and what is kept aside, or was given back, still is
		back := mv
		back.Kind, back.Object = acquirer.MovementReverse, mv.Reference
		mv.State, back.State = Returned, Returned
		d.Book = append(d.Book, mv, back)
		d.Effect, d.Why = evidence.Booked, "the payer's bank took back what is not the merchant's, and lost"
	case len(strays) > 0:
		s.strayBack(d, mv, strays)
	case s.backAlready(d, mv):
	default:
		s.early(d, "it is not known yet what was taken")
	}
}

// strayAgain notes that what had given back, or taken back, money that was kept aside came to nothing: the money is with us again,
// and is kept aside again.
func (s Situation) strayAgain(d *Decision, mv Movement) {
	back := mv
	back.Kind, back.Object = acquirer.MovementReverse, mv.Reference
	if _, ok := s.known(back); ok {
		d.Effect, d.Why = evidence.Repeat, "this is booked already"
		return
	}
	back.State, back.Cause = Unapplied, string(ReviewCompensation)
	d.Book = append(d.Book, back)
	d.post(ledger.CompensationFailed, back.Reference, back)
	s.conflict(d, ReviewCompensation)
}

// dispute opens a dispute: money went back, and limits what can be refunded. Where more went back than is left, it is kept
// aside.
func (s Situation) dispute(d *Decision, mv Movement, status DisputeStatus) {
	x := Dispute{Merchant: mv.Merchant, Intent: s.Intent.ID, Payment: s.Payment.ID, Account: mv.Account, Reference: mv.Reference,
		Amount: mv.Amount, Status: DisputeOpened, OpenedAt: s.Now}
	x.Aside = status != DisputeWon && (mv.Amount.Currency() != s.Payment.Amount.Currency() || mv.Amount.Minor() > s.Payment.returnable())
	d.Dispute = &x
	if x.Aside {
		s.excess(d, mv)
	} else {
		d.Book = append(d.Book, mv)
		d.post(ledger.ChargedBack, mv.Reference, mv)
		d.Payment.Disputed += mv.Amount.Minor()
		d.Effect, d.Why = evidence.Booked, "the payer's bank took the money back"
	}
	d.tell(EventDisputeOpened)
	s.disputed(d)
	if status != DisputeOpened {
		s.decideDispute(d, x, status, mv)
	}
}

// disputeMoves decides a dispute that is known. Told as won and as lost, in whichever order, it is won, since the money came back,
// and a person looks (PROTOCOL E1).
func (s Situation) disputeMoves(d *Decision, x Dispute, status DisputeStatus, mv Movement) {
	if status == DisputeOpened || status == x.Status {
		d.Effect, d.Why = evidence.Repeat, "this is known already"
		return
	}
	if x.Status != DisputeOpened {
		s.contradiction(d)
	}
	if x.Status != DisputeWon {
		s.decideDispute(d, x, status, mv)
	}
}

func (s Situation) decideDispute(d *Decision, x Dispute, status DisputeStatus, mv Movement) {
	x.Status, x.DecidedAt = status, s.Now
	d.Dispute = &x
	if d.Effect != evidence.Conflict {
		d.Effect, d.Why = evidence.Booked, "the dispute is "+string(status)
	}
	if status == DisputeLost {
		d.tell(EventDisputeLost)
		s.disputed(d)
		return
	}
	back := mv
	back.Kind, back.Object, back.Amount, back.State, back.Cause = acquirer.MovementReverse, mv.Reference, x.Amount, Applied, ""
	d.Book = append(d.Book, back)
	gone, known := s.known(mv)
	if !known { // told with its decision
		gone = mv
	}
	d.Dispute.Aside = x.Aside && gone.State != Unapplied
	if s.undo(d, gone, back, ledger.ChargebackWon) {
		d.Payment.Disputed -= x.Amount.Minor()
	}
	d.tell(EventDisputeWon)
	s.disputed(d)
}

// disputed sums up the disputes of the payment, in whichever order they were told: opened while one is open, else lost where one was
// lost, else won.
func (s Situation) disputed(d *Decision) {
	d.Payment.Dispute = d.Dispute.Status
	for _, x := range s.Disputes {
		other := x.Reference != d.Dispute.Reference
		if other && (x.Status == DisputeOpened || x.Status == DisputeLost && d.Payment.Dispute == DisputeWon) {
			d.Payment.Dispute = x.Status
		}
	}
}
