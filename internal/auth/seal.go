package auth

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/hapaxpay/hapax/internal/id"
)

// Sealing's sizes. A sealed secret is: version, key id, nonce, ciphertext, tag.
const (
	secretKeyBytes = 32 // AES-256
	keyIDBytes     = 4
	sealVersion    = 1
	maxSecretKeys  = 8
	// MaxSecret bounds one secret before sealing, in bytes.
	MaxSecret = 16 << 10
)

var (
	// ErrSecretKey says that HAPAX_SECRET_KEY is not usable. The error never contains the value.
	ErrSecretKey = errors.New("HAPAX_SECRET_KEY wants 32 random bytes in base64, several separated by commas, the first one seals")
	// ErrSealed says that sealed bytes cannot be opened: damaged, sealed for another account, or by a key we do not have.
	ErrSealed = errors.New("the sealed secret cannot be opened")
)

// Keyring holds the keys that seal secrets at rest: the first seals, each opens what it sealed. A key is rotated by
// putting the new one in front, sealing again, and taking the old one away.
type Keyring struct {
	keys []sealKey
	root []byte // the first key, from which other secrets are derived
}

type sealKey struct {
	id   [keyIDBytes]byte
	aead cipher.AEAD
}

// ParseKeyring reads HAPAX_SECRET_KEY; it fails with ErrSecretKey.
func ParseKeyring(text string) (*Keyring, error) {
	parts := strings.Split(text, ",")
	if len(parts) > maxSecretKeys {
		return nil, ErrSecretKey
	}
	ring := &Keyring{}
	for _, part := range parts {
		raw, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSpace(part))
		if err != nil || len(raw) != secretKeyBytes {
			return nil, ErrSecretKey
		}
		key, err := newSealKey(raw)
		if err != nil {
			return nil, err
		}
		ring.keys = append(ring.keys, key)
		if ring.root == nil {
			ring.root = raw
		}
	}
	return ring, nil
}

// Derive gives the secret for another purpose: 32 bytes, the same for the same first key and purpose (RFC 5869). From a
// rotation on it is another one, so that it is for what soon expires.
func (r *Keyring) Derive(purpose string) []byte {
	secret, err := hkdf.Key(sha256.New, r.root, nil, "hapax derived secret\x00"+purpose, secretKeyBytes)
	if err != nil {
		panic("auth: " + err.Error()) // only a length above 255 hashes fails
	}
	return secret
}

func newSealKey(raw []byte) (sealKey, error) {
	block, err := aes.NewCipher(raw)
	if err != nil {
		return sealKey{}, fmt.Errorf("cipher of a secret key: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return sealKey{}, fmt.Errorf("mode of a secret key: %w", err)
	}
	sum := sha256.Sum256(append([]byte("hapax secret key id\x00"), raw...))
	return sealKey{id: [keyIDBytes]byte(sum[:keyIDBytes]), aead: aead}, nil
}

// Seal encrypts a secret of one acquirer account; only the same merchant and account open it again, so that a row
// copied to another account is worth nothing. It fails for a secret that is longer than MaxSecret.
func (r *Keyring) Seal(merchant, account id.ID, secret []byte) ([]byte, error) {
	if len(secret) > MaxSecret {
		return nil, fmt.Errorf("a secret has at most %d bytes", MaxSecret)
	}
	key := r.keys[0]
	sealed := append([]byte{sealVersion}, key.id[:]...)
	return key.aead.Seal(sealed, nil, secret, belongsTo(merchant, account)), nil
}

// Open decrypts what Seal made for the same merchant and account; it fails with ErrSealed.
func (r *Keyring) Open(merchant, account id.ID, sealed []byte) ([]byte, error) {
	const head = 1 + keyIDBytes
	if len(sealed) < head || sealed[0] != sealVersion {
		return nil, ErrSealed
	}
	for _, key := range r.keys {
		if [keyIDBytes]byte(sealed[1:head]) != key.id {
			continue
		}
		secret, err := key.aead.Open(nil, nil, sealed[head:], belongsTo(merchant, account))
		if err != nil {
			return nil, ErrSealed
		}
		return secret, nil
	}
	return nil, ErrSealed
}

func belongsTo(merchant, account id.ID) []byte {
	data := append([]byte("hapax acquirer account\x00"), merchant[:]...)
	return append(data, account[:]...)
}
