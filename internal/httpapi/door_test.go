package httpapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hapaxpay/hapax/internal/auth"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/money"
)

// raw sends bytes over a connection of its own and gives the status of the answer.
func (w *world) raw(request string) int {
	w.t.Helper()
	s := httptest.NewServer(w.handler)
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(); err != nil {
			w.t.Error(err)
		}
	}()
	if _, err := conn.Write([]byte(request)); err != nil {
		w.t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := answer.Body.Close(); err != nil {
		w.t.Fatal(err)
	}
	return answer.StatusCode
}

// TestAccessFirst: without a valid key nothing is looked at, nothing replayed, nothing told (PROTOCOL W1).
func TestAccessFirst(t *testing.T) {
	targets := []struct{ method, target string }{
		{"POST", "/v1/payments"}, {"POST", "/v1/payment_intents"}, {"GET", "/v1/payments/" + intentID.Text("pay_")},
		{"GET", "/v1/payment_intents/" + intentID.Text("pi_")}, {"GET", "/v1/payments?idempotency_key=order-1"}, {"GET", "/v1/payment_intents?customer=c"},
		{"POST", "/v1/payments/" + intentID.Text("pay_") + "/check"}, {"POST", "/v1/payments/" + intentID.Text("pay_") + "/cancel"},
		{"POST", "/v1/refunds"}, {"GET", "/v1/refunds/" + intentID.Text("re_")}, {"GET", "/v1/refunds?payment=" + intentID.Text("pay_")},
	}
	for _, at := range targets {
		for _, header := range []string{"", "Bearer", "Bearer hpx_test_", "Basic abc", "Bearer hpx_live_" + strings.Repeat("0", 58)} {
			w := newWorld(t, nil)
			r := w.request(at.method, at.target, "{ not even JSON")
			r.Header.Set("Authorization", header)
			a := w.do(r)
			w.refused(a, problem.Unauthenticated, "")
			if a.status != 401 || a.header.Get("WWW-Authenticate") != "Bearer" || len(w.service.asked) > 0 {
				t.Fatalf("%s %s: %d", at.method, at.target, a.status)
			}
		}
	}
}

func TestAccessFault(t *testing.T) {
	w := newWorld(t, nil)
	w.keys.err = errors.New("database down, with a secret")
	a := w.post("/v1/payments", "{}")
	w.refused(a, problem.TryAgain, "")
	if a.status != 503 || a.header.Get("Retry-After") != "1" || strings.Contains(a.body, "secret") || !strings.Contains(w.log.String(), "database down") {
		t.Fatalf("%d %s", a.status, a.body)
	}
}

// TestMerchantOfTheKey: what is asked for is asked for the merchant of the key, whatever else is sent (I-15).
func TestMerchantOfTheKey(t *testing.T) {
	w := newWorld(t, nil)
	p := reading(1)
	w.service.found = []present.PaymentReading{p}
	mine, theirs := w.key, w.keys.add(other, 2)
	for _, target := range []string{present.PaymentPath(p.Payment.ID), present.IntentPath(p.Intent.ID)} {
		w.key = mine
		if a := w.get(target); a.status != 200 {
			t.Fatalf("mine: %d %s", a.status, a.body)
		}
		w.key = theirs
		if a := w.get(target); a.status != 404 || a.Code != string(problem.NotFound) {
			t.Fatalf("theirs: %d %s", a.status, a.body)
		}
	}
	if a := w.post("/v1/payment_intents", `{"amount":1,"currency":"USD","merchant":"`+merchant.Text(id.Merchant)+`"}`); a.Code != string(problem.Malformed) {
		t.Fatalf("a merchant in a body: %s", a.body)
	}
	w.post("/v1/payment_intents", goodIntent)
	if w.service.intents[0].Merchant != other {
		t.Fatal("not the merchant of the key")
	}
}

func TestAnswerHeaders(t *testing.T) {
	w := newWorld(t, nil)
	body := []byte("{\"id\": \"as stored,  blanks and all\"}\n")
	w.service.answer = operation.Answer{Status: 402, Body: body, Replayed: true, RetryAfter: 1100 * time.Millisecond, Location: "/v1/payments/pay_x",
		KeyExpires: noon.Add(time.Hour), Original: "req_1"}
	a := w.post("/v1/payment_intents", goodIntent)
	if a.status != 402 || a.body != string(body) {
		t.Fatalf("status and bytes go out as they are: %d %q", a.status, a.body)
	}
	want := map[string]string{"Idempotency-Replayed": "true", "Idempotency-Key-Expires": "2026-03-01T13:00:00Z", "Original-Request": "req_1",
		"Retry-After": "2", "Location": "/v1/payments/pay_x", "Content-Type": "application/json", "Cache-Control": "no-store"}
	for name, v := range want {
		if a.header.Get(name) != v {
			t.Errorf("%s: %q", name, a.header.Get(name))
		}
	}
	if !strings.HasPrefix(a.header.Get("Request-Id"), "req_") || a.header.Get("Request-Id") != w.service.intents[0].RequestID {
		t.Error("the request id is not the one that is told")
	}
	w.service.answer = operation.Answer{Status: 201, Body: body}
	a = w.post("/v1/payment_intents", goodIntent)
	for name := range want {
		if a.header.Get(name) != "" && name != "Content-Type" && name != "Cache-Control" {
			t.Errorf("%s without a reason", name)
		}
	}
}

func TestRefusalsAndFaults(t *testing.T) {
	rows := []struct {
		name   string
		err    error
		status int
		code   problem.Code
		retry  string
		logged bool
	}{
		{"refusal", problem.New(problem.PaymentOpen, "").See("/v1/payments/pay_1"), 409, problem.PaymentOpen, "", false},
		{"wrapped refusal", fmt.Errorf("flow: %w", problem.New(problem.OperationInProgress, "").After(2500*time.Millisecond)), 409, problem.OperationInProgress, "3", false},
		{"proven to have done nothing", fmt.Errorf("dial with a secret: %w", operation.ErrNothingDone), 503, problem.TryAgain, "1", true},
		{"not durable", operation.ErrNotDurable, 503, problem.TryAgain, "1", true},
		{"hold", operation.ErrOnHold, 503, problem.SendsOnHold, "1", true},
		{"commit unknown", fmt.Errorf("with a secret: %w", operation.ErrCommitUnknown), 500, problem.Internal, "", true},
		{"anything else", errors.New("with a secret"), 500, problem.Internal, "", true},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.service.err = row.err
			a := w.post("/v1/payment_intents", goodIntent)
			if a.status != row.status || a.Code != string(row.code) || a.header.Get("Retry-After") != row.retry || strings.Contains(a.body, "secret") {
				t.Fatalf("%d %q %s", a.status, a.header.Get("Retry-After"), a.body)
			}
			if got := strings.Count(w.log.String(), `"msg":"fault"`); got != 1 && row.logged || got != 0 && !row.logged {
				t.Fatalf("logged %d times", got)
			}
			if row.logged && !strings.Contains(w.log.String(), a.RequestID) {
				t.Fatal("logged without the id that the client was told")
			}
		})
	}
	w := newWorld(t, nil)
	reuse := problem.New(problem.KeyReuse, "")
	w.service.err = reuse
	if a := w.post("/v1/payment_intents", goodIntent); a.Field != KeyHeader || reuse.Field != "" {
		t.Errorf("a reused key is told on %q, and the refusal became %+v", a.Field, reuse)
	}
	w.service.err = problem.New(problem.PaymentOpen, "").See("/v1/payments/pay_1")
	if a := w.post("/v1/payment_intents", goodIntent); a.Link != "/v1/payments/pay_1" {
		t.Fatalf("no link: %s", a.body)
	}
}

func TestPanic(t *testing.T) {
	w := newWorld(t, nil)
	w.service.panics = true
	a := w.post("/v1/payments", `{"amount":1,"currency":"USD","payment_method":"pm_ok"}`)
	if a.status != 500 || a.Code != string(problem.Internal) || strings.Contains(a.body, "secret") || !strings.Contains(w.log.String(), `"msg":"panic"`) {
		t.Fatalf("%d %s", a.status, a.body)
	}
}

// TestClientGone: a client that left is no fault of ours.
func TestClientGone(t *testing.T) {
	w := newWorld(t, nil)
	w.service.err = context.Canceled
	r := w.request(http.MethodPost, "/v1/payment_intents", goodIntent)
	ctx, cancel := context.WithCancel(r.Context())
	cancel()
	w.do(r.WithContext(ctx))
	if strings.Contains(w.log.String(), `"msg":"fault"`) || !strings.Contains(w.log.String(), "client_gone") {
		t.Fatalf("log: %s", w.log)
	}
}

func TestUnknownRoutes(t *testing.T) {
	rows := []struct {
		method, target string
		status         int
		allow          string
	}{
		{"GET", "/", 404, ""}, {"GET", "/v1", 404, ""}, {"GET", "/v1/payments/", 404, ""}, {"POST", "/v1/captures", 404, ""}, {"GET", "/docs", 404, ""},
		{"POST", "//v1/payments", 404, ""}, {"POST", "/v1/../v1/payments", 404, ""}, {"GET", "/openapi.yaml", 404, ""}, {"GET", "/schemas/Payment", 404, ""},
		{"DELETE", "/v1/payments", 405, "GET, HEAD, POST"}, {"PUT", "/v1/payment_intents", 405, "GET, HEAD, POST"},
		{"DELETE", "/v1/refunds", 405, "GET, HEAD, POST"}, {"GET", "/v1/payments/" + intentID.Text("pay_") + "/capture", 405, "POST"},
		{"POST", "/v1/payments/" + intentID.Text("pay_"), 405, "GET, HEAD"}, {"POST", "/healthz", 405, "GET, HEAD"},
		{"CONNECT", "", 404, ""}, {"CONNECT", "/v1/payments", 405, "GET, HEAD, POST"}, {"OPTIONS", "*", 404, ""},
	}
	for _, row := range rows {
		w := newWorld(t, nil)
		r := w.request(row.method, "/", "")
		r.URL.Path = row.target
		a := w.do(r)
		if a.status != row.status || a.Code == "" || a.header.Get("Allow") != row.allow {
			t.Errorf("%s %s: %d %q %s", row.method, row.target, a.status, a.header.Get("Allow"), a.body)
		}
	}
	if a := newWorld(t, nil); a.do(a.request("HEAD", "/v1/payments?customer=c", "")).status != 200 {
		t.Error("HEAD is allowed and does not work")
	}
	for _, target := range []string{"/v1/payments/x", "/v1/payments/" + intentID.Text("pi_"), "/v1/payment_intents/%00", "/v1/payments/a%2Fb"} {
		if a := newWorld(t, nil).get(target); a.status != 404 || a.Code != string(problem.NotFound) {
			t.Errorf("%s: %d %s", target, a.status, a.body)
		}
	}
}

func TestRateLimit(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.RatePerSecond = 2 })
	for i := range 2 * burst {
		if a := w.get("/v1/payments?customer=c"); a.status != 200 {
			t.Fatalf("request %d: %d", i, a.status)
		}
	}
	// Before anything else but access: not even the body is looked at.
	a := w.post("/v1/payments", "{ not even JSON")
	w.refused(a, problem.RateLimited, "")
	if a.status != 429 || a.header.Get("Retry-After") != "1" {
		t.Fatalf("%d %q", a.status, a.header.Get("Retry-After"))
	}
	mine := w.key
	w.key = w.keys.add(other, 2)
	if a := w.get("/v1/payments?customer=c"); a.status != 200 {
		t.Fatalf("another merchant is held up: %d", a.status)
	}
	w.key, w.now = mine, w.now.Add(500*time.Millisecond)
	if a := w.get("/v1/payments?customer=c"); a.status != 200 {
		t.Fatalf("half a second later: %d", a.status)
	}
	own := auth.HashKey(mine)
	row := w.keys.rows[own]
	row.RateLimit = 10
	w.keys.rows[own] = row
	for i := range 10 * burst {
		if a := w.get("/v1/payments?customer=c"); a.status != 200 {
			t.Fatalf("own limit, request %d: %d", i, a.status)
		}
	}
}

func TestRateLimitForgets(t *testing.T) {
	l := newLimits(1)
	first := id.New(noon, [10]byte{9, 9})
	for range burst {
		l.take(first, 0, noon)
	}
	if l.take(first, 0, noon) == 0 {
		t.Fatal("no limit")
	}
	for i := range maxLimited {
		l.take(id.New(noon, [10]byte{4: byte(i), 5: byte(i >> 8), 6: 1}), 0, noon)
	}
	if len(l.buckets) != maxLimited || l.quiet.Len() != maxLimited {
		t.Fatalf("%d buckets", len(l.buckets))
	}
	if l.take(first, 0, noon) != 0 {
		t.Fatal("the one that was quiet for longest was not forgotten")
	}
}

func reading(n byte) present.PaymentReading {
	i := payment.Intent{Merchant: merchant, ID: intentID, ClientReference: "A-1", Amount: money.Must(500, "JPY"), Capture: payment.CaptureAutomatic,
		Metadata: []byte(`{"n":9007199254740993}`), Version: 1, PayBefore: noon.Add(time.Hour), CreatedAt: noon, UpdatedAt: noon}
	return present.PaymentReading{Intent: i, Payment: payment.Payment{Merchant: merchant, ID: id.New(noon, [10]byte{n}), Intent: i.ID, N: int(n), Flow: payment.Direct,
		Status: payment.Unknown, Amount: i.Amount, Account: other, CreatedAt: noon, UpdatedAt: noon}}
}

func TestLists(t *testing.T) {
	w := newWorld(t, nil)
	w.service.found, w.service.more = []present.PaymentReading{reading(2), reading(1)}, true
	last := w.service.found[1].Payment.ID
	a := w.get("/v1/payments?client_reference=A-1&limit=2")
	if a.status != 200 || !strings.HasPrefix(a.body, `{"data":[{"id":"pay_`) || !strings.HasSuffix(a.body, `],"has_more":true,"next_cursor":"`+last.Text("cur_")+`"}`) {
		t.Fatalf("%d %s", a.status, a.body)
	}
	w.service.found, w.service.more = nil, false
	if a := w.get("/v1/payments?client_reference=A-1&cursor=" + last.Text("cur_")); a.body != `{"data":[],"has_more":false,"next_cursor":null}` {
		t.Fatalf("%s", a.body)
	}
	w.service.asked = nil
	intent := intentID.Text("pi_")
	pages := Page{Limit: defaultPage}
	rows := []struct {
		target string
		asked  any
	}{
		{"/v1/payments?client_reference=A-1", PaymentQuery{ClientReference: "A-1"}},
		{"/v1/payments?customer=%D1%8F", PaymentQuery{Customer: "я"}},
		{"/v1/payments?payment_intent=" + intent, PaymentQuery{Intent: intentID}},
		{"/v1/payments?payment_intent_id=" + intent, PaymentQuery{Intent: intentID}},
		{"/v1/payments?idempotency_key=%22order-1%22", PaymentQuery{IdempotencyKey: "order-1"}},
		{"/v1/payments?idempotency_key=%22" + strings.Repeat("k", MaxKey) + "%22", PaymentQuery{IdempotencyKey: strings.Repeat("k", MaxKey)}},
		{"/v1/payments?idempotency_key=%22" + strings.Repeat("%5C%22", MaxKey) + "%22", PaymentQuery{IdempotencyKey: strings.Repeat(`"`, MaxKey)}},
		{"/v1/payments?acquirer_reference=ch_1", PaymentQuery{AcquirerReference: "ch_1"}},
		{"/v1/payment_intents?customer=c", "c"},
	}
	for i, row := range rows {
		if a := w.get(row.target); a.status != 200 {
			t.Fatalf("%s: %d %s", row.target, a.status, a.body)
		}
		got := w.service.asked[3*i : 3*i+3]
		if got[0] != any(merchant) || got[1] != row.asked || got[2] != any(pages) {
			t.Fatalf("%s: %v", row.target, got)
		}
	}
	if a := w.get("/v1/payment_intents?client_reference=A-1"); a.body != `{"data":[],"has_more":false,"next_cursor":null}` {
		t.Fatalf("%s", a.body)
	}
	w.service.found = []present.PaymentReading{reading(1)}
	if a := w.get("/v1/payment_intents?client_reference=A-1"); !strings.Contains(a.body, `"metadata":{"n":9007199254740993}`) {
		t.Fatalf("%s", a.body)
	}
}

func TestBadQueries(t *testing.T) {
	rows := []struct{ target, field string }{
		{"/v1/payments", ""},
		{"/v1/payments?limit=5", ""},
		{"/v1/payments?customer=a&client_reference=b", "customer"},
		{"/v1/payments?customer=a&customer=b", "customer"},
		{"/v1/payments?customer=", "customer"},
		{"/v1/payments?customer=%00", "customer"},
		{"/v1/payments?customer=%ff", "customer"},
		{"/v1/payments?customer=" + strings.Repeat("c", 256), "customer"},
		{"/v1/payments?Customer=a", "Customer"},
		{"/v1/payments?status=paid", "status"},
		{"/v1/payments?customer=a;b=c", ""},
		{"/v1/payments?payment_intent=" + secret, "payment_intent"},
		{"/v1/payments?idempotency_key=a%20b", "idempotency_key"},
		{"/v1/payments?idempotency_key=%22" + strings.Repeat("k", MaxKey+1) + "%22", "idempotency_key"},
		{"/v1/payments?idempotency_key=" + strings.Repeat("k", maxQuoted+1), "idempotency_key"},
		{"/v1/payments?customer=a&limit=0", "limit"},
		{"/v1/payments?customer=a&limit=101", "limit"},
		{"/v1/payments?customer=a&limit=" + secret, "limit"},
		{"/v1/payments?customer=a&cursor=" + secret, "cursor"},
		{"/v1/payment_intents", ""},
		{"/v1/payment_intents?acquirer_reference=a", "acquirer_reference"},
		{"/v1/payments/" + intentID.Text("pay_") + "?expand=intent", "expand"},
		{"/v1/refunds", ""},
		{"/v1/refunds?payment=", "payment"},
		{"/v1/refunds?status=failed", "status"},
		{"/v1/refunds?payment=" + intentID.Text("pay_") + "&limit=1000", "limit"},
	}
	for _, row := range rows {
		w := newWorld(t, nil)
		a := w.get(row.target)
		w.refused(a, problem.Malformed, row.field)
		if a.status != 400 || strings.Contains(a.body, secret) || len(w.service.asked) > 0 {
			t.Errorf("%s: %d %s", row.target, a.status, a.body)
		}
	}
}

// TestLogLine: one line for each request, with the hash of the key and never the key, not even out of a query.
func TestLogLine(t *testing.T) {
	const key = "order-77-key"
	w := newWorld(t, nil)
	w.service.answer.Replayed = true
	r := w.request(http.MethodPost, "/v1/payment_intents", goodIntent)
	r.Header.Set(KeyHeader, key)
	a := w.do(r)
	w.get("/v1/payments?idempotency_key=" + key)
	log := w.log.String()
	for _, want := range []string{a.header.Get("Request-Id"), operation.KeyHash(key), merchant.Text(id.Merchant), `"route":"POST /v1/payment_intents"`,
		`"route":"GET /v1/payments"`, `"status":201`, `"replayed":true`, `"took_ms":`} {
		if !strings.Contains(log, want) {
			t.Errorf("no %s in %s", want, log)
		}
	}
	if strings.Contains(log, key) || strings.Contains(log, w.key) || strings.Count(log, `"msg":"request"`) != 2 {
		t.Errorf("a key in the log, or not one line each: %s", log)
	}
}

func TestHealth(t *testing.T) {
	var reasons []Reason
	registry := prometheus.NewRegistry()
	w := newWorld(t, func(c *Config) {
		c.Ready = func(context.Context) []Reason { return reasons }
		c.Register = registry
		c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	})
	w.key = "" // nobody needs a key for these
	if a := w.get("/healthz"); a.status != 200 || a.body != `{"ok":true}` {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := w.get("/readyz"); a.status != 200 || a.body != `{"ok":true}` {
		t.Fatalf("%d %s", a.status, a.body)
	}
	reasons = []Reason{{"database", "it is a replica"}}
	if a := w.get("/readyz"); a.status != 503 || a.body != `{"ok":false,"reasons":[{"part":"database","why":"it is a replica"}]}` {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := w.get("/metrics"); a.status != http.StatusTeapot {
		t.Fatalf("%d", a.status)
	}
	if a := w.get("/openapi.json"); a.status != 200 || !strings.Contains(a.body, `"openapi":"3.1.0"`) || strings.Contains(a.body, "https://") {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if n, err := testutil.GatherAndCount(registry, "hapax_http_requests_total"); err != nil || n != 5 {
		t.Fatalf("%d rows, %v", n, err)
	}
}

func TestServerLimits(t *testing.T) {
	w := newWorld(t, nil)
	s := NewServer(w.handler, 8*time.Second, slog.New(slog.DiscardHandler))
	if s.ReadHeaderTimeout == 0 || s.ReadTimeout == 0 || s.IdleTimeout == 0 || s.MaxHeaderBytes == 0 || s.WriteTimeout <= s.ReadTimeout+8*time.Second {
		t.Fatalf("%+v", s)
	}
}
