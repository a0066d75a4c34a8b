package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/problem"
)

const goodIntent = `{"amount":1,"currency":"USD"}`

// withKeys sends a command with these Idempotency-Key headers.
func (w *world) withKeys(values ...string) told {
	w.t.Helper()
	r := w.request(http.MethodPost, "/v1/payment_intents", goodIntent)
	r.Header.Del(KeyHeader)
	for _, v := range values {
		r.Header.Add(KeyHeader, v)
	}
	return w.do(r)
}

// TestCase009_KeysInOneUnit (edge): visible ASCII, at most 255 bytes, told apart byte by byte.
func TestCase009_KeysInOneUnit(t *testing.T) {
	bad := []string{strings.Repeat("к", 128), strings.Repeat("к", 10), strings.Repeat("🙂", 64), "caf\u00e9", "cafe\u0301", "caf\xe9",
		"a\tb", "a b", "a\x7fb", "a\u00a0b", `"a b"`, "\"caf\u00e9\"", strings.Repeat("k", 256), `"` + strings.Repeat("k", 256) + `"`}
	for _, key := range bad {
		w := newWorld(t, nil)
		w.refused(w.withKeys(key), problem.KeyInvalid, KeyHeader)
	}
}

// TestCase010_LongKeysStayWhole (edge): the longest key comes through uncut, and two that begin alike stay two.
func TestCase010_LongKeysStayWhole(t *testing.T) {
	w := newWorld(t, nil)
	head := strings.Repeat("k", 200)
	one, two := head+strings.Repeat("1", 55), head+strings.Repeat("2", 55)
	escaped := `"` + strings.Repeat(`\"`, MaxKey) + `"`
	for i, sent := range []struct{ header, key string }{{one, one}, {two, two}, {`"` + one + `"`, one}, {escaped, strings.Repeat(`"`, MaxKey)}} {
		if a := w.withKeys(sent.header); a.status != 201 {
			t.Fatalf("refused: %s", a.body)
		}
		if got := w.service.intents[i].Key; got != sent.key {
			t.Fatalf("cut or changed: %q", got)
		}
	}
	if operation.KeyHash(one) == operation.KeyHash(two) {
		t.Fatal("the log cannot tell them apart")
	}
}

// TestCase011_EmptyAndDoubledKeys: an empty key is none, and two different ones are an error.
func TestCase011_EmptyAndDoubledKeys(t *testing.T) {
	rows := []struct {
		name string
		sent []string
		code problem.Code // empty: taken
		key  string
	}{
		{"none", nil, problem.KeyMissing, ""},
		{"empty", []string{""}, problem.KeyInvalid, ""},
		{"blank", []string{" \t "}, problem.KeyInvalid, ""},
		{"quoted empty", []string{`""`}, problem.KeyInvalid, ""},
		{"quoted blank", []string{`" "`}, problem.KeyInvalid, ""},
		{"open quote", []string{`"abc`}, problem.KeyInvalid, ""},
		{"one quote", []string{`"`}, problem.KeyInvalid, ""},
		{"quote inside", []string{`"a"b"`}, problem.KeyInvalid, ""},
		{"wrong escape", []string{`"a\b"`}, problem.KeyInvalid, ""},
		{"escape of the end", []string{`"ab\"`}, problem.KeyInvalid, ""},
		{"parameters behind", []string{`"abc";a=1`}, problem.KeyInvalid, ""},
		{"joined by a proxy", []string{"abc, abc"}, problem.KeyInvalid, ""},
		{"twice, different", []string{"abc", "abd"}, problem.KeyInvalid, ""},
		{"twice, different case", []string{"abc", "ABC"}, problem.KeyInvalid, ""},
		{"twice, one empty", []string{"abc", ""}, problem.KeyInvalid, ""},
		{"bare", []string{"abc"}, "", "abc"},
		{"quoted", []string{`"abc"`}, "", "abc"},
		{"blanks around", []string{" \tabc \t"}, "", "abc"},
		{"twice, same", []string{"abc", "abc"}, "", "abc"},
		{"twice, same in two forms", []string{"abc", ` "abc"`}, "", "abc"},
		{"escapes", []string{`"a\"b\\c"`}, "", `a"b\c`},
		{"the same bare", []string{`a"b\c`}, "", `a"b\c`},
		{"case is kept", []string{"ABC"}, "", "ABC"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, nil)
			a := w.withKeys(row.sent...)
			if row.code != "" {
				w.refused(a, row.code, KeyHeader)
				return
			}
			if a.status != 201 || w.service.intents[0].Key != row.key {
				t.Fatalf("%d %s", a.status, a.body)
			}
		})
	}
}

// TestCase011_HeaderNameInAnyCase sends the name as it stands on a wire, over a real connection's parser.
func TestCase011_HeaderNameInAnyCase(t *testing.T) {
	for _, name := range []string{"idempotency-key", "IDEMPOTENCY-KEY", "iDeMpOtEnCy-KeY"} {
		w := newWorld(t, nil)
		status := w.raw("POST /v1/payment_intents HTTP/1.1\r\nHost: hapax\r\nAuthorization: Bearer " + w.key +
			"\r\nContent-Type: application/json\r\nContent-Length: 29\r\nConnection: close\r\n" + name + ":  abc \r\n\r\n" + goodIntent)
		if status != 201 || w.service.intents[0].Key != "abc" {
			t.Fatalf("%s: %d", name, status)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	for _, s := range []string{"abc", `"abc"`, `"a\"b"`, `"`, `""`, "a b", "к", " a ", `"a\\"`, strings.Repeat("k", 256)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		key, p := ParseKey(s)
		if p != nil {
			if p.Code != problem.KeyInvalid || len(s) > 8 && strings.Contains(p.Detail, s) {
				t.Fatalf("wrong refusal: %v", p)
			}
			return
		}
		if key == "" || len(key) > MaxKey || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Fatalf("took %q", key)
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, p := ParseKey(quoted); p != nil || again != key {
			t.Fatalf("quoted, %q becomes %q", key, again)
		}
	})
}
