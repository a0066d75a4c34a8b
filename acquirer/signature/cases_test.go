package signature

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// standardHeader builds the three headers as they would come over HTTP.
func standardHeader(id, stamp, signatures string) http.Header {
	h := http.Header{}
	h.Set(HeaderID, id)
	h.Set(HeaderTimestamp, stamp)
	h.Set(HeaderSignature, signatures)
	return h
}

func newSecret(seed byte) Secret { return NewSecret([NewSecretBytes]byte{seed}) }

func parsed(t *testing.T) func(Secret, error) Secret {
	return func(secret Secret, err error) Secret {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return secret
	}
}

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) || want == nil && got != nil {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// TestCase040_ExactBytes: every body verifies as the bytes that were signed, and no other writing of the same JSON does.
func TestCase040_ExactBytes(t *testing.T) {
	groups := [][]string{
		{`{"name":"caf\u00e9"}`, `{"name":"café"}`, "{\"name\":\"cafe\u0301\"}", `{"name":"caf\u00E9"}`},
		{`{"fee":1.0}`, `{"fee":1}`, `{"fee":1.00}`, `{"fee":1e0}`},
		{`{"n":1E3}`, `{"n":1000}`, `{"n":1e3}`, `{"n":1e+3}`},
		{`{"n":12345678901234567890}`, `{"n":12345678901234567000}`, `{"n":1.2345678901234567e19}`},
		{"{\"a\":1,\r\n\"b\":2}", "{\"a\":1,\n\"b\":2}", `{"a":1,"b":2}`, `{"b":2,"a":1}`},
		{"{\"a\":1}\n", `{"a":1}`, "{\"a\":1}\r\n", `{"a":1} `, "\ufeff{\"a\":1}"},
		{`{"a":1,"a":2}`, `{"a":2,"a":1}`, `{"a":2}`, `{"a":1}`},
		{`{"u":"a\/b"}`, `{"u":"a/b"}`},
		{"", " ", "null"},
		{"not JSON", "\xff\xfe", "\x00"},
	}
	now, secrets := time.Unix(1_800_000_000, 0), []Secret{newSecret(1)}
	for _, bodies := range groups {
		for _, sent := range bodies {
			h, err := Headers(secrets, "evt_1", now, []byte(sent))
			if err != nil {
				t.Fatal(err)
			}
			for _, received := range bodies {
				_, err := VerifyStandard(h, []byte(received), secrets, now, 0)
				want := ErrMismatch
				if received == sent {
					want = nil
				}
				wantErr(t, fmt.Sprintf("signed %q, received %q", sent, received), err, want)
			}
		}
	}
}

// TestCase041_WindowOnBothSides: what was signed too far from now is refused on both sides, and is told apart.
func TestCase041_WindowOnBothSides(t *testing.T) {
	now, secrets, body := time.Unix(1_800_000_000, 0), []Secret{newSecret(1)}, []byte(`{}`)
	const year = 365 * 24 * 3600
	for ahead, want := range map[int64]error{ // in seconds; the last is more than a time.Duration can tell
		-301: ErrTooOld, -300: ErrTooOld, -299: nil, 0: nil, 299: nil, 300: ErrTooNew, 301: ErrTooNew,
		-50 * year: ErrTooOld, 50 * year: ErrTooNew, 3000 * year: ErrTooNew,
	} {
		at := time.Unix(now.Unix()+ahead, 0)
		h, err := Headers(secrets, "evt_1", at, body)
		if err != nil {
			t.Fatal(err)
		}
		msg, err := VerifyStandard(h, body, secrets, now, 0)
		wantErr(t, fmt.Sprint("Standard Webhooks, ", ahead), err, want)
		if !msg.At.Equal(at) || msg.ID != "evt_1" {
			t.Errorf("%d s: the message of an authentic webhook is %+v: the skew cannot be measured", ahead, msg)
		}
		stripe := http.Header{HeaderStripe: {stripeHeader(secrets[0], at, body)}}
		_, err = VerifyStripe(stripe, body, secrets, now, DefaultWindow)
		wantErr(t, fmt.Sprint("Stripe, ", ahead), err, want)
		// Without a valid signature nothing is said about time, and nothing is believed.
		msg, err = VerifyStandard(h, []byte("other"), secrets, now, 0)
		wantErr(t, "forged", err, ErrMismatch)
		if msg != (Message{}) {
			t.Errorf("%d s: a forged webhook brings %+v", ahead, msg)
		}
	}
	h, err := Headers(secrets, "evt_1", now.Add(-2*time.Minute), body)
	if err != nil {
		t.Fatal(err)
	}
	_, err = VerifyStandard(h, body, secrets, now, time.Minute)
	wantErr(t, "a narrow window", err, ErrTooOld)
}

// TestCase043_TextOfASecret: with the prefix and without is the same key; anything else fails where it is configured.
func TestCase043_TextOfASecret(t *testing.T) {
	const key = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" // of the published vector
	for _, text := range []string{key, "whsec_" + key} {
		secret := parsed(t)(ParseSecret(text))
		h := standardHeader(vector.id, vector.stamp, vector.signature)
		_, err := VerifyStandard(h, []byte(vector.body), []Secret{secret}, vector.at, 0)
		wantErr(t, "a good secret", err, nil)
	}
	for what, text := range map[string]string{
		"empty": "", "prefix alone": "whsec_", "version before it": "v1,whsec_" + key, "version before the key": "v1," + key,
		"blank before": " whsec_" + key, "blank after": "whsec_" + key + " ", "blank after the prefix": "whsec_ " + key,
		"line end": "whsec_" + key + "\n", "line end of Windows": "whsec_" + key + "\r\n", "line end inside": "whsec_" + key[:16] + "\n" + key[16:],
		"tab": "\twhsec_" + key, "no-break space": "whsec_" + key + "\u00a0", "quotes": `"whsec_` + key + `"`,
		"prefix twice": "whsec_whsec_" + key, "prefix in capitals": "WHSEC_" + key, "cut": "whsec_" + key[:31],
		"asymmetric": "whpk_" + key, "base64 for URLs": "whsec_-_" + key[2:], "two secrets": key + "," + key,
		"15 bytes": "whsec_MTIzNDU2Nzg5MDEyMzQ1", "one byte": "whsec_AA==", "65 bytes": "whsec_" + strings.Repeat("MTIz", 21) + "MTI=",
		"endless": strings.Repeat("MTIz", 1000),
	} {
		secret, err := ParseSecret(text)
		wantErr(t, what, err, ErrSecret)
		if !secret.IsZero() {
			t.Errorf("%s: a secret in spite of the error", what)
		}
		if err != nil && (strings.Contains(err.Error(), key[4:12]) || len(err.Error()) > 150) {
			t.Errorf("%s: the error holds what was given: %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"text with a line end": second(ParseTextSecret("whsec_0123456789abcdef\n")), "short text": second(ParseTextSecret("asdf1234")),
		"no hexadecimal": second(ParseHexSecret("whsec_" + key)), "short hexadecimal": second(ParseHexSecret("44782DEF547AAA06")),
		"hexadecimal with a blank": second(ParseHexSecret("44782DEF547AAA06C910C43932B1EB0C ")), "empty hexadecimal": second(ParseHexSecret("")),
	} {
		wantErr(t, what, err, ErrSecret)
	}
}

func second(_ Secret, err error) error { return err }

// TestCase044_RotationOfSecrets: while a secret rotates on either side, any signature by any secret passes, in any order
// and among unknown versions; and many signatures are bounded work.
func TestCase044_RotationOfSecrets(t *testing.T) {
	at, body := time.Unix(1_800_000_000, 0), []byte(`{"a":1}`)
	before, after, other := newSecret(1), newSecret(2), newSecret(3)
	one := func(s Secret) string {
		text, err := Sign(s, "evt_1", at, body)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	verify := func(header string, secrets ...Secret) error {
		_, err := VerifyStandard(standardHeader("evt_1", "1800000000", header), body, secrets, at, 0)
		return err
	}
	held := map[string][]Secret{"old": {before}, "new": {after}, "both": {before, after}, "both, new first": {after, before}}
	unknown := []string{"v1a," + strings.Repeat("A", 86) + "==", "v2," + one(other)[3:], "", "v1,", "v1", ",", "v1,é", one(other)}
	for name, secrets := range held {
		for _, pair := range [][]string{{one(before), one(after)}, {one(after), one(before)}} {
			wantErr(t, name, verify(strings.Join(pair, " "), secrets...), nil)
			for i := range unknown {
				mixed := append(append(append([]string{}, unknown[:i]...), pair...), unknown[i:]...)
				wantErr(t, fmt.Sprint(name, ", unknown ones mixed in at ", i), verify(strings.Join(mixed, " "), secrets...), nil)
			}
		}
		wantErr(t, name+", signed by another", verify(one(other), secrets...), ErrMismatch)
		wantErr(t, name+", unknown versions only", verify("v2,"+one(before)[3:]+" v1a,"+one(after)[3:], secrets...), ErrMismatch)
	}
	wrong := one(other) + " "
	wantErr(t, "the 20th of 20", verify(strings.Repeat(wrong, 19)+one(after), before, after), nil)
	wantErr(t, "the last that is looked at", verify(strings.Repeat(wrong, MaxSignatures-1)+one(after), after), nil)
	wantErr(t, "the first that is not", verify(strings.Repeat(wrong, MaxSignatures)+one(after), after), ErrMismatch)
	wantErr(t, "a header over the limit", verify(one(after)+strings.Repeat(" x", MaxHeaderBytes), after), ErrMalformed)
	wantErr(t, "no secret", verify(one(after)), ErrSecret)
	wantErr(t, "a secret that was never set", verify(one(after), after, Secret{}), ErrSecret)
	wantErr(t, "too many secrets", verify(one(after), make([]Secret, MaxSecrets+1)...), ErrSecret)
}

// TestCase045_NothingIsEscaped: fields with the separator, a slash or a backslash in them are signed as they are.
func TestCase045_NothingIsEscaped(t *testing.T) {
	for _, v := range adyenVectors {
		secrets := []Secret{parsed(t)(ParseHexSecret(v.key))}
		item := adyenItem(t, v.item)
		wantErr(t, v.item, VerifyAdyen(item, secrets), nil)
		item.MerchantReference = strings.NewReplacer(`\`, `\\`, `:`, `\:`).Replace(item.MerchantReference) + "x"
		wantErr(t, "another reference", VerifyAdyen(item, secrets), ErrMismatch)
	}
}
