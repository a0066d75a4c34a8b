package signature

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Headers of the Standard Webhooks specification 1.0.0.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

// standardVersion marks signatures by HMAC-SHA256. All others, such as v1a (ed25519), are passed over.
const standardVersion = "v1"

// Message is what a verified webhook says about itself, under its signature.
type Message struct {
	ID string    // the same in every delivery of one event; by it a receiver knows a repeat
	At time.Time // when this delivery was signed, in whole seconds; skew is its distance to now
}

// VerifyStandard checks a webhook by Standard Webhooks: body is the exact bytes that came. Any signature by any of the
// secrets passes, so that secrets can rotate on both sides. now is when it was received, not when it is processed; a
// window of 0 means DefaultWindow.
//
// The signature is judged before the time, so ErrTooOld and ErrTooNew are said of authentic messages only, and come with
// their Message: the skew can be measured. Every other error comes with the zero Message. A verified webhook can still be
// a repeat: whoever applies it marks its ID in the same transaction (PROTOCOL V3).
func VerifyStandard(h http.Header, body []byte, secrets []Secret, now time.Time, window time.Duration) (Message, error) {
	id, err := only(h, HeaderID)
	if err != nil {
		return Message{}, err
	}
	if err := validID(id); err != nil {
		return Message{}, err
	}
	stamp, err := only(h, HeaderTimestamp)
	if err != nil {
		return Message{}, err
	}
	at, err := seconds(stamp)
	if err != nil {
		return Message{}, err
	}
	header, err := only(h, HeaderSignature)
	if err != nil {
		return Message{}, err
	}
	signatures := tagged(header, " ", standardVersion, ",")
	if err := match(secrets, base64.StdEncoding.EncodeToString, signatures, signed(id, stamp, body)...); err != nil {
		return Message{}, err
	}
	return Message{ID: id, At: at}, fresh(at, now, window)
}

// Sign makes one signature ("v1,…") of Standard Webhooks over the exact bytes that will be sent. It fails with
// ErrSecret for the zero Secret, and with ErrMalformed for an id or a time that no receiver could verify.
func Sign(secret Secret, id string, at time.Time, body []byte) (string, error) {
	if err := usable([]Secret{secret}); err != nil {
		return "", err
	}
	if err := validID(id); err != nil {
		return "", err
	}
	stamp := strconv.FormatInt(at.Unix(), 10)
	if _, err := seconds(stamp); err != nil {
		return "", err
	}
	sum := mac(secret, signed(id, stamp, body)...)
	return standardVersion + "," + base64.StdEncoding.EncodeToString(sum), nil
}

// Headers makes the three headers of one delivery, signed by every secret: while a secret rotates, old and new. id is the
// event's, the same in every delivery; at is the time of this delivery. It fails as Sign does, and without secrets.
func Headers(secrets []Secret, id string, at time.Time, body []byte) (http.Header, error) {
	if err := usable(secrets); err != nil {
		return nil, err
	}
	signatures := make([]string, 0, len(secrets))
	for _, secret := range secrets {
		one, err := Sign(secret, id, at, body)
		if err != nil {
			return nil, err
		}
		signatures = append(signatures, one)
	}
	h := http.Header{}
	h.Set(HeaderID, id)
	h.Set(HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
	h.Set(HeaderSignature, strings.Join(signatures, " "))
	return h, nil
}

// signed is the signed content, in pieces: the body is not copied.
func signed(id, stamp string, body []byte) [][]byte {
	return [][]byte{[]byte(id + "." + stamp + "."), body}
}

// validID refuses what makes the signed content ambiguous (a full stop parts id, time and body; the specification forbids
// it in an id) and what no header can carry.
func validID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%w: the id is empty", ErrMalformed)
	case len(id) > MaxIDBytes:
		return fmt.Errorf("%w: the id has more than %d bytes", ErrMalformed, MaxIDBytes)
	case strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '.' }):
		return fmt.Errorf("%w: the id holds a full stop, a blank or a character outside ASCII", ErrMalformed)
	}
	return nil
}

// tagged gives the values with this tag out of a list such as "v1,a v2,b", from its first MaxSignatures members.
func tagged(list, separator, tag, sign string) (values []string) {
	for range MaxSignatures {
		member, rest, more := strings.Cut(list, separator)
		if value, ok := strings.CutPrefix(member, tag+sign); ok {
			values = append(values, value)
		}
		if !more {
			break
		}
		list = rest
	}
	return values
}
