package httpapi

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/money"
)

var payID = id.New(noon, [10]byte{4})

func of(path string) string { return present.PaymentPath(payID) + "/" + path }

// requestOf gives the request id of a command, which differs from one request to the next.
func (w *world) requestOf(a told) string { return a.header.Get("Request-Id") }

// TestChanges: what a client says of a payment that exists comes through as it was meant.
func TestChanges(t *testing.T) {
	minor := func(v int64) *int64 { return &v }
	usd, yes, no, reason := money.Currency("USD"), true, false, "returned"
	pay := payID.Text("pay_")
	rows := []struct {
		name, target, body string
		want               func(requestID string) any
	}{
		{"capture of all", of("capture"), "", func(r string) any {
			return flow.CapturePaymentCommand{Merchant: merchant, Key: "order-1", RequestID: r, Payment: payID}
		}},
		{"capture of a part", of("capture"), `{"amount":5,"currency":"USD","final":false}`, func(r string) any {
			return flow.CapturePaymentCommand{Merchant: merchant, Key: "order-1", RequestID: r, Payment: payID, Minor: minor(5), Currency: &usd, Final: &no}
		}},
		{"last capture", of("capture"), `{"amount":null,"final":true}`, func(r string) any {
			return flow.CapturePaymentCommand{Merchant: merchant, Key: "order-1", RequestID: r, Payment: payID, Final: &yes}
		}},
		{"cancel", of("cancel"), " \n", func(r string) any {
			return flow.CancelPaymentCommand{Merchant: merchant, Key: "order-1", RequestID: r, Payment: payID}
		}},
		{"cancel with a code", of("cancel"), `{"code":"123456"}`, func(r string) any {
			return flow.CancelPaymentCommand{Merchant: merchant, Key: "order-1", RequestID: r, Payment: payID, Code: "123456"}
		}},
		{"code", of("cancel_code"), "{}", func(r string) any {
			return flow.IssueCancelCodeCommand{Merchant: merchant, Key: "order-1", RequestID: r, Payment: payID}
		}},
		{"refund of all", "/v1/refunds", `{"payment":"` + pay + `"}`, func(r string) any {
			return flow.CreateRefundCommand{Merchant: merchant, Key: "order-1", RequestID: r, Payment: payID}
		}},
		{"refund of a part", "/v1/refunds", `{"payment":"` + pay + `","amount":7,"currency":"USD","reason":"returned","kind":"refund"}`, func(r string) any {
			return flow.CreateRefundCommand{Merchant: merchant, Key: "order-1", RequestID: r, Payment: payID, Minor: minor(7), Currency: &usd, Reason: &reason}
		}},
		{"reversal", "/v1/refunds", `{"payment":"` + pay + `","kind":"reversal"}`, func(r string) any {
			return flow.CreateRefundCommand{Merchant: merchant, Key: "order-1", RequestID: r, Payment: payID, Reversal: true}
		}},
		{"check", of("check"), "", func(r string) any { return checked{merchant, payID, r} }},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, nil)
			a := w.post(row.target, row.body)
			if a.status != 201 || len(w.service.changes) != 1 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			if got, want := w.service.changes[0], row.want(w.requestOf(a)); !reflect.DeepEqual(got, want) {
				t.Fatalf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

// TestBadChanges: every row is refused before anything is stored or sent, with the field's name and without its value.
func TestBadChanges(t *testing.T) {
	refund := func(members string) string { return `{"payment":"` + payID.Text("pay_") + `"` + members + `}` }
	rows := []struct {
		name, target, body string
		code               problem.Code
		field              string
	}{
		{"capture of nothing", of("capture"), `{"amount":0}`, problem.InvalidValue, "amount"},
		{"capture below zero", of("capture"), `{"amount":-1}`, problem.InvalidValue, "amount"},
		{"capture above the largest amount", of("capture"), `{"amount":1000000000000}`, problem.InvalidValue, "amount"},
		{"capture of a fraction", of("capture"), `{"amount":1.5}`, problem.Malformed, "amount"},
		{"capture in words", of("capture"), `{"amount":"5"}`, problem.Malformed, "amount"},
		{"capture in a currency that is none", of("capture"), `{"currency":"` + secret + `"}`, problem.InvalidValue, "currency"},
		{"final in words", of("capture"), `{"final":"true"}`, problem.Malformed, "final"},
		{"final as a number", of("capture"), `{"final":1}`, problem.Malformed, "final"},
		{"final twice", of("capture"), `{"final":true,"final":false}`, problem.Malformed, "final"},
		{"final in another case", of("capture"), `{"Final":true}`, problem.Malformed, "final"},
		{"capture with another's member", of("capture"), `{"code":"1"}`, problem.Malformed, "code"},
		{"capture with an array", of("capture"), `[]`, problem.Malformed, ""},
		{"capture with null", of("capture"), `null`, problem.Malformed, ""},
		{"capture with rubbish behind", of("capture"), `{} x`, problem.Malformed, ""},
		{"cancel with a code as a number", of("cancel"), `{"code":123456}`, problem.Malformed, "code"},
		{"cancel with an empty code", of("cancel"), `{"code":""}`, problem.CodeInvalid, "code"},
		{"cancel with a code of blanks", of("cancel"), `{"code":"` + secret + ` 1"}`, problem.CodeInvalid, "code"},
		{"cancel with a long code", of("cancel"), `{"code":"` + strings.Repeat(secret, 11) + `"}`, problem.CodeInvalid, "code"},
		{"cancel of an amount", of("cancel"), `{"amount":1}`, problem.Malformed, "amount"},
		{"code with a member", of("cancel_code"), `{"code":"` + secret + `"}`, problem.Malformed, "code"},
		{"check with a member", of("check"), `{"force":true}`, problem.Malformed, "force"},
		{"refund of no payment", "/v1/refunds", `{"amount":1}`, problem.Malformed, "payment"},
		{"refund without a body", "/v1/refunds", ``, problem.Malformed, ""},
		{"refund of null", "/v1/refunds", `{"payment":null}`, problem.Malformed, "payment"},
		{"refund of what is not a payment", "/v1/refunds", `{"payment":"` + secret + `"}`, problem.NotFound, "payment"},
		{"refund of an intent", "/v1/refunds", `{"payment":"` + intentID.Text("pi_") + `"}`, problem.NotFound, "payment"},
		{"refund of nothing", "/v1/refunds", refund(`,"amount":0`), problem.InvalidValue, "amount"},
		{"refund with an exponent", "/v1/refunds", refund(`,"amount":1e2`), problem.Malformed, "amount"},
		{"refund in lower case", "/v1/refunds", refund(`,"currency":"usd"`), problem.InvalidValue, "currency"},
		{"refund of another kind", "/v1/refunds", refund(`,"kind":"` + secret + `"`), problem.InvalidValue, "kind"},
		{"compensation by a client", "/v1/refunds", refund(`,"kind":"compensation"`), problem.InvalidValue, "kind"},
		{"refund with a card as reason", "/v1/refunds", refund(`,"reason":"to ` + card + `"`), problem.LooksLikeCardNumber, "reason"},
		{"refund with a long reason", "/v1/refunds", refund(`,"reason":"` + strings.Repeat("r", maxReason+1) + `"`), problem.InvalidValue, "reason"},
		{"refund with a line break in its reason", "/v1/refunds", refund(`,"reason":"a\nb"`), problem.InvalidValue, "reason"},
		{"refund that names a merchant", "/v1/refunds", refund(`,"merchant":"` + merchant.Text(id.Merchant) + `"`), problem.Malformed, "merchant"},
	}
	for _, path := range []string{"capture", "cancel", "cancel_code", "check"} {
		for _, pay := range []string{secret, payID.Text("pi_"), strings.ToUpper(payID.Text("pay_")), payID.Text("pay_") + "0"} {
			rows = append(rows, struct {
				name, target, body string
				code               problem.Code
				field              string
			}{path + " of " + pay, "/v1/payments/" + pay + "/" + path, "", problem.NotFound, "id"})
		}
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, nil)
			a := w.post(row.target, row.body)
			w.refused(a, row.code, row.field)
			for _, value := range []string{secret, card} {
				if strings.Contains(a.body, value) || strings.Contains(w.log.String(), value) {
					t.Fatalf("the refused value is repeated: %s", a.body)
				}
			}
		})
	}
}

// TestKeysOfChanges: each change needs a key, and a check takes none: whatever stands there is not looked at.
func TestKeysOfChanges(t *testing.T) {
	for _, target := range []string{of("capture"), of("cancel"), of("cancel_code"), "/v1/refunds"} {
		for key, code := range map[string]problem.Code{"": problem.KeyMissing, "a b": problem.KeyInvalid} {
			w := newWorld(t, nil)
			r := w.request(http.MethodPost, target, `{}`)
			if r.Header.Del(KeyHeader); key != "" {
				r.Header.Set(KeyHeader, key)
			}
			w.refused(w.do(r), code, KeyHeader)
		}
	}
	for _, key := range []string{"", "a b", strings.Repeat("k", MaxKey+1), "order-77-key"} {
		w := newWorld(t, nil)
		r := w.request(http.MethodPost, of("check"), "")
		r.Header.Set(KeyHeader, key)
		if a := w.do(r); a.status != 201 || strings.Contains(w.log.String(), "order-77") || strings.Contains(w.log.String(), "key_hash") {
			t.Fatalf("%q: %d %s", key, a.status, a.body)
		}
	}
}

// TestNoBody: what may be left out needs no content type; what is sent is judged like every body.
func TestNoBody(t *testing.T) {
	for _, path := range []string{"capture", "cancel", "cancel_code", "check"} {
		for body, types := range map[string][]string{"": {"", "application/x-www-form-urlencoded"}, "{}": {"application/json"}} {
			for _, media := range types {
				w := newWorld(t, nil)
				r := w.request(http.MethodPost, of(path), body)
				r.Header.Set("Content-Type", media)
				if a := w.do(r); a.status != 201 {
					t.Errorf("%s %q %q: %d %s", path, body, media, a.status, a.body)
				}
			}
		}
		w := newWorld(t, nil)
		r := w.request(http.MethodPost, of(path), "amount=5")
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w.refused(w.do(r), problem.UnsupportedMediaType, "Content-Type")
		w.refused(w.post(of(path), strings.Repeat(" ", MaxBody+1)), problem.TooLarge, "")
		w.refused(w.do(w.request(http.MethodPost, of(path)+"?amount=5", "")), problem.Malformed, "amount")
	}
	w := newWorld(t, nil)
	r := w.request(http.MethodPost, "/v1/refunds", "")
	r.Header.Del("Content-Type")
	w.refused(w.do(r), problem.UnsupportedMediaType, "Content-Type")
}

// TestHosted: the payer chooses on the page, so that a method is not needed; the way back is.
func TestHosted(t *testing.T) {
	w := newWorld(t, nil)
	w.post("/v1/payments", `{"amount":100,"currency":"USD","capture_method":"manual","flow":"hosted","return_url":"https://shop.example/back"}`)
	w.post("/v1/payments", `{"payment_intent":"`+intentID.Text("pi_")+`","payment_method":"pm_ok","flow":"hosted","return_url":"https://localhost/back"}`)
	if len(w.service.payments) != 2 {
		t.Fatal("refused")
	}
	c := w.service.payments[0]
	if c.Flow != payment.Hosted || c.Method != "" || *c.ReturnURL != "https://shop.example/back" || *c.Inline.Capture != payment.CaptureManual {
		t.Fatalf("%+v", c)
	}
	if c := w.service.payments[1]; c.Flow != payment.Hosted || c.Method != "pm_ok" || c.IntentID != intentID {
		t.Fatalf("%+v", c)
	}
}

// TestLoopbackReturn: in dev, and there only, a payer may be sent back to this machine by http.
func TestLoopbackReturn(t *testing.T) {
	rows := map[string]bool{"http://localhost:8000/back": true, "http://LOCALHOST/": true, "http://127.0.0.1:3000/back": true, "http://127.9.9.9/": true,
		"http://[::1]:3000/": true, "https://shop.example/": true, "http://shop.example/": false, "http://localhost.example/": false, "http://10.0.0.1/": false,
		"http://0.0.0.0/": false, "http://127.0.0.1.example/": false, "http://2130706433/": false, "ftp://localhost/": false, "http://me@localhost/": false, "localhost:8000": false}
	for back, good := range rows {
		body := `{"amount":100,"currency":"USD","flow":"hosted","return_url":"` + back + `"}`
		w := newWorld(t, func(c *Config) { c.AllowLoopbackReturn = true })
		a := w.post("/v1/payments", body)
		if good && a.status != 201 {
			t.Errorf("%s: %s", back, a.body)
		}
		if !good {
			w.refused(a, problem.InvalidValue, "return_url")
		}
	}
	w := newWorld(t, nil)
	w.refused(w.post("/v1/payments", `{"amount":100,"currency":"USD","flow":"hosted","return_url":"http://localhost:8000/"}`), problem.InvalidValue, "return_url")
}

// TestCancelCodeIsShownInDevOnly: in a header, computed anew for each answer, and in no stored body.
func TestCancelCodeIsShownInDevOnly(t *testing.T) {
	issued := present.CancelCode(payment.CancelCode{Payment: payID, Ordinal: 2, ExpiresAt: noon.Add(time.Minute)})
	var asked []any
	code, fault := "X7K-123", error(nil)
	show := func(c *Config) {
		c.ShowCancelCode = func(_ context.Context, m, pay id.ID, ordinal int) (string, error) {
			asked = append(asked, m, pay, ordinal)
			return code, fault
		}
	}
	w := newWorld(t, show)
	w.service.answer = operation.Answer{Status: 201, Body: issued, Replayed: true}
	a := w.post(of("cancel_code"), "")
	if a.header.Get("Cancel-Code") != code || a.body != string(issued) || strings.Contains(w.log.String(), code) {
		t.Fatalf("%v %s", a.header, a.body)
	}
	if want := []any{merchant, payID, 2}; !reflect.DeepEqual(asked, want) {
		t.Fatalf("asked for %v", asked)
	}
	code, fault = "", errors.New("database down")
	if a := w.post(of("cancel_code"), ""); a.status != 201 || a.header["Cancel-Code"] != nil || !strings.Contains(w.log.String(), "database down") {
		t.Fatalf("the code is issued, whether it can be shown or not: %d %v", a.status, a.header)
	}
	asked, fault = nil, nil
	w.service.answer = operation.Answer{Status: 202, Body: present.UnknownOperation("h")}
	if a := w.post(of("cancel_code"), ""); a.status != 202 || a.header["Cancel-Code"] != nil || asked != nil {
		t.Fatalf("nothing is known to be issued: %v", a.header)
	}
	w = newWorld(t, nil)
	w.service.answer = operation.Answer{Status: 201, Body: issued}
	if a := w.post(of("cancel_code"), ""); a.status != 201 || a.header["Cancel-Code"] != nil {
		t.Fatalf("shown outside dev: %v", a.header)
	}
}

// TestUnknownPayments: what is not there, or belongs to another, is not found, whatever is asked of it (I-15).
func TestUnknownPayments(t *testing.T) {
	for _, target := range []string{of("check"), of("capture"), of("cancel"), of("cancel_code")} {
		w := newWorld(t, nil)
		w.service.err = problem.New(problem.NotFound, "")
		if a := w.post(target, ""); a.status != 404 || a.Code != string(problem.NotFound) {
			t.Errorf("%s: %d %s", target, a.status, a.body)
		}
	}
	w := newWorld(t, nil)
	w.service.err = problem.New(problem.NotFound, "")
	if a := w.get("/v1/refunds?payment=" + payID.Text("pay_")); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, target := range []string{"/v1/refunds?payment=" + secret, "/v1/refunds/" + secret, "/v1/refunds/" + payID.Text("pay_")} {
		if a := newWorld(t, nil).get(target); a.status != 404 || strings.Contains(a.body, secret) {
			t.Errorf("%s: %d %s", target, a.status, a.body)
		}
	}
}

// TestProblemsOfChanges: each refusal of a change goes out with its status, and where to look.
func TestProblemsOfChanges(t *testing.T) {
	for code, status := range map[problem.Code]int{problem.ExceedsRemaining: 422, problem.NotCapturable: 422, problem.NotCancelable: 422,
		problem.CodeInvalid: 422, problem.CodeExpired: 422, problem.RefundUnsettled: 409, problem.AmountMismatch: 422} {
		w := newWorld(t, nil)
		w.service.err = problem.New(code, "").See(present.PaymentPath(payID))
		if a := w.post(of("capture"), ""); a.status != status || a.Code != string(code) || a.Link != present.PaymentPath(payID) {
			t.Errorf("%s: %d %s", code, a.status, a.body)
		}
	}
}

func TestRefundReads(t *testing.T) {
	w := newWorld(t, nil)
	m := payment.Modification{Merchant: merchant, ID: id.New(noon, [10]byte{6}), Intent: intentID, Payment: payID, Type: payment.Refund,
		Status: payment.ModUnknown, Amount: money.Must(7, "USD"), CreatedAt: noon, UpdatedAt: noon}
	w.service.refunds, w.service.more = []present.RefundReading{{Modification: m}}, true
	a := w.get("/v1/refunds?payment=" + payID.Text("pay_") + "&limit=1")
	if a.status != 200 || !strings.HasPrefix(a.body, `{"data":[{"id":"re_`) || !strings.HasSuffix(a.body, `],"has_more":true,"next_cursor":"`+m.ID.Text("cur_")+`"}`) {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if want := []any{merchant, payID, Page{Limit: 1}}; !reflect.DeepEqual(w.service.asked, want) {
		t.Fatalf("asked for %v", w.service.asked)
	}
	if a := w.get(present.RefundPath(m.ID)); a.status != 200 || a.body != string(present.Refund(payment.Intent{ID: intentID}, payment.Payment{ID: payID}, m)) {
		t.Fatalf("%d %s", a.status, a.body)
	}
	w.key = w.keys.add(other, 2)
	if a := w.get(present.RefundPath(m.ID)); a.status != 404 {
		t.Fatalf("theirs: %d %s", a.status, a.body)
	}
}
