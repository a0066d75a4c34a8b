package webhook

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"crypto/tls"

	"github.com/hapaxpay/hapax/acquirer/signature"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/outbox"
	"github.com/hapaxpay/hapax/internal/payment"
)

var (
	noon     = time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	merchant = id.New(noon, [10]byte{1})
	endpoint = id.New(noon, [10]byte{2})
)

// book is what the sink knows and tells, in memory.
type book struct {
	url   string
	err   error
	none  bool
	tried []payment.Tried
}

func (b *book) WebhookEndpoint(context.Context, id.ID, id.ID) (Endpoint, time.Time, bool, error) {
	e := payment.Endpoint{Merchant: merchant, ID: endpoint, URL: b.url, Enabled: true}
	return Endpoint{Endpoint: e, Secrets: []signature.Secret{signature.NewSecret([signature.NewSecretBytes]byte{7})}}, noon, !b.none, b.err
}

func (b *book) EndpointTried(_ context.Context, _ payment.Endpoint, t payment.Tried, _ time.Time) error {
	b.tried = append(b.tried, t)
	return nil
}

func messages(n int) []outbox.Message {
	all := make([]outbox.Message, n)
	for i := range all {
		all[i] = outbox.Message{Merchant: merchant, ID: id.New(noon, [10]byte{9, byte(i)}), Sink: endpoint.String(), Payload: fmt.Appendf(nil, `{"n":%d}`, i), Attempt: 1}
	}
	return all
}

func sinkTo(b *book, change func(*Config)) *Sink {
	c := Config{Endpoints: b, Guard: Guard{AllowPrivate: true}, Now: time.Now, Within: time.Second, Report: func(error) {}}
	if change != nil {
		change(&c)
	}
	return New(c)
}

// serve gives a receiver and where it is. What it holds back ends with the test.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// An endpoint that takes its time, or never ends, takes no more of ours than it is given, and no more of our memory.
func TestEndpointsWithoutEnd(t *testing.T) {
	for name, row := range map[string]struct {
		answer http.HandlerFunc
		good   bool
	}{
		"silence": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, false},
		"an error without end": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(500)
			for r.Context().Err() == nil {
				if _, err := w.Write(bytes.Repeat([]byte("x"), 1<<16)); err != nil {
					return
				}
			}
		}, false},
		"headers without end": {func(w http.ResponseWriter, r *http.Request) {
			for n := range 64 {
				w.Header().Set(fmt.Sprint("X-", n), strings.Repeat("x", 1024))
			}
		}, false},
		"a good answer whose body never comes": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(200)
			if err := http.NewResponseController(w).Flush(); err != nil {
				panic(err)
			}
			<-r.Context().Done()
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := &book{}
			b.url = serve(t, func(w http.ResponseWriter, r *http.Request) {
				if _, err := io.Copy(io.Discard, r.Body); err != nil { // the server notices that we left only then
					return
				}
				row.answer(w, r)
			}) + "/?token=secret-of-the-shop"
			begun := time.Now()
			got := sinkTo(b, func(c *Config) { c.Within = 300 * time.Millisecond }).Deliver(t.Context(), messages(1))[0]
			if (got.Err == nil) != row.good || time.Since(begun) > 5*time.Second || len(got.Log.Answer) > outbox.MaxAnswer {
				t.Errorf("%v after %v, %d bytes", got.Err, time.Since(begun), len(got.Log.Answer))
			}
			if got.Err != nil && strings.Contains(got.Err.Error(), "secret") {
				t.Errorf("the error tells the query: %v", got.Err)
			}
		})
	}
}

// Each message of a batch is tried for itself, all at the same time.
func TestABatchIsTriedAtOnce(t *testing.T) {
	var inside atomic.Int32
	full := make(chan struct{})
	b := &book{}
	b.url = serve(t, func(w http.ResponseWriter, r *http.Request) {
		if inside.Add(1) == outbox.PerEndpoint {
			close(full)
		}
		<-full
		if body, err := io.ReadAll(r.Body); err != nil || string(body) == `{"n":3}` {
			w.WriteHeader(500)
		}
	})
	results := sinkTo(b, func(c *Config) { c.Within = 20 * time.Second }).Deliver(t.Context(), messages(outbox.PerEndpoint))
	for n, r := range results {
		if (r.Err == nil) != (n != 3) || r.Log == nil {
			t.Errorf("message %d: %+v", n, r)
		}
	}
	if len(b.tried) != 1 || b.tried[0] != payment.TriedGood {
		t.Errorf("told: %v", b.tried)
	}
}

// What could not be asked of an endpoint is held against nobody.
func TestWhatIsNotTheEndpointsFault(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, row := range map[string]struct {
		ctx     context.Context
		b       *book
		abandon bool
	}{
		"the time is over":       {over, &book{}, false},
		"unreadable":             {t.Context(), &book{err: errors.New("database away")}, false},
		"there is no such thing": {t.Context(), &book{none: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			row.b.url = serve(t, func(http.ResponseWriter, *http.Request) { t.Error("it was asked") })
			reported := 0
			got := sinkTo(row.b, func(c *Config) { c.Report = func(error) { reported++ } }).Deliver(row.ctx, messages(2))
			for _, r := range got {
				if r.Err == nil || r.Abandon != row.abandon || r.Log != nil {
					t.Errorf("%+v", r)
				}
			}
			if len(row.b.tried) != 0 || (reported > 0) != (row.b.err != nil) {
				t.Errorf("told %v, reported %d", row.b.tried, reported)
			}
		})
	}
}

// By https the certificate is that of the name, whatever address it leads to.
func TestTheCertificateIsOfTheName(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(s.Close)
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate()) // of example.com
	port := s.URL[strings.LastIndexByte(s.URL, ':'):]
	for host, good := range map[string]bool{"example.com": true, "shop.example": false} {
		b := &book{url: "https://" + host + port + "/"}
		sink := sinkTo(b, func(c *Config) {
			c.TLS, c.Guard.Resolver, c.Within = &tls.Config{RootCAs: pool}, names{host: {"127.0.0.1"}}, 10*time.Second
		})
		if got := sink.Deliver(t.Context(), messages(1))[0]; (got.Err == nil) != good {
			t.Errorf("%s: %v", host, got.Err)
		}
	}
}
