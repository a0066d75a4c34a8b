// Package routing decides which acquirer account takes a payment.
//
// Owns the rules of a merchant and the choice among them by priority and weight.
// Never reads a database or chance: the same payment is always sent the same way while the rules stay as they are.
// Read next: internal/flow/create_payment.go, which asks before it claims.
package routing

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/money"
)

// Rule sends what fits it to an account. Empty members fit everything.
type Rule struct {
	Merchant, ID id.ID
	Account      id.ID
	Priority     int // the lowest that fits wins
	Weight       int // among rules of the same priority; from 1
	Currency     money.Currency
	MethodPrefix string
	Flow         string
}

// Wish is what a payment needs.
type Wish struct {
	Currency money.Currency
	Method   string
	Flow     string
	// Seed and N name the payment: the choice by weight is a function of them, so that a payment made again after a lost
	// commit goes where the first one went (PROTOCOL D1).
	Seed string
	N    int
}

func (r Rule) fits(w Wish) bool {
	return (r.Currency == "" || r.Currency == w.Currency) && (r.Flow == "" || r.Flow == w.Flow) &&
		strings.HasPrefix(w.Method, r.MethodPrefix)
}

// Order gives the accounts that may take the payment, best first. The first of each priority is chosen by weight; the others of
// the same priority follow it, then the next priority. Without any rule it is all accounts, in the order given. A merchant
// that has rules, none of which fits, gets none: what was not thought of is not sent to chance.
//
// The order says where a payment may begin. Once something was sent, no other account is tried (PROTOCOL P5).
func Order(rules []Rule, accounts []id.ID, w Wish) []id.ID {
	if len(rules) == 0 {
		return accounts
	}
	var fitting []Rule
	for _, r := range rules {
		if r.fits(w) && slices.Contains(accounts, r.Account) {
			fitting = append(fitting, r)
		}
	}
	slices.SortStableFunc(fitting, func(a, b Rule) int {
		if a.Priority != b.Priority {
			return a.Priority - b.Priority
		}
		return strings.Compare(a.ID.String(), b.ID.String())
	})
	var order []id.ID
	for len(fitting) > 0 {
		n := 1
		for n < len(fitting) && fitting[n].Priority == fitting[0].Priority {
			n++
		}
		order = append(order, byWeight(fitting[:n], w)...)
		fitting = fitting[n:]
	}
	return unique(order)
}

// byWeight puts the chosen rule's account first.
func byWeight(rules []Rule, w Wish) []id.ID {
	total := uint64(0)
	for _, r := range rules {
		total += uint64(max(r.Weight, 1))
	}
	h := sha256.Sum256([]byte(w.Seed + ":" + strconv.Itoa(w.N)))
	point := binary.BigEndian.Uint64(h[:]) % total
	chosen := 0
	for n, r := range rules {
		if weight := uint64(max(r.Weight, 1)); point >= weight {
			point -= weight
			continue
		}
		chosen = n
		break
	}
	order := []id.ID{rules[chosen].Account}
	for n, r := range rules {
		if n != chosen {
			order = append(order, r.Account)
		}
	}
	return order
}

func unique(accounts []id.ID) []id.ID {
	var out []id.ID
	for _, a := range accounts {
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}
