package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hapaxpay/hapax/internal/app"
	"github.com/hapaxpay/hapax/internal/config"
	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/rig"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// inDev makes the replica one of hapax dev.
func inDev(_ *config.Config, o *app.Options) { o.Dev = true }

// client is a merchant at a replica's door.
type client struct {
	t        *testing.T
	replica  *rig.Replica
	merchant rig.Merchant
}

// body is a JSON object as the client reads it.
type body map[string]any

func (b body) inner(name string) body {
	v, _ := b[name].(map[string]any)
	return v
}

func (c client) do(method, path, key, sent string) (rig.Response, body) {
	c.t.Helper()
	res, err := c.replica.Do(c.t.Context(), c.merchant, method, path, key, []byte(sent))
	if err != nil {
		c.t.Fatal(err)
	}
	var b body
	if err := json.Unmarshal(res.Body, &b); err != nil {
		c.t.Fatalf("%s %s: %d %s", method, path, res.Status, res.Body)
	}
	return res, b
}

// post makes a command that must be answered with the status.
func (c client) post(status int, path, key, sent string) body {
	c.t.Helper()
	res, b := c.do(http.MethodPost, path, key, sent)
	if res.Status != status {
		c.t.Fatalf("POST %s: %d, want %d\n%s", path, res.Status, status, res.Body)
	}
	return b
}

func (c client) get(status int, path string) body {
	c.t.Helper()
	res, b := c.do(http.MethodGet, path, "", "")
	if res.Status != status {
		c.t.Fatalf("GET %s: %d, want %d\n%s", path, res.Status, status, res.Body)
	}
	return b
}

// holds demands members of an answer, each as text.
func (c client) holds(b body, want map[string]any) {
	c.t.Helper()
	for name, v := range want {
		if fmt.Sprint(b[name]) != fmt.Sprint(v) {
			c.t.Errorf("%s is %v, want %v, in %v", name, b[name], v, b)
		}
	}
}

const (
	holdOf = `{"amount":1000,"currency":"USD","payment_method":"pm_hold","capture_method":"manual","client_reference":%q}`
	saleOf = `{"amount":1000,"currency":"USD","payment_method":"pm_ok","client_reference":%q}`
	pageOf = `{"amount":1000,"currency":"USD","flow":"hosted","return_url":"http://127.0.0.1:3000/back","client_reference":%q}`
)

func open(t *testing.T) (*rig.Rig, client) {
	t.Helper()
	r := rig.New(t, nil)
	return r, client{t, r.Replica(inDev), r.Merchant}
}

func pathOf(b body) string { return "/v1/payments/" + b["id"].(string) }

// TestHostedOverHTTP: a payer who pays on the page and closes the browser; the shop asks, and gives a part back.
func TestHostedOverHTTP(t *testing.T) {
	r, c := open(t)
	p := c.post(201, "/v1/payments", "k1", fmt.Sprintf(pageOf, "A-1"))
	c.holds(p, map[string]any{"status": "registered", "flow": "hosted", "capture_method": "automatic", "captured_amount": 0})
	if page, _ := p["redirect_url"].(string); !strings.HasPrefix(page, "http") {
		t.Fatalf("no page: %v", p)
	}
	if again := c.post(200, "/v1/payments", "k2", fmt.Sprintf(pageOf, "A-1")); again["redirect_url"] != p["redirect_url"] || again["id"] != p["id"] {
		t.Fatalf("another session: %v", again)
	}
	c.holds(c.post(409, "/v1/payments", "k3", fmt.Sprintf(saleOf, "A-1")), map[string]any{"code": "payment_open"})
	c.holds(c.post(200, pathOf(p)+"/check", "", ""), map[string]any{"status": "registered"})
	sessions, err := r.Acquirer.Sessions(t.Context(), "")
	if err != nil || len(sessions) != 1 {
		t.Fatalf("%v %v", sessions, err)
	}
	if _, err := r.Acquirer.PaySession(t.Context(), sessions[0].ID); err != nil {
		t.Fatal(err)
	}
	paid := c.post(200, pathOf(p)+"/check", "an ignored key", "{}")
	c.holds(paid, map[string]any{"status": "paid", "captured_amount": 1000, "explanation": "The money was taken."})
	if paid["redirect_url"] != nil {
		t.Errorf("a page for a paid payment: %v", paid)
	}
	c.holds(c.post(409, "/v1/payments", "k4", fmt.Sprintf(pageOf, "A-1")), map[string]any{"code": "already_paid"})
	c.holds(c.post(422, pathOf(p)+"/cancel", "x1", ""), map[string]any{"code": "not_cancelable"})
	c.holds(c.post(422, pathOf(p)+"/capture", "c1", ""), map[string]any{"code": "not_capturable"})

	pay := fmt.Sprintf(`{"payment":%q`, p["id"])
	refund := c.post(201, "/v1/refunds", "r1", pay+`,"amount":300,"reason":"broken"}`)
	c.holds(refund, map[string]any{"object": "refund", "type": "refund", "status": "succeeded", "amount": 300, "reason": "broken", "payment": p["id"]})
	c.holds(c.post(201, "/v1/refunds", "r1", pay+`,"amount":300,"reason":"broken"}`), map[string]any{"id": refund["id"]})
	c.holds(c.post(422, "/v1/refunds", "r1", pay+`,"amount":301,"reason":"broken"}`), map[string]any{"code": "idempotency_key_reuse"})
	c.holds(c.post(422, "/v1/refunds", "r2", pay+`,"amount":701}`), map[string]any{"code": "exceeds_remaining", "link": pathOf(p)})
	c.holds(c.post(422, "/v1/refunds", "r3", pay+`,"currency":"EUR"}`), map[string]any{"code": "amount_mismatch", "field": "currency"})
	c.post(201, "/v1/refunds", "r4", pay+`}`)
	c.holds(c.get(200, pathOf(p)), map[string]any{"status": "paid", "refunded_amount": 1000, "explanation": "The money was taken, and all of it was given back."})
	c.holds(c.get(200, fmt.Sprintf("/v1/refunds/%s", refund["id"])), map[string]any{"id": refund["id"], "status": "succeeded"})
	page := c.get(200, fmt.Sprintf("/v1/refunds?payment=%s&limit=1", p["id"]))
	next := c.get(200, fmt.Sprintf("/v1/refunds?payment=%s&limit=1&cursor=%s", p["id"], page["next_cursor"]))
	if len(page["data"].([]any)) != 1 || page["has_more"] != true || len(next["data"].([]any)) != 1 || next["has_more"] != false {
		t.Errorf("pages: %v %v", page, next)
	}
	r.Verify()
}

// TestTwoStepsOverHTTP: a hold is captured in part, and another one is given up by a code that is shown in dev.
func TestTwoStepsOverHTTP(t *testing.T) {
	r, c := open(t)
	held := c.post(201, "/v1/payments", "k1", fmt.Sprintf(holdOf, "A-1"))
	c.holds(held, map[string]any{"status": "authorized", "capture_method": "manual", "authorized_amount": 1000, "captured_amount": 0})
	c.holds(c.post(422, pathOf(held)+"/capture", "c1", `{"amount":1001}`), map[string]any{"code": "exceeds_remaining"})
	c.holds(c.post(422, pathOf(held)+"/capture", "c2", `{"currency":"EUR"}`), map[string]any{"code": "amount_mismatch"})
	taken := c.post(201, pathOf(held)+"/capture", "c3", `{"amount":600,"currency":"USD","final":true}`)
	c.holds(taken, map[string]any{"status": "paid", "authorized_amount": 1000, "captured_amount": 600})
	c.holds(taken.inner("modification"), map[string]any{"type": "capture", "status": "succeeded", "amount": 600, "currency": "USD"})
	c.holds(c.post(422, "/v1/refunds", "r1", fmt.Sprintf(`{"payment":%q,"amount":601}`, held["id"])), map[string]any{"code": "exceeds_remaining"})

	if _, err := r.Owner.Exec(t.Context(), "UPDATE merchant SET cancel_code = true WHERE merchant_id = $1", r.Merchant.ID); err != nil {
		t.Fatal(err)
	}
	other := c.post(201, "/v1/payments", "k2", fmt.Sprintf(holdOf, "A-2"))
	c.holds(c.post(422, pathOf(other)+"/cancel", "x1", ""), map[string]any{"code": "code_invalid"})
	res, issued := c.do(http.MethodPost, pathOf(other)+"/cancel_code", "n1", "")
	code := res.Header.Get("Cancel-Code")
	c.holds(issued, map[string]any{"object": "cancel_code", "payment": other["id"], "ordinal": 1, "tries_left": 5})
	if res.Status != 201 || code == "" || strings.Contains(string(res.Body), code) {
		t.Fatalf("%d %q %s", res.Status, code, res.Body)
	}
	if again, _ := c.do(http.MethodPost, pathOf(other)+"/cancel_code", "n1", ""); again.Header.Get("Cancel-Code") != code || string(again.Body) != string(res.Body) {
		t.Errorf("a repeat: %v %s", again.Header, again.Body)
	}
	elsewhere := client{t, r.Replica(), r.Merchant}
	if again, _ := elsewhere.do(http.MethodPost, pathOf(other)+"/cancel_code", "n1", ""); again.Header["Cancel-Code"] != nil || again.Status != 201 {
		t.Errorf("shown outside dev: %v", again.Header)
	}
	wrong := "000000"
	if code == wrong {
		wrong = "000001"
	}
	c.holds(c.post(422, pathOf(other)+"/cancel", "x2", fmt.Sprintf(`{"code":%q}`, wrong)), map[string]any{"code": "code_invalid"})
	gone := c.post(201, pathOf(other)+"/cancel", "x2", fmt.Sprintf(`{"code":%q}`, code))
	c.holds(gone, map[string]any{"status": "canceled", "captured_amount": 0})
	c.holds(gone.inner("modification"), map[string]any{"type": "cancel", "status": "succeeded"})
	c.holds(c.post(422, pathOf(other)+"/cancel", "x3", fmt.Sprintf(`{"code":%q}`, code)), map[string]any{"code": "not_cancelable"})
	for _, sql := range []string{"SELECT count(*) FROM operation o WHERE o::text LIKE '%' || $1 || '%'", "SELECT count(*) FROM event e WHERE e::text LIKE '%' || $1 || '%'",
		"SELECT count(*) FROM cancel_code c WHERE c::text LIKE '%' || $1 || '%'"} {
		if n := r.Count(sql, code); n != 0 {
			t.Errorf("the code stands in %d rows: %s", n, sql)
		}
	}
	r.Verify()
}

// TestRefusedChangesMoveNothing: each bad input is a problem with a stable code, and nothing was stored or sent for it.
func TestRefusedChangesMoveNothing(t *testing.T) {
	r, c := open(t)
	stranger := client{t, c.replica, r.AddMerchant(nil)}
	sale := c.post(201, "/v1/payments", "k1", fmt.Sprintf(saleOf, "A-1"))
	held := c.post(201, "/v1/payments", "k2", fmt.Sprintf(holdOf, "A-2"))
	before, wire := c.get(200, pathOf(sale)), len(r.Charges())
	beforeHeld := c.get(200, pathOf(held))
	operations := r.Count("SELECT count(*) FROM operation")
	unknown := "/v1/payments/pay_" + strings.Repeat("0", 26)
	refundOf := func(b body, more string) string { return fmt.Sprintf(`{"payment":%q%s}`, b["id"], more) }
	rows := []struct {
		who              client
		path, sent, code string
		status           int
	}{
		{c, unknown + "/check", "", "not_found", 404},
		{c, unknown + "/capture", "", "not_found", 404},
		{c, unknown + "/cancel", "", "not_found", 404},
		{c, unknown + "/cancel_code", "", "not_found", 404},
		{c, "/v1/refunds", `{"payment":"pay_` + strings.Repeat("0", 26) + `"}`, "not_found", 404},
		{stranger, pathOf(sale) + "/check", "", "not_found", 404},
		{stranger, pathOf(held) + "/capture", "", "not_found", 404},
		{stranger, pathOf(held) + "/cancel", "", "not_found", 404},
		{stranger, pathOf(held) + "/cancel_code", "", "not_found", 404},
		{stranger, "/v1/refunds", refundOf(sale, ""), "not_found", 404},
		{c, pathOf(sale) + "/capture", "", "not_capturable", 422},
		{c, pathOf(sale) + "/cancel", "", "not_cancelable", 422},
		{c, pathOf(sale) + "/cancel_code", "", "not_cancelable", 422},
		{c, "/v1/refunds", refundOf(sale, `,"amount":1001`), "exceeds_remaining", 422},
		{c, "/v1/refunds", refundOf(held, ""), "exceeds_remaining", 422},
		{c, "/v1/refunds", refundOf(sale, `,"currency":"EUR"`), "amount_mismatch", 422},
		{c, "/v1/refunds", refundOf(sale, `,"amount":500,"kind":"reversal"`), "exceeds_remaining", 422},
		{c, pathOf(held) + "/capture", `{"amount":1001}`, "exceeds_remaining", 422},
		{c, pathOf(held) + "/capture", `{"amount":0}`, "invalid_value", 422},
		{c, pathOf(held) + "/cancel", `{"code":"123456"}`, "code_invalid", 422},
		{c, "/v1/payments", `{"amount":1,"currency":"USD","flow":"hosted","return_url":"http://shop.example/"}`, "invalid_value", 422},
		{c, "/v1/payments", `{"amount":1,"currency":"USD","flow":"hosted"}`, "malformed", 400},
	}
	for n, row := range rows {
		b := row.who.post(row.status, row.path, fmt.Sprintf("bad-%d", n), row.sent)
		row.who.holds(b, map[string]any{"code": row.code})
	}
	stranger.get(404, pathOf(sale))
	stranger.get(404, fmt.Sprintf("/v1/refunds?payment=%s", sale["id"]))
	if after := c.get(200, pathOf(sale)); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("moved: %v", after)
	}
	if after := c.get(200, pathOf(held)); fmt.Sprint(after) != fmt.Sprint(beforeHeld) {
		t.Errorf("moved: %v", after)
	}
	if n := r.Count("SELECT count(*) FROM operation") - operations; n != 0 || len(r.Charges()) != wire {
		t.Errorf("%d operations more, %d calls at the acquirer instead of %d", n, len(r.Charges()), wire)
	}
	r.Verify()
}
