package httpapi

import (
	"net/http"
	"strings"

	"github.com/hapaxpay/hapax/internal/problem"
)

// KeyHeader is the header that names one command (PROTOCOL section 2).
const KeyHeader = "Idempotency-Key"

// MaxKey bounds an idempotency key, in bytes; every table that holds one allows as much (case 10).
const MaxKey = 255

// keyOf reads the Idempotency-Key of a request in the one form in which it is stored. The same key may stand in two
// headers; two different ones may not. It fails with idempotency_key_missing or idempotency_key_invalid.
func keyOf(h http.Header) (string, *problem.Problem) {
	values := h.Values(KeyHeader)
	if len(values) == 0 {
		return "", problem.New(problem.KeyMissing, "").On(KeyHeader)
	}
	first, p := ParseKey(values[0])
	if p != nil {
		return "", p
	}
	for _, v := range values[1:] {
		other, p := ParseKey(v)
		if p != nil {
			return "", p
		}
		if other != first {
			return "", badKey("The header is sent twice with different values.")
		}
	}
	return first, nil
}

func badKey(detail string) *problem.Problem {
	return problem.New(problem.KeyInvalid, detail).On(KeyHeader)
}

// ParseKey reads one key, bare or as a quoted string (RFC 8941 section 3.3.3, which the IETF draft uses), and gives
// its content. Nothing is cut, folded or normalised: what is not visible ASCII is refused (case 9), as is
// what is longer than MaxKey: idempotency_key_invalid.
func ParseKey(value string) (string, *problem.Problem) {
	key := strings.Trim(value, " \t")
	if strings.HasPrefix(key, `"`) {
		content, ok := unquote(key)
		if !ok {
			return "", badKey("The key begins with a quote and is not a quoted string.")
		}
		key = content
	}
	if key == "" {
		return "", badKey("The key is empty.")
	}
	if len(key) > MaxKey {
		return "", badKey("The key is longer than 255 bytes.")
	}
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' {
			return "", badKey("The key holds something other than visible ASCII characters.")
		}
	}
	return key, nil
}

// unquote gives the content of a quoted string; only a quote and a backslash may stand behind a backslash.
func unquote(s string) (string, bool) {
	if len(s) < 2 || s[len(s)-1] != '"' {
		return "", false
	}
	var b strings.Builder
	inside := s[1 : len(s)-1]
	for i := 0; i < len(inside); i++ {
		c := inside[i]
		if c == '"' {
			return "", false
		}
		if c == '\\' {
			i++
			if i == len(inside) || inside[i] != '"' && inside[i] != '\\' {
				return "", false
			}
			c = inside[i]
		}
		b.WriteByte(c)
	}
	return b.String(), true
}
