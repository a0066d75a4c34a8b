package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/hapaxpay/hapax/money"
)

const (
	// maxBody bounds a request body, in bytes.
	maxBody = 64 << 10
	// maxKey bounds an idempotency key, in bytes.
	maxKey = 255
	// maxReference bounds a merchant's reference, in bytes.
	maxReference = 128
	// maxMethod bounds a payment method, chains included, in bytes.
	maxMethod = 512
	// maxReturnURL bounds the address that a payer goes back to, in bytes.
	maxReturnURL = 2048
)

// rejection is an answer that was decided before anything was executed.
type rejection struct {
	status  int
	code    string
	message string // never holds a refused value
}

func (r *rejection) Error() string { return r.code + ": " + r.message }

func malformed(message string) error {
	return &rejection{http.StatusBadRequest, "malformed", message}
}

func invalid(message string) error {
	return &rejection{http.StatusUnprocessableEntity, "invalid_value", message}
}

// chargeInput is a checked request for a charge.
type chargeInput struct {
	order
	amount  money.Amount
	method  string
	capture bool
}

// parseCharge reads a charge strictly. It fails with a *rejection.
func parseCharge(header http.Header, body []byte) (chargeInput, error) {
	var in chargeInput
	members, err := in.open(header, body, "amount", "currency", "payment_method", "capture")
	if err != nil {
		return in, err
	}
	if in.amount, err = parseAmount(members); err != nil {
		return in, err
	}
	if in.method, err = visibleText(members, "payment_method", maxMethod); err != nil {
		return in, err
	}
	if in.plays, err = parseMethod(in.method); err != nil {
		return in, err
	}
	in.capture, err = parseFlag(members, "capture", true)
	return in, err
}

// open reads what every order has, its key and its reference, and returns the
// members of the body: reference and those named.
func (o *order) open(header http.Header, body []byte, names ...string) (map[string]any, error) {
	var err error
	if o.key, err = parseKey(header); err != nil {
		return nil, err
	}
	mediaType, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || mediaType != "application/json" {
		return nil, malformed("the content type is not application/json")
	}
	members, err := flatObject(body, append(names, "reference")...)
	if err != nil {
		return nil, err
	}
	o.reference, err = visibleText(members, "reference", maxReference)
	return members, err
}

// parseAct reads a capture, reverse or refund strictly. It fails with a
// *rejection.
func parseAct(kind string, r *request) (actInput, error) {
	in := actInput{order: order{call: kind, path: r.URL.Path, bodyHash: r.bodyHash}, charge: r.PathValue("id")}
	names := map[string][]string{KindCapture: {"amount", "currency", "final"}, KindRefund: {"amount", "currency"}}
	members, err := in.open(r.Header, r.body, names[kind]...)
	if err != nil || kind == KindReverse {
		return in, err
	}
	amount, err := parseAmount(members)
	if err != nil {
		return in, err
	}
	in.amount, in.currency = amount.Minor(), amount.Currency()
	in.final, err = parseFlag(members, "final", false)
	return in, err
}

// parseSession reads a session strictly. It fails with a *rejection.
func parseSession(r *request, now time.Time) (sessionInput, error) {
	in := sessionInput{order: order{call: callSession, path: r.URL.Path, bodyHash: r.bodyHash}}
	members, err := in.open(r.Header, r.body, "amount", "currency", "return_url", "capture", "expires_at")
	if err != nil {
		return in, err
	}
	if in.amount, err = parseAmount(members); err != nil {
		return in, err
	}
	if in.returnURL, err = visibleText(members, "return_url", maxReturnURL); err != nil {
		return in, err
	}
	if address, err := url.Parse(in.returnURL); err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https" {
		return in, invalid("return_url is no http or https address")
	}
	if in.capture, err = parseFlag(members, "capture", true); err != nil {
		return in, err
	}
	in.expiresAt, err = parseExpiry(members, now)
	return in, err
}

func parseExpiry(members map[string]any, now time.Time) (time.Time, error) {
	value, sent := members["expires_at"]
	if !sent {
		return time.Time{}, nil
	}
	text, ok := value.(string)
	if !ok {
		return time.Time{}, malformed("expires_at is not a string")
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || !at.After(now) || at.Sub(now) > maxContractTime {
		return time.Time{}, invalid("expires_at is no time ahead, as in RFC 3339")
	}
	return at.UTC(), nil
}

// parseClose takes an empty body or an empty object.
func parseClose(body []byte) error {
	if len(body) == 0 {
		return nil
	}
	_, err := flatObject(body)
	return err
}

// parseKey returns the idempotency key, empty when none was sent.
func parseKey(header http.Header) (string, error) {
	keys := header.Values("Idempotency-Key")
	if len(keys) == 0 {
		return "", nil
	}
	for _, other := range keys[1:] {
		if other != keys[0] {
			return "", malformed("two idempotency keys that differ")
		}
	}
	if len(keys[0]) > maxKey || !visible(keys[0]) {
		return "", malformed("the idempotency key is empty, too long, or not visible ASCII")
	}
	return keys[0], nil
}

func parseAmount(members map[string]any) (money.Amount, error) {
	number, ok := members["amount"].(json.Number)
	if !ok {
		return money.Amount{}, malformed("amount is missing or not a number")
	}
	minor, err := strconv.ParseInt(number.String(), 10, 64)
	if errors.Is(err, strconv.ErrSyntax) {
		return money.Amount{}, malformed("amount is not an integer")
	}
	if err != nil || minor <= 0 || minor > money.MaxMinor {
		return money.Amount{}, invalid("amount is not between 1 and the maximum")
	}
	code, ok := members["currency"].(string)
	if !ok {
		return money.Amount{}, malformed("currency is missing or not a string")
	}
	currency, err := money.ParseCurrency(code)
	if err != nil {
		return money.Amount{}, invalid("currency is not the code of a currency in use")
	}
	amount, err := money.New(minor, currency)
	if err != nil {
		return money.Amount{}, invalid("currency is not the code of a currency in use")
	}
	return amount, nil
}

// parseFlag reads an optional true or false.
func parseFlag(members map[string]any, name string, otherwise bool) (bool, error) {
	value, sent := members[name]
	if !sent {
		return otherwise, nil
	}
	flag, ok := value.(bool)
	if !ok {
		return false, malformed(name + " is not true or false")
	}
	return flag, nil
}

func visibleText(members map[string]any, name string, limit int) (string, error) {
	text, ok := members[name].(string)
	if !ok {
		return "", malformed(name + " is missing or not a string")
	}
	if len(text) > limit || !visible(text) {
		return "", invalid(name + " is empty, too long, or not visible ASCII")
	}
	return text, nil
}

func visible(text string) bool {
	for i := range len(text) {
		if text[i] < 0x21 || text[i] > 0x7e {
			return false
		}
	}
	return text != ""
}

// flatObject reads one JSON object whose members are strings, numbers and
// booleans, each at most once, each spelled exactly as in names.
func flatObject(body []byte, names ...string) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return nil, malformed("the body is not a JSON object")
	}
	members := make(map[string]any, len(names))
	for decoder.More() {
		token, err := decoder.Token()
		name, ok := token.(string)
		if err != nil || !ok {
			return nil, malformed("the body is not a JSON object")
		}
		if !slices.Contains(names, name) {
			return nil, malformed("the body has a member that is not known")
		}
		if _, twice := members[name]; twice {
			return nil, malformed(name + " is there twice")
		}
		value, err := decoder.Token()
		if err != nil {
			return nil, malformed("the body is not a JSON object")
		}
		if _, nested := value.(json.Delim); nested {
			return nil, malformed(name + " is not a plain value")
		}
		members[name] = value
	}
	if _, err := decoder.Token(); err != nil {
		return nil, malformed("the body is not a JSON object")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, malformed("the body goes on after its object")
	}
	return members, nil
}
