package httpapi

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"math"
	"mime"
	"net/http"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/internal/auth"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/problem"
)

const requestPrefix = "req_"

// retrySoon is the hint where the database could not be reached: it may be back at once.
const retrySoon = time.Second

// exchange is one request on its way through the door, with what its line in the log will say.
type exchange struct {
	r         *http.Request
	requestID string
	key       auth.Key
	body      []byte
	keyHash   string // of the idempotency key
	code      problem.Code
	replayed  bool
}

// route is the pattern that answers, never the path with its query: an idempotency key may stand there.
func (x *exchange) route() string {
	if x.r.Pattern == "" || x.r.Pattern == fallback {
		return "none"
	}
	return x.r.Pattern
}

// reply is what leaves.
type reply struct {
	status  int
	header  http.Header
	body    []byte
	problem bool
}

type exchangeKey struct{}

func newID(now func() time.Time) func() id.ID {
	return func() id.ID {
		var random [10]byte
		rand.Read(random[:]) // does not fail: it ends the process instead
		return id.New(now(), random)
	}
}

// ServeHTTP gives each request its id, its line in the log, and an answer even when something panics.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun := d.cfg.Now()
	x := &exchange{requestID: d.cfg.NewID().Text(requestPrefix)}
	x.r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	out := &recorder{ResponseWriter: w}
	out.Header().Set("Request-Id", x.requestID)
	out.Header().Set("Cache-Control", "no-store")
	out.Header().Set("X-Content-Type-Options", "nosniff")
	defer d.record(x, out, begun)
	defer func() {
		if v := recover(); v != nil {
			d.caught(x, out, v)
		}
	}()
	if path.Clean(r.URL.Path) != r.URL.Path || !strings.HasPrefix(r.URL.Path, "/") {
		// The mux would redirect, and a client would repeat a payment at another address. What is no path at all, as with
		// CONNECT, it would answer without a problem document.
		d.send(x, out, d.refuse(x, noPath()))
		return
	}
	d.mux.ServeHTTP(out, x.r)
}

func noPath() *problem.Problem {
	return problem.New(problem.NotFound, "There is no such path.").Advise("Compare the path with the contract at /openapi.json; nothing was done.")
}

// caught turns a panic into a fault.
func (d *door) caught(x *exchange, out *recorder, v any) {
	if v == http.ErrAbortHandler {
		panic(v)
	}
	d.cfg.Log.Error("panic", "request_id", x.requestID, "route", x.route(), "panic", v, "stack", string(debug.Stack()))
	if out.status == 0 {
		d.send(x, out, d.refuse(x, problem.New(problem.Internal, "")))
	}
}

// record writes the one line of a request (PROTOCOL section 15).
func (d *door) record(x *exchange, out *recorder, begun time.Time) {
	took := d.cfg.Now().Sub(begun)
	d.metrics.observe(x.route(), out.status, x.code, took)
	attrs := []slog.Attr{
		slog.String("request_id", x.requestID), slog.String("route", x.route()), slog.Int("status", out.status),
		slog.Int64("took_ms", took.Milliseconds()),
	}
	for name, v := range map[string]string{"merchant": x.key.Merchant.Text(id.Merchant), "key_hash": x.keyHash, "code": string(x.code)} {
		if v != "" {
			attrs = append(attrs, slog.String(name, v))
		}
	}
	if x.replayed {
		attrs = append(attrs, slog.Bool("replayed", true))
	}
	d.cfg.Log.LogAttrs(x.r.Context(), slog.LevelInfo, "request", attrs...)
}

// admit lets a request in: access first, so that nothing is replayed to a stranger (PROTOCOL W1), then the rate, then
// the form of what was sent.
func (d *door) admit(w http.ResponseWriter, x *exchange, rt route) error {
	if rt.open {
		return nil
	}
	key, err := auth.Authenticate(x.r.Context(), d.cfg.Keys, x.r.Header.Get("Authorization"))
	switch {
	case errors.Is(err, auth.ErrUnauthenticated):
		return problem.New(problem.Unauthenticated, "")
	case err != nil:
		d.fault(x, err)
		return problem.New(problem.TryAgain, "").After(retrySoon)
	}
	x.key = key
	if wait := d.limits.take(key.Merchant, key.RateLimit, d.cfg.Now()); wait > 0 {
		return problem.New(problem.RateLimited, "").After(wait)
	}
	if !rt.list {
		if _, p := parseQuery(x.r.URL.RawQuery, nil); p != nil {
			return p
		}
	}
	if rt.body == nil {
		return nil
	}
	return d.take(w, x, rt)
}

// take reads the body and checks its form. A body that may be left out, and is, has no type: it reads as an empty object.
func (d *door) take(w http.ResponseWriter, x *exchange, rt route) (err error) {
	x.body, err = io.ReadAll(http.MaxBytesReader(w, x.r.Body, MaxBody))
	if rt.bare && err == nil && len(bytes.TrimSpace(x.body)) == 0 {
		x.body = []byte("{}")
		return nil
	}
	if p := mediaType(x.r.Header); p != nil {
		return p
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return problem.New(problem.TooLarge, "")
	case err != nil:
		return malformed("", "The body ended early.")
	}
	if p := scan(x.body, rt.body); p != nil {
		return p
	}
	return nil
}

func mediaType(h http.Header) *problem.Problem {
	media, parameters, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return problem.New(problem.UnsupportedMediaType, "").On("Content-Type")
	}
	if charset := parameters["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return problem.New(problem.UnsupportedMediaType, "The charset must be UTF-8.").On("Content-Type")
	}
	if h.Get("Content-Encoding") != "" {
		return problem.New(problem.UnsupportedMediaType, "The body may not be compressed.").On("Content-Encoding")
	}
	return nil
}

// idempotencyKey reads the key of a command and remembers its hash for the log.
func (x *exchange) idempotencyKey() (string, error) {
	key, p := keyOf(x.r.Header)
	if p != nil {
		return "", p
	}
	x.keyHash = operation.KeyHash(key)
	return key, nil
}

// answered is answer, for what a service gave back.
func (x *exchange) answered(a operation.Answer, err error) (reply, error) {
	if err != nil {
		return reply{}, err
	}
	return x.answer(a), nil
}

// answer turns what an operation said into a reply; the bytes go out as they are (PROTOCOL W4).
func (x *exchange) answer(a operation.Answer) reply {
	h := http.Header{}
	set := func(name, v string) {
		if v != "" {
			h.Set(name, v)
		}
	}
	set("Location", a.Location)
	set("Original-Request", a.Original)
	set("Retry-After", seconds(a.RetryAfter))
	if a.Replayed {
		h.Set("Idempotency-Replayed", "true")
		x.replayed = true
	}
	if !a.KeyExpires.IsZero() {
		h.Set("Idempotency-Key-Expires", a.KeyExpires.UTC().Format(time.RFC3339))
	}
	return reply{status: a.Status, header: h, body: a.Body}
}

// seconds writes a hint in whole seconds, rounded up so that nobody comes too early; nothing for zero.
func seconds(after time.Duration) string {
	if after <= 0 {
		return ""
	}
	return strconv.FormatInt(int64(math.Ceil(after.Seconds())), 10)
}

// failed turns an error into a reply: a refusal as it is, a fault logged and hidden.
func (d *door) failed(x *exchange, err error) reply {
	var p *problem.Problem
	if errors.As(err, &p) {
		if p.Cause != nil {
			d.fault(x, p)
		}
		return d.refuse(x, p)
	}
	if errors.Is(err, context.Canceled) && x.r.Context().Err() != nil {
		x.code = "client_gone" // nobody reads this reply, and nothing is wrong with us
		return reply{status: http.StatusServiceUnavailable}
	}
	d.fault(x, err)
	switch {
	case errors.Is(err, operation.ErrOnHold):
		return d.refuse(x, problem.New(problem.SendsOnHold, "").After(retrySoon))
	case errors.Is(err, operation.ErrNotDurable), errors.Is(err, operation.ErrNothingDone):
		return d.refuse(x, problem.New(problem.TryAgain, "").After(retrySoon))
	}
	return d.refuse(x, problem.New(problem.Internal, ""))
}

// fault logs what the client is not told, once, under the id that the client is told.
func (d *door) fault(x *exchange, err error) {
	d.cfg.Log.Error("fault", "request_id", x.requestID, "route", x.route(), "key_hash", x.keyHash, "error", err)
}

func (d *door) refuse(x *exchange, p *problem.Problem) reply {
	x.code = p.Code
	if p.Code == problem.KeyReuse && p.Field == "" {
		named := *p // the engine knows keys, not the header in which they come
		p = named.On(KeyHeader)
	}
	h := http.Header{}
	if after := seconds(p.RetryAfter); after != "" {
		h.Set("Retry-After", after)
	}
	if p.Code == problem.Unauthenticated {
		h.Set("WWW-Authenticate", "Bearer")
	}
	return reply{status: p.Row().Status, header: h, body: present.Problem(p, x.requestID), problem: true}
}

func (d *door) send(x *exchange, w http.ResponseWriter, out reply) {
	h := w.Header()
	for name, values := range out.header {
		h[name] = values
	}
	h.Set("Content-Type", "application/json")
	if out.problem {
		h.Set("Content-Type", "application/problem+json")
	}
	w.WriteHeader(out.status)
	if _, err := w.Write(out.body); err != nil {
		d.cfg.Log.Debug("the client was gone before its answer", "request_id", x.requestID, "error", err)
	}
}

// recorder remembers the status for the log.
type recorder struct {
	http.ResponseWriter
	status int
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
