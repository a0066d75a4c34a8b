package flow

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/ledger"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/money"
)

// Allowed lists the verdicts that fit a reason (PROTOCOL section 14). A verdict to compensate begins an operation with a key
// and a call of its own.
var Allowed = map[payment.ReviewReason][]string{
	payment.ReviewNoProof:           {VerdictAskAgain, VerdictPaid, VerdictNotExecuted},
	payment.ReviewWindowOver:        {VerdictAskAgain, VerdictPaid, VerdictNotExecuted},
	payment.ReviewProcessingTooLong: {VerdictAskAgain, VerdictPaid, VerdictNotExecuted},
	payment.ReviewRepeatsForbidden:  {VerdictAskAgain, VerdictPaid, VerdictNotExecuted},
	payment.ReviewAmountMismatch:    {VerdictCompensate, VerdictApply, VerdictReturned},
	payment.ReviewMoneyAfterRefusal: {VerdictCompensate, VerdictApply, VerdictReturned},
	payment.ReviewSecondMovement:    {VerdictCompensate, VerdictApply, VerdictReturned},
	payment.ReviewStrayHold:         {VerdictCompensate, VerdictReturned},
	payment.ReviewCompensation:      {VerdictCompensate, VerdictReturned},
	payment.ReviewExcess:            {VerdictApply, VerdictReturned},
	payment.ReviewUnattributed:      {VerdictReturned},
	payment.ReviewContradiction:     {VerdictDismiss},
}

// Consequence says in words what a verdict does.
var Consequence = map[string]string{
	VerdictAskAgain:    "the acquirer is asked again from now on; nothing is sent",
	VerdictPaid:        "what was asked was done, with the acquirer's reference that you give: the payment becomes paid or authorized, or the change to it succeeded; the books show the money",
	VerdictNotExecuted: "nothing was done: the payment becomes failed, and the intent is free for another payment once nothing can arrive any more; or the change to it failed, and its amount is free again",
	VerdictApply:       "the money that was kept aside is credited to the merchant for this order; of money that went back, the merchant bears it",
	VerdictReturned:    "the books show that the money was given back, or the hold released, at the acquirer by hand",
	VerdictCompensate:  "the money that was kept aside is given back, or the hold released, by a call to the acquirer with a key of its own",
	VerdictDismiss:     "the conflict is closed; the present state stands",
}

// decideReview is the kind decide_review: a person's decision is evidence like any other, and finishes in its claim.
type decideReview struct{ f *Flow }

// Unconfirmed implements operation.Handler.
func (k *decideReview) Unconfirmed(r operation.Request) operation.Answer { return unconfirmed(r) }

// Current implements operation.Handler. The operation finishes in its claim: an unfinished one is never seen.
func (k *decideReview) Current(_ context.Context, _ Tx, op operation.Operation) (operation.Answer, error) {
	return unconfirmed(operation.Request{Ref: op.Ref}), nil
}

// Open carries decisions out, one after another.
func (k *decideReview) Open(ctx context.Context, tx Tx, g operation.Guard, openings []*operation.Opening) error {
	for _, o := range openings {
		if err := k.one(ctx, tx, g, o); err != nil {
			return err
		}
	}
	return nil
}

func (k *decideReview) one(ctx context.Context, tx Tx, g operation.Guard, o *operation.Opening) error {
	c := o.Request.Payload.(DecideReviewCommand)
	old, found, err := tx.DecisionByCommand(ctx, commandRefs([]*operation.Opening{o})[0])
	if err != nil {
		return err
	}
	if found {
		late(o, old)
		return nil
	}
	r, found, err := tx.ReadReview(ctx, Row{c.Merchant, c.Review})
	if err != nil {
		return err
	}
	if p := k.check(c, r, found); p != nil {
		o.Refusal = p
		return nil
	}
	w, err := k.carryOut(ctx, tx, g, c, r)
	if err != nil {
		return err
	}
	if r, _, err = tx.LockReview(ctx, Row{c.Merchant, c.Review}); err != nil {
		return err
	}
	if w == nil || !r.DecidedAt.IsZero() {
		o.Refusal = problem.New(problem.InvalidValue, "The review is decided already, or this verdict does not fit it any more.").On("verdict")
		return nil
	}
	r.Decision = c.Verdict
	w.closed = append(w.closed, r)
	if err := w.flush(ctx, tx); errors.Is(err, errBookedElsewhere) {
		return problem.New(problem.InvalidValue, "The acquirer's reference belongs to another payment.").On("reference")
	} else if err != nil {
		return err
	}
	d := Decision{Merchant: c.Merchant, ID: k.f.rt.NewID(), Review: c.Review, By: command(o.Request), Verdict: c.Verdict,
		Reference: c.Reference, Person: c.Person, Second: c.Second, Reason: c.Reason, At: g.Now}
	if err := tx.InsertDecision(ctx, d); err != nil {
		return err
	}
	o.Verdict, o.Op.Intent, o.Op.Payment = operation.Finish, r.Intent, r.Payment
	o.Op.AnswerStatus, o.Op.AnswerBody = 201, present.Decision(d.ID, d.Review, d.Verdict, d.Person, d.Reason, d.At)
	return nil
}

// late answers the repeat of a decision whose operation was purged (PROTOCOL K8).
func late(o *operation.Opening, d Decision) {
	if d.By.Fingerprint != o.Request.Fingerprint {
		o.Refusal = problem.New(problem.KeyReuse, "")
		return
	}
	o.Replay = &operation.Answer{Status: 201, Body: present.Decision(d.ID, d.Review, d.Verdict, d.Person, d.Reason, d.At),
		Final: true, Replayed: true}
}

func (k *decideReview) check(c DecideReviewCommand, r payment.Review, found bool) *problem.Problem {
	switch {
	case !found:
		return problem.New(problem.NotFound, "There is no such review.")
	case !r.DecidedAt.IsZero():
		return problem.New(problem.InvalidValue, "The review is decided already.").On("review")
	case c.Person == "":
		return problem.New(problem.InvalidValue, "A decision names its person.").On("person")
	case c.Reason == "":
		return problem.New(problem.InvalidValue, "A decision has a reason.").On("reason")
	case c.Verdict == VerdictPaid && c.Reference == "":
		return problem.New(problem.InvalidValue, "To say that it is paid, give the acquirer's reference.").On("reference")
	case k.f.cfg.SecondPerson && c.Verdict != VerdictAskAgain && (strings.TrimSpace(c.Second) == "" || strings.EqualFold(strings.TrimSpace(c.Second), strings.TrimSpace(c.Person))):
		return problem.New(problem.InvalidValue, "This decision needs a second person.").On("second_person")
	}
	for _, v := range Allowed[r.Reason] {
		if v == c.Verdict {
			return nil
		}
	}
	return problem.New(problem.InvalidValue, "This verdict does not fit the reason of the review.").On("verdict")
}

// carryOut collects what the verdict writes; nil when it does not fit what is true under the locks.
func (k *decideReview) carryOut(ctx context.Context, tx Tx, g operation.Guard, c DecideReviewCommand, r payment.Review) (*writes, error) {
	if r.Payment.IsZero() {
		w := &writes{f: k.f, g: g}
		m, found, err := tx.MovementByID(ctx, Row{c.Merchant, r.Movement})
		if err != nil || !found || m.State != payment.Unapplied {
			return nil, err
		}
		w.settleMovement(c.Verdict, m, ledger.Subject{Merchant: m.Merchant, Account: m.Account, Base: unattributedBase(m)})
		w.evidence = append(w.evidence, k.observation(c, r))
		return w, nil
	}
	s, err := k.f.load(ctx, tx, []truth{{row: Row{c.Merchant, r.Payment}, intent: r.Intent}})
	if err != nil {
		return nil, err
	}
	// The review under decision is closed by the decision, not by what the decision settles.
	s.reviews = slices.DeleteFunc(s.reviews, func(other payment.Review) bool { return other.ID == r.ID })
	one := s.subjects[0]
	m, op := one.changeIn(r)
	if r.Movement.IsZero() && r.Reason != payment.ReviewContradiction && m == nil && one.now.Status.Final() && one.now.GateOpen {
		return nil, nil // evidence was faster
	}
	if one.contract, err = k.f.contractOf(ctx, tx, one.now); err != nil {
		return nil, err
	}
	w := &writes{f: k.f, g: g, intents: s.intents}
	o := k.observation(c, r)
	said(&o, c, one, m, op)
	switch c.Verdict {
	case VerdictAskAgain:
		w.askAgain(op)
		o.Effect, o.Why = evidence.Noted, "to be asked again"
		w.evidence = append(w.evidence, o)
		return w, nil
	case VerdictPaid, VerdictNotExecuted:
		k.f.judge(w, s, one, &o)
		if m != nil && m.Status.Open() {
			return nil, nil // what is true of the payment says otherwise
		}
		w.collect(one, s)
		return w, nil
	case VerdictCompensate:
		if !k.compensate(w, s, one, r, o) {
			return nil, nil
		}
		if m != nil && m.Status.Open() {
			w.askAgain(op) // a change ends when its money is back
		}
		w.collect(one, s)
		return w, nil // the conflict stays until the money is back
	case VerdictDismiss:
		o.Effect, o.Why = evidence.Noted, "the present state stands"
		w.evidence = append(w.evidence, o)
	default:
		if ok, err := k.movement(w, s, one, c, r, o); !ok || err != nil {
			return nil, err
		}
	}
	w.endConflict(one, s)
	if m != nil && m.Status.Open() {
		w.askAgain(op) // its money is decided: what became of the change is asked on
	}
	if one.now.Status.Open() && len(s.reviews) == 0 {
		w.askAgain(one.leader) // nothing waits for a person any more: the acquirer is asked on
	}
	w.collect(one, s)
	return w, nil
}

// compensate begins to give back what was kept aside, unless that is under way; false when it does not fit any more.
func (k *decideReview) compensate(w *writes, s *loaded, one *subject, r payment.Review, o evidence.Observation) bool {
	for _, m := range s.movements {
		if m.ID != r.Movement || m.State != payment.Unapplied || one.compensating(m) || one.contract.KeyLength == 0 {
			continue
		}
		w.compensate(one, m)
		o.Reference, o.Amount, o.Effect, o.Why = m.Reference, m.Amount, evidence.Noted, Consequence[VerdictCompensate]
		w.evidence = append(w.evidence, o)
		return true
	}
	return false
}

// movement applies or gives back money that was kept aside; false when it does not fit any more.
func (k *decideReview) movement(w *writes, s *loaded, one *subject, c DecideReviewCommand, r payment.Review, o evidence.Observation) (bool, error) {
	for n := range s.movements {
		m := &s.movements[n]
		if m.ID != r.Movement {
			continue
		}
		if m.State != payment.Unapplied || one.compensating(*m) {
			return false, nil
		}
		if c.Verdict == VerdictApply && !s.fits(one, *m) {
			return false, problem.New(problem.InvalidValue, "This money cannot be applied: it is in another currency or more than was asked, or the order is paid already.").On("verdict")
		}
		*m = w.settleMovement(c.Verdict, *m, one.ledgerSubject())
		o.Reference, o.Amount = m.Reference, m.Amount
		d := payment.Decide(one.situation(s, o, nil, w.g.Now), *m)
		if d.Effect == "" { // nothing but the money itself is decided
			o.Effect, o.Why = evidence.Booked, Consequence[c.Verdict]
			w.evidence = append(w.evidence, o)
			return true, nil
		}
		if c.Verdict == VerdictApply {
			o.Outcome, o.Effect, o.Why = acquirer.OutcomeSucceeded, d.Effect, Consequence[c.Verdict]
			one.take(w, s, &d)
			one.decisions = append(one.decisions, decided{d, one.leader})
			w.evidence = append(w.evidence, o)
			return true, nil
		}
		o.Inference, o.Failure = evidence.InferNotExecuted, payment.FailureGivenBack
		k.f.judge(w, s, one, &o)
		return true, nil
	}
	return false, nil
}

// fits says whether money that was kept aside can be applied: it is the order's currency, not more than was asked, and the
// order has no money of another charge. What went back beyond what was left is the merchant's to bear, whatever it is.
func (s *loaded) fits(one *subject, m payment.Movement) bool {
	if !m.Taken() {
		return m.Kind == acquirer.MovementRefund || m.Kind == acquirer.MovementChargeback
	}
	return m.Amount.Currency() == one.now.Amount.Currency() && one.now.Captured+m.Amount.Minor() <= one.now.Amount.Minor() && !s.applied(one, m)
}

// applied says whether money of another charge is applied to the intent of a subject.
func (s *loaded) applied(one *subject, m payment.Movement) bool {
	return slices.ContainsFunc(s.movements, func(other payment.Movement) bool {
		return other.Intent == one.order.ID && other.State == payment.Applied && other.Taken() &&
			(m.Kind == acquirer.MovementCharge || other.Charge() != m.Charge())
	})
}

func (k *decideReview) observation(c DecideReviewCommand, r payment.Review) evidence.Observation {
	o := evidence.Observation{Merchant: c.Merchant, ID: k.f.rt.NewID(), Intent: r.Intent, Payment: r.Payment, Operation: r.Operation,
		Source: evidence.FromPerson, Person: c.Person, Note: c.Reason, Request: c.RequestID, Effect: evidence.Noted, Why: Consequence[c.Verdict]}
	o.Class, o.About = "decision_"+c.Verdict, acquirer.ActionCharge
	if c.Verdict == VerdictNotExecuted {
		o.Inference = evidence.InferNotExecuted
	}
	return o
}

// settleMovement books what became of money that was kept aside.
func (w *writes) settleMovement(verdict string, m payment.Movement, s ledger.Subject) payment.Movement {
	rule := map[bool]ledger.Rule{true: ledger.Apply, false: ledger.ReturnedOutside}[verdict == VerdictApply]
	m.State = payment.Returned
	if verdict == VerdictApply {
		m.State = payment.Applied
	}
	if !m.Taken() { // it went back: the merchant bears it, or it came back
		rule = map[bool]ledger.Rule{true: ledger.ExcessApplied, false: ledger.ExcessBack}[verdict == VerdictApply]
	}
	if m.Kind == acquirer.MovementReverse { // a compensation that came back from the bank: given back by hand after all
		rule = ledger.ReturnedOutside
	}
	if m.Kind != acquirer.MovementHold {
		w.post(s, ledger.Posting{Rule: rule, Reference: m.Reference, Amount: m.Amount})
	}
	w.moved = append(w.moved, m)
	return m
}

// askAgain makes an operation in review due now, from the start of the back-off (PROTOCOL section 3).
func (w *writes) askAgain(unfinished *operation.Operation) {
	if unfinished == nil {
		return
	}
	op := *unfinished
	op.State, op.Checks, op.DueAt = operation.AwaitingResult, 0, w.g.Now
	w.ops = append(w.ops, op)
}

// changeIn finds what a review is about: a change to the payment, with its unfinished operation, else no change and the
// operation that makes the payment.
func (one *subject) changeIn(r payment.Review) (*payment.Modification, *operation.Operation) {
	for n := range one.ops {
		if op := &one.ops[n]; op.ID == r.Operation && !op.Modification.IsZero() {
			return one.modification(op.Modification), op
		}
	}
	return nil, one.leader
}

// said puts a person's word about what was executed into the words of an acquirer: of the change that is in review, else of
// the payment.
func said(o *evidence.Observation, c DecideReviewCommand, one *subject, m *payment.Modification, op *operation.Operation) {
	o.Intent, o.Account = one.order.ID, one.now.Account
	amount, done := one.now.Amount, acquirer.OutcomeSucceeded
	switch {
	case m == nil && one.now.Capture == payment.CaptureManual:
		done = acquirer.OutcomeHeld
	case m != nil:
		amount, o.About, o.Modification, o.Object, o.OurReference, o.Final = m.Amount, m.Action, m.ID, op.Object, m.AcquirerKey, m.Final
		if m.Type == payment.Cancel {
			amount = money.Amount{} // it gives up what was never taken
		}
	}
	if c.Verdict == VerdictPaid {
		o.Outcome, o.Reference, o.Amount = done, c.Reference, amount
	}
}

// endConflict clears the mark when no other open review of the intent is about a conflict, and nothing is being given back
// (PROTOCOL P7).
func (w *writes) endConflict(one *subject, s *loaded) {
	if !one.now.Conflict {
		return
	}
	onPayment, onIntent := false, false
	for _, r := range append(slices.Clone(s.reviews), w.reviews...) {
		if !conflictReason(r.Reason) || !r.DecidedAt.IsZero() {
			continue
		}
		onIntent = true
		onPayment = onPayment || r.Payment == one.now.ID
	}
	for _, m := range one.mods {
		if m.Type == payment.Compensation && m.Status.Open() {
			onPayment, onIntent = true, true
		}
	}
	if onPayment {
		return
	}
	one.now.Conflict, one.order.Conflict = false, onIntent
	one.decisions = append(one.decisions, decided{payment.Decision{Payment: one.now, Events: []payment.EventType{payment.EventConflictOver}}, nil})
}

func conflictReason(r payment.ReviewReason) bool {
	switch r {
	case payment.ReviewMoneyAfterRefusal, payment.ReviewSecondMovement, payment.ReviewContradiction, payment.ReviewStrayHold,
		payment.ReviewCompensation, payment.ReviewExcess:
		return true
	}
	return false
}
