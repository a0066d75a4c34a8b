// Package signature checks the signatures of webhooks on the exact bytes that came, and signs webhooks of our own.
//
// Owns the schemes (Standard Webhooks, Stripe, Square, Adyen), the text forms of a secret, the window of time, the bounds on a header.
// Never parses a body before it is verified, reads a clock, does input or output, or puts a secret or a signature into an error.
// Read next: standard.go for the scheme of our own webhooks, secret.go for what is refused at configuration.
package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// What a verification says no with; errors.Is tells them apart. None holds a secret or a signature.
var (
	// ErrSecret is a fault of configuration, not of the sender: the text of a secret cannot be one, or there is none, or
	// there are too many. A door that meets it answers 5xx, so that nothing is lost while it is repaired.
	ErrSecret = errors.New("unusable signing secret")
	// ErrMissing: a header or field that the scheme needs is absent or empty.
	ErrMissing = errors.New("missing signature header")
	// ErrMalformed: a header or field is there, and is not of the scheme's form, comes twice, or is over a limit.
	ErrMalformed = errors.New("malformed signature header")
	// ErrMismatch: no signature that was looked at belongs to these bytes and a secret that is known.
	ErrMismatch = errors.New("no signature matches")
	// ErrTooOld: authentic, and signed a window or more before now.
	ErrTooOld = errors.New("signed too long ago")
	// ErrTooNew: authentic, and signed a window or more after now.
	ErrTooNew = errors.New("signed too far in the future")
)

// Bounds on what a stranger can make us do. A header over its bound is refused before anything is computed; signatures
// after MaxSignatures are not looked at. The body is hashed once for each secret, so its reader bounds it too.
const (
	MaxHeaderBytes = 4096 // of one header
	MaxSignatures  = 32   // of one header, of all versions; a rotation makes two
	MaxSecrets     = 8    // tried at once; a rotation makes two
	MaxIDBytes     = 256  // of a webhook-id
)

// DefaultWindow is how far the signed time may be from now, on both sides.
const DefaultWindow = 5 * time.Minute

// maxTimestamp is the most digits of a signed time: seconds until the year 5138.
const maxTimestamp = 11

// only gives the one value of a header.
func only(h http.Header, name string) (string, error) {
	values := h.Values(name)
	switch {
	case len(values) == 0 || len(values) == 1 && values[0] == "":
		return "", fmt.Errorf("%w: %s", ErrMissing, name)
	case len(values) > 1:
		return "", fmt.Errorf("%w: %s comes more than once", ErrMalformed, name)
	case len(values[0]) > MaxHeaderBytes:
		return "", fmt.Errorf("%w: %s has more than %d bytes", ErrMalformed, name, MaxHeaderBytes)
	}
	return values[0], nil
}

// seconds reads a signed time: digits, and nothing else.
func seconds(text string) (time.Time, error) {
	if text == "" || len(text) > maxTimestamp {
		return time.Time{}, fmt.Errorf("%w: the time is not in seconds", ErrMalformed)
	}
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return time.Time{}, fmt.Errorf("%w: the time is not a number", ErrMalformed)
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: the time is not a number", ErrMalformed)
	}
	return time.Unix(n, 0).UTC(), nil
}

// fresh judges the signed time on both sides: a time far ahead would stay good for ever. The edges are outside.
func fresh(at, now time.Time, window time.Duration) error {
	if window <= 0 {
		window = DefaultWindow
	}
	switch ahead := at.Sub(now); {
	case ahead <= -window:
		return ErrTooOld
	case ahead >= window:
		return ErrTooNew
	}
	return nil
}

// match looks for a signature of the content by any of the secrets. It compares texts, not what they decode to, so that
// a signature has one form only; each with each, all of them, so that the time tells nothing about which matched.
func match(secrets []Secret, encode func([]byte) string, signatures []string, content ...[]byte) error {
	if err := usable(secrets); err != nil {
		return err
	}
	found := 0
	for _, secret := range secrets {
		want := []byte(encode(mac(secret, content...)))
		for _, got := range signatures {
			found |= subtle.ConstantTimeCompare(want, []byte(got))
		}
	}
	if found == 0 {
		return ErrMismatch
	}
	return nil
}

func mac(secret Secret, content ...[]byte) []byte {
	h := hmac.New(sha256.New, secret.key())
	for _, part := range content {
		h.Write(part) // a hash never fails
	}
	return h.Sum(nil)
}
