package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
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

// charge is a charge as the sandbox tells it.
type charge struct {
	id, reference, status string
	reason                string // of a decline; empty when it cannot be stored
	amount                money.Amount
	also                  []charge // further money that was found under the same reference (PROTOCOL E5)
}

func readCharge(members map[string]json.RawMessage) (c charge, ok bool) {
	if _, failed := members["error"]; failed {
		return charge{}, false
	}
	oks := make([]bool, 4)
	c.id, oks[0] = name(members["id"])
	c.reference, oks[1] = name(members["reference"])
	c.status, oks[2] = name(members["status"])
	c.amount, oks[3] = amount(members["amount"], members["currency"])
	for _, ok := range oks {
		if !ok {
			return charge{}, false
		}
	}
	if reason, fits := name(members["reason"]); fits {
		c.reason = reason
	}
	return c, true
}

// readMovement reads one line of the list of movements. What moved is the charge, so its id is the reference.
func readMovement(raw json.RawMessage) (acquirer.Movement, bool) {
	members, err := object(raw)
	if err != nil {
		return acquirer.Movement{}, false
	}
	var m acquirer.Movement
	kind, at := "", ""
	oks := make([]bool, 5)
	m.Reference, oks[0] = name(members["charge"])
	m.OurReference, oks[1] = name(members["reference"])
	m.Amount, oks[2] = amount(members["amount"], members["currency"])
	kind, _ = text(members["kind"])
	oks[3] = movementKinds[acquirer.MovementKind(kind)]
	at, _ = text(members["at"])
	m.At, err = time.Parse(time.RFC3339Nano, at)
	oks[4] = err == nil
	for _, ok := range oks {
		if !ok {
			return acquirer.Movement{}, false
		}
	}
	m.Kind = acquirer.MovementKind(kind)
	return m, true
}

var movementKinds = map[acquirer.MovementKind]bool{
	acquirer.MovementCharge: true, acquirer.MovementCapture: true, acquirer.MovementReverse: true,
	acquirer.MovementRefund: true, acquirer.MovementChargeback: true,
}

// isJSON says whether a complete answer calls itself JSON.
func isJSON(res wire.Result) bool {
	mediaType, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	return err == nil && mediaType == "application/json"
}
