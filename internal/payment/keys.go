package payment

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/id"
)

// FingerprintVersion is the version of the encoding below; it is stored beside each fingerprint (PROTOCOL W2).
const FingerprintVersion = 1

// Fingerprint condenses what the client sent and means: names and values in a fixed order, each as length and value,
// so that neither formatting, nor the order of members, nor a deploy changes it (PROTOCOL W2).
// Fields come in pairs name, value; a nil value means "not sent", which differs from an empty one.
func Fingerprint(fields ...Field) [32]byte {
	h := sha256.New()
	for _, f := range fields {
		writeSized(h, f.Name)
		if f.Value == nil {
			writeSized(h, "absent")
			continue
		}
		writeSized(h, "present")
		writeSized(h, *f.Value)
	}
	var out [32]byte
	h.Sum(out[:0])
	return out
}

// Field is one name and value of a fingerprint; Value nil: the client did not send it.
type Field struct {
	Name  string
	Value *string
}

func writeSized(w interface{ Write([]byte) (int, error) }, s string) {
	// A hash never fails to write.
	if _, err := w.Write([]byte(strconv.Itoa(len(s)) + ":" + s)); err != nil {
		panic(err)
	}
}

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

func digest(length int, parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		writeSized(h, p)
	}
	return lowerBase32.EncodeToString(h.Sum(nil))[:length]
}

// seedLength gives 130 bits: enough that two seeds never meet.
const seedLength = 26

// KeySeed is the stable name of an intent from which all keys derive (PROTOCOL section 10): a function of the merchant
// and the client reference, else of the merchant and the idempotency key that created the intent. Never of a row id.
func KeySeed(merchant id.ID, clientReference, kind, idempotencyKey string) string {
	if clientReference != "" {
		return digest(seedLength, "seed", merchant.String(), "reference", clientReference)
	}
	return digest(seedLength, "seed", merchant.String(), "key", kind, idempotencyKey)
}

// ChargeKey is the derived key of the n-th payment's charge.
func ChargeKey(seed string, n int) string { return fmt.Sprintf("%s:auth:%d", seed, n) }

// CaptureKey is the derived key of the k-th capture of the n-th payment.
func CaptureKey(seed string, n, k int) string { return fmt.Sprintf("%s:capture:%d:%d", seed, n, k) }

// CancelKey is the derived key of the k-th cancel of the n-th payment; k grows after a proven refusal.
func CancelKey(seed string, n, k int) string { return fmt.Sprintf("%s:cancel:%d:%d", seed, n, k) }

// RefundKey is the derived key of a refund, from the idempotency key of its command.
func RefundKey(seed, idempotencyKey string) string {
	return fmt.Sprintf("%s:refund:%s", seed, idempotencyKey)
}

// CompensationKey is the derived key of the k-th try to give a movement back, by the acquirer's id of the movement.
func CompensationKey(seed, reference string, k int) string {
	return fmt.Sprintf("%s:compensate:%s:%d", seed, reference, k)
}

// ExternalKey is the derived key of what was done by hand at the acquirer, by its id there.
func ExternalKey(seed, reference string) string {
	return fmt.Sprintf("%s:external:%s", seed, reference)
}

// EventKey is the derived key of an event.
func EventKey(seed string, version int64) string { return fmt.Sprintf("%s:event:%d", seed, version) }

// ReceiptKey is the derived key of the receipt for the n-th payment.
func ReceiptKey(seed string, n int) string { return fmt.Sprintf("%s:receipt:%d", seed, n) }

// CodeMailKey is the derived key of the mail that brings a one-time code of the n-th payment, by the code's ordinal.
func CodeMailKey(seed string, n, ordinal int) string {
	return fmt.Sprintf("%s:cancel_code:%d:%d", seed, n, ordinal)
}

// Wire encodes a derived key for an acquirer: opaque, deterministic, scoped by environment and merchant, and within
// the acquirer's longest key (PROTOCOL D2). Keys shorter than acquirer.MinKeyLength are refused by Contract.Validate.
//
// It begins with Tag, so that what another tenant or installation sent through the same acquirer account can be told
// apart from what is ours.
func Wire(environment string, merchant id.ID, derived string, longest int) string {
	tag := Tag(environment, merchant)
	return tag + digest(min(longest-len(tag), 52), "wire", environment, merchant.String(), derived)
}

// Tag is how every key of a merchant in an environment begins.
func Tag(environment string, merchant id.ID) string {
	return wirePrefix + digest(tagLength, "tag", environment, merchant.String())
}

// Foreign says whether a key was made by another tenant or installation of Hapax.
func Foreign(environment string, merchant id.ID, key string) bool {
	return strings.HasPrefix(key, wirePrefix) && len(key) >= acquirer.MinKeyLength && !strings.HasPrefix(key, Tag(environment, merchant))
}

const (
	wirePrefix = "hpx"
	tagLength  = 8 // 40 bits; the rest of the shortest key still has 105
)

// LooksLikeCard says whether a text holds 13 to 19 digits in card form with a right check digit, spaces and dashes
// aside: a card number where a token belongs.
func LooksLikeCard(s string) bool {
	digits := strings.Map(func(r rune) rune {
		if r == ' ' || r == '-' {
			return -1
		}
		return r
	}, s)
	if len(digits) < 13 || len(digits) > 19 {
		return false
	}
	sum := 0
	for i := range len(digits) {
		c := digits[len(digits)-1-i]
		if c < '0' || c > '9' {
			return false
		}
		d := int(c - '0')
		if i%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0
}
