package flow_test

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/config"
	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// The table of PROTOCOL section 2, row by row, over HTTP.

type table struct {
	t *testing.T
	r *rig.Rig
	p *rig.Replica
}

func newTable(t *testing.T, terms rig.Terms) table {
	r := rig.New(t, terms)
	return table{t, r, r.Replica(rig.Hasty)}
}

// want checks status, code or payment status, and that a refusal is a problem document.
func (x table) want(a rig.Response, status int, word string) rig.Response {
	x.t.Helper()
	got := a.Member("code")
	if got == "" {
		got = a.Member("status")
	}
	if a.Status != status || got != word {
		x.t.Errorf("told %d %q %s; want %d %q", a.Status, got, a.Body, status, word)
	}
	return a
}

// hold keeps the next charge at the acquirer and returns when it is there; release lets it go and gives its answer.
func (x table) hold(key string, o rig.Order) (release func() rig.Response) {
	x.t.Helper()
	faults(x.t, x.r, sandbox.Rule{Fault: "hold_before", Gate: "there", Times: 1})
	slow := x.r.Replica(patient)
	answer := make(chan rig.Response, 1)
	go func() { answer <- slow.PayHTTP(key, o) }()
	if err := x.r.Acquirer.WaitWaiting(x.t.Context(), "there", 1); err != nil {
		x.t.Fatal(err)
	}
	return func() rig.Response {
		if _, err := x.r.Acquirer.Release(x.t.Context(), "there", 0); err != nil {
			x.t.Fatal(err)
		}
		return <-answer
	}
}

func TestAnswersToTheFirstRequest(t *testing.T) {
	x := newTable(t, nil)
	a := x.want(x.p.PayHTTP("paid", rig.Order{Reference: "1"}), 201, "paid")
	if a.Header.Get("Request-Id") == "" || a.Header.Get("Idempotency-Key-Expires") == "" || a.Header.Get("Idempotency-Replayed") != "" {
		t.Errorf("headers of a first answer: %v", a.Header)
	}
	a = x.want(x.p.PayHTTP("declined", rig.Order{Reference: "2", Method: "pm_declined_insufficient_funds"}), 402, "declined")
	if !bytes.Contains(a.Body, []byte(`"failure":{"code":"insufficient_funds"`)) {
		t.Errorf("no reason in %s", a.Body)
	}
	x.want(x.p.PayHTTP("rejected", rig.Order{Reference: "3", Method: "pm_401_once"}), 422, "failed")
	a = x.want(x.p.PayHTTP("unknown", rig.Order{Reference: "4", Method: "pm_500_executed"}), 202, "unknown")
	if a.Header.Get("Location") == "" || a.Header.Get("Retry-After") == "" || a.Member("explanation") == "" {
		t.Errorf("an open answer lacks Location, Retry-After or words: %v %s", a.Header, a.Body)
	}
	x.want(x.p.PayHTTP("pending", rig.Order{Reference: "5", Method: "pm_processing_60000"}), 202, "pending")
	x.p.Settle(time.Hour)
	settled(t, x.r, 3)
}

func TestAnswersToTheSameKey(t *testing.T) {
	x := newTable(t, nil)
	first := x.p.PayHTTP("done", rig.Order{Reference: "1"})
	again := x.want(x.p.PayHTTP("done", rig.Order{Reference: "1"}), 201, "paid")
	if !bytes.Equal(first.Body, again.Body) || again.Header.Get("Idempotency-Replayed") != "true" ||
		again.Header.Get("Original-Request") != first.Header.Get("Request-Id") {
		t.Errorf("not the stored bytes: %s and %s, %v", first.Body, again.Body, again.Header)
	}
	release := x.hold("busy", rig.Order{Reference: "2"})
	a := x.want(x.p.PayHTTP("busy", rig.Order{Reference: "2"}), 409, string(problem.OperationInProgress))
	if a.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After on operation_in_progress")
	}
	x.want(release(), 201, "paid")
	x.want(x.p.PayHTTP("open", rig.Order{Reference: "3", Method: "pm_500_executed"}), 202, "unknown")
	x.want(x.p.PayHTTP("open", rig.Order{Reference: "3", Method: "pm_500_executed"}), 202, "unknown")
	x.want(x.p.PayHTTP("open", rig.Order{Reference: "3", Minor: 1, Method: "pm_500_executed"}), 422, string(problem.KeyReuse))
	x.p.Settle(time.Hour)
	x.want(x.p.PayHTTP("open", rig.Order{Reference: "3", Method: "pm_500_executed"}), 201, "paid")
	settled(t, x.r, 3)
}

func TestAnswersAfterTheClientsTime(t *testing.T) {
	r := rig.New(t, nil)
	quick := func(c *config.Config) { c.AnswerWithin = 300 * time.Millisecond }
	p := r.Replica(patient, rig.With(quick))
	x := table{t, r, p}
	faults(t, r, sandbox.Rule{Fault: "hold_before", Gate: "there", Times: 1})
	x.want(p.PayHTTP("slow", rig.Order{Reference: "1"}), 202, "pending")
	// Being worked on for longer than the client waits: the current state, not 409.
	x.want(p.PayHTTP("slow", rig.Order{Reference: "1"}), 202, "pending")
	if _, err := r.Acquirer.Release(t.Context(), "there", 0); err != nil {
		t.Fatal(err)
	}
	dbtest.Eventually(t, func() bool { return r.Status("slow") == "paid" })
	x.want(p.PayHTTP("slow", rig.Order{Reference: "1"}), 201, "paid")
	settled(t, r, 1)
}

func TestAnswersToAnotherKey(t *testing.T) {
	x := newTable(t, nil)
	release := x.hold("tab-1", rig.Order{Reference: "1"})
	a := x.want(x.p.PayHTTP("tab-2", rig.Order{Reference: "1"}), 202, "pending")
	b := x.want(x.p.PayHTTP("tab-3", rig.Order{Reference: "1", Method: "pm_slow_1"}), 409, string(problem.PaymentOpen))
	if b.Member("link") != "/v1/payments/"+a.Member("id") {
		t.Errorf("payment_open links to %q", b.Member("link"))
	}
	x.want(x.p.PayHTTP("tab-4", rig.Order{Reference: "1", Minor: 7}), 409, string(problem.PaymentOpen))
	x.want(release(), 201, "paid")
	x.want(x.p.PayHTTP("tab-2", rig.Order{Reference: "1"}), 201, "paid")
	c := x.want(x.p.PayHTTP("tab-5", rig.Order{Reference: "1"}), 409, string(problem.AlreadyPaid))
	if c.Member("link") != "/v1/payments/"+a.Member("id") {
		t.Errorf("already_paid links to %q", c.Member("link"))
	}
	x.want(x.p.PayHTTP("tab-5", rig.Order{Reference: "1"}), 409, string(problem.AlreadyPaid))
	settled(t, x.r, 1)
}

func TestAnswersAfterARefusal(t *testing.T) {
	t.Run("gate open", func(t *testing.T) {
		x := newTable(t, nil)
		x.want(x.p.PayHTTP("card-1", rig.Order{Reference: "1", Method: "pm_declined_expired_card"}), 402, "declined")
		a := x.want(x.p.PayHTTP("card-2", rig.Order{Reference: "1"}), 201, "paid")
		if a.Member("n") != "2" {
			t.Errorf("ordinal %s, want 2", a.Member("n"))
		}
		x.want(x.p.PayHTTP("card-1", rig.Order{Reference: "1", Method: "pm_declined_expired_card"}), 402, "declined")
		settled(t, x.r, 1)
	})
	t.Run("gate closed", func(t *testing.T) {
		// The acquirer forgets refusals, and the answer came to the repeat: the first request may still arrive.
		x := newTable(t, rig.Terms{"remembers_refusals": false, "max_flight": "10m"})
		terms := sandbox.DefaultContract()
		terms.RefusalsRemembered = false
		if err := x.r.Acquirer.SetContract(t.Context(), terms); err != nil {
			t.Fatal(err)
		}
		x.want(x.p.PayHTTP("card-1", rig.Order{Reference: "1", Method: "pm_timeout_not_executed|pm_declined_expired_card"}), 402, "declined")
		a := x.want(x.p.PayHTTP("card-2", rig.Order{Reference: "1"}), 409, string(problem.PaymentSettling))
		if a.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After on payment_settling")
		}
		x.r.Later(11 * time.Minute)
		x.p.Settle(time.Hour)
		x.want(x.p.PayHTTP("card-2", rig.Order{Reference: "1"}), 201, "paid")
		settled(t, x.r, 1)
	})
}

func TestAnswersOfAnIntent(t *testing.T) {
	x := newTable(t, nil)
	post := func(path, key, body string) rig.Response {
		t.Helper()
		a, err := x.p.Do(t.Context(), x.r.Merchant, http.MethodPost, path, key, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := post("/v1/payment_intents", "i-1", `{"amount":1000,"currency":"KZT","client_reference":"order-1"}`)
	if a.Status != 201 || a.Member("version") != "1" {
		t.Fatalf("told %d %s", a.Status, a.Body)
	}
	if b := post("/v1/payment_intents", "i-2", `{"amount":1000,"currency":"KZT","client_reference":"order-1"}`); b.Status != 200 || b.Member("id") != a.Member("id") {
		t.Errorf("the same again: %d %s", b.Status, b.Body)
	}
	if b := post("/v1/payment_intents", "i-3", `{"amount":2000,"currency":"KZT","client_reference":"order-1"}`); b.Status != 200 || b.Member("version") != "2" || b.Member("amount") != "2000" {
		t.Errorf("an amendment: %d %s", b.Status, b.Body)
	}
	pay := func(key, extra string) rig.Response {
		return post("/v1/payments", key, fmt.Sprintf(`{"payment_intent":%q,"payment_method":"pm_ok"%s}`, a.Member("id"), extra))
	}
	x.want(pay("p-0", `,"amount":1000`), 422, string(problem.AmountMismatch))
	x.want(pay("p-0", `,"currency":"USD"`), 422, string(problem.AmountMismatch))
	x.want(pay("p-0", `,"amount":2000,"currency":"KZT"`), 201, "paid")
	x.want(post("/v1/payment_intents", "i-4", `{"amount":3000,"currency":"KZT","client_reference":"order-1"}`), 409, string(problem.IntentConflict))
	x.want(post("/v1/payments", "p-9", `{"payment_intent":"pi_00000000000000000000000000","payment_method":"pm_ok"}`), 404, string(problem.NotFound))
	x.want(post("/v1/payments", "p-8", `{"amount":1,"currency":"KZT","client_reference":"late","pay_before":"2020-01-01T00:00:00Z","payment_method":"pm_ok"}`), 422, string(problem.IntentExpired))
	if got := x.r.Count("SELECT count(*) FROM payment_intent"); got != 1 {
		t.Errorf("%d intents, want 1: a refused request leaves nothing behind", got)
	}
	post("/v1/payment_intents", "i-5", `{"amount":1000,"currency":"KZT","client_reference":"order-2"}`)
	x.r.Later(25 * time.Hour)
	x.want(post("/v1/payments", "p-7", `{"amount":1000,"currency":"KZT","client_reference":"order-2","payment_method":"pm_ok"}`), 422, string(problem.IntentExpired))
	settled(t, x.r, 1)
}

func TestAnswersOfAConflict(t *testing.T) {
	// The acquirer refuses the repeat and executes the first request after all: it does not remember refusals.
	x := newTable(t, rig.Terms{"remembers_refusals": false, "max_flight": "10m"})
	terms := sandbox.DefaultContract()
	terms.RefusalsRemembered = false
	if err := x.r.Acquirer.SetContract(t.Context(), terms); err != nil {
		t.Fatal(err)
	}
	x.want(x.p.PayHTTP("card-1", rig.Order{Reference: "1", Method: "pm_arrives_after_60s|pm_declined_do_not_honor"}), 402, "declined")
	x.r.Later(11 * time.Minute)
	if _, err := x.r.Acquirer.WaitMovements(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	x.p.Settle(time.Hour)
	x.want(x.p.PayHTTP("card-2", rig.Order{Reference: "1"}), 409, string(problem.PaymentConflict))
	if got := x.r.Text("SELECT reason FROM review WHERE decided_at IS NULL"); got != "money_after_refusal" {
		t.Errorf("review %q", got)
	}
	if got := x.r.Count("SELECT count(*) FROM movement WHERE state = 'unapplied'"); got != 1 {
		t.Errorf("%d unapplied movements, want 1", got)
	}
	x.r.Verify()
}
