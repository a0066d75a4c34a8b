package app

import (
	"bytes"
	"log"
	"log/slog"
	"strings"
	"testing"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/flow"
)

// What net/http quotes of an unexpected answer stays out of the log.
func TestTheStandardLoggerLeaksNoBytes(t *testing.T) {
	var out bytes.Buffer
	standard := log.New(Wordless(slog.New(slog.NewJSONHandler(&out, nil))), "", 0)
	standard.Printf("Unsolicited response received on idle HTTP channel starting with %q; err=%v", "4111111111111111", nil)
	if strings.Contains(out.String(), "4111") || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("logged: %s", &out)
	}
}

// A silent replica knows what is promised and calls nobody.
func TestSilentAcquirersCallNobody(t *testing.T) {
	a, err := contracts{}.For(flow.Account{Adapter: "sandbox", Settings: []byte(`{"url":"http://127.0.0.1:1","contract":{"repeat_budget":3}}`)})
	if err != nil {
		t.Fatal(err)
	}
	if a.Contract().MaxSends() != 3 {
		t.Errorf("another contract than the account's: %+v", a.Contract())
	}
	if _, err := a.Prepare(acquirer.Request{}); err == nil {
		t.Error("a charge was prepared")
	}
	if r := a.Send(t.Context(), acquirer.Prepared{}, nil); r.Outcome != acquirer.OutcomeNotSent || r.BytesWritten != 0 || r.Class == "" {
		t.Errorf("%+v", r)
	}
	if r := a.Lookup(t.Context(), acquirer.Query{}); r.Outcome != acquirer.OutcomeUnknown || r.Class == "" {
		t.Errorf("%+v", r)
	}
	if _, err := (contracts{}).For(flow.Account{Adapter: "nobody"}); err == nil {
		t.Error("an adapter that does not exist has a contract")
	}
}
