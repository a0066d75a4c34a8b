package signature

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestMalformedHeaders: what is not of the form is refused by its own name, before anything is believed.
func TestMalformedHeaders(t *testing.T) {
	secrets, now, body := []Secret{newSecret(1)}, time.Unix(1_800_000_000, 0), []byte("{}")
	good, err := Headers(secrets, "evt_1", now, body)
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(http.Header){
		"time with a sign":     func(h http.Header) { h.Set(HeaderTimestamp, "+1800000000") },
		"negative time":        func(h http.Header) { h.Set(HeaderTimestamp, "-1800000000") },
		"time in a fraction":   func(h http.Header) { h.Set(HeaderTimestamp, "1800000000.5") },
		"time in milliseconds": func(h http.Header) { h.Set(HeaderTimestamp, "1800000000000") },
		"endless time":         func(h http.Header) { h.Set(HeaderTimestamp, strings.Repeat("9", 400)) },
		"time in words":        func(h http.Header) { h.Set(HeaderTimestamp, "yesterday") },
		"two times":            func(h http.Header) { h.Add(HeaderTimestamp, "1800000000") },
		"two ids":              func(h http.Header) { h.Add(HeaderID, "evt_1") },
		"two lists":            func(h http.Header) { h.Add(HeaderSignature, h.Get(HeaderSignature)) },
		"id with a full stop":  func(h http.Header) { h.Set(HeaderID, "evt.1") },
		"id with a blank":      func(h http.Header) { h.Set(HeaderID, "evt 1") },
		"id outside ASCII":     func(h http.Header) { h.Set(HeaderID, "évt") },
		"endless id":           func(h http.Header) { h.Set(HeaderID, strings.Repeat("a", MaxIDBytes+1)) },
		"endless list":         func(h http.Header) { h.Set(HeaderSignature, strings.Repeat("a", MaxHeaderBytes+1)) },
	} {
		h := good.Clone()
		change(h)
		msg, err := VerifyStandard(h, body, secrets, now, 0)
		wantErr(t, what, err, ErrMalformed)
		if msg != (Message{}) {
			t.Errorf("%s: brings %+v", what, msg)
		}
	}
}

// TestFullStopMovesNothing: without the rule about full stops in ids, the signature of one message would be that of
// another, whose id ends where the time of the first one was.
func TestFullStopMovesNothing(t *testing.T) {
	secrets, now := []Secret{newSecret(1)}, time.Unix(1_800_000_000, 0)
	h, err := Headers(secrets, "a", now, []byte("1800000001.{}"))
	if err != nil {
		t.Fatal(err)
	}
	h.Set(HeaderID, "a.1800000000")
	h.Set(HeaderTimestamp, "1800000001")
	_, err = VerifyStandard(h, []byte("{}"), secrets, now, 0)
	wantErr(t, "a shifted message", err, ErrMalformed)
}

// TestSigningRefuses what no receiver could verify.
func TestSigningRefuses(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for what, tc := range map[string]struct {
		secrets []Secret
		id      string
		at      time.Time
		want    error
	}{
		"no secret":        {nil, "evt_1", now, ErrSecret},
		"zero secret":      {[]Secret{{}}, "evt_1", now, ErrSecret},
		"one of them zero": {[]Secret{newSecret(1), {}}, "evt_1", now, ErrSecret},
		"too many":         {make([]Secret, MaxSecrets+1), "evt_1", now, ErrSecret},
		"no id":            {[]Secret{newSecret(1)}, "", now, ErrMalformed},
		"full stop":        {[]Secret{newSecret(1)}, "evt.1", now, ErrMalformed},
		"line end":         {[]Secret{newSecret(1)}, "evt\n1", now, ErrMalformed},
		"zero time":        {[]Secret{newSecret(1)}, "evt_1", time.Time{}, ErrMalformed},
	} {
		h, err := Headers(tc.secrets, tc.id, tc.at, nil)
		wantErr(t, what, err, tc.want)
		if h != nil {
			t.Errorf("%s: headers in spite of the error", what)
		}
	}
	_, err := Sign(Secret{}, "evt_1", now, nil)
	wantErr(t, "one signature with the zero secret", err, ErrSecret)
}

// TestSecretsAreHidden: neither fmt nor slog nor JSON shows a secret, also not as a field of something else; Text does,
// and is read back.
func TestSecretsAreHidden(t *testing.T) {
	secret := NewSecret([NewSecretBytes]byte([]byte("0123456789abcdefghijklmnopqrstuv")))
	text := secret.Text()
	if again := parsed(t)(ParseSecret(text)); again.Text() != text || !strings.HasPrefix(text, "whsec_") {
		t.Errorf("%q does not come back", text)
	}
	if (Secret{}).Text() != "" || !(Secret{}).IsZero() || secret.IsZero() {
		t.Error("the zero secret is one")
	}
	var out bytes.Buffer
	holder := struct{ hidden []Secret }{[]Secret{secret}}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb, secret)
		fmt.Fprintf(&out, verb, &secret)
		fmt.Fprintf(&out, verb, holder)
	}
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "s", secret, "h", holder)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "s", secret, "h", holder)
	raw, err := json.Marshal(map[string]any{"s": secret})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(raw)
	key := "0123456789"
	for _, leak := range []string{key, text[6:16], fmt.Sprintf("%x", key), "48 49 50", "0x30, 0x31", "0x30,0x31"} {
		if strings.Contains(strings.ToLower(out.String()), strings.ToLower(leak)) {
			t.Errorf("%q leaks in %s", leak, out.String())
		}
	}
}

// FuzzVerify: no header and no body panics, passes unsigned, or gets a message without a signature; and what is signed
// here always verifies.
func FuzzVerify(f *testing.F) {
	f.Add(vector.id, vector.stamp, vector.signature, []byte(vector.body))
	f.Add("evt_1", "1800000000", "v1,é v1, v1 v1a,x", []byte(`{"a":1E3}`))
	f.Add("evt_1", "99999999999", strings.Repeat("v1,A ", 100), []byte("\xff\r\n"))
	f.Add("a.b", "-1", ",", []byte(nil))
	f.Add("t=1", "t=1492774577", "t=1492774577,v1=00,v0=11", []byte(nil))
	secrets := []Secret{newSecret(7), newSecret(8)}
	f.Fuzz(func(t *testing.T, id, stamp, signatures string, body []byte) {
		now := time.Unix(1_800_000_000, 0)
		if msg, err := VerifyStandard(standardHeader(id, stamp, signatures), body, secrets, now, 0); err == nil || msg != (Message{}) {
			t.Fatalf("accepted %q: %+v, %v", signatures, msg, err)
		}
		if _, err := VerifyStripe(http.Header{HeaderStripe: {signatures}}, body, secrets, now, 0); err == nil {
			t.Fatalf("accepted %q of Stripe", signatures)
		}
		if VerifySquare(http.Header{HeaderSquare: {signatures}}, id, body, secrets) == nil || VerifyAdyenBody(signatures, body, secrets) == nil {
			t.Fatalf("accepted %q", signatures)
		}
		at, err := seconds(stamp)
		if err != nil {
			return
		}
		h, err := Headers(secrets, id, at, body)
		if (err == nil) != (validID(id) == nil) {
			t.Fatalf("signing %q: %v", id, err)
		}
		if err != nil {
			return
		}
		if msg, err := VerifyStandard(h, body, secrets[1:], at, 0); err != nil || msg.ID != id || !msg.At.Equal(at) {
			t.Fatalf("what was signed does not verify: %+v, %v", msg, err)
		}
	})
}

// FuzzParseSecret: every text is a usable secret or ErrSecret, and a secret's text form is the same secret.
func FuzzParseSecret(f *testing.F) {
	for _, text := range []string{vector.secret, vector.secret[6:], "v1," + vector.secret, " " + vector.secret, "whsec_", "", "é", "whsec_AA=="} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		secret, err := ParseSecret(text)
		if (err == nil) == secret.IsZero() {
			t.Fatalf("%q: %v, and a secret: %t", text, err, !secret.IsZero())
		}
		if err != nil {
			wantErr(t, text, err, ErrSecret)
			return
		}
		if n := len(secret.key()); n < MinSecretBytes || n > MaxSecretBytes || strings.TrimPrefix(secret.Text(), "whsec_") != strings.TrimPrefix(text, "whsec_") {
			t.Fatalf("%q: %d bytes, %q", text, n, secret.Text())
		}
	})
}

// FuzzAdyen: no item panics or passes by a signature that was not made with the key.
func FuzzAdyen(f *testing.F) {
	for _, v := range adyenVectors {
		f.Add([]byte(v.item))
	}
	secrets := []Secret{newSecret(7)}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var item AdyenItem
		if json.Unmarshal(raw, &item) == nil && VerifyAdyen(item, secrets) == nil {
			t.Fatalf("accepted %q", raw)
		}
	})
}
