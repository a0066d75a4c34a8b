package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/money"
)

var errUnreadable = errors.New("not readable as JSON of the expected shape")

// object reads one JSON object and nothing after it. A member that is there twice makes it unreadable, and names count
// as they are spelled: encoding/json alone would take the last of two and any mixture of cases.
func object(raw []byte) (map[string]json.RawMessage, error) {
	if !utf8.Valid(raw) {
		return nil, errUnreadable
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return nil, errUnreadable
	}
	members := map[string]json.RawMessage{}
	for decoder.More() {
		token, err := decoder.Token()
		name, ok := token.(string)
		if err != nil || !ok {
			return nil, errUnreadable
		}
		if _, twice := members[name]; twice {
			return nil, errUnreadable
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, errUnreadable
		}
		members[name] = value
	}
	if _, err := decoder.Token(); err != nil {
		return nil, errUnreadable
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errUnreadable
	}
	return members, nil
}

// list reads a JSON array; null is none.
func list(raw json.RawMessage) ([]json.RawMessage, error) {
	var found []json.RawMessage
	if err := json.Unmarshal(raw, &found); err != nil || found == nil {
		return nil, errUnreadable
	}
	return found, nil
}

// text reads a JSON string; null, which encoding/json takes for an empty one, is none.
func text(raw json.RawMessage) (string, bool) {
	var found *string
	if err := json.Unmarshal(raw, &found); err != nil || found == nil {
		return "", false
	}
	return *found, true
}

// name reads a text that may be stored: visible ASCII of at most acquirer.MaxCode bytes.
func name(raw json.RawMessage) (string, bool) {
	found, ok := text(raw)
	return found, ok && len(found) <= acquirer.MaxCode && visible(found)
}

// reference reads what we sent, or nothing: what was done by hand at the acquirer has an empty one.
func reference(raw json.RawMessage) (string, bool) {
	if found, ok := text(raw); ok && found == "" {
		return "", true
	}
	return name(raw)
}

// truth reads true or false; null is neither.
func truth(raw json.RawMessage) (value, ok bool) {
	switch string(raw) {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	return false, false
}

// moment reads a time as in RFC 3339.
func moment(raw json.RawMessage) (time.Time, bool) {
	words, _ := text(raw)
	at, err := time.Parse(time.RFC3339Nano, words)
	return at.UTC(), err == nil
}

// address reads the address of a page to which a payer can be sent; anything else is none.
func address(raw json.RawMessage) string {
	found, _ := text(raw)
	if !isAddress(found) {
		return ""
	}
	return found
}

func isAddress(s string) bool {
	u, err := url.Parse(s)
	return err == nil && len(s) <= maxURL && visible(s) && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil
}

// usable says whether an id of the acquirer's can stand in a path.
func usable(id string) bool {
	return len(id) <= acquirer.MaxCode && visible(id) && id != "." && id != ".."
}

func visible(s string) bool {
	for i := range len(s) {
		if s[i] < 0x21 || s[i] > 0x7e {
			return false
		}
	}
	return s != ""
}

// amount reads minor units and a currency without a floating point number in between. Nothing or less is no amount.
func amount(minor, currency json.RawMessage) (money.Amount, bool) {
	n, err := strconv.ParseInt(string(minor), 10, 64)
	if err != nil || n <= 0 {
		return money.Amount{}, false
	}
	code, _ := text(currency)
	canonical, err := money.NormalizeCurrency(code)
	if err != nil {
		return money.Amount{}, false
	}
	a, err := money.New(n, canonical)
	return a, err == nil
}

// isJSON says whether a complete answer calls itself JSON.
func isJSON(res wire.Result) bool {
	mediaType, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	return err == nil && mediaType == "application/json"
}
