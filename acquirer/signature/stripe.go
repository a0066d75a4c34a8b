package signature

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"time"
)

// Headers of Stripe and Square.
const (
	HeaderStripe = "Stripe-Signature"
	HeaderSquare = "X-Square-Hmacsha256-Signature"
)

// VerifyStripe checks a webhook of Stripe: the header is "t=<seconds>,v1=<hex>,…", the signed content "<t>.<body>", the
// key the secret's characters (ParseTextSecret). Source: docs.stripe.com/webhooks, "Verify webhook signatures manually".
// It judges and fails as VerifyStandard does. The Message has no ID: the event's is inside the body.
func VerifyStripe(h http.Header, body []byte, secrets []Secret, now time.Time, window time.Duration) (Message, error) {
	header, err := only(h, HeaderStripe)
	if err != nil {
		return Message{}, err
	}
	stamps := tagged(header, ",", "t", "=")
	if len(stamps) != 1 {
		return Message{}, fmt.Errorf("%w: %d times in %s, not one", ErrMalformed, len(stamps), HeaderStripe)
	}
	at, err := seconds(stamps[0])
	if err != nil {
		return Message{}, err
	}
	signatures := tagged(header, ",", "v1", "=")
	if err := match(secrets, hex.EncodeToString, signatures, []byte(stamps[0]+"."), body); err != nil {
		return Message{}, err
	}
	return Message{At: at}, fresh(at, now, window)
}

// VerifySquare checks a webhook of Square: the signed content is the URL of the subscription, letter for letter as it was
// given to Square, and the body; the key is the secret's characters (ParseTextSecret). Source: developer.squareup.com,
// "Verify and validate an event notification". No time is signed: only the event's id tells a repeat.
func VerifySquare(h http.Header, url string, body []byte, secrets []Secret) error {
	signature, err := only(h, HeaderSquare)
	if err != nil {
		return err
	}
	return match(secrets, base64.StdEncoding.EncodeToString, []string{signature}, []byte(url), body)
}
