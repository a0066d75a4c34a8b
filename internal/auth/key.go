// Package auth makes, reads and judges API keys, and seals acquirers' secrets at rest.
//
// Owns the text form of a key (hpx_test_…, hpx_live_…), its hash, its validity in time, and the sealed form of a secret.
// Never stores or logs a key or a secret, reads a clock, or trusts a key before the store has found its hash.
// Read next: seal.go for secrets, internal/httpapi for the door that calls Authenticate.
package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"errors"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
)

// Mode says whether a merchant moves real money. A test tenant is a merchant of its own (API.md).
type Mode string

// The modes.
const (
	Test Mode = "test"
	Live Mode = "live"
)

// SecretBytes is the randomness of one key: 160 bits, more than anybody can try.
const SecretBytes = 20

const (
	keyPrefix    = "hpx_"
	merchantText = 26 // characters of id.ID.Text
	secretText   = 32 // characters of SecretBytes in base 32
)

// ErrUnauthenticated says that a key is missing, unknown, expired, revoked or of the other mode. Which of these it is
// stays untold, so that nobody can try keys out.
var ErrUnauthenticated = errors.New("no valid API key")

var keyEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// Key is a stored API key: its hash, never its text, and what decides whether it is good now.
type Key struct {
	Merchant  id.ID
	ID        id.ID
	Hash      [32]byte
	Mode      Mode      // of the merchant, not of the text that was presented
	RateLimit int       // requests per second of the merchant; 0: the default
	ExpiresAt time.Time // set at rotation, so that old and new overlap; zero: does not expire
	RevokedAt time.Time // zero: not revoked
	ReadAt    time.Time // the database's time when the row was read: expiry is judged by it
}

// Valid says whether the key is good at the time at which it was read.
func (k Key) Valid() bool {
	return k.RevokedAt.IsZero() && (k.ExpiresAt.IsZero() || k.ReadAt.Before(k.ExpiresAt))
}

// Finder finds a key by merchant and hash, valid or not; false: there is none. An error is a fault: nothing is known.
type Finder interface {
	FindAPIKey(ctx context.Context, merchant id.ID, hash [32]byte) (Key, bool, error)
}

// NewKey makes the text of a key, to be shown once, and the hash to be stored. The text carries its merchant, so that a
// row is found with the merchant alone (DESIGN data rule 1).
func NewKey(mode Mode, merchant id.ID, random [SecretBytes]byte) (text string, hash [32]byte) {
	text = keyPrefix + string(mode) + "_" + merchant.Text("") + keyEncoding.EncodeToString(random[:])
	return text, HashKey(text)
}

// HashKey gives the hash under which a key is stored. A plain hash is enough: a key is random, not chosen by a person.
func HashKey(text string) [32]byte { return sha256.Sum256([]byte(text)) }

// ParseKey reads mode and merchant out of a key's text. It fails with ErrUnauthenticated for anything else.
func ParseKey(text string) (Mode, id.ID, error) {
	rest, ok := strings.CutPrefix(text, keyPrefix)
	if !ok {
		return "", id.ID{}, ErrUnauthenticated
	}
	name, body, _ := strings.Cut(rest, "_")
	mode := Mode(name)
	if mode != Test && mode != Live || len(body) != merchantText+secretText {
		return "", id.ID{}, ErrUnauthenticated
	}
	merchant, err := id.Parse("", body[:merchantText])
	if err != nil {
		return "", id.ID{}, ErrUnauthenticated
	}
	if _, err := keyEncoding.DecodeString(body[merchantText:]); err != nil {
		return "", id.ID{}, ErrUnauthenticated
	}
	return mode, merchant, nil
}

// Authenticate judges the value of an Authorization header. It fails with ErrUnauthenticated, or with the finder's
// error when nothing could be found out.
func Authenticate(ctx context.Context, keys Finder, header string) (Key, error) {
	scheme, text, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return Key{}, ErrUnauthenticated
	}
	text = strings.Trim(text, " ")
	mode, merchant, err := ParseKey(text)
	if err != nil {
		return Key{}, err
	}
	hash := HashKey(text)
	key, found, err := keys.FindAPIKey(ctx, merchant, hash)
	if err != nil {
		return Key{}, err
	}
	// The comparison repeats what the store's index did, in constant time: a finder that answers with another row, or
	// with another merchant's, opens nothing.
	same := subtle.ConstantTimeCompare(key.Hash[:], hash[:]) == 1
	if !found || !same || key.Merchant != merchant || key.Mode != mode || !key.Valid() {
		return Key{}, ErrUnauthenticated
	}
	return key, nil
}
