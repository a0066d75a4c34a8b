package flow

import (
	"context"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/money"
)

// Open admits changes to payments, one after another: each is decided under the locks of intent and payment, reserves what it
// needs, and stores what will be sent (PROTOCOL K1, X1 to X3, A0, A1).
func (k *modify) Open(ctx context.Context, tx Tx, g operation.Guard, openings []*operation.Opening) error {
	for _, o := range openings {
		if late, err := k.late(ctx, tx, o); late || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		if err := k.one(ctx, tx, g, o); err != nil {
			return err
		}
	}
	return nil
}

// late answers the repeat of a command whose operation was purged (PROTOCOL K8).
func (k *modify) late(ctx context.Context, tx Tx, o *operation.Opening) (bool, error) {
	old, err := tx.ModificationsByCommand(ctx, commandRefs([]*operation.Opening{o}))
	if err != nil || len(old) == 0 {
		return false, err
	}
	m := old[0]
	if m.By.Fingerprint != o.Request.Fingerprint {
		o.Refusal = problem.New(problem.KeyReuse, "")
		return true, nil
	}
	found, err := tx.ReadPayments(ctx, []Row{{m.Merchant, m.Payment}})
	if err != nil || len(found) == 0 {
		return true, err
	}
	answer := modificationAnswer(found[0], m)
	if m.AnsweredStatus != 0 {
		answer.Status, answer.Final = m.AnsweredStatus, true
	}
	answer.Replayed = true
	o.Replay = &answer
	return true, nil
}

// target is a payment that a command wants to change, under its locks.
type target struct {
	o        *operation.Opening
	g        operation.Guard
	intent   payment.Intent
	payment  payment.Payment
	changing payment.Changing
	adapter  acquirer.Adapter
	account  Account
	// movements are those of the intent.
	movements []payment.Movement
	w         *writes
	one       *subject
}

// subjectOf names the payment of a command.
func subjectOf(o *operation.Opening) Row {
	switch c := o.Request.Payload.(type) {
	case CapturePaymentCommand:
		return Row{c.Merchant, c.Payment}
	case CancelPaymentCommand:
		return Row{c.Merchant, c.Payment}
	case CreateRefundCommand:
		return Row{c.Merchant, c.Payment}
	case IssueCancelCodeCommand:
		return Row{c.Merchant, c.Payment}
	}
	return Row{}
}

// lockTarget locks the payment with its intent. A payment that is not there, or somebody else's, is not found (I-15).
func (f *Flow) lockTarget(ctx context.Context, tx Tx, g operation.Guard, o *operation.Opening) (*target, error) {
	row := subjectOf(o)
	found, err := tx.ReadPayments(ctx, []Row{row})
	if err != nil || len(found) == 0 {
		o.Refusal = problem.New(problem.NotFound, "")
		return nil, err
	}
	s, err := f.load(ctx, tx, []truth{{row: row, intent: found[0].Intent.ID}})
	if err != nil {
		return nil, err
	}
	one := s.subjects[0]
	t := &target{o: o, g: g, intent: *one.order, payment: one.now, movements: s.movements, one: one, w: &writes{f: f, g: g, intents: s.intents}}
	o.Op.Intent, o.Op.Payment = t.intent.ID, t.payment.ID
	accounts, err := tx.Accounts(ctx, merchants(row.Merchant))
	if err != nil {
		return nil, err
	}
	for _, a := range accounts {
		if a.ID == t.payment.Account {
			t.account = a
		}
	}
	if t.adapter, err = f.acquirers.For(t.account); err != nil {
		o.Refusal = problem.New(problem.TryAgain, "The payment's acquirer account cannot be used now; this request did nothing.").After(holdHint).Because(err)
		return nil, nil
	}
	t.changing = payment.Changing{Payment: t.payment, Conflict: t.intent.Conflict, Modifications: one.mods,
		Movements: s.movements, Contract: f.contract(t.adapter), Now: g.Now}
	return t, nil
}

// held refuses every change while a lost interval is not compared: a change that was lost with it may have been made (A8).
func (t *target) held() bool {
	if t.g.Held && t.account.Compared < t.g.Epoch {
		t.o.Refusal = problem.New(problem.SendsOnHold, "").After(holdHint)
		return true
	}
	return false
}

// used says whether money moved under a key.
func (t *target) used(key string) bool {
	for _, m := range t.movements {
		if m.AcquirerKey == key {
			return true
		}
	}
	return false
}

// lost finds what a command of ours did before a failover lost its row: the acquirer told of it under the command's key.
func (t *target) lost(key string) *payment.Modification {
	for n := range t.one.mods {
		if t.one.mods[n].AcquirerKey == key {
			return &t.one.mods[n]
		}
	}
	return nil
}

// found answers a refund's command with the refund that it made before.
func (t *target) found(m payment.Modification, c CreateRefundCommand) {
	if c.Minor != nil && *c.Minor != m.Amount.Minor() {
		t.o.Refusal = problem.New(problem.KeyReuse, "")
		return
	}
	answer := modificationAnswer(Attempt{t.intent, t.payment}, m)
	t.o.Verdict, t.o.Op.Modification = operation.Finish, m.ID
	t.o.Op.AnswerStatus, t.o.Op.AnswerBody = answer.Status, answer.Body
}

func (t *target) refuse(p *problem.Problem) { t.o.Refusal = p.See(present.PaymentPath(t.payment.ID)) }

// refusals map what forbids a change to what the client is told.
func (t *target) refuseChange(no payment.ChangeRefusal) {
	code := map[payment.ChangeRefusal]problem.Code{
		payment.ChangeOpen: problem.OperationInProgress, payment.ChangeConflict: problem.PaymentConflict,
		payment.NotCapturable: problem.NotCapturable, payment.NotOffered: problem.InvalidValue, payment.NotCancelable: problem.NotCancelable,
		payment.PartlyCaptured: problem.NotCancelable, payment.ExceedsRemaining: problem.ExceedsRemaining,
		payment.RefundUnsettled: problem.RefundUnsettled, payment.OtherCurrency: problem.AmountMismatch,
	}[no]
	detail := map[payment.ChangeRefusal]string{
		payment.ChangeOpen:     "Another capture or cancel of this payment is under way.",
		payment.NotOffered:     "The payment's acquirer does not offer this.",
		payment.PartlyCaptured: "A part of the held money was taken: refund it, and release the rest with a final capture.",
	}[no]
	p := problem.New(code, detail)
	if no == payment.ChangeOpen || no == payment.RefundUnsettled {
		p = p.After(retryAfter)
	}
	if no == payment.OtherCurrency {
		p = p.On("currency")
	}
	t.refuse(p)
}

func (k *modify) one(ctx context.Context, tx Tx, g operation.Guard, o *operation.Opening) error {
	t, err := k.f.lockTarget(ctx, tx, g, o)
	if t == nil || err != nil || t.held() {
		return err
	}
	switch c := o.Request.Payload.(type) {
	case CapturePaymentCommand:
		k.capture(t, c)
	case CancelPaymentCommand:
		err = k.cancel(ctx, tx, t, c)
	case CreateRefundCommand:
		k.refund(t, c)
	default: // a compensation begins from a decision or by policy, never by a request of its own
		o.Refusal = problem.New(problem.NotFound, "")
	}
	if err != nil || o.Verdict != operation.Proceed {
		return err
	}
	t.w.collect(t.one, &loaded{})
	if err := t.w.flush(ctx, tx); err != nil {
		return err
	}
	return tx.BindOperations(ctx, []operation.Operation{o.Op})
}

func (k *modify) capture(t *target, c CapturePaymentCommand) {
	if other(c.Currency, t.payment) {
		t.refuseChange(payment.OtherCurrency)
		return
	}
	amount, last, no := t.changing.AdmitCapture(c.Minor, c.Final)
	if no != "" {
		t.refuseChange(no)
		return
	}
	n := t.changing.NextK(payment.Capture)
	for t.used(k.f.wire(t.intent, payment.CaptureKey(t.intent.KeySeed, t.payment.N, n), t.changing.Contract.KeyLength)) {
		n++ // a failover lost the row of that capture, not its money
	}
	t.one.now.Capturing = amount
	k.proceed(t, payment.Modification{Type: payment.Capture, K: n, Amount: t.minor(amount), Final: last},
		payment.CaptureKey(t.intent.KeySeed, t.payment.N, n))
}

func (k *modify) refund(t *target, c CreateRefundCommand) {
	if other(c.Currency, t.payment) {
		t.refuseChange(payment.OtherCurrency)
		return
	}
	if m := t.lost(k.f.wire(t.intent, payment.RefundKey(t.intent.KeySeed, c.Key), t.changing.Contract.KeyLength)); m != nil {
		t.found(*m, c)
		return
	}
	amount, no := t.changing.AdmitRefund(c.Minor, c.Reversal)
	if no != "" {
		t.refuseChange(no)
		return
	}
	t.one.now.Refunding += amount
	m := payment.Modification{Type: payment.Refund, K: t.changing.NextK(payment.Refund), Amount: t.minor(amount), Reason: value(c.Reason)}
	if c.Reversal {
		m.Action = acquirer.ActionReverse
	}
	k.proceed(t, m, payment.RefundKey(t.intent.KeySeed, c.Key))
}

func (k *modify) cancel(ctx context.Context, tx Tx, t *target, c CancelPaymentCommand) error {
	join, no := t.changing.AdmitCancel()
	if no != "" {
		t.refuseChange(no)
		return nil
	}
	if ok, err := k.f.spendCode(ctx, tx, t, c.Code, join == nil); !ok || err != nil {
		return err
	}
	if join != nil {
		return k.join(ctx, tx, t, *join)
	}
	t.one.now.Status, _ = t.payment.Status.Next(payment.CancelClaimed)
	n := t.changing.NextK(payment.Cancel)
	k.proceed(t, payment.Modification{Type: payment.Cancel, K: n, Amount: t.payment.Amount}, payment.CancelKey(t.intent.KeySeed, t.payment.N, n))
	return nil
}

// join lets a second cancel follow the first.
func (k *modify) join(ctx context.Context, tx Tx, t *target, m payment.Modification) error {
	leader := t.one.opOf(&m)
	if leader == nil {
		t.refuseChange(payment.ChangeOpen)
		return nil
	}
	t.o.Verdict, t.o.Op.Follows, t.o.Op.Modification = operation.Follow, leader.ID, m.ID
	return tx.InsertJoined(ctx, []Joined{{Merchant: m.Merchant, By: command(t.o.Request), Payment: m.Payment, Modification: m.ID}})
}

func other(c *money.Currency, p payment.Payment) bool { return c != nil && *c != p.Amount.Currency() }

func (t *target) minor(v int64) money.Amount { return money.Must(v, t.payment.Amount.Currency()) }

// proceed makes the modification and binds the operation to what will be sent. A cancel of a payment whose charge is not
// settled has nothing to send yet: it waits (PROTOCOL X6).
func (k *modify) proceed(t *target, m payment.Modification, derived string) {
	m.Merchant, m.ID, m.Intent, m.Payment = t.payment.Merchant, k.f.rt.NewID(), t.intent.ID, t.payment.ID
	m.Status, m.Account, m.Version, m.By, m.CreatedAt, m.UpdatedAt = payment.ModPending, t.payment.Account, 1, command(t.o.Request), t.g.Now, t.g.Now
	m.AcquirerKey = k.f.wire(t.intent, derived, t.changing.Contract.KeyLength)
	op := &t.o.Op
	op.Modification, op.Account = m.ID, t.payment.Account
	settled := m.Type != payment.Cancel || t.payment.Status == payment.Registered || t.payment.Status == payment.Authorized
	if request, known := callOf(t.payment, m, nil); settled && known {
		prepared, err := t.adapter.Prepare(request)
		if err != nil {
			t.refuse(problem.New(problem.InvalidValue, acquirer.FailureCodes["cannot_be_sent"]).Because(err))
			return
		}
		m.Action = prepared.Action
		op.Action, op.AcquirerKey, op.Object, op.RequestBody = string(prepared.Action), prepared.Key, prepared.Object, prepared.Body
		op.Sends, op.FirstPermitAt, op.LastPermitAt, op.PermitID = 1, t.g.Now, t.g.Now, k.f.rt.NewID()
	}
	t.one.mods = append(t.one.mods, m)
	t.o.Verdict, t.o.Data = operation.Proceed, route{t.account, t.adapter}
}

// spendCode checks the one-time code of a cancel and, where it begins one, uses it up in this very transaction (PROTOCOL X1).
// A wrong try is counted in a transaction that commits: the claim is undone, its count is not.
func (f *Flow) spendCode(ctx context.Context, tx Tx, t *target, code string, begins bool) (bool, error) {
	policies, err := tx.Policies(ctx, merchants(t.payment.Merchant))
	if err != nil {
		return false, err
	}
	demanded := len(policies) > 0 && policies[0].CancelCode
	if code == "" && !demanded {
		return true, nil
	}
	c, found, err := tx.LatestCancelCode(ctx, Row{t.payment.Merchant, t.payment.ID})
	if err != nil {
		return false, err
	}
	if !begins && found && !c.ConsumedAt.IsZero() { // the code that began the cancel which this one joins
		if c.Matches(code, f.cfg.CodeSecret) {
			return true, nil
		}
		t.refuse(problem.New(problem.CodeInvalid, ""))
		return false, nil
	}
	switch c.Check(found, code, f.cfg.CodeSecret, t.payment.Amount.Minor(), t.g.Now) {
	case payment.CodeRight:
		c.ConsumedAt = t.g.Now
		if !begins {
			return true, nil
		}
		return true, tx.SaveCancelCode(ctx, c)
	case payment.CodeWrong:
		c.Tries++
		t.refuse(problem.New(problem.CodeInvalid, ""))
		return false, tx.SaveCancelCode(ctx, c)
	case payment.CodeOver:
		t.refuse(problem.New(problem.CodeExpired, ""))
	default:
		t.refuse(problem.New(problem.CodeInvalid, "This cancel needs a one-time code, and none was issued."))
	}
	return false, nil
}
