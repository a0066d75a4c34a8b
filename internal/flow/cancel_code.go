package flow

import (
	"context"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/problem"
)

// issueCode is the kind cancel_code: it finishes in its claim. The code is in no table, no event and no stored answer: whoever
// delivers it derives it (PROTOCOL X1).
type issueCode struct{ f *Flow }

// CancelCode derives the code with this ordinal, for whoever delivers it.
func (f *Flow) CancelCode(merchant, pay id.ID, amount int64, ordinal int) string {
	return payment.CodeFor(f.cfg.CodeSecret, merchant, pay, amount, ordinal)
}

// Unconfirmed implements operation.Handler.
func (k *issueCode) Unconfirmed(r operation.Request) operation.Answer { return unconfirmed(r) }

// Current implements operation.Handler. The operation finishes in its claim: an unfinished one is never seen.
func (k *issueCode) Current(_ context.Context, _ Tx, op operation.Operation) (operation.Answer, error) {
	return unconfirmed(operation.Request{Ref: op.Ref}), nil
}

// Open issues codes: a new one takes the place of the last one.
func (k *issueCode) Open(ctx context.Context, tx Tx, g operation.Guard, openings []*operation.Opening) error {
	for _, o := range openings {
		if err := k.one(ctx, tx, g, o); err != nil {
			return err
		}
	}
	return nil
}

func (k *issueCode) one(ctx context.Context, tx Tx, g operation.Guard, o *operation.Opening) error {
	old, found, err := tx.CancelCodeByCommand(ctx, commandRefs([]*operation.Opening{o})[0])
	switch {
	case err != nil:
		return err
	case found && old.By.Fingerprint != o.Request.Fingerprint:
		o.Refusal = problem.New(problem.KeyReuse, "")
		return nil
	case found:
		o.Replay = &operation.Answer{Status: 201, Body: present.CancelCode(old), Final: true, Replayed: true}
		return nil
	}
	t, err := k.f.lockTarget(ctx, tx, g, o)
	if t == nil || err != nil {
		return err
	}
	if _, no := t.changing.AdmitCancel(); no != "" {
		t.refuseChange(no)
		return nil
	}
	last, found, err := tx.LatestCancelCode(ctx, Row{t.payment.Merchant, t.payment.ID})
	if err != nil {
		return err
	}
	c := payment.CancelCode{Merchant: t.payment.Merchant, Payment: t.payment.ID, Ordinal: 1, Amount: t.payment.Amount.Minor(),
		ExpiresAt: g.Now.Add(payment.CodeLife), By: command(o.Request), CreatedAt: g.Now}
	if found {
		c.Ordinal = last.Ordinal + 1
	}
	if c.Ordinal > maxCodes {
		t.refuse(problem.New(problem.NotCancelable, "Too many one-time codes were issued for this payment."))
		return nil
	}
	if err := tx.InsertCancelCode(ctx, c); err != nil {
		return err
	}
	t.w.event(t.one, payment.EventCancelCode, payment.Decision{}, false)
	if err := t.w.flush(ctx, tx); err != nil {
		return err
	}
	o.Verdict, o.Op.AnswerStatus, o.Op.AnswerBody = operation.Finish, 201, present.CancelCode(c)
	return nil
}

// maxCodes bounds the codes of one payment, and with the tries of each the guesses.
const maxCodes = 20
