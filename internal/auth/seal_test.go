package auth

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

func secretKey(b byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, secretKeyBytes))
}

func ring(t *testing.T, text string) *Keyring {
	t.Helper()
	r, err := ParseKeyring(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSealOpen(t *testing.T) {
	r := ring(t, secretKey(1))
	secret := []byte("sk_of_the_acquirer")
	one, err := r.Seal(merchant, stranger, secret)
	if err != nil {
		t.Fatal(err)
	}
	two, err := r.Seal(merchant, stranger, secret)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(one, two) || bytes.Contains(one, secret) {
		t.Fatal("sealing shows the secret, or uses a nonce twice")
	}
	if got, err := r.Open(merchant, stranger, one); err != nil || !bytes.Equal(got, secret) {
		t.Fatalf("open: %q %v", got, err)
	}
	if _, err := r.Open(stranger, merchant, one); !errors.Is(err, ErrSealed) {
		t.Fatalf("another account opened it: %v", err)
	}
	for i := range one {
		damaged := bytes.Clone(one)
		damaged[i] ^= 1
		if _, err := r.Open(merchant, stranger, damaged); !errors.Is(err, ErrSealed) {
			t.Fatalf("byte %d changed and still opened: %v", i, err)
		}
	}
	for n := range one {
		if _, err := r.Open(merchant, stranger, one[:n]); !errors.Is(err, ErrSealed) {
			t.Fatalf("%d bytes opened: %v", n, err)
		}
	}
	if _, err := r.Seal(merchant, stranger, make([]byte, MaxSecret+1)); err == nil {
		t.Fatal("no limit")
	}
}

func TestSealRotation(t *testing.T) {
	old, both, fresh := ring(t, secretKey(1)), ring(t, secretKey(2)+", "+secretKey(1)), ring(t, secretKey(2))
	sealed, err := old.Seal(merchant, stranger, []byte("s"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := both.Open(merchant, stranger, sealed); err != nil {
		t.Fatalf("the old key must open during rotation: %v", err)
	}
	again, err := both.Seal(merchant, stranger, []byte("s"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fresh.Open(merchant, stranger, again); err != nil {
		t.Fatalf("the new key must seal during rotation: %v", err)
	}
	if _, err := fresh.Open(merchant, stranger, sealed); !errors.Is(err, ErrSealed) {
		t.Fatalf("opened without its key: %v", err)
	}
}

func TestParseKeyringRefuses(t *testing.T) {
	for _, text := range []string{"", "short", secretKey(1) + ",", "!" + secretKey(1)[1:], strings.Repeat(secretKey(1)+",", maxSecretKeys) + secretKey(1)} {
		if _, err := ParseKeyring(text); !errors.Is(err, ErrSecretKey) || len(text) > 4 && strings.Contains(err.Error(), text) {
			t.Fatalf("taken or echoed: %v", err)
		}
	}
}

// TestDerive: one secret for each first key and purpose, which tells nothing of the key.
func TestDerive(t *testing.T) {
	one := ring(t, secretKey(1)).Derive("codes")
	if !bytes.Equal(one, ring(t, secretKey(1)+","+secretKey(2)).Derive("codes")) {
		t.Error("a key that only opens changes what is derived")
	}
	for name, other := range map[string][]byte{"another purpose": ring(t, secretKey(1)).Derive("other"), "another key": ring(t, secretKey(2)+","+secretKey(1)).Derive("codes"),
		"the key itself": bytes.Repeat([]byte{1}, secretKeyBytes)} {
		if bytes.Equal(one, other) || len(other) != secretKeyBytes {
			t.Errorf("%s gives the same", name)
		}
	}
}
