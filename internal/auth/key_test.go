package auth

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
)

var (
	day      = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	merchant = id.New(day, [10]byte{1})
	stranger = id.New(day, [10]byte{2})
)

type rows map[[32]byte]Key

func (r rows) FindAPIKey(_ context.Context, m id.ID, hash [32]byte) (Key, bool, error) {
	k, ok := r[hash]
	return k, ok && k.Merchant == m, nil
}

func stored(change func(*Key)) (rows, string) {
	text, hash := NewKey(Test, merchant, [SecretBytes]byte{7})
	k := Key{Merchant: merchant, Hash: hash, Mode: Test, ReadAt: day}
	change(&k)
	return rows{hash: k}, text
}

func TestAuthenticate(t *testing.T) {
	same := func(*Key) {}
	cases := []struct {
		name   string
		change func(*Key)
		header func(text string) string
		good   bool
	}{
		{"valid", same, func(s string) string { return "Bearer " + s }, true},
		{"scheme in other case", same, func(s string) string { return "bearer  " + s + " " }, true},
		{"old key during the overlap", func(k *Key) { k.ExpiresAt = day.Add(time.Second) }, func(s string) string { return "Bearer " + s }, true},
		{"old key after the overlap", func(k *Key) { k.ExpiresAt = day }, func(s string) string { return "Bearer " + s }, false},
		{"revoked", func(k *Key) { k.RevokedAt = day.Add(-time.Hour) }, func(s string) string { return "Bearer " + s }, false},
		{"merchant of the other mode", func(k *Key) { k.Mode = Live }, func(s string) string { return "Bearer " + s }, false},
		{"row of another merchant", func(k *Key) { k.Merchant = stranger }, func(s string) string { return "Bearer " + s }, false},
		{"row with another hash", func(k *Key) { k.Hash[0] ^= 1 }, func(s string) string { return "Bearer " + s }, false},
		{"no header", same, func(string) string { return "" }, false},
		{"other scheme", same, func(s string) string { return "Basic " + s }, false},
		{"no scheme", same, func(s string) string { return s }, false},
		{"mode changed in the text", same, func(s string) string { return "Bearer " + strings.Replace(s, "_test_", "_live_", 1) }, false},
		{"unknown mode", same, func(s string) string { return "Bearer " + strings.Replace(s, "_test_", "_tset_", 1) }, false},
		{"last character changed", same, func(s string) string { return "Bearer " + s[:len(s)-1] + "z" }, false},
		{"one character short", same, func(s string) string { return "Bearer " + s[:len(s)-1] }, false},
		{"upper case", same, func(s string) string { return "Bearer " + strings.ToUpper(s) }, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			keys, text := stored(c.change)
			key, err := Authenticate(context.Background(), keys, c.header(text))
			if c.good && (err != nil || key.Merchant != merchant) {
				t.Fatalf("refused: %v", err)
			}
			if !c.good && !errors.Is(err, ErrUnauthenticated) {
				t.Fatalf("let in: %v", err)
			}
		})
	}
}

type broken struct{}

var errDown = errors.New("database down")

func (broken) FindAPIKey(context.Context, id.ID, [32]byte) (Key, bool, error) {
	return Key{}, false, errDown
}

func TestAuthenticateFault(t *testing.T) {
	_, text := stored(func(*Key) {})
	if _, err := Authenticate(context.Background(), broken{}, "Bearer "+text); !errors.Is(err, errDown) || errors.Is(err, ErrUnauthenticated) {
		t.Fatalf("a fault must not read as a wrong key: %v", err)
	}
}

func TestKeyText(t *testing.T) {
	text, hash := NewKey(Live, merchant, [SecretBytes]byte{9})
	mode, m, err := ParseKey(text)
	if err != nil || mode != Live || m != merchant || HashKey(text) != hash || !strings.HasPrefix(text, "hpx_live_") {
		t.Fatalf("round trip: %v %v %v", mode, m, err)
	}
	if other, _ := NewKey(Live, merchant, [SecretBytes]byte{10}); other == text {
		t.Fatal("two secrets gave one key")
	}
}

func FuzzParseKey(f *testing.F) {
	text, _ := NewKey(Test, merchant, [SecretBytes]byte{1})
	for _, s := range []string{text, "", "hpx_", "hpx_test_", "hpx_live__", text + "x", strings.ToUpper(text)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		mode, m, err := ParseKey(s)
		if err != nil {
			return
		}
		if !strings.HasPrefix(s, "hpx_"+string(mode)+"_"+m.Text("")) {
			t.Fatalf("parsed into something else than it says")
		}
	})
}
