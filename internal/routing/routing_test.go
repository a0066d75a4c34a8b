package routing_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/routing"
)

func account(n byte) id.ID { return id.ID{0: 9, 15: n} }

func rule(n byte, to id.ID, priority, weight int, change func(*routing.Rule)) routing.Rule {
	r := routing.Rule{ID: id.ID{15: n}, Account: to, Priority: priority, Weight: weight}
	if change != nil {
		change(&r)
	}
	return r
}

func TestOrder(t *testing.T) {
	one, two, three := account(1), account(2), account(3)
	all := []id.ID{one, two, three}
	tenge := func(r *routing.Rule) { r.Currency = "KZT" }
	pages := func(r *routing.Rule) { r.Flow = "hosted" }
	wallet := func(r *routing.Rule) { r.MethodPrefix = "wallet_" }
	wish := routing.Wish{Currency: "KZT", Method: "pm_ok", Flow: "direct", Seed: "seed"}
	for name, tc := range map[string]struct {
		rules []routing.Rule
		open  []id.ID
		want  []id.ID
	}{
		"no rules: as given":                {nil, all, all},
		"by priority":                       {[]routing.Rule{rule(1, one, 20, 1, nil), rule(2, two, 10, 1, nil)}, all, []id.ID{two, one}},
		"by currency":                       {[]routing.Rule{rule(1, one, 10, 1, func(r *routing.Rule) { r.Currency = "USD" }), rule(2, two, 20, 1, tenge)}, all, []id.ID{two}},
		"by flow":                           {[]routing.Rule{rule(1, one, 10, 1, pages), rule(2, three, 20, 1, nil)}, all, []id.ID{three}},
		"by method":                         {[]routing.Rule{rule(1, one, 10, 1, wallet), rule(2, three, 20, 1, nil)}, all, []id.ID{three}},
		"a paused account is not there":     {[]routing.Rule{rule(1, one, 10, 1, nil), rule(2, two, 20, 1, nil)}, []id.ID{two, three}, []id.ID{two}},
		"rules, and none fits: none":        {[]routing.Rule{rule(1, one, 10, 1, wallet)}, all, nil},
		"one account by two rules is there": {[]routing.Rule{rule(1, one, 10, 1, nil), rule(2, one, 20, 1, nil)}, all, []id.ID{one}},
	} {
		if got := routing.Order(tc.rules, tc.open, wish); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// The choice by weight follows the weights over many payments, is the same for the same payment, whatever order the rules are read in.
func TestWeights(t *testing.T) {
	one, two := account(1), account(2)
	rules := []routing.Rule{rule(1, one, 10, 3, nil), rule(2, two, 10, 1, nil)}
	turned := []routing.Rule{rules[1], rules[0]}
	first := 0
	const payments = 4000
	for n := range payments {
		w := routing.Wish{Seed: fmt.Sprint("seed-", n)}
		got := routing.Order(rules, []id.ID{one, two}, w)
		if again := routing.Order(turned, []id.ID{one, two}, w); !slices.Equal(got, again) || len(got) != 2 {
			t.Fatalf("payment %d: %v, then %v", n, got, again)
		}
		if got[0] == one {
			first++
		}
	}
	if first < payments*70/100 || first > payments*80/100 {
		t.Errorf("%d of %d payments went to the account of weight 3 in 4", first, payments)
	}
}
