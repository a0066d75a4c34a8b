package inbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer/signature"
	"github.com/hapaxpay/hapax/inbox"
	"github.com/hapaxpay/hapax/internal/pgproxy"
	"github.com/jackc/pgx/v5"
)

var (
	now     = time.Unix(1_800_000_000, 0)
	current = signature.NewSecret([signature.NewSecretBytes]byte{1})
	earlier = signature.NewSecret([signature.NewSecretBytes]byte{2})
	strange = signature.NewSecret([signature.NewSecretBytes]byte{3})
)

func eventOf(id string) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":%q,"type":"payment.paid","subject":"pi_1","subjectversion":2,`+
		`"time":"2026-01-02T03:04:05Z","data":{"amount":1130}}`, id)
}

// receiver is a consumer of webhooks whose effect is a receipt.
type receiver struct {
	*world
	server *httptest.Server
	log    bytes.Buffer
	effect func(e inbox.Event) error // called inside the effect; nil: nothing
}

func newReceiver(t *testing.T, db func(*world) inbox.Database[pgx.Tx]) *receiver {
	t.Helper()
	r := &receiver{world: newWorld(t)}
	handler, err := inbox.Webhook[pgx.Tx]{
		DB: db(r.world), Consumer: receipts, Secrets: func() []signature.Secret { return []signature.Secret{earlier, current} },
		Effect: func(ctx context.Context, tx pgx.Tx, e inbox.Event) error {
			_, err := tx.Exec(ctx, insertReceipt, e.ID, receipts)
			if err == nil && r.effect != nil {
				err = r.effect(e)
			}
			return err
		},
		MaxBody: 1000, Now: func() time.Time { return now }, Log: slog.New(slog.NewTextHandler(&r.log, nil)),
	}.Handler()
	if err != nil {
		t.Fatal(err)
	}
	r.server = httptest.NewServer(handler)
	t.Cleanup(r.server.Close)
	return r
}

func straight(w *world) inbox.Database[pgx.Tx] { return inbox.OverPGX(w.pool) }

// post sends a body with the headers of another, which is the same where nothing was tampered with.
func (r *receiver) post(method, body, signed string, at time.Time, secrets ...signature.Secret) (status int, text string) {
	r.t.Helper()
	h, err := signature.Headers(secrets, "evt_header", at, []byte(signed))
	if err != nil {
		r.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.server.URL, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header = h
	resp, err := r.server.Client().Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	answer, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

func (r *receiver) deliver(id string) int {
	r.t.Helper()
	status, _ := r.post(http.MethodPost, eventOf(id), eventOf(id), now, current)
	return status
}

// TestWebhookFiveTimes: each delivery is answered 204, and there is one receipt; also when all come at once.
func TestWebhookFiveTimes(t *testing.T) {
	r := newReceiver(t, straight)
	for range 5 {
		if status := r.deliver("evt_1"); status != http.StatusNoContent {
			t.Errorf("answered %d", status)
		}
	}
	r.want("evt_1", 1, 1)

	inside, proceed, done := make(chan struct{}), make(chan struct{}), make(chan int, 5)
	let := sync.OnceFunc(func() { close(proceed) })
	defer let()                          // also when the test ends early
	r.effect = func(inbox.Event) error { // runs once: who waits does not come here
		close(inside)
		<-proceed
		return nil
	}
	for i := range 5 {
		go func() { done <- r.deliver("evt_2") }()
		if i == 0 {
			<-inside
		}
	}
	r.db.WaitBlocked(t, 4)
	select {
	case status := <-done:
		t.Errorf("answered %d before the commit", status)
	default:
	}
	let()
	for range 5 {
		if status := <-done; status != http.StatusNoContent {
			t.Errorf("answered %d", status)
		}
	}
	r.want("evt_2", 1, 1)
}

// TestWebhookIsSentAgain: no 2xx without a commit: not when the effect failed, not when nobody knows of the commit.
func TestWebhookIsSentAgain(t *testing.T) {
	var proxy *pgproxy.Proxy
	r := newReceiver(t, func(w *world) inbox.Database[pgx.Tx] {
		p, url := pgproxy.New(w.t, w.db.Superuser())
		proxy = p
		return inbox.OverPGX(connect(w.t, url))
	})
	for what, broken := range map[string]error{"fault": errors.New("no room"), "wraps": fmt.Errorf("asking: %w", signature.ErrMismatch)} {
		r.effect = func(inbox.Event) error { return broken }
		if status := r.deliver(what); status != http.StatusInternalServerError {
			t.Errorf("%s: answered %d", what, status)
		}
		r.want(what, 0, 0)
		r.effect = nil
		if status := r.deliver(what); status != http.StatusNoContent {
			t.Errorf("%s: answered %d", what, status)
		}
		r.want(what, 1, 1)
	}
	for _, mode := range []pgproxy.Mode{pgproxy.SwallowReply, pgproxy.SwallowCommit} {
		id := fmt.Sprint("evt_", mode)
		proxy.Once(mode, 0)
		if status := r.deliver(id); status != http.StatusInternalServerError {
			t.Errorf("%s: answered %d", id, status)
		}
		if status := r.deliver(id); status != http.StatusNoContent {
			t.Errorf("%s: answered %d", id, status)
		}
		r.want(id, 1, 1)
	}
	if log := r.log.String(); !strings.Contains(log, "no room") || strings.Contains(log, "1130") || strings.Contains(log, "v1,") {
		t.Errorf("the log says\n%s", log)
	}
}

// TestWebhookRefuses what is not ours, on the raw bytes and before they are read as anything.
func TestWebhookRefuses(t *testing.T) {
	r := newReceiver(t, straight)
	good := eventOf("evt_1")
	for what, tc := range map[string]struct {
		method, body, signed string
		at                   time.Time
		secret               signature.Secret
		status               int
	}{
		"another secret":   {"POST", good, good, now, strange, 401},
		"another body":     {"POST", good, eventOf("evt_2"), now, current, 401},
		"written anew":     {"POST", strings.ReplaceAll(good, ":", ": "), good, now, current, 401},
		"not JSON, forged": {"POST", "{", good, now, current, 401},
		"old":              {"POST", good, good, now.Add(-5 * time.Minute), current, 401},
		"new":              {"POST", good, good, now.Add(5 * time.Minute), current, 401},
		"too long":         {"POST", good + strings.Repeat(" ", 1000), good, now, current, 413},
		"not JSON":         {"POST", "{", "{", now, current, 400},
		"no event":         {"POST", "{}", "{}", now, current, 400},
		"no id":            {"POST", eventOf(""), eventOf(""), now, current, 400},
		"another method":   {"GET", "", "", now, current, 405},
	} {
		status, text := r.post(tc.method, tc.body, tc.signed, tc.at, tc.secret)
		if status != tc.status || strings.Contains(text, "evt_") {
			t.Errorf("%s: answered %d %q, want %d", what, status, text, tc.status)
		}
	}
	if n := r.count("SELECT count(*) FROM hapax_inbox") + r.count("SELECT count(*) FROM receipt"); n != 0 {
		t.Errorf("%d rows came of it", n)
	}
	for _, secrets := range [][]signature.Secret{{earlier}, {current}, {strange, current}} {
		if status, _ := r.post("POST", good, good, now, secrets...); status != http.StatusNoContent {
			t.Errorf("during a rotation: answered %d", status)
		}
	}
	r.want("evt_1", 1, 1)
}

// TestWebhookSettings: what could only fail is refused at start.
func TestWebhookSettings(t *testing.T) {
	secrets := []signature.Secret{current}
	whole := inbox.Webhook[pgx.Tx]{
		DB: inbox.OverPGX((*pgx.Conn)(nil)), Consumer: receipts, Secrets: func() []signature.Secret { return secrets },
		Effect: func(context.Context, pgx.Tx, inbox.Event) error { return nil }, Log: slog.New(slog.DiscardHandler),
	}
	handler, err := whole.Handler()
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*inbox.Webhook[pgx.Tx]){
		"no database": func(w *inbox.Webhook[pgx.Tx]) { w.DB = inbox.Database[pgx.Tx]{} },
		"no name":     func(w *inbox.Webhook[pgx.Tx]) { w.Consumer = "" },
		"no secrets":  func(w *inbox.Webhook[pgx.Tx]) { w.Secrets = nil },
		"no secret":   func(w *inbox.Webhook[pgx.Tx]) { w.Secrets = func() []signature.Secret { return nil } },
		"no effect":   func(w *inbox.Webhook[pgx.Tx]) { w.Effect = nil },
	} {
		broken := whole
		change(&broken)
		if h, err := broken.Handler(); h != nil || err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	// Secrets that are lost later are our fault, not the sender's.
	secrets = nil
	h, err := signature.Headers([]signature.Secret{current}, "evt_1", time.Now(), []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("{}"))
	req.Header = h
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, req)
	if answer.Code != http.StatusInternalServerError {
		t.Errorf("answered %d", answer.Code)
	}
}

// TestParseEvent reads every member that a consumer needs, and leaves numbers as they were written.
func TestParseEvent(t *testing.T) {
	e, err := inbox.ParseEvent([]byte(strings.Replace(eventOf("evt_1"), "1130", "12345678901234567890", 1)))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if e.ID != "evt_1" || e.Type != "payment.paid" || e.Subject != "pi_1" || e.Version != 2 || !e.Time.Equal(at) ||
		!bytes.Equal(e.Data, json.RawMessage(`{"amount":12345678901234567890}`)) {
		t.Errorf("read %+v", e)
	}
	for _, raw := range []string{"", "null", "[]", `{"id":1}`, `{"specversion":"2.0","id":"a","type":"b"}`, `{"specversion":"1.0","id":"a"}`} {
		if _, err := inbox.ParseEvent([]byte(raw)); !errors.Is(err, inbox.ErrEvent) {
			t.Errorf("%q: %v", raw, err)
		}
	}
}
