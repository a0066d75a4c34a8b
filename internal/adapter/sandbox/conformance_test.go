package sandbox_test

import (
	"fmt"
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

func open(settings string, doer wire.Doer) (acquirer.Adapter, error) {
	s, err := sandbox.ParseSettings([]byte(settings))
	if err != nil {
		return nil, err
	}
	return sandbox.New(s, []byte(secrets), doer)
}

func chargeJSON(status, more string) string {
	return fmt.Sprintf(`{"id":"ch_1","reference":%q,"idempotency_key":%q,"status":%q,"amount":18600,"currency":"KWD"%s,`+
		`"created_at":"2026-01-02T03:04:05Z"}`+"\n", sampleKey, sampleKey, status, more)
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

// documented is docs/sandbox.md as answers.
func documented() []acquirertest.Answer {
	const jsonType = "application/json"
	declined := chargeJSON("declined", `,"reason":"expired_card"`)
	found := []acquirertest.Answer{
		{Status: 200, Body: chargeJSON("succeeded", ""), Outcome: acquirer.OutcomeSucceeded},
		{Status: 200, Body: chargeJSON("processing", ""), Outcome: acquirer.OutcomePending},
		{Status: 402, Body: declined, Outcome: acquirer.OutcomeDeclined},
		{Status: 409, Body: errorJSON("in_flight"), Outcome: acquirer.OutcomeUnknown},
		{Status: 409, Body: errorJSON("duplicate_reference"), Outcome: acquirer.OutcomeDuplicate},
		{Status: 422, Body: errorJSON("key_reused"), Outcome: acquirer.OutcomeKeyReused},
		{Status: 429, Body: errorJSON("rate_limited"), Outcome: acquirer.OutcomeUnknown},
		{Status: 404, Body: errorJSON("no_such_call"), Outcome: acquirer.OutcomeUnknown},
		{Status: 413, Body: errorJSON("too_large"), Outcome: acquirer.OutcomeUnknown},
		{Status: 500, Body: errorJSON("internal"), Outcome: acquirer.OutcomeUnknown},
		{Status: 503, Body: errorJSON("unavailable"), Outcome: acquirer.OutcomeUnknown},
		{Lookup: true, Status: 200, Body: listJSON(chargeJSON("succeeded", "")), Outcome: acquirer.OutcomeSucceeded},
		{Lookup: true, Status: 200, Body: listJSON(chargeJSON("processing", "")), Outcome: acquirer.OutcomePending},
		{Lookup: true, Status: 200, Body: listJSON(declined), Outcome: acquirer.OutcomeDeclined},
		{Lookup: true, Status: 200, Body: listJSON(declined, chargeJSON("succeeded", ""), declined), Outcome: acquirer.OutcomeSucceeded},
		{Lookup: true, Status: 200, Body: listJSON(declined, chargeJSON("processing", ""), declined), Outcome: acquirer.OutcomePending},
		{Lookup: true, Status: 200, Body: listJSON(many(1, 3)...), Outcome: acquirer.OutcomeSucceeded},
		{Lookup: true, Status: 200, Body: listJSON(many(1, 10)...), Outcome: acquirer.OutcomeUnknown},
		{Lookup: true, Status: 404, Body: errorJSON("not_found"), Outcome: acquirer.OutcomeNotFound},
		{Lookup: true, Status: 422, Body: errorJSON("not_supported"), Outcome: acquirer.OutcomeUnknown},
		{Lookup: true, Reference: "ch_1", Status: 200, Body: chargeJSON("succeeded", ""), Outcome: acquirer.OutcomeSucceeded},
		{Lookup: true, Reference: "ch_1", Status: 200, Body: chargeJSON("processing", ""), Outcome: acquirer.OutcomePending},
		{Lookup: true, Reference: "ch_1", Status: 200, Body: declined, Outcome: acquirer.OutcomeDeclined},
		{Lookup: true, Reference: "ch_1", Status: 404, Body: errorJSON("not_found"), Outcome: acquirer.OutcomeUnknown},
	}
	for _, one := range []struct {
		status int
		code   string
	}{{400, "malformed"}, {401, "unauthorized"}, {403, "forbidden"}, {422, "invalid_value"}, {422, "not_supported"}} {
		found = append(found,
			acquirertest.Answer{Status: one.status, Body: errorJSON(one.code), Outcome: acquirer.OutcomeRejected})
	}
	for i := range found {
		found[i].ContentType = jsonType
	}
	return found
}

func factory(settings string) acquirertest.Factory {
	return acquirertest.Factory{
		Open:   func(doer wire.Doer) (acquirer.Adapter, error) { return open(settings, doer) },
		Charge: sampleCharge(sampleKey), Answers: documented(),
	}
}

func TestConformance(t *testing.T) { acquirertest.Run(t, factory(anyURL)) }

// TestCase023_OnlyProvablyNotSentIsNotSent plays every failure of the case, and more, against the adapter over real
// connections.
func TestCase023_OnlyProvablyNotSentIsNotSent(t *testing.T) {
	acquirertest.RunTransport(t, factory(anyURL))
}
