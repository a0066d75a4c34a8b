package payment_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/payment"
)

// delivered gives an order of deliveries in which each piece comes as often as its multiplicity says: the repeats come late, in the
// other direction.
func delivered(all []piece, order, times []int) (out []piece) {
	for round := 1; round <= slices.Max(times); round++ {
		for i := range order {
			n := order[i]
			if round == 2 {
				n = order[len(order)-1-i]
			}
			if times[n] >= round {
				out = append(out, all[n])
			}
		}
	}
	return out
}

// multiplicities visits every choice of 1 to 3 for each of n pieces.
func multiplicities(n int, visit func([]int)) {
	times := slices.Repeat([]int{1}, n)
	for {
		visit(times)
		i := 0
		for ; i < n && times[i] == 3; i++ {
			times[i] = 1
		}
		if i == n {
			return
		}
		times[i]++
	}
}

// Case 37: the order of delivery is not the order of events. Authorised, captured, partially refunded and refunded, and disputed, each
// told once to three times by webhooks, in every order: one state, and one ledger, transaction by transaction (PROTOCOL E1).
func TestCase037_EveryOrderOfDelivery(t *testing.T) {
	for _, disputed := range []int64{0, 300} {
		b := newBank()
		c := b.charge("held")
		b.do(c, capture, "", whole, true)
		b.do(c, refund, "", 300)
		b.do(c, refund, "", whole-300-disputed)
		if disputed > 0 {
			b.do(c, chargeback, "", disputed)
		}
		var told []piece
		for _, p := range b.pieces {
			if p.said[0].Source == evidence.FromWebhook {
				told = append(told, p)
			}
		}
		want := ""
		permute(len(told), func(order []int) {
			multiplicities(len(told), func(times []int) {
				if t.Failed() {
					return
				}
				w := newStory(payment.Direct, true)
				var way []string
				for _, p := range delivered(told, order, times) {
					w.bring(p)
					w.sound()
					way = append(way, p.name)
				}
				got := fmt.Sprint(w.end(), "\n", strings.Join(slices.Sorted(maps.Keys(w.keys)), "\n"))
				if want == "" {
					want = got
				}
				if got != want || w.wrong != "" || w.p.Status != payment.Paid || w.p.Refunded != whole-disputed || w.p.Disputed != disputed || w.p.Early {
					t.Errorf("%s:\n%s\n%s\nwant\n%s", strings.Join(way, " > "), w.wrong, got, want)
				}
			})
		})
	}
}
