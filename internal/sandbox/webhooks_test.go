package sandbox

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Two secrets; what they sign is worth nothing.
const (
	hookSecret  = "whsec_c2FuZGJveCBzYW5kYm94IHNhbmRib3gh"
	otherSecret = "whsec_b3RoZXItb3RoZXItb3RoZXItb3RoZXItb3RoZXI="
)

// delivery is one request that a receiver got.
type delivery struct {
	id, unix, signature string
	body                string
}

// receiver takes messages. A test answers each one with answer; nil is 200.
type receiver struct {
	*httptest.Server
	came chan delivery

	mu     sync.Mutex
	answer func(delivery) (status int, body string)
}

func receive(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{came: make(chan delivery, 1000)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, in *http.Request) {
		body, err := io.ReadAll(in.Body)
		if err != nil {
			t.Errorf("a message that breaks off: %v", err)
		}
		d := delivery{id: in.Header.Get("webhook-id"), unix: in.Header.Get("webhook-timestamp"), signature: in.Header.Get("webhook-signature"), body: string(body)}
		if in.Method != http.MethodPost || in.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s", in.Method, in.Header.Get("Content-Type"))
		}
		r.came <- d
		r.mu.Lock()
		answer := r.answer
		r.mu.Unlock()
		status, text := http.StatusOK, ""
		if answer != nil {
			status, text = answer(d)
		}
		if status == http.StatusFound {
			w.Header().Set("Location", r.URL+"/elsewhere")
		}
		w.WriteHeader(status)
		if _, err := io.WriteString(w, text); err != nil {
			t.Logf("the answer: %v", err) // the sandbox may be gone
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) answers(answer func(delivery) (int, string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

// keeps lets the messages of a type wait for their answer, of every type for
// an empty one, until release is called.
func (r *receiver) keeps(t *testing.T, kind string) (release func()) {
	t.Helper()
	let := make(chan struct{})
	release = sync.OnceFunc(func() { close(let) })
	t.Cleanup(release)
	r.answers(func(d delivery) (int, string) {
		if kind == "" || d.told(t).Type == kind {
			<-let
		}
		return http.StatusOK, ""
	})
	return release
}

func with(status int) func(delivery) (int, string) {
	return func(delivery) (int, string) { return status, "said " + strconv.Itoa(status) }
}

// told is the message as its receiver reads it.
type toldMessage struct {
	ID        string
	Type      string
	CreatedAt time.Time `json:"created_at"`
	Livemode  *bool
	Data      map[string]any
}

func (d delivery) told(t *testing.T) toldMessage {
	t.Helper()
	var m toldMessage
	if err := json.Unmarshal([]byte(d.body), &m); err != nil {
		t.Fatalf("a body that is no JSON: %v: %s", err, d.body)
	}
	return m
}

// hooked is a sandbox that tells a receiver.
type hooked struct {
	*fixture
	*receiver
}

// stopped is a clock that only the sandbox's own calls move.
func stopped() func() time.Time {
	now := time.Now()
	return func() time.Time { return now }
}

func hook(t *testing.T, change func(*Webhooks)) *hooked {
	t.Helper()
	return hookIn(startStopped(t, t.TempDir()), receive(t), change)
}

func startStopped(t *testing.T, dir string) *fixture {
	t.Helper()
	return startWith(t, Config{Dir: dir, Secret: testSecret, Now: stopped()})
}

func hookIn(f *fixture, r *receiver, change func(*Webhooks)) *hooked {
	f.t.Helper()
	h := &hooked{f, r}
	h.set(change)
	return h
}

func (h *hooked) set(change func(*Webhooks)) {
	h.t.Helper()
	to := WebhooksTo(h.receiver.URL, hookSecret)
	if change != nil {
		change(&to)
	}
	h.ok(h.SetWebhooks(h.ctx, to))
}

func paused(w *Webhooks) { w.Paused = true }

// next is the next request that came.
func (h *hooked) next() delivery {
	h.t.Helper()
	select {
	case d := <-h.came:
		return d
	case <-h.ctx.Done():
		h.t.Fatal("no message came")
		return delivery{}
	}
}

// nothingCame checks that no request came so far.
func (h *hooked) nothingCame() {
	h.t.Helper()
	select {
	case d := <-h.came:
		h.t.Fatalf("a message came: %+v", d)
	default:
	}
}

// messages waits until n messages are in the state and returns all.
func (h *hooked) messages(state string, n int) []Message {
	h.t.Helper()
	found, err := h.WaitMessages(h.ctx, "", state, n)
	h.ok(err)
	if got := countState(found, state); got != n {
		h.t.Fatalf("%d messages are %s, want %d: %+v", got, state, n, found)
	}
	return found
}

func (h *hooked) sends(m Message, status int) Sent {
	h.t.Helper()
	sent, err := h.SendMessage(h.ctx, m.ID)
	h.ok(err)
	if sent.Status != status {
		h.t.Fatalf("%s was answered %+v, want %d", m.Type, sent, status)
	}
	return sent
}

// signed computes a signature without the sandbox's code.
func signed(t *testing.T, secret string, d delivery) string {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, key)
	if _, err := io.WriteString(mac, d.id+"."+d.unix+"."+d.body); err != nil {
		t.Fatal(err)
	}
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func types(messages []Message) string {
	var all []string
	for _, m := range messages {
		all = append(all, m.Type)
	}
	return strings.Join(all, ", ")
}

// The published vector of Standard Webhooks:
// https://github.com/standard-webhooks/standard-webhooks, libraries/go/webhook_symmetric_test.go.
func TestSignatureOfThePublishedVector(t *testing.T) {
	keys, err := signingKeys([]string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"})
	if err != nil {
		t.Fatal(err)
	}
	got := signature(keys, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", `{"test": 2432232314}`)
	if got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Error(got)
	}
}

func TestMessagesAreSigned(t *testing.T) {
	h := hook(t, func(w *Webhooks) { w.Secrets = []string{hookSecret, otherSecret} })
	h.want(h.post(h.ctx, "k1", bodyOf("order-1", "pm_ok")), 200)
	d := h.next()
	m := h.messages(MessageDelivered, 1)[0]
	if d.id != m.ID || d.body != m.Body || d.told(t).ID != m.ID {
		t.Errorf("came %+v, listed %+v", d, m)
	}
	if want := signed(t, hookSecret, d) + " " + signed(t, otherSecret, d); d.signature != want {
		t.Errorf("signature %q, want %q", d.signature, want)
	}
	unix, err := strconv.ParseInt(d.unix, 10, 64)
	if age := time.Since(time.Unix(unix, 0)); err != nil || age < -time.Second || age > testLimit {
		t.Errorf("time %s", d.unix)
	}
}

func TestMessagesWithoutSignature(t *testing.T) {
	h := hook(t, func(w *Webhooks) { w.Signed, w.Secrets = false, nil })
	h.want(h.post(h.ctx, "k1", bodyOf("order-1", "pm_ok")), 200)
	if d := h.next(); d.id == "" || d.unix != "" || d.signature != "" {
		t.Errorf("headers: %+v", d)
	}
}

func TestMessagesFromThePast(t *testing.T) {
	h := hook(t, func(w *Webhooks) { w.SkewMS = -600_000 })
	h.ok(h.Advance(h.ctx, 24*time.Hour)) // the time of a try is the real one all the same
	h.want(h.post(h.ctx, "k1", bodyOf("order-1", "pm_ok")), 200)
	d := h.next()
	unix, err := strconv.ParseInt(d.unix, 10, 64)
	if age := time.Since(time.Unix(unix, 0)); err != nil || age < 10*time.Minute || age > 10*time.Minute+testLimit || d.signature != signed(t, hookSecret, d) {
		t.Errorf("time %s", d.unix)
	}
}

func TestNobodyIsToldWithoutAnAddress(t *testing.T) {
	f := start(t)
	f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_ok")), 200)
	if messages, err := f.Messages(f.ctx, ""); err != nil || len(messages) != 0 {
		t.Errorf("messages %+v, %v", messages, err)
	}
}

func TestWebhooksAreChecked(t *testing.T) {
	h := hook(t, nil)
	for _, change := range []func(*Webhooks){
		func(w *Webhooks) { w.URL = "ftp://127.0.0.1/" }, func(w *Webhooks) { w.URL = "http:///x" }, func(w *Webhooks) { w.URL = "%" },
		func(w *Webhooks) { w.Secrets = nil }, func(w *Webhooks) { w.Secrets = []string{"secret"} },
		func(w *Webhooks) { w.Secrets = []string{"whsec_c2hvcnQ="} }, func(w *Webhooks) { w.Secrets = []string{"whsec_not base64"} },
		func(w *Webhooks) { w.Secrets = []string{"c2FuZGJveCBzYW5kYm94IHNhbmRib3gh"} },
		func(w *Webhooks) { w.Secrets = make([]string, maxSecrets+1) }, func(w *Webhooks) { w.Duplicate = -1 },
		func(w *Webhooks) { w.Duplicate = maxDuplicates + 1 }, func(w *Webhooks) { w.DelayMS = -1 },
		func(w *Webhooks) { w.DelayMS = maxDelay.Milliseconds() + 1 }, func(w *Webhooks) { w.SkewMS = 1 << 62 },
	} {
		to := WebhooksTo(h.receiver.URL, hookSecret)
		change(&to)
		if err := h.SetWebhooks(h.ctx, to); err == nil || !strings.Contains(err.Error(), "422") || strings.Contains(err.Error(), "base64:") {
			t.Errorf("accepted %+v: %v", to, err)
		}
	}
	if now, err := h.Webhooks(h.ctx); err != nil || now.URL != h.receiver.URL || !now.Signed {
		t.Errorf("the settings moved: %+v, %v", now, err)
	}
	if g := h.want(h.get("/control/webhooks"), 200); strings.Contains(g.body, "whsec_") || !strings.Contains(g.body, `"secrets_set":1`) {
		t.Errorf("the settings: %s", g.body)
	}
	if server, err := Open(Config{Dir: t.TempDir(), Secret: "s", WebhookSecret: "whsec_c2hvcnQ="}); err == nil || strings.Contains(err.Error(), "c2hv") {
		t.Errorf("opened with a short secret: %v", server.Close())
	}
}
