package sandbox

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
)

const goodBody = `{"reference":"r","amount":1,"currency":"USD","payment_method":"pm_ok"}`

func TestBadInputIsRefused(t *testing.T) {
	swap := func(old, with string) string { return strings.Replace(goodBody, old, with, 1) }
	for _, tc := range []struct {
		name, body string
		status     int
	}{
		{"empty", ``, 400}, {"not an object", `[1]`, 400}, {"broken", `{"reference":"r"`, 400}, {"two objects", goodBody + goodBody, 400},
		{"garbage behind", goodBody + "x", 400}, {"unknown member", swap(`"amount"`, `"x":1,"amount"`), 400},
		{"twice", swap(`"amount"`, `"amount":1,"amount"`), 400}, {"other case", swap(`"amount"`, `"Amount"`), 400},
		{"nested", swap(`1,`, `{"a":1},`), 400}, {"exponent", swap(`1,`, `1e3,`), 400}, {"point", swap(`1,`, `1.0,`), 400},
		{"text amount", swap(`1,`, `"1",`), 400}, {"null amount", swap(`1,`, `null,`), 400}, {"zero", swap(`1,`, `0,`), 422},
		{"negative", swap(`1,`, `-1,`), 422}, {"above the maximum", swap(`1,`, `1000000000000,`), 422},
		{"beyond 64 bits", swap(`1,`, `9223372036854775808,`), 422}, {"lower case currency", swap("USD", "usd"), 422},
		{"no currency", swap("USD", "XXX"), 422}, {"retired currency", swap("USD", "DEM"), 422},
		{"unknown method", swap("pm_ok", "pm_what"), 422}, {"no prefix", swap("pm_ok", "ok"), 422},
		{"long chain", swap("pm_ok", strings.Repeat("pm_ok|", 16)+"pm_ok"), 422}, {"gate as method", swap("pm_ok", "pm_hold_after"), 422},
		{"blank reference", swap(`"r"`, `" "`), 422}, {"no reference", swap(`"reference":"r",`, ``), 400},
		{"capture text", swap(`}`, `,"capture":"yes"}`), 400}, {"too long", goodBody + strings.Repeat(" ", maxBody), 413},
	} {
		f := start(t)
		if g := f.post(f.ctx, "k1", tc.body); g.status != tc.status {
			t.Errorf("%s: %v, want %d", tc.name, g, tc.status)
		}
		f.moved(0)
		f.want(f.post(f.ctx, "k1", goodBody), 200) // the key is still free
	}
}

func TestBadKeysSecretsAndTypes(t *testing.T) {
	f := start(t)
	for name, change := range map[string]func(http.Header){
		"400 empty key":    func(h http.Header) { h["Idempotency-Key"] = []string{""} },
		"400 blank key":    func(h http.Header) { h.Set("Idempotency-Key", "a b") },
		"400 long key":     func(h http.Header) { h.Set("Idempotency-Key", strings.Repeat("k", 256)) },
		"400 two keys":     func(h http.Header) { h["Idempotency-Key"] = []string{"a", "b"} },
		"400 content type": func(h http.Header) { h.Set("Content-Type", "text/plain") },
		"401 no scheme":    func(h http.Header) { h.Set("Authorization", testSecret) },
		"401 wrong secret": func(h http.Header) { h.Set("Authorization", "Bearer sk_other") },
	} {
		request, err := http.NewRequestWithContext(f.ctx, http.MethodPost, f.Base+"/charges", strings.NewReader(goodBody))
		f.ok(err)
		request.Header.Set("Content-Type", "application/json")
		change(request.Header)
		if g := f.do(request); g.err != nil || name[:3] != strconv.Itoa(g.status) {
			t.Errorf("%s: %v", name, g)
		}
	}
	f.moved(0)
	f.wantCode(f.get("/nowhere"), 404, "no_such_call")
}

func FuzzParseCharge(f *testing.F) {
	for _, seed := range []string{goodBody, `{}`, `{"amount":1e3}`, `{"reference":"r","reference":"r"}`, `{"capture":null}`, "\x00",
		strings.Replace(goodBody, "pm_ok", "pm_timeout_executed|pm_401_once", 1)} {
		f.Add([]byte(seed))
	}
	header := http.Header{"Content-Type": {"application/json"}}
	f.Fuzz(func(t *testing.T, body []byte) {
		in, err := parseCharge(header, body)
		if err != nil {
			if r, ok := err.(*rejection); !ok || r.status < 400 || r.status > 499 {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		if !in.amount.IsPositive() || !in.amount.Currency().Valid() || !visible(in.reference) || len(in.plays) == 0 {
			t.Fatalf("accepted %+v", in)
		}
	})
}
