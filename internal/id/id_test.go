package id_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hapaxpay/hapax/internal/id"
)

const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

var at = time.UnixMilli(0x0123456789ab)

func TestNewIsVersion7(t *testing.T) {
	x := id.New(at, [10]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	if got, want := x.String(), "01234567-89ab-7fff-bfff-ffffffffffff"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := id.New(at, [10]byte{}).String(), "01234567-89ab-7000-8000-000000000000"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// Later ids sort later, as bytes and as texts.
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64Range(0, 1<<47).Draw(t, "ms")
		draw := func(name string) (r [10]byte) {
			copy(r[:], rapid.SliceOfN(rapid.Byte(), 10, 10).Draw(t, name))
			return r
		}
		a, b := id.New(time.UnixMilli(ms), draw("a")), id.New(time.UnixMilli(ms+1), draw("b"))
		if a.String() >= b.String() || a.Text(id.Payment) >= b.Text(id.Payment) {
			t.Fatalf("%s is not before %s", a, b)
		}
	})
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x id.ID
		copy(x[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "bytes"))
		prefix := rapid.SampledFrom([]string{id.Intent, id.Payment, id.Refund, id.Operation, id.Event, id.Review, id.Merchant, id.Account, id.Evidence, id.Movement}).Draw(t, "prefix")
		text := x.Text(prefix)
		if x.IsZero() {
			if text != "" {
				t.Fatalf("none is %q", text)
			}
			return
		}
		body, ok := strings.CutPrefix(text, prefix)
		if !ok || len(body) != 26 || strings.Trim(body, alphabet) != "" {
			t.Fatalf("%q", text)
		}
		if back, err := id.Parse(prefix, text); err != nil || back != x {
			t.Fatalf("%q is read as %v, %v", text, back, err)
		}
		if back, err := id.ParseUUID(x.String()); err != nil || back != x {
			t.Fatalf("%q is read as %v, %v", x, back, err)
		}
	})
}

// One row has one name: whatever is not the canonical form of the expected kind is refused.
func TestParseRefuses(t *testing.T) {
	x := id.New(at, [10]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
	good := x.Text(id.Payment)
	body := strings.TrimPrefix(good, id.Payment)
	last := strings.IndexByte(alphabet, body[25])
	if last%4 != 0 {
		t.Fatalf("the last character of %s has spare bits", good)
	}
	for name, text := range map[string]string{
		"empty":              "",
		"prefix alone":       id.Payment,
		"no prefix":          body,
		"other kind":         x.Text(id.Intent),
		"prefix twice":       id.Payment + good,
		"upper case":         id.Payment + strings.ToUpper(body),
		"upper case prefix":  "PAY_" + body,
		"spare bits":         good[:len(good)-1] + string(alphabet[last+1]),
		"all spare bits":     good[:len(good)-1] + string(alphabet[last+3]),
		"one short":          good[:len(good)-1],
		"one long":           good + "0",
		"space before":       " " + good,
		"line end after":     good + "\n",
		"line end inside":    good[:len(good)-1] + "\n",
		"line ends stripped": id.Payment + "\r\n" + body[2:],
		"padding":            good[:len(good)-1] + "=",
		"letter i":           id.Payment + "i" + body[1:],
		"letter o":           id.Payment + "o" + body[1:],
		"none":               id.Payment + strings.Repeat("0", 26),
		"uuid":               x.String(),
		"NUL":                good[:len(good)-1] + "\x00",
		"cyrillic":           id.Payment + "а" + body[2:],
	} {
		if back, err := id.Parse(id.Payment, text); !errors.Is(err, id.ErrMalformed) || back != (id.ID{}) {
			t.Errorf("%s: %q is read as %v, %v", name, text, back, err)
		}
	}
	for name, text := range map[string]string{
		"empty": "", "prefixed": good, "no hyphens": strings.ReplaceAll(x.String(), "-", ""), "upper case": strings.ToUpper(x.String()),
		"hyphens elsewhere": "-" + strings.ReplaceAll(x.String(), "-", ""), "one short": x.String()[:35], "braces": "{" + x.String() + "}",
	} {
		if back, err := id.ParseUUID(text); !errors.Is(err, id.ErrMalformed) || back != (id.ID{}) {
			t.Errorf("%s: %q is read as the UUID %v, %v", name, text, back, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(id.New(at, [10]byte{}).Text(id.Payment))
	f.Add("pay_zzzzzzzzzzzzzzzzzzzzzzzzzz")
	f.Add("pay_" + strings.Repeat("0", 26))
	f.Fuzz(func(t *testing.T, text string) {
		x, err := id.Parse(id.Payment, text)
		if (err == nil) != (x.Text(id.Payment) == text && text != "") {
			t.Fatalf("%q is read as %v, %v", text, x, err)
		}
	})
}
