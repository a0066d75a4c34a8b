package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hapaxpay/hapax/internal/problem"
)

const (
	card   = "4111111111111111"
	secret = "SeCrEt" // a value that no answer may repeat
)

// TestBadInput: every row is refused before anything is stored, with the field's name and without its value.
func TestBadInput(t *testing.T) {
	intent := intentID.Text("pi_")
	inline := func(members string) string {
		return `{"amount":100,"currency":"USD","payment_method":"pm_ok"` + members + `}`
	}
	byID := func(members string) string {
		return `{"payment_intent":"` + intent + `","payment_method":"pm_ok"` + members + `}`
	}
	hosted := func(back string) string {
		return `{"amount":100,"currency":"USD","flow":"hosted","return_url":"` + back + `"}`
	}
	rows := []struct {
		name, body string
		code       problem.Code
		field      string
	}{
		{"empty body", "", problem.Malformed, ""},
		{"blanks", " \n", problem.Malformed, ""},
		{"not JSON", "amount=1", problem.Malformed, ""},
		{"cut off", `{"amount":100`, problem.Malformed, ""},
		{"array", `[]`, problem.Malformed, ""},
		{"null", `null`, problem.Malformed, ""},
		{"byte order mark", "\xef\xbb\xbf" + inline(""), problem.Malformed, ""},
		{"invalid UTF-8", inline(`,"customer":"` + "\xff" + `"`), problem.Malformed, ""},
		{"half a surrogate pair", inline(`,"customer":"\ud83d"`), problem.Malformed, "customer"},
		{"second half first", inline(`,"customer":"\udc00\ud83d"`), problem.Malformed, "customer"},
		{"U+0000", inline(`,"customer":"a\u0000b"`), problem.Malformed, "customer"},
		{"trailing object", inline("") + `{}`, problem.Malformed, ""},
		{"trailing word", inline("") + ` x`, problem.Malformed, ""},
		{"trailing comma", `{"amount":100,}`, problem.Malformed, ""},
		{"unknown member", inline(`,"tip":1`), problem.Malformed, "tip"},
		{"unknown member with a card in its name", inline(`,"` + card + `":1`), problem.Malformed, ""},
		{"unknown member with a long name", inline(`,"` + strings.Repeat("x", 65) + `":1`), problem.Malformed, ""},
		{"member twice", inline(`,"amount":100`), problem.Malformed, "amount"},
		{"member in other case", `{"Amount":100,"currency":"USD","payment_method":"pm_ok"}`, problem.Malformed, "amount"},
		{"member twice, once in other case", inline(`,"AMOUNT":1`), problem.Malformed, "amount"},
		{"escaped name twice", inline(`,"\u0061mount":1`), problem.Malformed, "amount"},
		{"metadata member twice", inline(`,"metadata":{"a":1,"a":1}`), problem.Malformed, "metadata"},
		{"metadata members differing in case", inline(`,"metadata":{"x":{"id":1,"ID":2}}`), problem.Malformed, "metadata"},
		{"metadata members differing by a Kelvin sign", inline(`,"metadata":{"k":1,"` + "\u212a" + `":2}`), problem.Malformed, "metadata"},
		{"metadata too deep", inline(`,"metadata":` + strings.Repeat(`{"a":`, maxDepth) + `1` + strings.Repeat(`}`, maxDepth)), problem.Malformed, "metadata"},
		{"metadata an array", inline(`,"metadata":[]`), problem.Malformed, "metadata"},
		{"amount as text", `{"amount":"100","currency":"USD","payment_method":"pm_ok"}`, problem.Malformed, "amount"},
		{"currency as number", `{"amount":100,"currency":840,"payment_method":"pm_ok"}`, problem.Malformed, "currency"},
		{"customer as object", inline(`,"customer":{}`), problem.Malformed, "customer"},
		{"amount missing", `{"currency":"USD","payment_method":"pm_ok"}`, problem.Malformed, "amount"},
		{"amount null", `{"amount":null,"currency":"USD","payment_method":"pm_ok"}`, problem.Malformed, "amount"},
		{"currency missing", `{"amount":100,"payment_method":"pm_ok"}`, problem.Malformed, "currency"},
		{"method missing", `{"amount":100,"currency":"USD"}`, problem.Malformed, "payment_method"},
		{"intent and client reference", byID(`,"client_reference":"A-1"`), problem.Malformed, "client_reference"},
		{"intent and metadata", byID(`,"metadata":{}`), problem.Malformed, "metadata"},
		{"intent and pay_before", byID(`,"pay_before":"2030-01-01T00:00:00Z"`), problem.Malformed, "pay_before"},
		{"not an intent's id", `{"payment_intent":"` + secret + `","payment_method":"pm_ok"}`, problem.NotFound, "payment_intent"},
		{"a payment's id", `{"payment_intent":"` + intentID.Text("pay_") + `","payment_method":"pm_ok"}`, problem.NotFound, "payment_intent"},
		{"amount beside the intent not above zero", byID(`,"amount":0`), problem.InvalidValue, "amount"},
		{"empty reference", inline(`,"client_reference":""`), problem.InvalidValue, "client_reference"},
		{"reference with blanks at its end", inline(`,"client_reference":"A-1 "`), problem.InvalidValue, "client_reference"},
		{"reference with a zero-width character", inline(`,"client_reference":"A` + "\u200b" + `1"`), problem.InvalidValue, "client_reference"},
		{"long reference", inline(`,"client_reference":"` + strings.Repeat("к", 128) + `"`), problem.InvalidValue, "client_reference"},
		{"line break in customer", inline(`,"customer":"a\nb"`), problem.InvalidValue, "customer"},
		{"long customer", inline(`,"customer":"` + strings.Repeat("c", 256) + `"`), problem.InvalidValue, "customer"},
		{"escape character in description", inline(`,"description":"\u001b[31m"`), problem.InvalidValue, "description"},
		{"long description", inline(`,"description":"` + strings.Repeat("d", 1001) + `"`), problem.InvalidValue, "description"},
		{"address with a name", inline(`,"receipt_email":"Ann <ann@shop.example>"`), problem.InvalidValue, "receipt_email"},
		{"address with a second header", inline(`,"receipt_email":"ann@shop.example\r\nBcc: all@shop.example"`), problem.InvalidValue, "receipt_email"},
		{"two addresses", inline(`,"receipt_email":"ann@shop.example,bob@shop.example"`), problem.InvalidValue, "receipt_email"},
		{"empty address", inline(`,"receipt_email":""`), problem.InvalidValue, "receipt_email"},
		{"long address", inline(`,"receipt_email":"a@` + strings.Repeat("b.", 126) + `c"`), problem.InvalidValue, "receipt_email"},
		{"card in an address", inline(`,"receipt_email":"` + card + `@shop.example"`), problem.LooksLikeCardNumber, "receipt_email"},
		{"address as a list", inline(`,"receipt_email":["ann@shop.example"]`), problem.Malformed, "receipt_email"},
		{"intent and address", byID(`,"receipt_email":"ann@shop.example"`), problem.Malformed, "receipt_email"},
		{"long metadata", inline(`,"metadata":{"a":"` + strings.Repeat("m", maxMetadata) + `"}`), problem.InvalidValue, "metadata"},
		{"card as method", `{"amount":100,"currency":"USD","payment_method":"4111 1111 1111 1111"}`, problem.LooksLikeCardNumber, "payment_method"},
		{"rare card as method", `{"amount":100,"currency":"USD","payment_method":"9999999999992"}`, problem.LooksLikeCardNumber, "payment_method"},
		{"card as reference", inline(`,"client_reference":"` + card + `"`), problem.LooksLikeCardNumber, "client_reference"},
		{"card as customer", inline(`,"customer":"5555-5555-5555-4444"`), problem.LooksLikeCardNumber, "customer"},
		{"card in a description", inline(`,"description":"paid by ` + card + `, thanks"`), problem.LooksLikeCardNumber, "description"},
		{"card in metadata", inline(`,"metadata":{"a":[{"b":"` + card + `"}]}`), problem.LooksLikeCardNumber, "metadata"},
		{"card as a number in metadata", inline(`,"metadata":{"a":` + card + `}`), problem.LooksLikeCardNumber, "metadata"},
		{"card as a name in metadata", inline(`,"metadata":{"` + card + `":1}`), problem.LooksLikeCardNumber, "metadata"},
		{"card in the return address", inline(`,"return_url":"https://shop.example/?c=` + card + `"`), problem.LooksLikeCardNumber, "return_url"},
		{"empty method", `{"amount":100,"currency":"USD","payment_method":""}`, problem.InvalidValue, "payment_method"},
		{"method with a blank", `{"amount":100,"currency":"USD","payment_method":"pm ok"}`, problem.InvalidValue, "payment_method"},
		{"long method", `{"amount":100,"currency":"USD","payment_method":"` + strings.Repeat("p", 256) + `"}`, problem.InvalidValue, "payment_method"},
		{"hosted without a way back", `{"amount":100,"currency":"USD","flow":"hosted"}`, problem.Malformed, "return_url"},
		{"hosted with a card as method", `{"amount":100,"currency":"USD","payment_method":"` + card + `","flow":"hosted","return_url":"https://shop.example/"}`, problem.LooksLikeCardNumber, "payment_method"},
		{"hosted with an empty method", `{"amount":100,"currency":"USD","payment_method":"","flow":"hosted","return_url":"https://shop.example/"}`, problem.InvalidValue, "payment_method"},
		{"direct in words and no method", `{"amount":100,"currency":"USD","flow":"direct","return_url":"https://shop.example/"}`, problem.Malformed, "payment_method"},
		{"flow as a boolean", inline(`,"flow":true`), problem.Malformed, "flow"},
		{"unknown flow", inline(`,"flow":"` + secret + `"`), problem.InvalidValue, "flow"},
		{"unknown capture", inline(`,"capture_method":"` + secret + `"`), problem.InvalidValue, "capture_method"},
		{"no time", inline(`,"pay_before":"` + secret + `"`), problem.InvalidValue, "pay_before"},
		{"time without zone", inline(`,"pay_before":"2030-01-01T00:00:00"`), problem.InvalidValue, "pay_before"},
		{"sloppy time", inline(`,"pay_before":"2030-01-01T1:00:00,5Z"`), problem.InvalidValue, "pay_before"},
		{"relative address", inline(`,"return_url":"/` + secret + `"`), problem.InvalidValue, "return_url"},
		{"script address", inline(`,"return_url":"javascript:alert(1)"`), problem.InvalidValue, "return_url"},
		{"address by http", hosted("http://shop.example/" + secret), problem.InvalidValue, "return_url"},
		{"address by http on this machine", hosted("http://127.0.0.1:8000/" + secret), problem.InvalidValue, "return_url"},
		{"address without a host", hosted("https://:443/" + secret), problem.InvalidValue, "return_url"},
		{"address without a scheme", hosted("//shop.example/" + secret), problem.InvalidValue, "return_url"},
		{"long address", hosted("https://shop.example/" + strings.Repeat("r", maxURL)), problem.InvalidValue, "return_url"},
		{"address with a password", inline(`,"return_url":"https://me:` + secret + `@shop.example/"`), problem.InvalidValue, "return_url"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, nil)
			a := w.post("/v1/payments", row.body)
			w.refused(a, row.code, row.field)
			for _, value := range []string{secret, card, "5555-5555"} {
				if strings.Contains(a.body, value) || strings.Contains(w.log.String(), value) {
					t.Fatalf("the refused value is repeated: %s", a.body)
				}
			}
		})
	}
}

// TestCase053_AmountsOutsideTheRange (edge): what 64 bits or the documented maximum cannot hold is refused here, so
// that no sum of stored amounts wraps around.
func TestCase053_AmountsOutsideTheRange(t *testing.T) {
	rows := []struct {
		literal string
		code    problem.Code
	}{
		{"9223372036854775807", problem.InvalidValue},
		{"9223372036854775808", problem.Malformed},
		{"99999999999999999999999999", problem.Malformed},
		{"1000000000000", problem.InvalidValue},
		{"1e18", problem.Malformed},
		{"1E2", problem.Malformed},
		{"1.0", problem.Malformed},
		{"1.5", problem.Malformed},
		{"-1", problem.InvalidValue},
		{"-9223372036854775808", problem.InvalidValue},
		{"0", problem.InvalidValue},
		{"-0", problem.InvalidValue},
		{"01", problem.Malformed},
		{"+1", problem.Malformed},
		{"0x10", problem.Malformed},
		{"NaN", problem.Malformed},
		{"999999999999", ""},
		{"2147483648", ""},
	}
	for _, row := range rows {
		for _, target := range []string{"/v1/payments", "/v1/payment_intents"} {
			w := newWorld(t, nil)
			body := `{"amount":` + row.literal + `,"currency":"USD"`
			if target == "/v1/payments" {
				body += `,"payment_method":"pm_ok"`
			}
			a := w.post(target, body+`}`)
			switch {
			case row.code == "" && a.status != 201:
				t.Errorf("%s is refused: %s", row.literal, a.body)
			case row.code != "" && (a.Code != string(row.code) || a.Field != "amount" && json.Valid([]byte(row.literal))):
				t.Errorf("%s: want %s, got %s", row.literal, row.code, a.body)
			}
		}
	}
}

// TestCase054_OneFormOfACurrency (edge): nothing but the canonical code comes in.
func TestCase054_OneFormOfACurrency(t *testing.T) {
	for _, code := range []string{"usd", "Usd", " USD", "USD ", "US" + "\u200b" + "D", "USD" + "\u200b", "US", "USDD", "XXX", "XTS", "DEM", "ЅUSD", ""} {
		w := newWorld(t, nil)
		w.refused(w.post("/v1/payment_intents", `{"amount":1,"currency":"`+code+`"}`), problem.InvalidValue, "currency")
		w.refused(w.post("/v1/payments", `{"payment_intent":"`+intentID.Text("pi_")+`","payment_method":"pm_ok","currency":"`+code+`"}`), problem.InvalidValue, "currency")
	}
}

// minorUnits demands that a number of minor units comes in as it is, and means this in the currency's digits.
func minorUnits(t *testing.T, minor int64, decimals map[string]string) {
	t.Helper()
	for currency, decimal := range decimals {
		w := newWorld(t, nil)
		w.post("/v1/payment_intents", fmt.Sprintf(`{"amount":%d,"currency":%q}`, minor, currency))
		if got := w.service.intents[0].Intent.Amount; got.Minor() != minor || got.Decimal() != decimal {
			t.Errorf("%s: %s", currency, got)
		}
	}
}

// TestCase049_NoDecimals (edge): 500 yen are 500.
func TestCase049_NoDecimals(t *testing.T) {
	minorUnits(t, 500, map[string]string{"JPY": "500", "KRW": "500", "CLP": "500", "USD": "5.00"})
}

// TestCase050_ThreeDecimals (edge): 18600 are 18.600 dinars, to the last digit.
func TestCase050_ThreeDecimals(t *testing.T) {
	minorUnits(t, 18600, map[string]string{"KWD": "18.600", "BHD": "18.600", "JOD": "18.600"})
	minorUnits(t, 1, map[string]string{"JOD": "0.001"})
}

// TestCase052_DigitsOfBigNumbers (edge): numbers in metadata come in and go out with the digits that were sent.
func TestCase052_DigitsOfBigNumbers(t *testing.T) {
	w := newWorld(t, nil)
	w.post("/v1/payment_intents", `{"amount":1,"currency":"USD","metadata":{ "z": 2932809024865746956, "a": [9007199254740993, 1e2, 1.10, -0], "t":"<&>\u00e9" }}`)
	want := `{"a":[9007199254740993,1e2,1.10,-0],"t":"<&>é","z":2932809024865746956}`
	if got := *w.service.intents[0].Intent.Metadata; got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

func TestForm(t *testing.T) {
	const good = `{"amount":1,"currency":"USD"}`
	rows := []struct {
		name   string
		change func(*http.Request)
		code   problem.Code
		field  string
	}{
		{"no content type", func(r *http.Request) { r.Header.Del("Content-Type") }, problem.UnsupportedMediaType, "Content-Type"},
		{"form", func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }, problem.UnsupportedMediaType, "Content-Type"},
		{"text", func(r *http.Request) { r.Header.Set("Content-Type", "text/plain; charset=utf-8") }, problem.UnsupportedMediaType, "Content-Type"},
		{"other JSON", func(r *http.Request) { r.Header.Set("Content-Type", "application/merge-patch+json") }, problem.UnsupportedMediaType, "Content-Type"},
		{"Latin-1", func(r *http.Request) { r.Header.Set("Content-Type", "application/json; charset=iso-8859-1") }, problem.UnsupportedMediaType, "Content-Type"},
		{"compressed", func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, problem.UnsupportedMediaType, "Content-Encoding"},
		{"query on a command", func(r *http.Request) { r.URL.RawQuery = "dry_run=true" }, problem.Malformed, "dry_run"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, nil)
			r := w.request(http.MethodPost, "/v1/payment_intents", good)
			row.change(r)
			a := w.do(r)
			w.refused(a, row.code, row.field)
			if told := strings.Contains(a.Detail, "charset must be UTF-8"); told != (row.name == "Latin-1") {
				t.Errorf("told: %s", a.Detail)
			}
		})
	}
	w := newWorld(t, nil)
	r := w.request(http.MethodPost, "/v1/payment_intents", good)
	r.Header.Set("Content-Type", "application/json; charset=UTF-8")
	if a := w.do(r); a.status != 201 {
		t.Fatalf("UTF-8 is refused: %s", a.body)
	}
}

func TestBodyLimit(t *testing.T) {
	body := func(size int) string {
		const start = `{"amount":1,"currency":"USD"`
		return start + strings.Repeat(" ", size-len(start)-1) + "}"
	}
	w := newWorld(t, nil)
	if a := w.post("/v1/payment_intents", body(MaxBody+1)); a.Code != string(problem.TooLarge) {
		t.Fatalf("one byte too many: %d %s", a.status, a.body)
	}
	if a := w.post("/v1/payment_intents", body(MaxBody)); a.status != 201 {
		t.Fatalf("the largest body: %d %s", a.status, a.body)
	}
}

func TestOptionalMembers(t *testing.T) {
	w := newWorld(t, nil)
	w.post("/v1/payments", `{"amount":100,"currency":"USD","payment_method":"pm_declined_do_not_honor|pm_ok","client_reference":"Заказ 1700000000000","customer":null,
		"description":"","metadata":{},"capture_method":"automatic","pay_before":"2030-01-01T02:00:00.1234567+02:00","flow":"direct","return_url":"https://shop.example/back?x=1","receipt_email":"Ann.O'Neil+1@mail.shop.example"}`)
	if len(w.service.payments) != 1 {
		t.Fatal("refused")
	}
	c := w.service.payments[0]
	f := c.Inline
	switch {
	case c.Merchant != merchant || c.Key != "order-1" || c.RequestID == "" || !c.IntentID.IsZero():
		t.Fatalf("command: %+v", c)
	case *f.ClientReference != "Заказ 1700000000000" || f.Customer != nil || *f.Description != "" || *f.Metadata != "{}" || *f.Capture != "automatic" || *f.Receipt != "Ann.O'Neil+1@mail.shop.example":
		t.Fatalf("fields: %+v", f)
	case f.PayBefore.Format("2006-01-02T15:04:05.000000Z07:00") != "2030-01-01T00:00:00.123456Z":
		t.Fatalf("pay_before: %v", f.PayBefore)
	case c.Method != "pm_declined_do_not_honor|pm_ok" || c.Flow != "direct" || *c.ReturnURL != "https://shop.example/back?x=1":
		t.Fatalf("payment: %+v", c)
	}
	w.post("/v1/payments", `{"payment_intent":"`+intentID.Text("pi_")+`","payment_method":"pm_ok","amount":5}`)
	if c := w.service.payments[1]; c.IntentID != intentID || c.Inline != nil || *c.Minor != 5 || c.Currency != nil || c.Flow != "direct" || c.ReturnURL != nil {
		t.Fatalf("by id: %+v", c)
	}
}
