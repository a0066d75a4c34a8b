// Package wire carries one request to an acquirer and says what left us.
//
// Owns the HTTP transport of adapters: permits, freshness at the socket, the count of request bytes, time limits.
// Never repeats a request, follows a redirect, or judges by the kind of an error whether bytes left.
// Read next: client.go (Do), conn.go (the guard on the connection), then PROTOCOL A2, A5 and O1.
package wire

import (
	"context"
	"errors"
	"net/http"
	"net/url"
)

// Doer makes one request. Client is the real one; a simulation brings its own, which honours
// Permit.Use and NetworkForbidden in the same way. Adapters depend on Doer only.
type Doer interface {
	// Do makes the request once, or refuses it, and always gives a Result (PROTOCOL A2).
	Do(ctx context.Context, c Call) Result
}

// Call is one request to the acquirer.
type Call struct {
	Method string // GET asks; POST, PUT, PATCH and DELETE may move money and need a permit
	Path   string // escaped, begins with "/", follows the path of Config.BaseURL
	Query  url.Values
	Header http.Header // copied; Expect is refused, Host and Content-Length are set by the transport
	Body   []byte      // at most MaxRequestBytes; not changed, not kept
	Permit *Permit     // the right to send, used up by this call even when nothing is sent
}

// Limits of one request. Line, headers and body together fit the write buffer of a connection, so that a request
// is one Write: there is no moment at which half of it lies in our memory while the other half has left.
const (
	MaxRequestBytes = 64 << 10 // of the body
	maxHeadBytes    = 16 << 10 // of request line and headers
	headSlack       = 512      // of maxHeadBytes, for what net/http adds: version, Host, Content-Length
)

// Sent says whether request bytes left us, by the connection's own counter (PROTOCOL section 5, first row; O1).
type Sent int

// The zero value is the strict one: a Result that nobody filled in claims no proof.
const (
	PartlyOrFullySent Sent = iota // at least one byte left, or may have
	NotSent                       // zero bytes of the request left, and none will: the call is over
)

// String gives the name for logs.
func (s Sent) String() string {
	if s == NotSent {
		return "not sent"
	}
	return "partly or fully sent"
}

// Phase says how far a call came. It is for people; Sent and Complete are for decisions.
type Phase string

// The phases in the order of time.
const (
	PhaseCheck    Phase = "check"    // refused before anything was tried
	PhaseConnect  Phase = "connect"  // name, connection, TLS, or waiting for a free connection
	PhaseWrite    Phase = "write"    // a connection was there, no request byte left
	PhaseResponse Phase = "response" // bytes left, no readable response head
	PhaseBody     Phase = "body"     // head read, body not read to its end
	PhaseDone     Phase = "done"     // response read fully
)

// Result is what one call proved. Status, Header and Body are empty when nothing was sent, or when the response was
// there before the request: what a peer says without being asked answers nothing.
type Result struct {
	Sent         Sent
	BytesWritten int64 // request bytes handed to the connection; an upper bound while a write had not returned
	Status       int   // 0: no response head was read
	Header       http.Header
	Body         []byte // empty unless Complete
	Complete     bool   // the response was read to its end within the limits
	Phase        Phase
	Err          error // nil exactly when Complete; never proves that nothing was sent
}

// Reasons for which a call ends without a complete response. They are found in Result.Err with errors.Is.
var (
	// ErrInTransaction: the context is inside a database transaction (ForbidNetwork). Nothing was sent.
	ErrInTransaction = errors.New("wire: network inside a database transaction")
	// ErrPermitMissing: the method may move money and the call has no permit (PROTOCOL A0). Nothing was sent.
	ErrPermitMissing = errors.New("wire: no permit")
	// ErrPermitUsed: another call used this permit. This call sent nothing, but Result.Sent speaks for the permit,
	// and what the other call sent is not known here: PartlyOrFullySent.
	ErrPermitUsed = errors.New("wire: permit used before")
	// ErrPermitOver: one of the two clocks says that the permit is over (PROTOCOL A5). Nothing was sent.
	ErrPermitOver = errors.New("wire: permit is over")
	// ErrBadCall: method, path or header cannot be sent. Nothing was sent.
	ErrBadCall = errors.New("wire: bad call")
	// ErrRequestTooLarge: over MaxRequestBytes, or too many header bytes. Nothing was sent.
	ErrRequestTooLarge = errors.New("wire: request too large")
	// ErrResponseTooLarge: over Config.MaxResponseBytes; the body counts as unreadable.
	ErrResponseTooLarge = errors.New("wire: response too large")
	// ErrConnectTimeout: no connection within Config.ConnectTimeout, waiting for a free one included.
	ErrConnectTimeout = errors.New("wire: connect timeout")
	// ErrReadTimeout: response not complete within Config.ReadTimeout after the request was written.
	ErrReadTimeout = errors.New("wire: read timeout")
	// ErrRepeat: the request was sent, its connection died, and the HTTP library tried to send it again (PROTOCOL A2).
	ErrRepeat = errors.New("wire: repeat refused, the request has left before")
	// ErrUnasked: the response was there before the request, so it answers something else. Sent is as the counter says.
	ErrUnasked = errors.New("wire: answer before the request")
)

var (
	errCallOver = errors.New("wire: the call is over")
	errNoCall   = errors.New("wire: write on a connection that no call holds")
)
