package flow

import (
	"context"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/problem"
)

func request(kind operation.Kind, merchant id.ID, key, requestID string, fingerprint [32]byte, payload any) operation.Request {
	return operation.Request{Ref: operation.Ref{Merchant: merchant, Kind: kind, Key: key}, Fingerprint: fingerprint,
		FPVersion: payment.FingerprintVersion, RequestID: requestID, Payload: payload}
}

// command gives the identity that outlives an operation (PROTOCOL K8).
func command(r operation.Request) payment.Command {
	return payment.Command{Kind: string(r.Kind), Key: r.Key, Fingerprint: r.Fingerprint, FPVersion: r.FPVersion}
}

func commandRefs(openings []*operation.Opening) []CommandRef {
	refs := make([]CommandRef, len(openings))
	for i, o := range openings {
		refs[i] = CommandRef{Merchant: o.Op.Merchant, Kind: string(o.Op.Kind), Key: o.Op.Key}
	}
	return refs
}

func refOf(merchant id.ID, c payment.Command) CommandRef {
	return CommandRef{Merchant: merchant, Kind: c.Kind, Key: c.Key}
}

// wish applies the defaults of what a client may leave out.
func (f IntentFields) wish() payment.Wish {
	w := payment.Wish{Amount: f.Amount, Customer: value(f.Customer), Description: value(f.Description),
		Metadata: value(f.Metadata), Receipt: value(f.Receipt), Capture: payment.CaptureAutomatic}
	if f.Capture != nil {
		w.Capture = *f.Capture
	}
	if f.PayBefore != nil {
		// The database keeps microseconds: what is compared later must be what was stored.
		w.PayBefore = f.PayBefore.UTC().Truncate(time.Microsecond)
	}
	return w
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return strings.Clone(*s)
}

// newIntent is the row that is inserted where no intent with the client reference exists.
func (f *Flow) newIntent(r operation.Request, fields IntentFields, now time.Time) payment.Intent {
	w := fields.wish()
	i := payment.Intent{Merchant: r.Merchant, ID: f.rt.NewID(), ClientReference: value(fields.ClientReference),
		Customer: w.Customer, Description: w.Description, Receipt: w.Receipt, Amount: w.Amount, Capture: w.Capture, PayBefore: w.PayBefore,
		Version: 1, By: command(r), CreatedAt: now, UpdatedAt: now}
	if w.Metadata != "" {
		i.Metadata = []byte(w.Metadata)
	}
	if i.PayBefore.IsZero() {
		i.PayBefore = now.Add(min(f.cfg.PayBefore, f.cfg.Retention))
	}
	i.KeySeed = payment.KeySeed(r.Merchant, i.ClientReference, string(r.Kind), r.Key)
	return i
}

// checkPayBefore refuses a time that is over, or that is longer than keys are kept (PROTOCOL W3).
func (f *Flow) checkPayBefore(fields IntentFields, now time.Time) *problem.Problem {
	switch {
	case fields.PayBefore == nil:
		return nil
	case !fields.PayBefore.After(now):
		return problem.New(problem.IntentExpired, "pay_before is in the past.").On("pay_before")
	case fields.PayBefore.Sub(now) > f.cfg.Retention:
		return problem.New(problem.InvalidValue, "pay_before is further away than idempotency keys are kept.").On("pay_before")
	}
	return nil
}

// createIntent is the kind create_intent: it finishes in its claim, without a call.
type createIntent struct{ f *Flow }

// Unconfirmed implements operation.Handler.
func (k *createIntent) Unconfirmed(r operation.Request) operation.Answer { return unconfirmed(r) }

// Current implements operation.Handler. The operation finishes in its claim: an unfinished one is never seen.
func (k *createIntent) Current(_ context.Context, _ Tx, op operation.Operation) (operation.Answer, error) {
	return unconfirmed(operation.Request{Ref: op.Ref}), nil
}

// Open finds, creates or amends the intents (PROTOCOL W3).
func (k *createIntent) Open(ctx context.Context, tx Tx, g operation.Guard, openings []*operation.Opening) error {
	openings, err := k.late(ctx, tx, openings)
	if err != nil {
		return err
	}
	var rows []payment.Intent
	var refs []IntentRef
	var left []*operation.Opening
	for _, o := range openings {
		c := o.Request.Payload.(CreateIntentCommand)
		if p := k.f.checkPayBefore(c.Intent, g.Now); p != nil {
			o.Refusal = p
			continue
		}
		i := k.f.newIntent(o.Request, c.Intent, g.Now)
		rows, left = append(rows, i), append(left, o)
		refs = append(refs, refTo(i))
	}
	if err := tx.InsertIntents(ctx, rows); err != nil {
		return err
	}
	locked, err := lockedIntents(ctx, tx, refs)
	if err != nil {
		return err
	}
	var amended []payment.Intent
	for n, o := range left {
		if i := k.decide(o, rows[n], locked.find(refs[n]), g.Now); i != nil {
			amended = append(amended, *i)
		}
	}
	return tx.AmendIntents(ctx, amended)
}

func refTo(i payment.Intent) IntentRef {
	if i.ClientReference != "" {
		return IntentRef{Merchant: i.Merchant, ClientReference: i.ClientReference}
	}
	return IntentRef{Merchant: i.Merchant, ID: i.ID}
}

// late answers repeats of commands whose operation was purged (PROTOCOL K8), and returns the others.
func (k *createIntent) late(ctx context.Context, tx Tx, openings []*operation.Opening) ([]*operation.Opening, error) {
	old, err := tx.IntentsByCommand(ctx, commandRefs(openings))
	if err != nil || len(old) == 0 {
		return openings, err
	}
	byCommand := map[CommandRef]payment.Intent{}
	for _, i := range old {
		byCommand[refOf(i.Merchant, i.By)] = i
	}
	var left []*operation.Opening
	for n, ref := range commandRefs(openings) {
		o := openings[n]
		i, found := byCommand[ref]
		switch {
		case !found:
			left = append(left, o)
		case i.By.Fingerprint != o.Request.Fingerprint:
			o.Refusal = problem.New(problem.KeyReuse, "")
		default:
			a := intentAnswer(i, nil, i.Version == 1)
			a.Replayed = true
			o.Replay = &a
		}
	}
	return left, nil
}

// decide finishes one opening; it returns the intent when it is to be amended.
func (k *createIntent) decide(o *operation.Opening, mine payment.Intent, l *LockedIntent, now time.Time) *payment.Intent {
	w := o.Request.Payload.(CreateIntentCommand).Intent.wish()
	st := payment.Standing{Intent: l.Intent, Latest: l.Latest, Money: l.Money}
	var amended *payment.Intent
	switch {
	case l.ID == mine.ID, w.Same(l.Intent):
	case st.State() != payment.Admit:
		o.Op.Intent = l.ID // for the history
		o.Refusal = problem.New(problem.IntentConflict, "").See(present.IntentPath(l.ID))
		return nil
	default:
		i := w.Amend(l.Intent)
		i.By, i.UpdatedAt = command(o.Request), now
		l.Intent, amended = i, &i
	}
	a := intentAnswer(l.Intent, l.Latest, l.ID == mine.ID)
	o.Verdict, o.Op.Intent = operation.Finish, l.ID
	o.Op.AnswerStatus, o.Op.AnswerBody = a.Status, a.Body
	return amended
}

func intentAnswer(i payment.Intent, latest *payment.Payment, created bool) operation.Answer {
	var payments []payment.Payment
	if latest != nil {
		payments = append(payments, *latest)
	}
	a := operation.Answer{Status: 200, Body: present.Intent(i, payments), Final: true, Location: present.IntentPath(i.ID)}
	if created {
		a.Status = 201
	}
	return a
}

// intents finds locked intents by either way in which they were asked for.
type intents struct {
	byID        map[Row]*LockedIntent
	byReference map[IntentRef]*LockedIntent
}

func lockedIntents(ctx context.Context, tx Tx, refs []IntentRef) (intents, error) {
	out := intents{map[Row]*LockedIntent{}, map[IntentRef]*LockedIntent{}}
	if len(refs) == 0 {
		return out, nil
	}
	rows, err := tx.LockIntents(ctx, refs)
	if err != nil {
		return out, err
	}
	for n := range rows {
		l := &rows[n]
		out.byID[Row{l.Merchant, l.ID}] = l
		if l.ClientReference != "" {
			out.byReference[IntentRef{Merchant: l.Merchant, ClientReference: l.ClientReference}] = l
		}
	}
	return out, nil
}

// find returns nil where there is no such intent.
func (s intents) find(ref IntentRef) *LockedIntent {
	if ref.ID.IsZero() {
		return s.byReference[ref]
	}
	return s.byID[Row{ref.Merchant, ref.ID}]
}
