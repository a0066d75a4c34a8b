package flow

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/internal/routing"
)

// createPayment is the kind create_payment: claim (this file), call (call.go), record (apply.go).
type createPayment struct{ f *Flow }

// Unconfirmed implements operation.Handler.
func (k *createPayment) Unconfirmed(r operation.Request) operation.Answer { return unconfirmed(r) }

// Current tells the state of the payment that the operation is about.
func (k *createPayment) Current(ctx context.Context, tx Tx, op operation.Operation) (operation.Answer, error) {
	found, err := tx.ReadPayments(ctx, []Row{{op.Merchant, op.Payment}})
	if err != nil {
		return operation.Answer{}, err
	}
	if len(found) == 0 {
		return operation.Answer{}, fmt.Errorf("operation %s has no payment", op.ID)
	}
	x := present.Extra{InReview: op.State == operation.InReview}
	if x.InReview || !op.Follows.IsZero() { // the review is the one of the operation that does the work
		x, err = waiting(ctx, tx, found[0].Payment)
	}
	return answerOf(found[0], x), err
}

// waiting says what waits for a person about a payment.
func waiting(ctx context.Context, tx Tx, p payment.Payment) (x present.Extra, err error) {
	reviews, err := tx.ReviewsOf(ctx, []Row{{p.Merchant, p.Intent}}, nil)
	for _, r := range reviews {
		if r.Payment == p.ID {
			x.InReview, x.KeptAside = true, x.KeptAside || r.Reason == payment.ReviewAmountMismatch
		}
	}
	return x, err
}

// route is the account that a payment goes to, with its adapter.
type route struct {
	account Account
	adapter acquirer.Adapter
}

// candidate is one opening on its way through the claim.
type candidate struct {
	o      *operation.Opening
	cmd    CreatePaymentCommand
	route  route
	mine   payment.Intent // the intent to insert, for an inline command
	locked *LockedIntent
	fresh  *payment.Payment // the payment to insert
	stray  int              // ordinal of a lost payment whose money was kept aside; 0: none
	after  int              // highest ordinal of a lost payment whose money was given back; 0: none
}

// admission carries one claim transaction's openings.
type admission struct {
	f        *Flow
	g        operation.Guard
	left     []*candidate
	amended  map[Row]payment.Intent
	order    []Row // of amended, as decided
	leaders  map[Row]id.ID
	joinable []*candidate
	accounts []Account
	rules    []routing.Rule
}

// Open admits payments: finds or creates the intent, decides under its lock, writes the intention and what will be
// sent, and counts the first permit (PROTOCOL K1, P1, P7, A0, A1).
func (k *createPayment) Open(ctx context.Context, tx Tx, g operation.Guard, openings []*operation.Opening) error {
	a := &admission{f: k.f, g: g, amended: map[Row]payment.Intent{}, leaders: map[Row]id.ID{}}
	for _, step := range []func(context.Context, Tx, []*operation.Opening) error{a.late, a.routesInline, a.intents, a.routesByID, a.strays} {
		if err := step(ctx, tx, openings); err != nil {
			return err
		}
	}
	for _, c := range a.left {
		if err := a.decide(c); err != nil {
			return err
		}
	}
	return a.write(ctx, tx)
}

// late answers repeats of commands whose operation was purged (PROTOCOL K8).
func (a *admission) late(ctx context.Context, tx Tx, openings []*operation.Opening) error {
	refs := commandRefs(openings)
	old, err := tx.PaymentsByCommand(ctx, refs)
	if err != nil {
		return err
	}
	byCommand := map[CommandRef]payment.Payment{}
	var rows []Row
	for _, p := range old {
		byCommand[refOf(p.Merchant, p.By)] = p
		rows = append(rows, Row{p.Merchant, p.ID})
	}
	answers := map[id.ID]Attempt{}
	if len(rows) > 0 {
		found, err := tx.ReadPayments(ctx, rows)
		if err != nil {
			return err
		}
		for _, at := range found {
			answers[at.Payment.ID] = at
		}
	}
	for n, o := range openings {
		p, found := byCommand[refs[n]]
		switch {
		case !found:
			a.left = append(a.left, &candidate{o: o, cmd: o.Request.Payload.(CreatePaymentCommand)})
		case p.By.Fingerprint != o.Request.Fingerprint:
			o.Refusal = problem.New(problem.KeyReuse, "")
		default:
			late := answerOf(answers[p.ID], present.Extra{})
			late.Replayed = true
			if p.AnsweredStatus != 0 {
				late.Status, late.Final = p.AnsweredStatus, true
			}
			o.Replay = &late
		}
	}
	return nil
}

// refuse takes a candidate out, with its reason.
func (a *admission) refuse(c *candidate, p *problem.Problem) {
	c.o.Refusal = p
}

// keep drops the candidates that were refused.
func (a *admission) keep() {
	left := a.left[:0]
	for _, c := range a.left {
		if c.o.Refusal == nil {
			left = append(left, c)
		}
	}
	a.left = left
}

// routesInline finds an account for what is described in the request, before anything is written for it.
func (a *admission) routesInline(ctx context.Context, tx Tx, _ []*operation.Opening) error {
	if err := a.readRoutes(ctx, tx); err != nil {
		return err
	}
	for _, c := range a.left {
		if c.cmd.Inline == nil {
			continue
		}
		if p := a.f.checkPayBefore(*c.cmd.Inline, a.g.Now); p != nil {
			a.refuse(c, p)
			continue
		}
		c.mine = a.f.newIntent(c.o.Request, *c.cmd.Inline, a.g.Now)
		if p := a.routeOf(c, c.mine); p != nil {
			a.refuse(c, p)
		}
	}
	a.keep()
	return nil
}

// routesByID finds an account for the payments of intents that are known.
func (a *admission) routesByID(_ context.Context, _ Tx, _ []*operation.Opening) error {
	for _, c := range a.left {
		if c.cmd.Inline == nil {
			if p := a.routeOf(c, c.locked.Intent); p != nil {
				a.refuse(c, p)
			}
		}
	}
	a.keep()
	return nil
}

// readRoutes reads the accounts and rules of the merchants.
func (a *admission) readRoutes(ctx context.Context, tx Tx) (err error) {
	seen := map[id.ID]bool{}
	var merchants []id.ID
	for _, c := range a.left {
		if !seen[c.o.Op.Merchant] {
			seen[c.o.Op.Merchant] = true
			merchants = append(merchants, c.o.Op.Merchant)
		}
	}
	if len(merchants) == 0 {
		return nil
	}
	if a.accounts, err = tx.Accounts(ctx, merchants); err == nil {
		a.rules, err = tx.RoutingRules(ctx, merchants)
	}
	return err
}

// routeOf finds the account that takes a payment of the intent: by the merchant's rules, among those that are not paused and
// offer what is asked for. Once something was sent, no other is tried (PROTOCOL P5).
func (a *admission) routeOf(c *candidate, i payment.Intent) *problem.Problem {
	var rules []routing.Rule
	var open []id.ID
	byID := map[id.ID]Account{}
	for _, r := range a.rules {
		if r.Merchant == i.Merchant {
			rules = append(rules, r)
		}
	}
	for _, account := range a.accounts {
		if account.Merchant == i.Merchant && !account.Paused {
			open, byID[account.ID] = append(open, account.ID), account
		}
	}
	cause, offered := errors.New("no acquirer account that is not paused"), true
	for _, account := range routing.Order(rules, open, routing.Wish{Currency: i.Amount.Currency(), Method: c.cmd.Method,
		Flow: string(c.cmd.Flow), Seed: i.KeySeed}) {
		adapter, err := a.f.acquirers.For(byID[account])
		if err != nil {
			cause = err
			continue
		}
		if offered = offers(adapter.Contract(), c.cmd.Flow, i.Capture); !offered {
			continue
		}
		c.route = route{byID[account], adapter}
		if a.held(c.route, c.cmd.Flow) {
			return problem.New(problem.SendsOnHold, "").After(holdHint)
		}
		_, _, p := a.prepare(c, i, 1)
		return p
	}
	if !offered {
		return problem.New(problem.InvalidValue, "No acquirer account of this merchant offers this flow or capture method.").On("flow")
	}
	return problem.New(problem.TryAgain, "No acquirer account of this merchant can take payments now; this request did nothing.").
		After(holdHint).Because(cause)
}

// offers says whether an acquirer takes payments of this kind.
func offers(c acquirer.Contract, flow payment.Flow, capture payment.CaptureMethod) bool {
	return (flow != payment.Hosted || c.Offers(acquirer.ActionSession)) &&
		(capture != payment.CaptureManual || c.Holds && c.Offers(acquirer.ActionCapture))
}

const holdHint = 15 * retryAfter

// held says whether a new payment must wait after a failover: at an acquirer with keys or unique references the same
// derived key is a replay, unless the lost interval may exceed its cut-off; at the others every send waits (PROTOCOL A8).
func (a *admission) held(r route, flow payment.Flow) bool {
	if !a.g.Held || r.account.Compared >= a.g.Epoch {
		return false
	}
	c := r.adapter.Contract().For(chargeAction(payment.Payment{Flow: flow}))
	return !c.Repeatable() || a.g.Now.Sub(a.g.LostFrom) >= c.CutOff()
}

// prepare builds what would be sent for the n-th payment of an intent.
func (a *admission) prepare(c *candidate, i payment.Intent, n int) (string, acquirer.Prepared, *problem.Problem) {
	key := a.f.key(i, c.route.adapter, n)
	r := acquirer.Request{Action: acquirer.ActionCharge, Key: key, Amount: i.Amount, PaymentMethod: c.cmd.Method,
		Hold: i.Capture == payment.CaptureManual}
	if c.cmd.Flow == payment.Hosted {
		r.Action, r.ReturnURL, r.ExpiresAt = acquirer.ActionSession, *c.cmd.ReturnURL, i.PayBefore
	}
	p, err := c.route.adapter.Prepare(r)
	if err != nil {
		return "", acquirer.Prepared{}, problem.New(problem.InvalidValue, acquirer.FailureCodes["cannot_be_sent"]).On("payment_method")
	}
	return key, p, nil
}

// intents inserts the intents of inline commands and locks all intents with their latest payments.
func (a *admission) intents(ctx context.Context, tx Tx, _ []*operation.Opening) error {
	var rows []payment.Intent
	refs := make([]IntentRef, len(a.left))
	for n, c := range a.left {
		if c.cmd.Inline == nil {
			refs[n] = IntentRef{Merchant: c.o.Op.Merchant, ID: c.cmd.IntentID}
			continue
		}
		rows = append(rows, c.mine)
		refs[n] = refTo(c.mine)
	}
	if err := tx.InsertIntents(ctx, rows); err != nil {
		return err
	}
	locked, err := lockedIntents(ctx, tx, refs)
	if err != nil {
		return err
	}
	for n, c := range a.left {
		if c.locked = locked.find(refs[n]); c.locked == nil {
			a.refuse(c, problem.New(problem.NotFound, "There is no such payment intent.").On("payment_intent"))
		}
	}
	a.keep()
	return nil
}

// strays finds money that a failover left without a payment, under a key that belongs to a candidate's intent: the
// payment that it belongs to is made again, and asked about before anything is sent (PROTOCOL A8, P7).
func (a *admission) strays(ctx context.Context, tx Tx, _ []*operation.Opening) error {
	if a.g.Epoch <= firstEpoch || len(a.left) == 0 {
		return nil
	}
	families := make([][]string, len(a.left))
	var keys []string
	var rows []Row
	for n, c := range a.left {
		rows = append(rows, Row{c.locked.Merchant, c.locked.ID})
		families[n] = a.f.family(c.locked.Intent, c.route.adapter, payment.Standing{Intent: c.locked.Intent, Latest: c.locked.Latest}.NextN())
		keys = append(keys, families[n]...)
	}
	found, err := tx.MovementsOf(ctx, rows, keys)
	if err != nil {
		return err
	}
	for n, c := range a.left {
		for _, m := range found {
			ordinal := slices.Index(families[n], m.AcquirerKey) + 1
			switch {
			case ordinal == 0 || m.Merchant != c.o.Op.Merchant || !m.Payment.IsZero():
			case m.State == payment.Returned:
				c.after = max(c.after, ordinal) // that key was used: the next payment has the next one
			default:
				c.stray = max(c.stray, ordinal)
			}
		}
	}
	return nil
}

// decide admits one candidate, joins it to the live payment, or refuses it. Later candidates of the same batch see it.
func (a *admission) decide(c *candidate) error {
	l := c.locked
	if p := c.mismatch(l.Intent); p != nil {
		a.refuse(c, p)
		return nil
	}
	st := payment.Standing{Intent: l.Intent, Latest: l.Latest, Money: l.Money}
	target, amend := l.Intent, false
	if c.cmd.Inline != nil && l.ID != c.mine.ID {
		if w := c.cmd.Inline.wish(); !w.Same(l.Intent) {
			target, amend = w.Amend(l.Intent), true
		}
	}
	verdict := st.Create(c.same(l, target), target.PayBefore, a.g.Now)
	n := max(st.NextN(), c.after+1)
	if c.stray > 0 { // its money stands: nothing but that payment may be taken up (PROTOCOL P7)
		if n, c.o.AskFirst = c.stray, true; c.stray < st.NextN() && verdict == payment.Admit {
			verdict = payment.RefuseConflict
		}
	}
	switch verdict {
	case payment.Admit:
		if amend {
			target.By, target.UpdatedAt = command(c.o.Request), a.g.Now
			a.amend(target)
			l.Intent = target
		}
		return a.admit(c, target, n)
	case payment.Join:
		c.o.Verdict, c.o.Op.Intent, c.o.Op.Payment = operation.Follow, l.ID, l.Latest.ID
		a.joinable = append(a.joinable, c)
	default:
		c.o.Op.Intent = l.ID // the refusal is part of the intent's story (PROTOCOL E4)
		a.refuse(c, refusal(verdict, st, a.g.Now))
	}
	return nil
}

// mismatch refuses an amount or currency that differs from the intent's, beside an intent id.
func (c *candidate) mismatch(i payment.Intent) *problem.Problem {
	switch {
	case c.cmd.Minor != nil && *c.cmd.Minor != i.Amount.Minor():
		return problem.New(problem.AmountMismatch, "").On("amount")
	case c.cmd.Currency != nil && *c.cmd.Currency != i.Amount.Currency():
		return problem.New(problem.AmountMismatch, "").On("currency")
	}
	return nil
}

// same says whether the request asks for what the live payment is.
func (c *candidate) same(l *LockedIntent, target payment.Intent) bool {
	p := l.Latest
	return p != nil && p.Amount == target.Amount && p.Method == c.cmd.Method && p.Flow == c.cmd.Flow && p.Capture == target.Capture &&
		p.ReturnURL == value(c.cmd.ReturnURL)
}

func (a *admission) amend(i payment.Intent) {
	row := Row{i.Merchant, i.ID}
	if _, again := a.amended[row]; !again {
		a.order = append(a.order, row)
	}
	a.amended[row] = i
}

// admit makes the payment and binds the operation to it.
func (a *admission) admit(c *candidate, i payment.Intent, n int) error {
	key, prepared, p := a.prepare(c, i, n)
	if p != nil {
		a.refuse(c, p)
		return nil
	}
	fresh := payment.Payment{Merchant: i.Merchant, ID: a.f.rt.NewID(), Intent: i.ID, N: n, Flow: c.cmd.Flow,
		Status: payment.Pending, Amount: i.Amount, Capture: i.Capture, Method: c.cmd.Method, ReturnURL: value(c.cmd.ReturnURL), Account: c.route.account.ID, AcquirerKey: key,
		Version: 1, By: command(c.o.Request), CreatedAt: a.g.Now, UpdatedAt: a.g.Now}
	c.fresh, c.locked.Latest = &fresh, &fresh
	op := &c.o.Op
	op.Intent, op.Payment, op.Account = i.ID, fresh.ID, fresh.Account
	op.Action, op.AcquirerKey, op.RequestBody = string(prepared.Action), prepared.Key, prepared.Body
	op.Sends, op.FirstPermitAt, op.LastPermitAt, op.PermitID = 1, a.g.Now, a.g.Now, a.f.rt.NewID()
	c.o.Verdict, c.o.Data = operation.Proceed, c.route
	a.leaders[Row{fresh.Merchant, fresh.ID}] = op.ID
	return nil
}

// write carries the decisions out, arrays all the way.
func (a *admission) write(ctx context.Context, tx Tx) error {
	var amended []payment.Intent
	for _, row := range a.order {
		amended = append(amended, a.amended[row])
	}
	if err := tx.AmendIntents(ctx, amended); err != nil {
		return err
	}
	var payments []payment.Payment
	var ops []operation.Operation
	for _, c := range a.left {
		if c.fresh != nil {
			payments, ops = append(payments, *c.fresh), append(ops, c.o.Op)
		}
	}
	fresh, err := tx.InsertPayments(ctx, payments)
	if err != nil {
		return err
	}
	for n := range fresh {
		if !fresh[n] { // we hold the intent's lock: only a defect gets here
			return fmt.Errorf("payment %d of intent %s: the index that allows one live payment refused it", payments[n].N, payments[n].Intent)
		}
	}
	if err := a.findLeaders(ctx, tx); err != nil {
		return err
	}
	var joined []Joined
	for _, c := range a.joinable {
		if c.o.Verdict == operation.Follow || c.o.Verdict == operation.Finish {
			answered := 0
			if c.o.Verdict == operation.Finish {
				answered = c.o.Op.AnswerStatus
			}
			joined = append(joined, Joined{Answered: answered, Merchant: c.o.Op.Merchant, By: command(c.o.Request), Payment: c.o.Op.Payment})
		}
	}
	if err := tx.InsertJoined(ctx, joined); err != nil {
		return err
	}
	return tx.BindOperations(ctx, ops)
}

// findLeaders links each joined operation to the one that does the work.
func (a *admission) findLeaders(ctx context.Context, tx Tx) error {
	var unknown []Row
	for _, c := range a.joinable {
		row := Row{c.o.Op.Merchant, c.o.Op.Payment}
		if a.leaders[row].IsZero() {
			unknown = append(unknown, row)
		}
	}
	if len(unknown) > 0 {
		open, err := tx.OpenOperations(ctx, unknown)
		if err != nil {
			return err
		}
		for _, op := range open {
			if op.Follows.IsZero() {
				a.leaders[Row{op.Merchant, op.Payment}] = op.ID
			}
		}
	}
	for _, c := range a.joinable {
		if c.o.Op.Follows = a.leaders[Row{c.o.Op.Merchant, c.o.Op.Payment}]; !c.o.Op.Follows.IsZero() {
			continue
		}
		now := answerOf(Attempt{c.locked.Intent, *c.locked.Latest}, present.Extra{})
		if c.locked.Latest.Status == payment.Authorized { // what was asked for is done: the hold stands
			c.o.Verdict, c.o.Op.AnswerStatus, c.o.Op.AnswerBody = operation.Finish, now.Status, now.Body
			continue
		}
		// It is being canceled, and its own operation is over: tell its state, keep no claim.
		c.o.Verdict, c.o.Replay = operation.Refuse, &now
	}
	return nil
}
