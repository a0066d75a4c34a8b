package payment_test

import (
	"encoding/hex"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
)

func text(s string) *string { return &s }

// Golden values: a deploy that changes one of them makes repeats look like other requests, or charges under new keys.
func TestFingerprintIsStable(t *testing.T) {
	for _, tc := range []struct {
		fields []payment.Field
		want   string
	}{
		{nil, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		{[]payment.Field{{Name: "amount", Value: text("18600")}, {Name: "currency", Value: text("KWD")}, {Name: "customer"}},
			"2097aa3c783096838ec5b9ce7221f344f4892048bc33106cef2555aded35007b"},
		{[]payment.Field{{Name: "описание", Value: text("")}}, "acfc14378d9c3aa35161ad426c04783f4e2e19452da551755470c2b908d59f42"},
	} {
		sum := payment.Fingerprint(tc.fields...)
		if got := hex.EncodeToString(sum[:]); got != tc.want {
			t.Errorf("%v: %s, want %s", tc.fields, got, tc.want)
		}
	}
	if payment.FingerprintVersion != 1 {
		t.Errorf("version %d: new golden values belong to it", payment.FingerprintVersion)
	}
}

var merchant = id.ID{0: 1, 6: 0x70, 8: 0x80, 15: 7}

func TestKeysAreStable(t *testing.T) {
	seed := payment.KeySeed(merchant, "order-1", "create_intent", "k1")
	for name, tc := range map[string]struct{ got, want string }{
		"seed of a reference": {seed, "4q24tuqcz2vpoekoa4bobm7tml"},
		"seed of a key":       {payment.KeySeed(merchant, "", "create_intent", "k1"), "zfzxjslfxvonygwjlqj554ucnc"},
		"charge":              {payment.ChargeKey("s", 2), "s:auth:2"},
		"event":               {payment.EventKey("s", 3), "s:event:3"},
		"wire":                {payment.Wire("prod", merchant, payment.ChargeKey(seed, 1), 128), "hpx4utj75dopo7ftrd4ch74ojrf7uzea4pxt7cngif2howjginoquzzjvd2h47a"},
		"wire, short":         {payment.Wire("prod", merchant, payment.ChargeKey(seed, 1), acquirer.MinKeyLength), "hpx4utj75dopo7ftrd4ch74ojrf7uzea"},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %s, want %s", name, tc.got, tc.want)
		}
	}
}

// fields draws a list of fields; short texts of few letters, so that ambiguous encodings would meet.
func fields() *rapid.Generator[[]payment.Field] {
	word := rapid.StringOfN(rapid.SampledFrom([]rune("01:ap")), 0, 4, -1)
	word = rapid.OneOf(word, rapid.SampledFrom([]string{"absent", "present", "7:present1:a", "6:absent", "\x00"}))
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) payment.Field {
		f := payment.Field{Name: word.Draw(t, "name")}
		if rapid.Bool().Draw(t, "sent") {
			f.Value = text(word.Draw(t, "value"))
		}
		return f
	}), 0, 4)
}

func same(a, b []payment.Field) bool {
	if len(a) != len(b) {
		return false
	}
	for n := range a {
		if a[n].Name != b[n].Name || (a[n].Value == nil) != (b[n].Value == nil) || a[n].Value != nil && *a[n].Value != *b[n].Value {
			return false
		}
	}
	return true
}

// Different lists of fields have different fingerprints: each field is encoded as length and value (W2).
func TestFingerprintIsUnambiguous(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := fields().Draw(t, "a"), fields().Draw(t, "b")
		if got := payment.Fingerprint(a...) == payment.Fingerprint(b...); got != same(a, b) {
			t.Fatalf("%v and %v: equal fingerprints: %v", a, b, got)
		}
	})
	sent := payment.Fingerprint(payment.Field{Name: "customer", Value: text("")})
	for name, other := range map[string][]payment.Field{
		"not sent":           {{Name: "customer"}},
		"the word absent":    {{Name: "customer", Value: text("absent")}},
		"split elsewhere":    {{Name: "custome", Value: text("r")}},
		"sent twice":         {{Name: "customer", Value: text("")}, {Name: "customer", Value: text("")}},
		"shifted to a name":  {{Name: ""}, {Name: "customer"}},
		"the encoding again": {{Name: "customer7:present0:"}},
	} {
		if payment.Fingerprint(other...) == sent {
			t.Errorf("%s: the same fingerprint as an empty text", name)
		}
	}
}

// A seed is a function of the merchant and what the client gave, and of nothing else (section 10).
func TestKeySeed(t *testing.T) {
	other := merchant
	other[15]++
	base := payment.KeySeed(merchant, "r", "create_intent", "k")
	if base != payment.KeySeed(merchant, "r", "create_payment", "another key") {
		t.Error("with a reference, the seed depends on the key")
	}
	seen := map[string]string{base: "reference"}
	for name, seed := range map[string]string{
		"other merchant":            payment.KeySeed(other, "r", "create_intent", "k"),
		"other reference":           payment.KeySeed(merchant, "R", "create_intent", "k"),
		"a key like the reference":  payment.KeySeed(merchant, "", "create_intent", "r"),
		"key":                       payment.KeySeed(merchant, "", "create_intent", "k"),
		"the key of another kind":   payment.KeySeed(merchant, "", "create_payment", "k"),
		"other merchant, same key":  payment.KeySeed(other, "", "create_intent", "k"),
		"kind and key put together": payment.KeySeed(merchant, "", "create_intentk", ""),
	} {
		if before, met := seen[seed]; met {
			t.Errorf("%s and %s have one seed", name, before)
		}
		seen[seed] = name
		if len(seed) != len(base) || strings.Trim(seed, "abcdefghijklmnopqrstuvwxyz234567") != "" {
			t.Errorf("%s: %q", name, seed)
		}
	}
}

// What leaves the house is opaque, deterministic, scoped, and fits every acquirer that the contract allows (D2).
func TestWireKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		longest := rapid.IntRange(acquirer.MinKeyLength, 300).Draw(t, "longest")
		derived, environment := rapid.String().Draw(t, "derived"), rapid.String().Draw(t, "environment")
		var m id.ID
		copy(m[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "merchant"))
		key := payment.Wire(environment, m, derived, longest)
		if len(key) > longest || len(key) < acquirer.MinKeyLength || len(key) > acquirer.MaxCode {
			t.Fatalf("%d bytes, longest %d", len(key), longest)
		}
		if !strings.HasPrefix(key, "hpx") || strings.Trim(key, "abcdefghijklmnopqrstuvwxyz234567") != "" {
			t.Fatalf("%q", key)
		}
		if key != payment.Wire(environment, m, derived, longest) {
			t.Fatal("not the same twice")
		}
		m[3]++
		for _, other := range []string{payment.Wire(environment, m, derived, longest), payment.Wire(environment+"x", m, derived, longest)} {
			if other == key {
				t.Fatal("not scoped by merchant and environment")
			}
		}
	})
}

func TestLooksLikeCard(t *testing.T) {
	for number, want := range map[string]bool{
		"4242424242424242":                     true,
		"4242 4242 4242 4242":                  true,
		"4242-4242-4242-4242":                  true,
		" 4242424242424242 ":                   true,
		"5555555555554444":                     true,
		"378282246310005":                      true, // 15 digits
		"30569309025904":                       true, // 14 digits
		"4222222222222":                        true, // 13 digits
		"6304000000000000000":                  true, // 19 digits
		"4242424242424241":                     false,
		"424242424242":                         false, // 12 digits
		"000000000000":                         false, // 12 digits, check digit right
		"00000000000000000000":                 false, // 20 digits, check digit right
		"42424242424242424242":                 false,
		"":                                     false,
		"- - -":                                false,
		"pm_ok":                                false,
		"pm_4242424242424242":                  false, // a token
		"tok_1N3T00LkdIwHu7ix":                 false,
		"4242424242424242x":                    false,
		"4242 4242 4242 424x":                  false,
		"01928374-5566-7788-99aa-bbccddeeff00": false, // a UUID
		"12345678-1234-1234-1234-123456789012": false, // a UUID of digits alone
		"４２４２４２４２４２４２４２４２": false, // other digits than ASCII's
	} {
		if got := payment.LooksLikeCard(number); got != want {
			t.Errorf("%q: %v", number, got)
		}
	}
	// Every number of card length has exactly one check digit.
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.StringMatching(`[0-9]{12,18}`).Draw(t, "body")
		right := 0
		for _, digit := range "0123456789" {
			if payment.LooksLikeCard(body + string(digit)) {
				right++
			}
		}
		if right != 1 {
			t.Fatalf("%s: %d check digits", body, right)
		}
	})
}

// A key tells whose it is: another tenant's or installation's through the same acquirer account is recognised, and what
// somebody else made is not taken for one of ours.
func TestForeignKeys(t *testing.T) {
	mine, theirs := id.ID{1}, id.ID{2}
	for _, longest := range []int{acquirer.MinKeyLength, 64, 128} {
		key := payment.Wire("live", mine, "seed:auth:1", longest)
		if payment.Foreign("live", mine, key) {
			t.Errorf("%d: my own key is foreign: %s", longest, key)
		}
		if !payment.Foreign("live", theirs, key) || !payment.Foreign("staging", mine, key) {
			t.Errorf("%d: a key of another tenant or installation is taken for ours: %s", longest, key)
		}
	}
	for _, key := range []string{"", "order-1", "hpx", "hpxshort"} {
		if payment.Foreign("live", mine, key) {
			t.Errorf("%q was made by nobody of us", key)
		}
	}
}
