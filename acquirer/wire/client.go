package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Points of Config.Hook (DESIGN, crash points).
const (
	// PointBeforeWrite: the request is about to be written. Freshness is checked after it, so a pause here is caught.
	PointBeforeWrite = "before-write"
	// PointAfterWrite: the whole request was handed to the kernel; its answer is not used before the hook returns.
	PointAfterWrite = "after-write"
)

// Defaults and fixed limits of a Client.
const (
	DefaultConnectTimeout   = 500 * time.Millisecond
	DefaultWriteTimeout     = 500 * time.Millisecond
	DefaultReadTimeout      = 3 * time.Second
	DefaultIdleTimeout      = 20 * time.Second
	DefaultMaxResponseBytes = 64 << 10
	DefaultMaxConns         = 64

	maxResponseHeadBytes = 64 << 10
)

// Config describes how to reach one acquirer. Zero values take the defaults above.
type Config struct {
	BaseURL          string        // http or https, with host; no user, query or fragment
	ConnectTimeout   time.Duration // for a connection: waiting for a free one, name, TCP, TLS
	WriteTimeout     time.Duration // for the request to be taken by the kernel
	ReadTimeout      time.Duration // from then until the response is complete
	IdleTimeout      time.Duration // a kept connection is closed after it; keep it below the acquirer's own
	Clock            Clock         // judges permits; SystemClock when nil
	TLS              *tls.Config   // copied; HTTP/1.1 is always the only protocol offered
	MaxResponseBytes int64         // a longer body is unreadable
	MaxConns         int           // open at a time; further calls wait within ConnectTimeout
	// Hook runs at the points above, on a goroutine of the connection, with the context of the call. It is for
	// tests, crash points and synchronisation points; Do does not return while it blocks.
	Hook func(ctx context.Context, point string)
}

func (c Config) withDefaults() (Config, error) {
	if c.ConnectTimeout < 0 || c.WriteTimeout < 0 || c.ReadTimeout < 0 || c.IdleTimeout < 0 ||
		c.MaxResponseBytes < 0 || c.MaxConns < 0 {
		return c, errors.New("wire: negative limit in the configuration")
	}
	setDefault(&c.ConnectTimeout, DefaultConnectTimeout)
	setDefault(&c.WriteTimeout, DefaultWriteTimeout)
	setDefault(&c.ReadTimeout, DefaultReadTimeout)
	setDefault(&c.IdleTimeout, DefaultIdleTimeout)
	setDefault(&c.MaxResponseBytes, DefaultMaxResponseBytes)
	setDefault(&c.MaxConns, DefaultMaxConns)
	if c.Clock == nil {
		c.Clock = SystemClock{}
	}
	if c.Hook == nil {
		c.Hook = func(context.Context, string) {}
	}
	return c, nil
}

func setDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// Client is the Doer that speaks to an acquirer over the network. It is safe for concurrent use.
type Client struct {
	cfg       Config
	base      *url.URL
	transport *http.Transport
	dial      func(ctx context.Context, network, addr string) (net.Conn, error) // below TLS
}

// New makes a client. It opens no connection; an error means that the configuration cannot work.
func New(cfg Config) (*Client, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	base, err := url.Parse(cfg.BaseURL)
	if err != nil {
		return nil, errors.New("wire: base URL cannot be parsed") // its text may hold a password
	}
	if base.Scheme != "http" && base.Scheme != "https" || base.Host == "" ||
		base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, errors.New("wire: base URL must be http or https with a host, without user, query and fragment")
	}
	c := &Client{cfg: cfg, base: base, dial: new(net.Dialer).DialContext}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	c.transport = &http.Transport{
		DialContext:            c.dialPlain,
		DialTLSContext:         c.dialTLS,
		Protocols:              protocols, // HTTP/2 has its own connections and its own repeats
		DisableCompression:     true,
		MaxConnsPerHost:        cfg.MaxConns,
		MaxIdleConnsPerHost:    cfg.MaxConns,
		IdleConnTimeout:        cfg.IdleTimeout,
		MaxResponseHeaderBytes: maxResponseHeadBytes,
		WriteBufferSize:        maxHeadBytes + MaxRequestBytes,
	}
	return c, nil
}

// WorstCase is the longest that one Do takes with this configuration, for the budget (PROTOCOL A4).
func (c *Client) WorstCase() time.Duration {
	return c.cfg.ConnectTimeout + c.cfg.WriteTimeout + c.cfg.ReadTimeout
}

// Close closes idle connections. Calls under way go on.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Do makes one request, at most once on the wire (PROTOCOL A2), within the context's deadline and the time limits.
// Every other method than GET needs a permit, which serves this call alone (A0) and whose freshness is checked last
// thing before the first byte (A5). Redirects are returned as they are. No proxy, no cookies, no decompression.
func (c *Client) Do(ctx context.Context, call Call) Result {
	req, err := c.request(ctx, call)
	if err == nil && call.Permit != nil {
		err = call.Permit.Use(c.cfg.Clock.Instant())
	}
	if errors.Is(err, ErrPermitUsed) {
		return Result{Sent: PartlyOrFullySent, Phase: PhaseCheck, Err: err}
	}
	if err != nil {
		return Result{Sent: NotSent, Phase: PhaseCheck, Err: err}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &sending{client: c, permit: call.Permit, ctx: ctx, cancel: cancel}

	var res Result
	// RoundTrip and not http.Client: no redirects, no cookies, no addresses with queries in errors.
	resp, err := c.transport.RoundTrip(req.WithContext(s.trace()))
	if err == nil {
		res.Status, res.Header = resp.StatusCode, resp.Header
		res.Body, err = c.readBody(resp.Body)
		s.awaitWrite()
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	s.finish()
	return s.result(res, err)
}

// result says what left and how far the call came, once it is finished.
func (s *sending) result(res Result, err error) Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused != nil {
		err = s.refused
	} else if s.bytes == 0 && err == nil {
		err = ErrUnasked
	}
	if s.refused != nil || s.bytes == 0 {
		res = Result{} // whatever was read answers nothing
	}
	res.BytesWritten, res.Err, res.Complete = s.bytes, err, err == nil
	switch {
	case s.conn == nil:
		res.Sent, res.Phase = NotSent, PhaseConnect
	case s.bytes == 0:
		res.Sent, res.Phase = NotSent, PhaseWrite
	case res.Complete:
		res.Phase = PhaseDone
	case res.Status != 0:
		res.Phase = PhaseBody
	default:
		res.Phase = PhaseResponse
	}
	return res
}

// request checks the call and builds the request, whose body cannot be rewound (PROTOCOL A2).
func (c *Client) request(ctx context.Context, call Call) (*http.Request, error) {
	if NetworkForbidden(ctx) {
		return nil, ErrInTransaction
	}
	switch call.Method {
	case http.MethodGet:
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		if call.Permit == nil {
			return nil, ErrPermitMissing
		}
	default:
		return nil, fmt.Errorf("%w: method %q", ErrBadCall, call.Method)
	}
	if call.Header.Get("Expect") != "" { // would split the request into two writes
		return nil, fmt.Errorf("%w: header Expect", ErrBadCall)
	}
	u := *c.base
	u.RawPath = strings.TrimSuffix(u.EscapedPath(), "/") + call.Path
	path, err := url.PathUnescape(u.RawPath)
	if err != nil || !strings.HasPrefix(call.Path, "/") {
		return nil, fmt.Errorf("%w: path", ErrBadCall)
	}
	u.Path, u.RawQuery = path, call.Query.Encode()
	if len(call.Body) > MaxRequestBytes || headBytes(&u, call) > maxHeadBytes {
		return nil, ErrRequestTooLarge
	}
	req, err := http.NewRequestWithContext(ctx, call.Method, u.String(), bytes.NewReader(call.Body))
	if err != nil {
		return nil, fmt.Errorf("%w: address", ErrBadCall)
	}
	req.GetBody = nil
	if call.Header != nil {
		req.Header = call.Header.Clone()
	}
	return req, nil
}

func headBytes(u *url.URL, call Call) int {
	n := headSlack + len(call.Method) + len(u.RequestURI()) + len(u.Host)
	for name, values := range call.Header {
		for _, v := range values {
			n += len(name) + len(v) + len(": \r\n")
		}
	}
	return n
}

// readBody reads a bounded body to its end.
func (c *Client) readBody(body io.ReadCloser) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(body, c.cfg.MaxResponseBytes+1))
	if err == nil && int64(len(b)) > c.cfg.MaxResponseBytes {
		err = ErrResponseTooLarge
	}
	if err = errors.Join(err, body.Close()); err != nil {
		return nil, err
	}
	return b, nil
}

func (c *Client) dialPlain(ctx context.Context, network, addr string) (net.Conn, error) {
	return c.connect(ctx, network, addr, nil)
}

func (c *Client) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	cfg := new(tls.Config)
	if c.cfg.TLS != nil {
		cfg = c.cfg.TLS.Clone()
	}
	if cfg.ServerName == "" {
		cfg.ServerName = c.base.Hostname()
	}
	cfg.NextProtos = []string{"http/1.1"}
	return c.connect(ctx, network, addr, cfg)
}

// connect opens a connection that no call holds yet. net/http dials on its own time, past the end of the call that
// wanted it, so the limit is set here a second time.
func (c *Client) connect(ctx context.Context, network, addr string, secure *tls.Config) (net.Conn, error) {
	if NetworkForbidden(ctx) {
		return nil, ErrInTransaction
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.ConnectTimeout)
	defer cancel()
	raw, err := c.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	low := &socket{Conn: raw}
	if secure == nil {
		return &conn{Conn: low, socket: low, writeTimeout: c.cfg.WriteTimeout}, nil
	}
	high := tls.Client(low, secure)
	if err := high.HandshakeContext(ctx); err != nil {
		if cerr := raw.Close(); cerr != nil && !errors.Is(cerr, net.ErrClosed) {
			err = errors.Join(err, cerr)
		}
		return nil, err
	}
	return &conn{Conn: high, socket: low, writeTimeout: c.cfg.WriteTimeout}, nil
}
