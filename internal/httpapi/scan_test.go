package httpapi

import (
	"encoding/json"
	"testing"

	"github.com/hapaxpay/hapax/internal/payment"
)

// FuzzScan: what the scan lets through is JSON, decodes into the contract's types without an error, and its metadata
// have one form; nothing panics.
func FuzzScan(f *testing.F) {
	seeds := []string{`{}`, `{"amount":1,"currency":"USD","payment_method":"pm_ok"}`, `{"amount":1e3}`, `{"amount":1,"amount":1}`, `{"Amount":1}`,
		`{"metadata":{"a":[1,{"b":"\ud83d\ude42"}],"c":null}}`, `{"metadata":{"a":1,"A":1}}`, `{"customer":"\ud83d"}`, `{"customer":"\u0000"}`, `{"a":`, `{"a"`, `{"metadata":{]}}`,
		`[]`, `null`, `{"x":}`, `{"amount":9223372036854775808}`, `{"metadata":{"n":1e400}} `, `{"metadata":null,"customer":null}`, "{\"customer\":\"\xff\"}", `{"amount":1}{}`, `{"\u0061mount":7}`}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	c := newContract("test")
	_, members := c.takes(PaymentRequest{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		if p := scan(raw, members); p != nil {
			return
		}
		if !json.Valid(raw) {
			t.Fatal("let through what is not JSON")
		}
		var body PaymentRequest
		decode(raw, &body) // panics where the scan has a hole
		if body.Metadata == nil {
			return
		}
		form, _, err := canonical(body.Metadata)
		if err != nil {
			t.Fatalf("metadata: %v", err)
		}
		again, _, err := canonical([]byte(form))
		if err != nil || again != form {
			t.Fatalf("two forms: %s and %s (%v)", form, again, err)
		}
	})
}

func TestHoldsCard(t *testing.T) {
	yes := []string{"4111111111111111", "4111 1111 1111 1111", "5555-5555-5555-4444", "378282246310005", "2200000000000004",
		"card:4111111111111111.", "x 4111111111111111 y"}
	no := []string{"", "1700000000000", "9007199254740993", "2932809024865746956", "4111111111111112", "+49 170 1234567",
		"20260301120000123", "a4b1c1d1", "411111111111111", "1234567812345670"}
	for _, s := range yes {
		if !holdsCard(s) {
			t.Errorf("%q passes", s)
		}
	}
	for _, s := range no {
		if holdsCard(s) {
			t.Errorf("%q is refused", s)
		}
	}
	if !payment.LooksLikeCard("1234567812345670") {
		t.Error("the last row must have a right check digit, or it shows nothing")
	}
}
