// Package webhook sends events to the endpoints of merchants, signed by the Standard Webhooks specification.
//
// Owns where a webhook may go, what is sent and signed, what an answer means, and when it is tried again (PROTOCOL V5).
// Never follows a redirect, uses a proxy, keeps a connection, or sends to an address that was not judged at that moment.
// Read next: guard.go (targets), schedule.go (answers and back-off), then internal/flow/endpoint.go (the commands).
package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/hapaxpay/hapax/acquirer/signature"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/outbox"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/present"
)

// Limits of one try.
const (
	// Within is how long an endpoint has for its whole answer. A batch of outbox.PerEndpoint is tried at once, in half a lease.
	Within         = 10 * time.Second
	handshake      = 5 * time.Second
	maxHeaderBytes = 16 << 10
	userAgent      = "Hapax-Webhooks/1"
)

// Endpoint is where to send, and the secrets to sign with, the newest first.
type Endpoint struct {
	payment.Endpoint
	Secrets []signature.Secret
}

// Endpoints is what the sink needs to know and to tell.
type Endpoints interface {
	// WebhookEndpoint reads an endpoint and tells the database's time; false: there is none.
	WebhookEndpoint(ctx context.Context, merchant, endpoint id.ID) (e Endpoint, now time.Time, found bool, err error)
	// EndpointTried notes what the tries have shown; see flow.Flow.EndpointTried.
	EndpointTried(ctx context.Context, seen payment.Endpoint, tried payment.Tried, at time.Time) error
}

// Config of the sink.
type Config struct {
	Endpoints Endpoints
	Guard     Guard
	Now       func() time.Time // of the signatures
	Within    time.Duration    // of one try; zero: the constant
	TLS       *tls.Config      // nil: the system's roots; for tests
	Report    func(err error)  // of what could not be noted
}

// Sink sends to all endpoints. It implements outbox.Sink.
type Sink struct {
	cfg    Config
	client *http.Client
}

// New makes a sink.
func New(cfg Config) *Sink {
	if cfg.Within == 0 {
		cfg.Within = Within
	}
	return &Sink{cfg: cfg, client: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                  nil, // not even from the environment
			DialContext:            cfg.Guard.dial,
			TLSClientConfig:        cfg.TLS,
			TLSHandshakeTimeout:    handshake,
			MaxResponseHeaderBytes: maxHeaderBytes,
			DisableKeepAlives:      true, // each try is judged anew, down to its connection
			DisableCompression:     true,
		},
	}}
}

var _ outbox.Sink = (*Sink)(nil)

var (
	errNoEndpoint = errors.New("there is no such endpoint any more")
	errDisabled   = errors.New("the endpoint is disabled")
)

// Deliver implements outbox.Sink, for messages to one endpoint. What cannot be read of it is tried soon again; what
// it answers is judged by the schedule.
func (s *Sink) Deliver(ctx context.Context, messages []outbox.Message) []outbox.Result {
	results := make([]outbox.Result, len(messages))
	all := func(r outbox.Result) []outbox.Result {
		for n := range results {
			results[n] = r
		}
		return results
	}
	endpoint, err := id.ParseUUID(messages[0].Sink)
	if err != nil {
		return all(outbox.Result{Err: errNoEndpoint, Abandon: true})
	}
	e, now, found, err := s.cfg.Endpoints.WebhookEndpoint(ctx, messages[0].Merchant, endpoint)
	switch {
	case err != nil:
		s.cfg.Report(err)
		return all(unasked(errors.New("the endpoint could not be read")))
	case !found:
		return all(outbox.Result{Err: errNoEndpoint, Abandon: true})
	case !e.Enabled: // it was disabled since it was picked: it rests from now on
		return all(unasked(errDisabled))
	}
	var tries sync.WaitGroup
	tried := make([]verdict, len(messages))
	for n, m := range messages {
		tries.Go(func() { tried[n] = s.try(ctx, e, m) })
	}
	tries.Wait()
	for n, m := range messages {
		results[n] = tried[n].result(m.Attempt)
	}
	if shown, any := sum(tried); any {
		if err := s.cfg.Endpoints.EndpointTried(context.WithoutCancel(ctx), e.Endpoint, shown, now); err != nil {
			s.cfg.Report(err)
		}
	}
	return results
}

// try makes one request.
func (s *Sink) try(ctx context.Context, e Endpoint, m outbox.Message) verdict {
	if outbox.Over(ctx) {
		return verdict{unasked: true, err: outbox.ErrLate}
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Within)
	defer cancel()
	begun := time.Now()
	v := s.ask(ctx, e, m)
	v.log = &outbox.Attempt{URL: e.URL, Status: v.status, Answer: v.answer, Duration: time.Since(begun)}
	if v.err != nil {
		v.log.Error = v.err.Error()
	}
	return v
}

func (s *Sink) ask(ctx context.Context, e Endpoint, m outbox.Message) verdict {
	if _, err := s.cfg.Guard.form(e.URL); err != nil {
		return verdict{err: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, bytes.NewReader(m.Payload))
	if err != nil {
		return verdict{err: refuse("it is not an absolute https address")}
	}
	req.GetBody = nil // net/http repeats nothing by itself
	h, err := signature.Headers(e.Secrets, m.ID.Text(id.Event), s.cfg.Now(), m.Payload)
	if err != nil {
		return verdict{unasked: true, err: errors.New("the webhook could not be signed")}
	}
	req.Header = h
	req.Header.Set("Content-Type", present.EventContentType)
	req.Header.Set("User-Agent", userAgent)
	res, err := s.client.Do(req)
	if err != nil {
		return verdict{unasked: errors.Is(err, outbox.ErrLate), err: plain(err)}
	}
	v := verdict{status: res.StatusCode, answer: beginning(res.Body), retry: retryAfter(res.Header.Get("Retry-After"), s.cfg.Now())}
	if !v.good() {
		v.err = v.words()
	}
	return v
}

// beginning reads what is kept of an answer. The status is the answer: what of the body did not come is not missed.
func beginning(body io.ReadCloser) string {
	begun, err := io.ReadAll(io.LimitReader(body, outbox.MaxAnswer))
	if err = errors.Join(err, body.Close()); err != nil && len(begun) == 0 {
		return ""
	}
	return strings.ToValidUTF8(string(begun), "\uFFFD")
}

// plain takes away what net/http puts around an error: the address, with whatever stands in its query.
func plain(err error) error {
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	switch {
	case errors.Is(err, ErrTarget):
		return refuse(refusedAddress)
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("no answer in time")
	}
	return err
}
