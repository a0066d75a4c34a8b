package textbook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// outcomeKind is what a call to the acquirer came to; the zero value is unknown.
type outcomeKind int

const (
	unknown outcomeKind = iota
	success
	declined
	failed
)

type outcome struct {
	kind          outcomeKind
	transactionID string // of success
	reason        string // of declined and failed
}

// transportError is a call of which no answer came. It alone is retried; every other error of a call
// is an answer that cannot be used.
type transportError struct{ err error }

func (e *transportError) Error() string { return e.err.Error() }
func (e *transportError) Unwrap() error { return e.err }

// errAcquirer marks every failed call, as against a failed statement.
var errAcquirer = errors.New("acquirer call failed")

// maxReply bounds what is read of the acquirer's reply, in bytes.
const maxReply = 64 << 10

// acquirer is the client of the acquirer. Its transport is Go's own with two time limits: it keeps
// connections, and repeats by itself a request that carries a key and whose body can be rewound.
type acquirer struct {
	url, secret string
	scale       time.Duration
	http        *http.Client
}

func newAcquirer(url, secret string, scale time.Duration) acquirer {
	connect, read := connectTimeout/scale, readTimeout/scale
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: connect}).DialContext
	transport.ResponseHeaderTimeout = read
	return acquirer{
		url: strings.TrimSuffix(url, "/"), secret: secret, scale: scale,
		http: &http.Client{Transport: transport, Timeout: connect + read},
	}
}

// charge sends at most twice, with the same key: once more after a transport failure. Its worst case
// is 3.5 s + a pause of at most 0.4 s + 3.5 s, in a budget of 8 s.
func (a acquirer) charge(ctx context.Context, req payRequest, ck clientKey) (outcome, error) {
	out, err := a.chargeOnce(ctx, req, ck)
	var transport *transportError
	if !errors.As(err, &transport) {
		return out, err
	}
	pause := retryDelay - retryJitter + rand.N(2*retryJitter)
	select {
	case <-time.After(pause / a.scale):
	case <-ctx.Done():
		return outcome{}, errors.Join(errAcquirer, ctx.Err())
	}
	return a.chargeOnce(ctx, req, ck)
}

// chargeOnce sends once: for a reclaimed key and for reconciliation.
func (a acquirer) chargeOnce(ctx context.Context, req payRequest, ck clientKey) (outcome, error) {
	body, err := json.Marshal(map[string]any{
		"reference":      strconv.FormatInt(req.PaymentIntentID, 10),
		"amount":         req.Amount,
		"currency":       req.Currency,
		"payment_method": req.PaymentMethod,
		"capture":        true,
	})
	if err != nil {
		return outcome{}, errors.Join(errAcquirer, err)
	}
	status, reply, err := a.do(ctx, http.MethodPost, "/charges", ck.providerKey(), body)
	if err != nil {
		return outcome{}, err
	}
	if status >= http.StatusBadRequest {
		return fromHTTPStatus(status, string(reply)), nil
	}
	return fromReply(reply)
}

// findByIdempotencyKey asks what became of a charge; found is false when the acquirer answers 404.
func (a acquirer) findByIdempotencyKey(ctx context.Context, ck clientKey) (out outcome, found bool, err error) {
	status, reply, err := a.do(ctx, http.MethodGet,
		"/charges?idempotency_key="+url.QueryEscape(ck.providerKey()), "", nil)
	switch {
	case err != nil:
		return outcome{}, false, err
	case status == http.StatusNotFound:
		return outcome{}, false, nil
	case status >= http.StatusBadRequest:
		return outcome{}, false, fmt.Errorf("%w: status API answered %d", errAcquirer, status)
	}
	out, err = fromList(reply)
	return out, err == nil, err
}

func (a acquirer) do(ctx context.Context, method, path, key string, body []byte) (status int, reply []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, a.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, errors.Join(errAcquirer, err)
	}
	req.Header.Set("Authorization", "Bearer "+a.secret)
	if key != "" {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := a.http.Do(req)
	if err != nil {
		return 0, nil, errors.Join(errAcquirer, &transportError{err})
	}
	reply, err = io.ReadAll(io.LimitReader(res.Body, maxReply))
	if closeErr := res.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return 0, nil, fmt.Errorf("%w: read reply: %w", errAcquirer, err)
	}
	return res.StatusCode, reply, nil
}

// fromHTTPStatus is the table of one acquirer's contract.
func fromHTTPStatus(status int, body string) outcome {
	switch status {
	case http.StatusPaymentRequired:
		return outcome{kind: declined, reason: body} // a final refusal
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusUnprocessableEntity:
		return outcome{kind: failed, reason: fmt.Sprintf("request rejected: %d", status)}
	default:
		return outcome{kind: unknown} // 409, 429, 5xx: nothing is proven
	}
}

// chargeResponse is a charge of the acquirer. The article looks at nothing but its status and id, so
// amount and currency are not compared here either.
type chargeResponse struct {
	ID     string `json:"id"`
	Status string `json:"status"`
}

func (c chargeResponse) outcome() outcome {
	switch c.Status {
	case "succeeded":
		return outcome{kind: success, transactionID: c.ID}
	case "declined":
		return outcome{kind: declined, reason: "declined"}
	default:
		return outcome{kind: unknown}
	}
}

func fromReply(reply []byte) (outcome, error) {
	var charge chargeResponse
	if err := json.Unmarshal(reply, &charge); err != nil {
		return outcome{}, fmt.Errorf("%w: reply is not JSON: %w", errAcquirer, err)
	}
	return charge.outcome(), nil
}

// fromList reads the answer of a lookup. The article's acquirer names one charge for a key; this one
// lists them in the order of their booking, and the last is taken for it.
func fromList(reply []byte) (outcome, error) {
	var list struct {
		Data []chargeResponse `json:"data"`
	}
	if err := json.Unmarshal(reply, &list); err != nil {
		return outcome{}, fmt.Errorf("%w: reply is not JSON: %w", errAcquirer, err)
	}
	if len(list.Data) == 0 {
		return outcome{kind: unknown}, nil
	}
	return list.Data[len(list.Data)-1].outcome(), nil
}
