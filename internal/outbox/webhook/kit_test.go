package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer/signature"
	"github.com/hapaxpay/hapax/internal/app"
	"github.com/hapaxpay/hapax/internal/config"
	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/rig"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// lax lets a replica send to receivers on loopback.
func lax(c *config.Config, _ *app.Options) { c.WebhookAllowPrivate = true }

// got is one webhook as it came in.
type got struct {
	header http.Header
	body   string
	at     time.Time
}

func (g got) id() string { return g.header.Get(signature.HeaderID) }

// receiver is a merchant's endpoint.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	answer func(http.ResponseWriter, *http.Request)
	heard  []got
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		http.Error(w, "unreadable", 400)
		return
	}
	r.mu.Lock()
	r.heard = append(r.heard, got{req.Header.Clone(), string(body), time.Now()})
	answer := r.answer
	r.mu.Unlock()
	if answer != nil {
		answer(w, req)
	}
}

// answers sets what it says from now on; 0: 200.
func (r *receiver) answers(status int) {
	r.say(func(w http.ResponseWriter, _ *http.Request) {
		if status != 0 {
			w.WriteHeader(status)
			fmt.Fprint(w, "no thanks")
		}
	})
}

func (r *receiver) say(f func(http.ResponseWriter, *http.Request)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

// take gives what came since the last time.
func (r *receiver) take() []got {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.heard
	r.heard = nil
	return all
}

// shop is a merchant at a replica's door.
type shop struct {
	t *testing.T
	*rig.Rig
	replica  *rig.Replica
	merchant rig.Merchant
	keys     int
}

func open(t *testing.T, options ...rig.Option) *shop {
	t.Helper()
	r := rig.New(t, nil)
	return &shop{t: t, Rig: r, replica: r.Replica(append([]rig.Option{lax}, options...)...), merchant: r.Merchant}
}

type object map[string]any

func (o object) text(name string) string { s, _ := o[name].(string); return s }

func (s *shop) call(status int, method, path, key, body string) object {
	s.t.Helper()
	res, err := s.replica.Do(s.t.Context(), s.merchant, method, path, key, []byte(body))
	if err != nil {
		s.t.Fatal(err)
	}
	var o object
	if err := json.Unmarshal(res.Body, &o); err != nil || res.Status != status {
		s.t.Fatalf("%s %s: %d, want %d: %s", method, path, res.Status, status, res.Body)
	}
	return o
}

// post makes a command with a key of its own.
func (s *shop) post(status int, path, body string) object {
	s.t.Helper()
	s.keys++
	return s.call(status, http.MethodPost, "/v1/webhook_endpoints"+path, fmt.Sprintf("key-%d", s.keys), body)
}

func (s *shop) get(path string) object {
	s.t.Helper()
	return s.call(200, http.MethodGet, path, "", "")
}

// endpoint makes an endpoint and gives the path of what belongs to it, without the event about it.
func (s *shop) endpoint(url, more string) (path string) {
	s.t.Helper()
	e := s.post(201, "", fmt.Sprintf(`{"url":%q%s}`, url, more))
	return "/" + e.text("id")
}

func (s *shop) secrets(path string) (all []signature.Secret) {
	s.t.Helper()
	for _, one := range s.get("/v1/webhook_endpoints" + path + "/secret")["secrets"].([]any) {
		secret, err := signature.ParseSecret(object(one.(map[string]any)).text("secret"))
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, secret)
	}
	return all
}

// pay makes one payment, whose event is written.
func (s *shop) pay(reference string) {
	s.t.Helper()
	if a, err := s.replica.Pay(reference, rig.Order{Reference: reference}); err != nil || a.Status != 201 {
		s.t.Fatalf("%+v, %v", a, err)
	}
}

func (s *shop) pass() int {
	s.t.Helper()
	n, err := s.replica.Relay.Pass(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *shop) deliveries(path, query string) (all []object) {
	s.t.Helper()
	for _, one := range s.get("/v1/webhook_endpoints" + path + "/deliveries" + query)["data"].([]any) {
		all = append(all, object(one.(map[string]any)))
	}
	return all
}

func (o object) tries() (all []object) {
	for _, one := range o["tries"].([]any) {
		all = append(all, object(one.(map[string]any)))
	}
	return all
}

// names is a resolver of the tests' own, whose names can come to lead elsewhere.
type names struct {
	mu sync.Mutex
	to map[string]string
}

func (n *names) lead(host, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.to[host] = to
}

func (n *names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	to, ok := n.to[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	a, err := netip.ParseAddr(to)
	return []netip.Addr{a}, err
}

// resolving makes the guard strict again, with these names.
func resolving(n *names) rig.Option {
	return func(c *config.Config, o *app.Options) { c.WebhookAllowPrivate, o.Resolver = false, n }
}
