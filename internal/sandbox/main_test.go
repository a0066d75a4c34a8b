package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testSecret = "sk_sandbox_test"

// testLimit is how long a test may wait for a signal before it fails.
const testLimit = 30 * time.Second

// fixture is an open sandbox, its control client, and a client that charges.
type fixture struct {
	t *testing.T
	*Client
	server *Server
	dir    string
	ctx    context.Context
	charge *http.Client
}

func start(t *testing.T) *fixture { return startIn(t, t.TempDir()) }

func startIn(t *testing.T, dir string) *fixture {
	t.Helper()
	return startWith(t, Config{Dir: dir, Secret: testSecret, Seed: 1})
}

func startWith(t *testing.T, cfg Config) *fixture {
	t.Helper()
	server, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	control, charging := &http.Transport{}, &http.Transport{}
	f := &fixture{t: t, server: server, dir: cfg.Dir, ctx: ctx, charge: &http.Client{Transport: charging, CheckRedirect: noRedirect},
		Client: &Client{Base: server.URL(), HTTP: &http.Client{Transport: control}}}
	t.Cleanup(func() {
		cancel()
		control.CloseIdleConnections()
		charging.CloseIdleConnections()
		if err := server.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return f
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// got is an answer, or the error in its place.
type got struct {
	status   int
	body     string
	location string
	err      error
}

func (g got) String() string {
	return fmt.Sprintf("status %d, err %v, body %s", g.status, g.err, g.body)
}

func (g got) charge(t *testing.T) Charge {
	t.Helper()
	return decoded[Charge](t, g)
}

// decoded reads the object that an answer holds.
func decoded[T any](t *testing.T, g got) T {
	t.Helper()
	var object T
	if err := json.Unmarshal([]byte(g.body), &object); err != nil || g.err != nil {
		t.Fatalf("not a %T: %v: %v", object, err, g)
	}
	return object
}

func bodyOf(reference, method string) string {
	return fmt.Sprintf(`{"reference":%q,"amount":1250,"currency":"USD","payment_method":%q}`, reference, method)
}

// post charges.
func (f *fixture) post(ctx context.Context, key, body string) got {
	return f.postTo(ctx, "/charges", key, body)
}

// postTo makes a merchant's call; GetBody is off, so that Go's transport
// repeats nothing.
func (f *fixture) postTo(ctx context.Context, path, key, body string) got {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.Base+path, strings.NewReader(body))
	if err != nil {
		return got{err: err}
	}
	request.GetBody = nil
	request.Header.Set("Content-Type", "application/json")
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	return f.do(request)
}

func (f *fixture) get(path string) got {
	request, err := http.NewRequestWithContext(f.ctx, http.MethodGet, f.Base+path, nil)
	if err != nil {
		return got{err: err}
	}
	return f.do(request)
}

// form sends what a payer presses on a page.
func (f *fixture) form(path, do string) got {
	f.t.Helper()
	request, err := http.NewRequestWithContext(f.ctx, http.MethodPost, f.Base+path, strings.NewReader("do="+do))
	f.ok(err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return f.do(request)
}

func (f *fixture) do(request *http.Request) got {
	if request.Header.Get("Authorization") == "" {
		request.Header.Set("Authorization", "Bearer "+testSecret)
	}
	response, err := f.charge.Do(request)
	if err != nil {
		return got{err: err}
	}
	body, err := io.ReadAll(response.Body)
	if cerr := response.Body.Close(); err == nil {
		err = cerr
	}
	return got{status: response.StatusCode, body: string(body), location: response.Header.Get("Location"), err: err}
}

// async posts beside the test and gives the answer to a channel.
func (f *fixture) async(ctx context.Context, key, body string) <-chan got {
	return beside(func() got { return f.post(ctx, key, body) })
}

func beside(call func() got) <-chan got {
	answers := make(chan got, 1)
	go func() { answers <- call() }()
	return answers
}

func (f *fixture) await(answers <-chan got) got {
	f.t.Helper()
	select {
	case g := <-answers:
		return g
	case <-f.ctx.Done():
		f.t.Fatal("no answer came")
		return got{}
	}
}

func (f *fixture) ok(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// moved checks how much the register holds.
func (f *fixture) moved(n int) []Movement {
	f.t.Helper()
	movements, err := f.Register(f.ctx)
	f.ok(err)
	if len(movements) != n {
		f.t.Fatalf("the register has %d movements, want %d: %+v", len(movements), n, movements)
	}
	return movements
}

// want checks the status of an answer; 0 means that none came.
func (f *fixture) want(g got, status int) got {
	f.t.Helper()
	if (status == 0) != (g.err != nil) || g.status != status {
		f.t.Fatalf("got %v; want status %d", g, status)
	}
	return g
}

func (f *fixture) wantCode(g got, status int, code string) {
	f.t.Helper()
	f.want(g, status)
	if !strings.Contains(g.body, `"code":"`+code+`"`) {
		f.t.Fatalf("got %v; want code %s", g, code)
	}
}

// lostOnPurpose charges, waits until the sandbox stands silent, and goes away.
func (f *fixture) lostOnPurpose(key, body string) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	answers := f.async(ctx, key, body)
	f.ok(f.WaitWaiting(f.ctx, silentGate, 1))
	cancel()
	f.want(f.await(answers), 0)
}

// leftAtTheClock charges, waits until the sandbox waits for its clock, and
// goes away.
func (f *fixture) leftAtTheClock(key, body string) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	answers := f.async(ctx, key, body)
	f.ok(f.WaitWaiting(f.ctx, clockGate, 1))
	cancel()
	f.want(f.await(answers), 0)
}

// neither is a contract without keys and without unique references.
func neither() Contract {
	terms := DefaultContract()
	terms.KeysHonoured = false
	return terms
}

func (f *fixture) release(gate string, n int) {
	f.t.Helper()
	released, err := f.Release(f.ctx, gate, n)
	f.ok(err)
	if n > 0 && released != n {
		f.t.Fatalf("released %d at %s, want %d", released, gate, n)
	}
}

// movedWithin waits for the n-th movement.
func (f *fixture) movedWithin(n int) {
	f.t.Helper()
	_, err := f.WaitMovements(f.ctx, n)
	f.ok(err)
	f.moved(n)
}
