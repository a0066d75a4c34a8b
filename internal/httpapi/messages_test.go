package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/intake"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/problem"
)

// mailbox takes what comes and answers what it is told to.
type mailbox struct {
	err   error
	wait  chan struct{}
	in    chan struct{}
	mu    sync.Mutex
	taken []string
}

func (m *mailbox) Take(_ context.Context, merchant, account id.ID, header http.Header, read func() ([]byte, error)) error {
	if errors.Is(m.err, intake.ErrNoMailbox) {
		m.taken = append(m.taken, "no body was read")
		return m.err
	}
	body, err := read()
	if err != nil {
		return err
	}
	if m.wait != nil {
		m.in <- struct{}{}
		<-m.wait
		return m.err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taken = append(m.taken, fmt.Sprint(merchant, account, header.Get("Webhook-Id"), string(body)))
	return m.err
}

func messageWorld(t *testing.T, m *mailbox) *world {
	return newWorld(t, func(c *Config) { c.Messages = m })
}

func message(w *world, target, body string) *http.Request {
	r := w.request(http.MethodPost, target, body)
	r.Header.Del("Authorization")
	r.Header.Set("Content-Type", "text/plain")
	r.Header.Set("Webhook-Id", "evt_1")
	return r
}

// TestMessagesOfAcquirers: no API key, the raw bytes, and what each verdict is told.
func TestMessagesOfAcquirers(t *testing.T) {
	path := intake.Path(merchant, other)
	body := "\xff not { JSON \n"
	for _, row := range []struct {
		err    error
		status int
		code   problem.Code
	}{
		{nil, 200, ""}, {intake.ErrNoMailbox, 404, problem.NotFound}, {fmt.Errorf("%w: a hidden reason", intake.ErrRefused), 401, problem.SignatureInvalid},
		{operation.ErrNothingDone, 503, problem.TryAgain}, {operation.ErrCommitUnknown, 503, problem.TryAgain}, {errors.New("a hidden reason"), 503, problem.TryAgain},
	} {
		m := &mailbox{err: row.err}
		w := messageWorld(t, m)
		a := w.do(message(w, path, body))
		if a.status != row.status || a.Code != string(row.code) || strings.Contains(a.body, "hidden") {
			t.Errorf("%v: %d %s", row.err, a.status, a.body)
		}
		if row.err == nil && a.body != "{}" || row.status == 503 && a.header.Get("Retry-After") == "" {
			t.Errorf("%v: %v %s", row.err, a.header, a.body)
		}
		taken := fmt.Sprint(merchant, other, "evt_1", body)
		if row.code == problem.NotFound {
			taken = "no body was read"
		}
		if len(m.taken) != 1 || m.taken[0] != taken {
			t.Errorf("taken %q", m.taken)
		}
	}
}

// TestMessagesThatAreNotTaken: what is out of bounds never comes through, and is told so that it is sent again where that helps.
func TestMessagesThatAreNotTaken(t *testing.T) {
	path := intake.Path(merchant, other)
	m := &mailbox{}
	w := messageWorld(t, m)
	for target, want := range map[string]int{
		"/v1/acquirer_accounts/aa_/webhooks": 404, "/v1/acquirer_accounts/" + other.Text(id.Account) + "/webhooks": 404,
		strings.Replace(path, "aa_", "mer_", 1): 404, path + "/x": 404, strings.ToUpper(path): 404,
	} {
		if a := w.do(message(w, target, "x")); a.status != want {
			t.Errorf("%s: %d %s", target, a.status, a.body)
		}
	}
	if a := w.do(message(w, path, strings.Repeat("x", intake.MaxBody+1))); a.Code != string(problem.TooLarge) || strings.Contains(a.body, "64 KiB") {
		t.Errorf("%d %s", a.status, a.body)
	}
	broken := message(w, path, "")
	broken.Body = io.NopCloser(io.MultiReader(strings.NewReader("half"), brokenReader{}))
	if a := w.do(broken); a.Code != string(problem.Malformed) {
		t.Errorf("half a message: %d %s", a.status, a.body)
	}
	if a := w.get(path); a.status != 405 || a.header.Get("Allow") != "POST" {
		t.Errorf("GET: %d %v", a.status, a.header)
	}
	if len(m.taken) != 0 {
		t.Errorf("taken %q", m.taken)
	}
	if a := w.do(message(w, path, strings.Repeat("x", intake.MaxBody))); a.status != 200 || len(m.taken) != 1 {
		t.Errorf("the longest: %d %s", a.status, a.body)
	}
	limited := 0
	for range 3 * messagesPerSecond {
		if a := w.do(message(w, path, "x")); a.Code == string(problem.RateLimited) && a.header.Get("Retry-After") != "" {
			limited++
		}
	}
	if limited == 0 {
		t.Error("no bound for one account")
	}
	if a := w.do(message(w, intake.Path(merchant, merchant), "x")); a.status != 200 {
		t.Errorf("another account: %d %s", a.status, a.body)
	}
	if a := newWorld(t, nil).post(path, "x"); a.status != 404 {
		t.Errorf("nobody takes: %d", a.status)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("gone") }

// TestManyMessagesAtOnce: beyond the places the answer is 503, at once, and a place that is left is taken again.
func TestManyMessagesAtOnce(t *testing.T) {
	m := &mailbox{wait: make(chan struct{}), in: make(chan struct{})}
	w := messageWorld(t, m)
	path := intake.Path(merchant, other)
	ended := make(chan told, maxMessages)
	for range maxMessages {
		r := message(w, path, "x")
		go func() { ended <- w.do(r) }()
		<-m.in
	}
	if a := w.do(message(w, path, "x")); a.Code != string(problem.TryAgain) || a.header.Get("Retry-After") == "" {
		t.Errorf("one too many: %d %s", a.status, a.body)
	}
	close(m.wait)
	for range maxMessages {
		if a := <-ended; a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	go func() { <-m.in }()
	if a := w.do(message(w, path, "x")); a.status != 200 {
		t.Errorf("afterwards: %d %s", a.status, a.body)
	}
}

// slowBody says when it is read, and ends when it is told to.
type slowBody struct{ begun, end chan struct{} }

func (b slowBody) Read([]byte) (int, error) {
	b.begun <- struct{}{}
	<-b.end
	return 0, io.EOF
}

// TestSlowBodiesOfOneAccount: they take a share of the places and no more; other accounts are served meanwhile.
func TestSlowBodiesOfOneAccount(t *testing.T) {
	w := messageWorld(t, &mailbox{})
	slow, body := intake.Path(merchant, other), slowBody{make(chan struct{}), make(chan struct{})}
	ended := make(chan told, maxBodies)
	for range maxBodies {
		r := message(w, slow, "")
		r.Body = io.NopCloser(body)
		go func() { ended <- w.do(r) }()
		<-body.begun
	}
	if a := w.do(message(w, slow, "x")); a.Code != string(problem.TryAgain) || a.header.Get("Retry-After") == "" {
		t.Errorf("one more of it: %d %s", a.status, a.body)
	}
	if a := w.do(message(w, intake.Path(merchant, merchant), "x")); a.status != 200 {
		t.Errorf("another account: %d %s", a.status, a.body)
	}
	close(body.end)
	broken := 0
	for range maxBodies {
		if a := <-ended; a.status != 200 {
			broken++
		}
	}
	if a := w.do(message(w, slow, "x")); a.status != 200 || broken > 0 {
		t.Errorf("afterwards: %d %s, %d slow ones refused", a.status, a.body, broken)
	}
}
