package acquirertest

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/adapter/sandbox"
	"github.com/hapaxpay/hapax/money"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const mutantKey = "k0123456789abcdef0123456789abcdef0123456789"

// mutant is a sandbox adapter with one fault; a nil function has none.
type mutant struct {
	acquirer.Adapter
	doer      wire.Doer
	contract  func(acquirer.Contract) acquirer.Contract
	prepare   func(acquirer.Prepared) acquirer.Prepared
	send      func(m *mutant, ctx context.Context, p acquirer.Prepared, permit *wire.Permit) acquirer.Reply
	reply     func(acquirer.Reply) acquirer.Reply
	lookup    func(m *mutant, ctx context.Context, q acquirer.Query) acquirer.Reply
	movements func(m *mutant, ctx context.Context) ([]acquirer.Movement, error)
}

func (m *mutant) Contract() acquirer.Contract {
	if m.contract != nil {
		return m.contract(m.Adapter.Contract())
	}
	return m.Adapter.Contract()
}

func (m *mutant) Prepare(c acquirer.Request) (acquirer.Prepared, error) {
	p, err := m.Adapter.Prepare(c)
	if err == nil && m.prepare != nil {
		p = m.prepare(p)
	}
	return p, err
}

func (m *mutant) Send(ctx context.Context, p acquirer.Prepared, permit *wire.Permit) acquirer.Reply {
	r := acquirer.Reply{}
	if m.send != nil {
		r = m.send(m, ctx, p, permit)
	} else {
		r = m.Adapter.Send(ctx, p, permit)
	}
	if m.reply != nil {
		r = m.reply(r)
	}
	return r
}

func (m *mutant) Lookup(ctx context.Context, q acquirer.Query) acquirer.Reply {
	if m.lookup != nil {
		return m.lookup(m, ctx, q)
	}
	return m.Adapter.Lookup(ctx, q)
}

func (m *mutant) Movements(ctx context.Context, from, to time.Time) ([]acquirer.Movement, error) {
	if m.movements != nil {
		return m.movements(m, ctx)
	}
	return m.Adapter.Movements(ctx, from, to)
}

const (
	mutantCharge  = `{"id":"ch_1","reference":"` + mutantKey + `","status":"succeeded","amount":500,"currency":"JPY"}`
	mutantSession = `{"id":"cs_1","reference":"` + mutantKey + `","status":"open","amount":500,"currency":"JPY","charge":null,` +
		`"page_url":"https://pay.example/1","expires_at":"2026-01-02T03:04:05Z"}`
	mutantClosed = `{"id":"cs_1","reference":"` + mutantKey + `","status":"closed","amount":500,"currency":"JPY","charge":null}`
)

func mutantAct(kind, id string) string {
	return fmt.Sprintf(`{"id":%q,"kind":%q,"charge":"ch_1","reference":%q,"status":"succeeded","amount":500,"currency":"JPY",`+
		`"at":"2026-01-02T03:04:05Z"}`, id, kind, mutantKey)
}

// mutantRequests are one of each call beside a charge.
func mutantRequests() []acquirer.Request {
	amount := money.Must(500, "JPY")
	return []acquirer.Request{
		{Action: acquirer.ActionSession, Key: mutantKey, Amount: amount, ReturnURL: "https://shop.example/back"},
		{Action: acquirer.ActionCapture, Key: mutantKey, Amount: amount, Object: "ch_1"},
		{Action: acquirer.ActionReverse, Key: mutantKey, Object: "ch_1"},
		{Action: acquirer.ActionClose, Key: mutantKey, Object: "cs_1"},
		{Action: acquirer.ActionRefund, Key: mutantKey, Amount: amount, Object: "ch_1"},
	}
}

func mutantAnswers() []Answer {
	const ok, notFound = acquirer.OutcomeSucceeded, `{"error":{"code":"not_found","message":"-"}}`
	found := []Answer{
		{Status: 200, Body: mutantCharge, Outcome: ok},
		{Lookup: true, Status: 200, Body: `{"data":[` + mutantCharge + `]}`, Outcome: ok},
		{Lookup: true, Status: 404, Body: notFound, Outcome: acquirer.OutcomeNotFound},
		{Action: acquirer.ActionSession, Status: 200, Body: mutantSession, Outcome: acquirer.OutcomeRegistered},
		{Action: acquirer.ActionSession, Status: 200, Body: mutantClosed, Outcome: acquirer.OutcomeClosed},
		{Action: acquirer.ActionCapture, Status: 200, Body: mutantAct("capture", "cp_1"), Outcome: ok},
		{Action: acquirer.ActionReverse, Status: 200, Body: mutantAct("reverse", "rv_1"), Outcome: ok},
		{Action: acquirer.ActionReverse, Status: 200, Body: mutantCharge, Outcome: acquirer.OutcomeDeclined},
		{Action: acquirer.ActionRefund, Status: 200, Body: mutantAct("refund", "rf_1"), Outcome: ok},
		{Action: acquirer.ActionRefund, Lookup: true, Status: 200, Body: `{"data":[` + mutantAct("refund", "rf_1") + `]}`, Outcome: ok},
		{Action: acquirer.ActionRefund, Lookup: true, Status: 404, Body: notFound, Outcome: acquirer.OutcomeNotFound},
		{Action: acquirer.ActionClose, Status: 200, Body: mutantClosed, Outcome: ok},
	}
	for _, one := range append([]acquirer.Request{{Action: acquirer.ActionCharge}}, mutantRequests()...) {
		for code, status := range map[string]int{"unauthorized": 401, "malformed": 400, "invalid_value": 422} {
			found = append(found, Answer{Action: one.Action, Status: status, Body: `{"error":{"code":"` + code + `","message":"-"}}`,
				Outcome: acquirer.OutcomeRejected})
		}
		if one.Object != "" {
			found = append(found, Answer{Action: one.Action, Status: 404, Body: notFound, Outcome: acquirer.OutcomeRejected})
		}
	}
	for i := range found {
		found[i].ContentType = "application/json"
	}
	return found
}

func mutantFactory(fault mutant) Factory {
	return Factory{
		Open: func(doer wire.Doer) (acquirer.Adapter, error) {
			s, err := sandbox.ParseSettings([]byte(`{"url":"http://127.0.0.1:1"}`))
			if err != nil {
				return nil, err
			}
			m := fault
			m.doer = doer
			m.Adapter, err = sandbox.New(s, []byte(`{"secret":"x"}`), doer)
			return &m, err
		},
		Charge: acquirer.Request{Key: mutantKey, Amount: money.Must(500, "JPY"), PaymentMethod: "pm_ok"},
		Others: mutantRequests(), Answers: mutantAnswers(),
	}
}

// only lets a fault of Send be seen in one call.
func only(action acquirer.Action, fault func(*mutant, context.Context, acquirer.Prepared, *wire.Permit) acquirer.Reply) mutant {
	return mutant{send: func(m *mutant, ctx context.Context, p acquirer.Prepared, permit *wire.Permit) acquirer.Reply {
		if p.Action != action {
			return m.Adapter.Send(ctx, p, permit)
		}
		return fault(m, ctx, p, permit)
	}}
}

// onReply lets a fault of the reply be seen in one call.
func onReply(action acquirer.Action, fault func(acquirer.Reply) acquirer.Reply) mutant {
	return only(action, func(m *mutant, ctx context.Context, p acquirer.Prepared, permit *wire.Permit) acquirer.Reply {
		return fault(m.Adapter.Send(ctx, p, permit))
	})
}

func turn(from, to acquirer.Outcome) func(acquirer.Reply) acquirer.Reply {
	return func(r acquirer.Reply) acquirer.Reply {
		if r.Outcome == from {
			r.Outcome = to
		}
		return r
	}
}

// further adds something to what a lookup found.
func further(more acquirer.Reply) func(*mutant, context.Context, acquirer.Query) acquirer.Reply {
	more.Outcome, more.Amount, more.Class = acquirer.OutcomeSucceeded, money.Must(500, "JPY"), cmp.Or(more.Class, "more")
	more.About = cmp.Or(more.About, acquirer.ActionCharge)
	return func(m *mutant, ctx context.Context, q acquirer.Query) acquirer.Reply {
		r := m.Adapter.Lookup(ctx, q)
		if r.Outcome == acquirer.OutcomeSucceeded {
			r.Also = append(r.Also, more)
		}
		return r
	}
}

// raw posts by itself, so that a fault of the call can be shown.
func raw(m *mutant, ctx context.Context, p acquirer.Prepared, permit *wire.Permit) wire.Result {
	return m.doer.Do(ctx, wire.Call{Method: http.MethodPost, Path: "/charges", Body: p.Body, Permit: permit,
		Header: http.Header{"Idempotency-Key": {p.Key}}})
}

// TestTheKitFindsFaults holds the kit itself: each fault is found by the check that is meant for it.
func TestTheKitFindsFaults(t *testing.T) {
	var counter atomic.Int64
	hold(t, append(faultsOfOtherCalls(&counter), []found{
		{"repeats by itself", "same bytes and key", mutant{
			send: func(m *mutant, ctx context.Context, p acquirer.Prepared, permit1 *wire.Permit) acquirer.Reply {
				if r := m.Adapter.Send(ctx, p, permit1); r.Outcome != acquirer.OutcomeUnknown {
					return r
				}
				return m.Adapter.Send(ctx, p, permit())
			}}},
		{"repeats what a dead connection took", "kept connection dies", mutant{
			send: func(m *mutant, ctx context.Context, p acquirer.Prepared, permit1 *wire.Permit) acquirer.Reply {
				if r := m.Adapter.Send(ctx, p, permit1); r.Class != "no_answer" {
					return r
				}
				return m.Adapter.Send(ctx, p, permit())
			}}},
		{"builds the body anew", "same bytes and key", mutant{
			send: func(m *mutant, ctx context.Context, p acquirer.Prepared, permit *wire.Permit) acquirer.Reply {
				p.Body = []byte(strings.TrimSpace(string(p.Body)))
				return m.Adapter.Send(ctx, p, permit)
			}}},
		{"makes its own key", "same bytes and key", mutant{
			send: func(m *mutant, ctx context.Context, p acquirer.Prepared, permit *wire.Permit) acquirer.Reply {
				p.Key = fmt.Sprintf("random-%d", counter.Add(1))
				p.Body = append([]byte(nil), p.Body...)
				return m.Adapter.Send(ctx, p, permit)
			}}},
		{"makes its own permit", "permit", mutant{
			send: func(m *mutant, ctx context.Context, p acquirer.Prepared, _ *wire.Permit) acquirer.Reply {
				return m.Adapter.Send(ctx, p, permit())
			}}},
		{"leaves the context behind", "network forbidden", mutant{
			send: func(m *mutant, _ context.Context, p acquirer.Prepared, permit *wire.Permit) acquirer.Reply {
				return m.Adapter.Send(context.Background(), p, permit)
			}}},
		{"prepares another body each time", "prepared", mutant{
			prepare: func(p acquirer.Prepared) acquirer.Prepared {
				p.Body = append(p.Body, strings.Repeat(" ", int(counter.Add(1)))...)
				return p
			}}},
		{"declines what it does not know", "unlisted is unknown", mutant{reply: turn(acquirer.OutcomeUnknown, acquirer.OutcomeDeclined)}},
		{"trusts a status", "unlisted is unknown", mutant{
			send: func(m *mutant, ctx context.Context, p acquirer.Prepared, permit *wire.Permit) acquirer.Reply {
				if res := raw(m, ctx, p, permit); res.Status == 401 {
					return acquirer.Reply{Outcome: acquirer.OutcomeRejected, Class: "401", Code: "unauthorized"}
				}
				return acquirer.Reply{Class: "other"}
			}}},
		{"trusts the kind of an error", "not sent by the count of bytes", mutant{
			send: func(m *mutant, ctx context.Context, p acquirer.Prepared, permit *wire.Permit) acquirer.Reply {
				if res := raw(m, ctx, p, permit); res.Phase == wire.PhaseConnect {
					return acquirer.Reply{Outcome: acquirer.OutcomeNotSent, Class: "refused"}
				}
				return acquirer.Reply{Class: "other"}
			}}},
		{"takes a reset for not sent", "transport", mutant{reply: func(r acquirer.Reply) acquirer.Reply {
			if r.Class == "no_answer" {
				r.Outcome = acquirer.OutcomeNotSent
			}
			return r
		}}},
		{"has no class", "documented answers", mutant{reply: func(r acquirer.Reply) acquirer.Reply { r.Class = ""; return r }}},
		{"names each reply anew", "unlisted is unknown", mutant{reply: func(r acquirer.Reply) acquirer.Reply {
			r.Class = fmt.Sprint("class_", counter.Add(1))
			return r
		}}},
		{"loses the documented success", "documented answers", mutant{reply: turn(acquirer.OutcomeSucceeded, acquirer.OutcomeUnknown)}},
		{"hashes nothing", "documented answers", mutant{reply: func(r acquirer.Reply) acquirer.Reply { r.RawHash = [32]byte{}; return r }}},
		{"calls everything answered", "documented answers", mutant{reply: func(r acquirer.Reply) acquirer.Reply { r.Answered = true; return r }}},
		{"takes a refused lookup for a refused charge", "not sent by the count of bytes", mutant{
			lookup: func(m *mutant, ctx context.Context, q acquirer.Query) acquirer.Reply {
				r := m.Adapter.Lookup(ctx, q)
				if r.BytesWritten == 0 {
					r.Outcome = acquirer.OutcomeNotSent
				}
				return r
			}}},
		{"takes every 404 for not found", "transport", mutant{
			lookup: func(m *mutant, ctx context.Context, q acquirer.Query) acquirer.Reply {
				r := m.Adapter.Lookup(ctx, q)
				if r.Outcome == acquirer.OutcomeUnknown && (r.Class == "unreadable" || r.Class == "unlisted_4xx") {
					r.Outcome = acquirer.OutcomeNotFound
				}
				return r
			}}},
		{"finds further money without its id", "documented answers", mutant{lookup: further(acquirer.Reply{})}},
		{"finds the same money twice", "documented answers", mutant{lookup: further(acquirer.Reply{Reference: "ch_1"})}},
		{"finds further money without a class", "documented answers", mutant{lookup: further(acquirer.Reply{Reference: "ch_2", Class: " "})}},
		{"asks with a permit", "lookup moves no money", mutant{
			lookup: func(m *mutant, ctx context.Context, q acquirer.Query) acquirer.Reply {
				m.doer.Do(ctx, wire.Call{Method: http.MethodPost, Path: "/charges/status", Permit: permit()})
				return acquirer.Reply{Class: "asked"}
			}}},
		{"lists what it could read", "movements are complete or an error", mutant{
			movements: func(*mutant, context.Context) ([]acquirer.Movement, error) { return nil, nil }}},
		{"declares safe repeats without a window", "contract", mutant{
			contract: func(c acquirer.Contract) acquirer.Contract { c.KeyWindow = 0; return c }}},
		{"declares another contract each time", "contract", mutant{
			contract: func(c acquirer.Contract) acquirer.Contract {
				c.LookupLag += time.Duration(counter.Add(1))
				return c
			}}},
	}...))
}

// found is a fault and the check that must find it.
type found struct {
	name  string
	check string
	fault mutant
}

// hold holds that each fault is found, and nothing in an adapter without it.
func hold(t *testing.T, faults []found) {
	t.Helper()
	for _, tt := range faults {
		t.Run(tt.name, func(t *testing.T) {
			one := checkNamed(t, tt.check)
			if found := one.problems(t.Context(), mutantFactory(tt.fault), 1); len(found) == 0 {
				t.Errorf("the check %q finds nothing", tt.check)
			}
		})
	}
}

// TestTheKitPassesAGoodAdapter: no check finds anything where nothing is wrong.
func TestTheKitPassesAGoodAdapter(t *testing.T) {
	for _, one := range checks {
		if found := one.problems(t.Context(), mutantFactory(mutant{}), 1); len(found) != 0 {
			t.Errorf("the check %q finds something in a good adapter: %v", one.name, found)
		}
	}
}

func checkNamed(t *testing.T, name string) check {
	t.Helper()
	for _, one := range checks {
		if one.name == name {
			return one
		}
	}
	t.Fatalf("no check is called %q", name)
	return check{}
}
