package sandbox

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
)

// maxLoggedText bounds what the wire log keeps of a path, a query and a key.
const maxLoggedText = 2048

// request is one request of the acquirer's own calls, read whole and logged.
type request struct {
	*http.Request
	body     []byte
	bodyHash string // SHA-256 in hex
	kept     bool   // the connection has served a request before
}

// acquirer wraps a call of the acquirer: the request is read and on disk in
// the wire log before anything else happens, a check of the secret included.
func (s *Server) acquirer(handle func(http.ResponseWriter, *request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, readErr := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
		complete := readErr == nil && len(body) <= maxBody
		hash := sha256.Sum256(body)
		in := &request{Request: r, body: body, bodyHash: hex.EncodeToString(hash[:])}
		if conn, ok := r.Context().Value(connectionKey{}).(*connection); ok {
			in.kept = conn.requests > 0
			conn.requests++
		}
		err := s.book.logWire(WireEntry{
			Method: r.Method, Path: shorten(r.URL.Path), Query: shorten(r.URL.RawQuery),
			IdempotencyKey: shorten(r.Header.Get("Idempotency-Key")),
			BodySHA256:     in.bodyHash, BodyBytes: len(body), Complete: complete,
		})
		switch {
		case err != nil:
			unavailable.send(w)
		case readErr != nil:
			abort(w)
		case !complete:
			refuse(w, http.StatusRequestEntityTooLarge, "too_large", "the body is too long")
		case !s.authorized(r.Header):
			refuse(w, http.StatusUnauthorized, "unauthorized", "the secret is missing or wrong")
		default:
			handle(w, in)
		}
	}
}

func shorten(text string) string { return text[:min(len(text), maxLoggedText)] }

func (s *Server) authorized(header http.Header) bool {
	secret, ok := strings.CutPrefix(header.Get("Authorization"), "Bearer ")
	return ok && subtle.ConstantTimeCompare([]byte(secret), []byte(s.secret)) == 1
}
