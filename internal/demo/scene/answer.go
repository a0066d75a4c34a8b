package scene

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/hapaxpay/hapax/internal/sandbox"
)

// word is what an answer tells its client about the order.
type word string

const (
	saysPaid     word = "paid"
	saysRefused  word = "refused"   // final: this payment takes no money
	saysOpen     word = "open"      // not known yet, or being worked on: repeat the same key
	saysConflict word = "conflict"  // the acquirer contradicts itself: a person decides
	saysNotTaken word = "not taken" // this request did nothing, and repeating it is no use
	saysError    word = "error"     // says nothing about the payment
	saysNothing  word = "no answer"
)

// answer is one answer of a service, as its client reads it.
type answer struct {
	key    string
	status int // 0: no answer came
	code   string
	says   word
}

func (a answer) String() string {
	if a.status == 0 {
		return a.key + ": " + string(a.says)
	}
	return strings.TrimSpace(fmt.Sprintf("%s: %d %s", a.key, a.status, cmpOr(a.code, string(a.says))))
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// Codes of the three services that say more than the status code does.
var (
	paidCodes     = []string{"paid", "already_paid", "completed"}
	refusedCodes  = []string{"declined", "failed", "canceled"}
	notTakenCodes = []string{"idempotency_key_reuse", "amount_mismatch", "intent_conflict", "payment_open"}
)

// read gives the answer's meaning. One reading serves all three services: each names a status or a code.
func read(key string, status int, body []byte) answer {
	var m struct {
		Status   json.RawMessage `json:"status"` // of a payment; a problem document has a number here
		Code     string          `json:"code"`
		Conflict bool            `json:"conflict"`
	}
	a := answer{key: key, status: status}
	if err := json.Unmarshal(body, &m); err == nil {
		var name string
		if json.Unmarshal(m.Status, &name) == nil {
			a.code = strings.ToLower(name)
		}
		a.code = cmpOr(m.Code, a.code)
	}
	switch {
	case m.Conflict || a.code == "payment_conflict":
		a.code, a.says = "payment_conflict", saysConflict
	case slices.Contains(paidCodes, a.code):
		a.says = saysPaid
	case slices.Contains(refusedCodes, a.code):
		a.says = saysRefused
	case slices.Contains(notTakenCodes, a.code):
		a.says = saysNotTaken
	case status < 300, status == http.StatusConflict, status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		a.says = saysOpen
	case status >= 500:
		a.says = saysError
	default:
		a.says = saysNotTaken
	}
	return a
}

// untruths counts final answers that the register contradicts: paid where nothing moved; refused where the money of this
// very key moved and was not given back, unless a client of the order was told of the conflict (PROTOCOL I-17).
// moved gives the net movements of a key.
func untruths(told []answer, net int, moved map[string]int) int {
	conflict := slices.ContainsFunc(told, func(a answer) bool { return a.says == saysConflict })
	wrong := map[string]bool{}
	for _, a := range told {
		switch {
		case a.says == saysPaid && net == 0,
			a.says == saysRefused && moved[a.key] > 0 && !conflict:
			wrong[a.key+string(a.says)] = true
		}
	}
	return len(wrong)
}

// count sums the register up: net movements of money, charges alone, and the net movements of each acquirer key.
func count(movements []sandbox.Movement) (net, gross int, byKey map[string]int) {
	byKey = map[string]int{}
	for _, m := range movements {
		if m.Held {
			continue // a hold was released: nothing had moved
		}
		way := -1 // reverse, refund, chargeback: money given back
		switch m.Kind {
		case sandbox.KindCharge, "capture":
			way = 1
			gross++
		}
		net += way
		byKey[m.IdempotencyKey] += way
	}
	return net, gross, byKey
}
