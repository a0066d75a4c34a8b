package flow

import (
	"context"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/problem"
)

// Config is what the flows need to know beside the engine's limits.
type Config struct {
	// Environment scopes the keys that leave the house (PROTOCOL D2); two installations at one acquirer account differ in it.
	Environment string
	// PayBefore is the default life of an intent; it is never longer than Retention (PROTOCOL W3).
	PayBefore, Retention time.Duration
	// SecondPerson demands a second person for every decision that changes what is held to be true (PROTOCOL section 14).
	SecondPerson bool
	// CodeSecret is what one-time codes of cancels are derived from (PROTOCOL X1).
	CodeSecret []byte
	// NewSecret makes a secret of a webhook endpoint, sealed.
	NewSecret func(merchant, endpoint id.ID) ([]byte, error)
	// EndpointPatience is how long all tries at an endpoint may fail before it is disabled.
	EndpointPatience time.Duration
}

// Flow holds the use cases.
type Flow struct {
	cfg       Config
	acquirers Acquirers
	store     Store
	rt        operation.Runtime
	watch     Watcher
	engine    *operation.Engine[Tx]
	faults    operation.Faults
	limits    *limits
	fresh     time.Duration // of a permit: bytes may leave as long after it
	callUntil time.Duration // of questions that nobody waits for
}

// Watcher counts what operators alert on (PROTOCOL section 15).
type Watcher interface {
	operation.Watcher
	// Alarm tells of what must never happen silently: a reason and the rows concerned.
	Alarm(what, merchant, intent, payment string)
	// Observed tells of each observation and what it changed, for the log (PROTOCOL section 15). It may be told again
	// when a transaction runs again.
	Observed(s Sighting)
}

// Sighting is what the log says of one observation.
type Sighting struct {
	evidence.Observation
	KeyHash string // of the idempotency key; empty where no operation is open
	Status  payment.Status
}

// New joins store, engine and acquirers.
func New(cfg Config, engine operation.Config, store Store, acquirers Acquirers, rt operation.Runtime, faults operation.Faults, watch Watcher) *Flow {
	f := &Flow{cfg: cfg, acquirers: acquirers, store: store, rt: rt, watch: watch, limits: newLimits(), fresh: engine.Fresh,
		callUntil: engine.CallUntil, faults: faults}
	kinds := map[operation.Kind]operation.Handler[Tx]{
		operation.CreateIntent:  &createIntent{f},
		operation.CreatePayment: &createPayment{f},
		operation.DecideReview:  &decideReview{f},
		operation.IssueCode:     &issueCode{f},
	}
	for _, kind := range []operation.Kind{operation.CapturePayment, operation.CancelPayment, operation.CreateRefund, operation.Compensate} {
		kinds[kind] = &modify{f, kind}
	}
	for kind := range endpointActs {
		kinds[kind] = &endpoints{f, kind}
	}
	f.engine = operation.New(engine, store, rt, faults, kinds, watch)
	return f
}

// contract reads what an acquirer declares. Flight is counted from the last permit (PROTOCOL section 7), and the bytes may
// leave as late as its freshness allows (A5): until both are over, "not found" and a refusal leave room for an arrival.
func (f *Flow) contract(a acquirer.Adapter) acquirer.Contract {
	c := a.Contract()
	c.MaxFlight = c.Flight() + f.fresh
	return c
}

// Engine gives the engine, for the sweep.
func (f *Flow) Engine() *operation.Engine[Tx] { return f.engine }

// CreateIntent runs the command; see operation.Engine.Do for what it returns.
func (f *Flow) CreateIntent(ctx context.Context, c CreateIntentCommand) (operation.Answer, error) {
	return f.engine.Do(ctx, request(operation.CreateIntent, c.Merchant, c.Key, c.RequestID, c.Fingerprint(), c))
}

// CreatePayment runs the command; see operation.Engine.Do for what it returns.
func (f *Flow) CreatePayment(ctx context.Context, c CreatePaymentCommand) (operation.Answer, error) {
	return f.engine.Do(ctx, request(operation.CreatePayment, c.Merchant, c.Key, c.RequestID, c.Fingerprint(), c))
}

// DecideReview runs a person's decision; see operation.Engine.Do for what it returns.
func (f *Flow) DecideReview(ctx context.Context, c DecideReviewCommand) (operation.Answer, error) {
	return f.engine.Do(ctx, request(operation.DecideReview, c.Merchant, c.Key, c.RequestID, c.Fingerprint(), c))
}

// Capture runs the command; see operation.Engine.Do for what it returns.
func (f *Flow) Capture(ctx context.Context, c CapturePaymentCommand) (operation.Answer, error) {
	return f.engine.Do(ctx, request(operation.CapturePayment, c.Merchant, c.Key, c.RequestID, c.Fingerprint(), c))
}

// Cancel runs the command; see operation.Engine.Do for what it returns.
func (f *Flow) Cancel(ctx context.Context, c CancelPaymentCommand) (operation.Answer, error) {
	return f.engine.Do(ctx, request(operation.CancelPayment, c.Merchant, c.Key, c.RequestID, c.Fingerprint(), c))
}

// IssueCancelCode runs the command; see operation.Engine.Do for what it returns. The code is not in the answer: see CancelCode.
func (f *Flow) IssueCancelCode(ctx context.Context, c IssueCancelCodeCommand) (operation.Answer, error) {
	return f.engine.Do(ctx, request(operation.IssueCode, c.Merchant, c.Key, c.RequestID, c.Fingerprint(), c))
}

// Refund runs the command; see operation.Engine.Do for what it returns.
func (f *Flow) Refund(ctx context.Context, c CreateRefundCommand) (operation.Answer, error) {
	return f.engine.Do(ctx, request(operation.CreateRefund, c.Merchant, c.Key, c.RequestID, c.Fingerprint(), c))
}

// What an open answer says: ask again then. A person takes longer than an acquirer.
const (
	retryAfter  = 2 * time.Second
	retryReview = 5 * time.Minute
)

// unconfirmed is what a client is told while it is not known whether anything was begun (PROTOCOL section 2).
func unconfirmed(r operation.Request) operation.Answer {
	return operation.Answer{Status: 202, Body: present.UnknownOperation(operation.KeyHash(r.Key)), RetryAfter: retryAfter}
}

// finalStatus is the status code of a payment's final answer (PROTOCOL section 2).
func finalStatus(s payment.Status) int {
	switch s {
	case payment.Declined:
		return 402
	case payment.Failed, payment.Canceled:
		return 422
	}
	return 201
}

// answerOf tells the state of a payment: a final answer, or the current state.
func answerOf(a Attempt, x present.Extra) operation.Answer {
	body := present.Payment(a.Intent, a.Payment, x)
	out := operation.Answer{Status: 202, Body: body, Location: present.PaymentPath(a.Payment.ID), RetryAfter: retryAfter}
	if x.InReview {
		out.RetryAfter = retryReview
	}
	switch {
	case a.Payment.Status.Final():
		out.Status, out.Final, out.RetryAfter = finalStatus(a.Payment.Status), true, 0
	case a.Payment.Status == payment.Registered:
		out.Status, out.First, out.RetryAfter = 200, 201, 0
	case a.Payment.Status == payment.Authorized:
		out.Status, out.RetryAfter = 200, 0
	}
	return out
}

// finalAnswer is the answer to what made a payment, once that has its result: the payment is final, or its hold stands.
func finalAnswer(a Attempt) operation.Answer {
	out := answerOf(a, present.Extra{})
	out.Status, out.Final, out.RetryAfter = finalStatus(a.Payment.Status), true, 0
	return out
}

func merchants(m id.ID) []id.ID { return []id.ID{m} }

// refusal turns an admission into the problem that the client is told (PROTOCOL section 2).
func refusal(a payment.Admission, s payment.Standing, now time.Time) *problem.Problem {
	see := func(p *problem.Problem) *problem.Problem {
		if s.Latest != nil {
			return p.See(present.PaymentPath(s.Latest.ID))
		}
		return p.See(present.IntentPath(s.Intent.ID))
	}
	switch a {
	case payment.RefuseOpen:
		return see(problem.New(problem.PaymentOpen, ""))
	case payment.RefusePaid:
		return see(problem.New(problem.AlreadyPaid, ""))
	case payment.RefuseConflict:
		return see(problem.New(problem.PaymentConflict, ""))
	case payment.RefuseExpired:
		return problem.New(problem.IntentExpired, "").See(present.IntentPath(s.Intent.ID))
	}
	wait := retryAfter
	if s.Latest != nil && s.Latest.DueAt.After(now) {
		wait = s.Latest.DueAt.Sub(now)
	}
	return see(problem.New(problem.PaymentSettling, "")).After(wait)
}
