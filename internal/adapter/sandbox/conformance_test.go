package sandbox_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/acquirertest"
	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/adapter/sandbox"
	"github.com/hapaxpay/hapax/money"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	sampleKey = "k0123456789abcdef0123456789abcdef0123456789"
	secrets   = `{"secret":"a-secret-for-tests"}`
	anyURL    = `{"url":"http://127.0.0.1:1"}`
)

func sampleCharge(key string) acquirer.Request {
	return acquirer.Request{Key: key, Amount: money.Must(18600, "KWD"), PaymentMethod: "pm_ok", Description: "an order"}
}

// sample is a request of any action, upon ch_1 or cs_1 where it needs one.
func sample(action acquirer.Action) acquirer.Request {
	r := sampleCharge(sampleKey)
	r.Action = action
	switch action {
	case acquirer.ActionSession:
		r.ReturnURL = "https://shop.example/back"
	case acquirer.ActionCapture, acquirer.ActionReverse, acquirer.ActionRefund:
		r.Object = "ch_1"
	case acquirer.ActionClose:
		r.Object = "cs_1"
	}
	return r
}

func otherSamples() (samples []acquirer.Request) {
	for _, action := range []acquirer.Action{acquirer.ActionSession, acquirer.ActionCapture, acquirer.ActionReverse,
		acquirer.ActionClose, acquirer.ActionRefund} {
		samples = append(samples, sample(action))
	}
	return samples
}

func open(settings string, doer wire.Doer) (acquirer.Adapter, error) {
	s, err := sandbox.ParseSettings([]byte(settings))
	if err != nil {
		return nil, err
	}
	return sandbox.New(s, []byte(secrets), doer)
}

func chargeHead(status string) string {
	return fmt.Sprintf(`{"id":"ch_1","reference":%q,"idempotency_key":%q,"status":%q,`, sampleKey, sampleKey, status)
}

func chargeJSON(status, more string) string {
	return chargeHead(status) + `"amount":18600,"currency":"KWD"` + more + `,"created_at":"2026-01-02T03:04:05Z"}` + "\n"
}

func errorJSON(code string) string {
	return fmt.Sprintf(`{"error":{"code":%q,"message":"in words"}}`+"\n", code)
}

func listJSON(charges ...string) string {
	body := `{"data":[`
	for i, c := range charges {
		if i > 0 {
			body += ","
		}
		body += c
	}
	return body + "]}\n"
}

// actJSON is an act upon ch_1; by is its reference.
func actJSON(kind, id, status, by, more string) string {
	return fmt.Sprintf(`{"id":%q,"kind":%q,"charge":"ch_1","reference":%q,"status":%q,"amount":18600,"currency":"KWD"%s,`+
		`"at":"2026-01-02T03:04:06Z"}`, id, kind, by, status, more)
}

// withActs are the members of a charge that tell what was taken of it, and what was done upon it.
func withActs(captured int, acts ...string) string {
	return fmt.Sprintf(`,"captured_amount":%d,"refunded_amount":0,"acts":[%s]`, captured, strings.Join(acts, ","))
}

func sessionJSON(status, charge, more string) string {
	return fmt.Sprintf(`{"id":"cs_1","reference":%q,"status":%q,"amount":18600,"currency":"KWD","tries":0,`+
		`"expires_at":"2026-01-02T04:04:05Z","page_url":"http://127.0.0.1:9/pay/cs_1","charge":%s%s}`+"\n", sampleKey, status, charge, more)
}

// told is one object in an answer, and what it means in the answer to the call itself, and to a question about it.
type told struct {
	status       int // of the answer to the call; 0: 200
	body         string
	sent, looked acquirer.Outcome
}

func documentedCharges() []told {
	const ok, held, over, unknown = acquirer.OutcomeSucceeded, acquirer.OutcomeHeld, acquirer.OutcomeClosed, acquirer.OutcomeUnknown
	capture := actJSON("capture", "cp_1", "succeeded", "key-of-a-capture", `,"final":true`)
	refund := actJSON("refund", "rf_1", "succeeded", "", "")
	reverse := actJSON("reverse", "rv_1", "succeeded", "key-of-a-reverse", "")
	return []told{
		{body: chargeJSON("succeeded", ""), sent: ok, looked: ok},
		{body: chargeJSON("succeeded", withActs(18600, refund)), sent: ok, looked: ok},
		{body: chargeJSON("processing", withActs(0)), sent: acquirer.OutcomePending, looked: acquirer.OutcomePending},
		{status: 402, body: chargeJSON("declined", `,"reason":"expired_card"`+withActs(0)), sent: acquirer.OutcomeDeclined, looked: acquirer.OutcomeDeclined},
		{body: chargeJSON("action_required", withActs(0)+`,"redirect_url":"http://127.0.0.1:9/challenge/ch_1"`),
			sent: acquirer.OutcomeRegistered, looked: acquirer.OutcomeRegistered},
		{body: chargeJSON("held", withActs(0)+`,"expires_at":"2026-01-09T03:04:05Z"`), sent: held, looked: held},
		{body: chargeJSON("succeeded", withActs(18600, capture)), sent: held, looked: held},
		{body: chargeJSON("reversed", withActs(0, reverse)), sent: over, looked: over},
		{body: chargeJSON("reversed", withActs(18600, reverse)), sent: ok, looked: ok},
		{body: chargeJSON("reversed", withActs(18600, capture, reverse)), sent: held, looked: held},
		{body: chargeJSON("expired", withActs(0)), sent: over, looked: over},
		{body: chargeJSON("executing", ""), sent: unknown, looked: unknown},
	}
}

func documentedPages() []told {
	const ok, held, over = acquirer.OutcomeSucceeded, acquirer.OutcomeHeld, acquirer.OutcomeClosed
	paid := func(status, more string) string { return chargeJSON(status, `,"session":"cs_1"`+more) }
	return []told{
		{body: sessionJSON("open", "null", ""), sent: acquirer.OutcomeRegistered, looked: acquirer.OutcomeRegistered},
		{body: sessionJSON("closed", "null", ""), sent: over, looked: over},
		{body: sessionJSON("expired", "null", ""), sent: over, looked: over},
		{body: sessionJSON("paid", paid("succeeded", withActs(18600)), ""), sent: ok, looked: ok},
		{body: sessionJSON("paid", paid("held", withActs(0)), ""), sent: held, looked: held},
		{body: sessionJSON("paid", paid("expired", withActs(0)), ""), sent: over, looked: over},
		{body: sessionJSON("open", paid("succeeded", withActs(18600)), "")},
		{body: sessionJSON("paid", "null", "")},
	}
}

// documentedClosings are pages once more, in the answers about their closing.
func documentedClosings() []told {
	outcomes := map[string][2]acquirer.Outcome{
		"open": {acquirer.OutcomeUnknown, acquirer.OutcomeNotFound}, "closed": {acquirer.OutcomeSucceeded, acquirer.OutcomeSucceeded},
		"expired": {acquirer.OutcomeSucceeded, acquirer.OutcomeSucceeded}, "paid": {acquirer.OutcomeDeclined, acquirer.OutcomeDeclined},
	}
	pages := documentedPages()
	for i, page := range pages {
		for status, two := range outcomes {
			if strings.Contains(page.body, `"cs_1","reference":"`+sampleKey+`","status":"`+status+`"`) {
				pages[i].sent, pages[i].looked = two[0], two[1]
			}
		}
	}
	pages[6].sent, pages[6].looked = acquirer.OutcomeUnknown, acquirer.OutcomeUnknown // open, and has a charge
	return pages
}

func documentedActs(action acquirer.Action, id string) []told {
	one := func(status, more string) string { return actJSON(string(action), id, status, sampleKey, more) }
	return []told{
		{body: one("succeeded", ""), sent: acquirer.OutcomeSucceeded, looked: acquirer.OutcomeSucceeded},
		{body: one("processing", ""), sent: acquirer.OutcomePending, looked: acquirer.OutcomePending},
		{body: one("failed", `,"code":"account_closed"`), sent: acquirer.OutcomeDeclined, looked: acquirer.OutcomeDeclined},
	}
}

// answersOf are the objects in answers to a call, to a question by our key and, where an id is given, to one by that.
func answersOf(action acquirer.Action, id string, objects []told) (found []acquirertest.Answer) {
	for _, one := range objects {
		found = append(found,
			acquirertest.Answer{Action: action, Status: max(one.status, 200), Body: one.body, Outcome: one.sent})
		if id != "" {
			found = append(found, acquirertest.Answer{Action: action, Lookup: true, Reference: id, Status: 200, Body: one.body, Outcome: one.looked})
		}
		if action != acquirer.ActionClose { // which is asked about by the page's id
			found = append(found, acquirertest.Answer{Action: action, Lookup: true, Status: 200, Body: listJSON(one.body), Outcome: one.looked})
		}
	}
	return found
}

// documentedErrors are the errors that a call can be answered with, and the questions about it.
func documentedErrors(action acquirer.Action, id string, refused ...string) (found []acquirertest.Answer) {
	upon := sample(action).Object != ""
	for _, one := range []struct {
		status  int
		code    string
		outcome acquirer.Outcome
	}{
		{400, "malformed", acquirer.OutcomeRejected}, {401, "unauthorized", acquirer.OutcomeRejected},
		{403, "forbidden", acquirer.OutcomeRejected}, {422, "invalid_value", acquirer.OutcomeRejected},
		{422, "not_supported", acquirer.OutcomeRejected}, {422, "key_reused", acquirer.OutcomeKeyReused},
		{409, "in_flight", acquirer.OutcomeUnknown}, {429, "rate_limited", acquirer.OutcomeUnknown},
		{404, "no_such_call", acquirer.OutcomeUnknown}, {413, "too_large", acquirer.OutcomeUnknown},
		{500, "internal", acquirer.OutcomeUnknown}, {503, "unavailable", acquirer.OutcomeUnknown},
	} {
		found = append(found, acquirertest.Answer{Action: action, Status: one.status, Body: errorJSON(one.code), Outcome: one.outcome})
	}
	for _, code := range refused {
		found = append(found, acquirertest.Answer{Action: action, Status: 422, Body: errorJSON(code), Outcome: acquirer.OutcomeDeclined})
	}
	missing := acquirer.OutcomeUnknown
	if upon {
		missing = acquirer.OutcomeRejected
	}
	found = append(found, acquirertest.Answer{Action: action, Status: 404, Body: errorJSON("not_found"), Outcome: missing},
		acquirertest.Answer{Action: action, Lookup: true, Reference: id, Status: 404, Body: errorJSON("not_found"), Outcome: acquirer.OutcomeUnknown},
		acquirertest.Answer{Action: action, Lookup: true, Status: 422, Body: errorJSON("not_supported"), Outcome: acquirer.OutcomeUnknown})
	if action == acquirer.ActionClose {
		return append(found, acquirertest.Answer{Action: action, Status: 409, Body: errorJSON("already_paid"), Outcome: acquirer.OutcomeDeclined})
	}
	return append(found,
		acquirertest.Answer{Action: action, Status: 409, Body: errorJSON("duplicate_reference"), Outcome: acquirer.OutcomeDuplicate},
		acquirertest.Answer{Action: action, Lookup: true, Status: 404, Body: errorJSON("not_found"), Outcome: acquirer.OutcomeNotFound})
}

// documented is docs/sandbox.md as answers.
func documented() (found []acquirertest.Answer) {
	const charge, session, capture, reverse, refund, closing = acquirer.ActionCharge, acquirer.ActionSession, acquirer.ActionCapture,
		acquirer.ActionReverse, acquirer.ActionRefund, acquirer.ActionClose
	found = slices.Concat(
		answersOf(charge, "ch_1", documentedCharges()), documentedErrors(charge, "ch_1"),
		answersOf(session, "cs_1", documentedPages()), documentedErrors(session, "cs_1"),
		answersOf(closing, "", documentedClosings()), documentedErrors(closing, ""),
		answersOf(capture, "cp_1", documentedActs(capture, "cp_1")), documentedErrors(capture, "cp_1",
			"not_capturable", "already_captured", "exceeds_remaining", "wrong_currency", "partial_not_allowed"),
		answersOf(reverse, "rv_1", documentedActs(reverse, "rv_1")), documentedErrors(reverse, "rv_1",
			"already_captured", "nothing_to_reverse", "too_late"),
		answersOf(refund, "rf_1", documentedActs(refund, "rf_1")), documentedErrors(refund, "rf_1",
			"not_refundable", "exceeds_remaining", "too_late", "wrong_currency", "partial_not_allowed"))
	for _, page := range documentedClosings() {
		found = append(found, acquirertest.Answer{Action: closing, Lookup: true, Status: 200, Body: page.body, Outcome: page.looked})
	}
	for _, one := range documentedCharges() {
		outcome := acquirer.OutcomeUnknown // a charge does not say that its reversal was done
		if strings.HasPrefix(one.body, chargeHead("succeeded")) {
			outcome = acquirer.OutcomeDeclined // it has its money still
		}
		found = append(found, acquirertest.Answer{Action: reverse, Status: 200, Body: one.body, Outcome: outcome})
	}
	declined := chargeJSON("declined", `,"reason":"expired_card"`)
	for _, list := range []struct {
		charges []string
		outcome acquirer.Outcome
	}{
		{[]string{declined, chargeJSON("succeeded", ""), declined}, acquirer.OutcomeSucceeded},
		{[]string{declined, chargeJSON("processing", ""), declined}, acquirer.OutcomePending},
		{many(1, 3), acquirer.OutcomeSucceeded},
		{many(1, 10), acquirer.OutcomeUnknown},
	} {
		found = append(found, acquirertest.Answer{Lookup: true, Status: 200, Body: listJSON(list.charges...), Outcome: list.outcome})
	}
	for i := range found {
		found[i].ContentType = "application/json"
	}
	return found
}

func factory(settings string) acquirertest.Factory {
	return acquirertest.Factory{
		Open:   func(doer wire.Doer) (acquirer.Adapter, error) { return open(settings, doer) },
		Charge: sampleCharge(sampleKey), Others: otherSamples(), Answers: documented(),
	}
}

func TestConformance(t *testing.T) { acquirertest.Run(t, factory(anyURL)) }

// TestCase023_OnlyProvablyNotSentIsNotSent plays every failure of the case, and more, against the adapter over real
// connections.
func TestCase023_OnlyProvablyNotSentIsNotSent(t *testing.T) {
	acquirertest.RunTransport(t, factory(anyURL))
}
