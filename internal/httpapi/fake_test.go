package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/auth"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/problem"
)

var (
	noon     = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	merchant = id.New(noon, [10]byte{1})
	other    = id.New(noon, [10]byte{2})
	intentID = id.New(noon, [10]byte{3})
)

// fake is a Service that remembers what it was asked and answers what it is told to.
type fake struct {
	answer   operation.Answer
	err      error
	panics   bool
	intents  []flow.CreateIntentCommand
	payments []flow.CreatePaymentCommand
	changes  []any // commands and checks of payments that exist
	refunds  []present.RefundReading
	asked    []any // what the reads were asked for, with the merchant first
	found    []present.PaymentReading
	more     bool
	events   EventPage

	endpoints  []payment.Endpoint
	deliveries []present.Delivery
}

func (f *fake) CreateIntent(_ context.Context, c flow.CreateIntentCommand) (operation.Answer, error) {
	f.intents = append(f.intents, c)
	return f.answer, f.err
}

func (f *fake) CreatePayment(_ context.Context, c flow.CreatePaymentCommand) (operation.Answer, error) {
	if f.panics {
		panic("a defect, with a secret")
	}
	f.payments = append(f.payments, c)
	return f.answer, f.err
}

func (f *fake) change(c any) (operation.Answer, error) {
	f.changes = append(f.changes, c)
	return f.answer, f.err
}

func (f *fake) Capture(_ context.Context, c flow.CapturePaymentCommand) (operation.Answer, error) {
	return f.change(c)
}

func (f *fake) Cancel(_ context.Context, c flow.CancelPaymentCommand) (operation.Answer, error) {
	return f.change(c)
}

func (f *fake) IssueCancelCode(_ context.Context, c flow.IssueCancelCodeCommand) (operation.Answer, error) {
	return f.change(c)
}

func (f *fake) Refund(_ context.Context, c flow.CreateRefundCommand) (operation.Answer, error) {
	return f.change(c)
}

// checked is one call of Check.
type checked struct {
	merchant, payment id.ID
	requestID         string
}

func (f *fake) Check(_ context.Context, m, payment id.ID, requestID string) (operation.Answer, error) {
	return f.change(checked{m, payment, requestID})
}

func (f *fake) RefundByID(_ context.Context, m, refund id.ID) (present.RefundReading, error) {
	f.asked = append(f.asked, m, refund)
	for _, r := range f.refunds {
		if m == r.Merchant && refund == r.ID {
			return r, f.err
		}
	}
	return present.RefundReading{}, problem.New(problem.NotFound, "")
}

func (f *fake) Refunds(_ context.Context, m, payment id.ID, page Page) ([]present.RefundReading, bool, error) {
	f.asked = append(f.asked, m, payment, page)
	return f.refunds, f.more, f.err
}

func (f *fake) Event(_ context.Context, m, event id.ID) ([]byte, error) {
	f.asked = append(f.asked, m, event)
	if m != merchant || len(f.events.Events) == 0 {
		return nil, problem.New(problem.NotFound, "")
	}
	return f.events.Events[0], f.err
}

func (f *fake) Events(_ context.Context, m id.ID, q EventQuery) (EventPage, error) {
	f.asked = append(f.asked, m, q)
	return f.events, f.err
}

func (f *fake) Endpoint(_ context.Context, c flow.EndpointCommand) (operation.Answer, error) {
	return f.change(c)
}

func (f *fake) WebhookEndpoints(_ context.Context, m id.ID) ([]payment.Endpoint, error) {
	f.asked = append(f.asked, m)
	return f.endpoints, f.err
}

func (f *fake) EndpointByID(_ context.Context, m, endpoint id.ID) (payment.Endpoint, error) {
	f.asked = append(f.asked, m, endpoint)
	for _, e := range f.endpoints {
		if e.Merchant == m && e.ID == endpoint {
			return e, f.err
		}
	}
	return payment.Endpoint{}, problem.New(problem.NotFound, "")
}

func (f *fake) EndpointSecrets(ctx context.Context, m, endpoint id.ID) ([]present.OpenSecret, error) {
	_, err := f.EndpointByID(ctx, m, endpoint)
	return []present.OpenSecret{{Text: "whsec_1", CreatedAt: noon}}, err
}

func (f *fake) Deliveries(ctx context.Context, m, endpoint id.ID, q DeliveryQuery, page Page) ([]present.Delivery, bool, error) {
	_, err := f.EndpointByID(ctx, m, endpoint)
	f.asked = append(f.asked, q, page)
	return f.deliveries, f.more, err
}

func (f *fake) Intent(_ context.Context, m, intent id.ID) (present.IntentReading, error) {
	f.asked = append(f.asked, m, intent)
	for _, r := range f.found {
		if m == r.Intent.Merchant && intent == r.Intent.ID {
			return present.IntentReading{Intent: r.Intent, Payments: f.found}, f.err
		}
	}
	return present.IntentReading{}, problem.New(problem.NotFound, "")
}

func (f *fake) Payment(_ context.Context, m, payment id.ID) (present.PaymentReading, error) {
	f.asked = append(f.asked, m, payment)
	for _, r := range f.found {
		if m == r.Payment.Merchant && payment == r.Payment.ID {
			return r, f.err
		}
	}
	return present.PaymentReading{}, problem.New(problem.NotFound, "")
}

func (f *fake) IntentByReference(_ context.Context, m id.ID, reference string) (present.IntentReading, bool, error) {
	f.asked = append(f.asked, m, reference)
	if len(f.found) == 0 {
		return present.IntentReading{}, false, f.err
	}
	return present.IntentReading{Intent: f.found[0].Intent}, true, f.err
}

func (f *fake) IntentsByCustomer(_ context.Context, m id.ID, customer string, page Page) ([]present.IntentReading, bool, error) {
	f.asked = append(f.asked, m, customer, page)
	var all []present.IntentReading
	for _, r := range f.found {
		all = append(all, present.IntentReading{Intent: r.Intent})
	}
	return all, f.more, f.err
}

func (f *fake) Payments(_ context.Context, m id.ID, q PaymentQuery, page Page) ([]present.PaymentReading, bool, error) {
	f.asked = append(f.asked, m, q, page)
	return f.found, f.more, f.err
}

// keys is an auth.Finder with one row for each key.
type keys struct {
	rows map[[32]byte]auth.Key
	err  error
}

func (k *keys) FindAPIKey(_ context.Context, m id.ID, hash [32]byte) (auth.Key, bool, error) {
	row, ok := k.rows[hash]
	return row, ok && row.Merchant == m, k.err
}

func (k *keys) add(m id.ID, secret byte) string {
	text, hash := auth.NewKey(auth.Test, m, [auth.SecretBytes]byte{secret})
	k.rows[hash] = auth.Key{Merchant: m, Hash: hash, Mode: auth.Test, ReadAt: noon}
	return text
}

// world is a door with a fake behind it.
type world struct {
	t       *testing.T
	handler http.Handler
	service *fake
	keys    *keys
	key     string // of merchant
	log     *bytes.Buffer
	now     time.Time
}

func newWorld(t *testing.T, change func(*Config)) *world {
	t.Helper()
	w := &world{t: t, service: &fake{answer: operation.Answer{Status: 201, Body: []byte(`{"id":"x"}`)}},
		keys: &keys{rows: map[[32]byte]auth.Key{}}, log: &bytes.Buffer{}, now: noon}
	w.key = w.keys.add(merchant, 1)
	cfg := Config{Service: w.service, Keys: w.keys, Log: slog.New(slog.NewJSONHandler(w.log, nil)),
		Now: func() time.Time { return w.now }}
	if change != nil {
		change(&cfg)
	}
	w.handler = New(cfg)
	return w
}

// request makes a request with a key, the form of a command, and a body.
func (w *world) request(method, target, body string) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+w.key)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(KeyHeader, "order-1")
	}
	return r
}

// told is what came back.
type told struct {
	status int
	header http.Header
	body   string
	present.ProblemBody
}

func (w *world) do(r *http.Request) told {
	w.t.Helper()
	out := httptest.NewRecorder()
	w.handler.ServeHTTP(out, r)
	raw, err := io.ReadAll(out.Result().Body)
	if err != nil {
		w.t.Fatal(err)
	}
	a := told{status: out.Code, header: out.Result().Header, body: string(raw)}
	if a.header.Get("Content-Type") == "application/problem+json" {
		if err := json.Unmarshal(raw, &a.ProblemBody); err != nil {
			w.t.Fatalf("a problem that is not JSON: %v", err)
		}
		if a.Status != a.status || a.RequestID != a.header.Get("Request-Id") || a.Type != present.ProblemType+a.Code || a.Do == "" || a.Title == "" || a.Detail == a.Title {
			w.t.Fatalf("incomplete problem: %s", raw)
		}
	}
	return a
}

func (w *world) post(target, body string) told {
	w.t.Helper()
	return w.do(w.request(http.MethodPost, target, body))
}

func (w *world) get(target string) told {
	w.t.Helper()
	return w.do(w.request(http.MethodGet, target, ""))
}

// refused demands a problem with this code and field, and that nothing came through the door.
func (w *world) refused(a told, code problem.Code, field string) {
	w.t.Helper()
	if a.Code != string(code) || a.Field != field {
		w.t.Fatalf("want %s on %q, got %d %s", code, field, a.status, a.body)
	}
	if n := len(w.service.intents) + len(w.service.payments) + len(w.service.changes); n > 0 {
		w.t.Fatalf("%d commands came through", n)
	}
}
