package payment_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/ledger"
	"github.com/hapaxpay/hapax/internal/payment"
)

// life is a true history at the acquirer.
type life struct {
	name   string
	flow   payment.Flow
	happen func(*bank)
	// contradicts: the acquirer breaks its contract, so that only what is booked, and that there is a conflict, is the same.
	contradicts bool
}

const (
	capture, reverse, refund, chargeback = acquirer.ActionCapture, acquirer.ActionReverse, acquirer.ActionRefund, acquirer.ActionChargeback
)

// lives are the histories.
func lives() []life {
	return []life{
		{name: "a sale", happen: func(b *bank) { b.charge("succeeded") }},
		{name: "a refusal", happen: func(b *bank) { b.charge("declined") }},
		{name: "a hold, captured in one", happen: func(b *bank) {
			c := b.charge("held")
			b.claims(payment.Capture, "kc", whole)
			b.do(c, capture, "kc", whole, true)
		}},
		{name: "a hold, captured in two", happen: func(b *bank) {
			c := b.charge("held")
			b.claims(payment.Capture, "kc1", 400)
			b.do(c, capture, "kc1", 400)
			b.claims(payment.Capture, "kc2", 500, true)
			b.do(c, capture, "kc2", 500, true)
		}},
		{name: "a hold, captured in part, lapses", happen: func(b *bank) {
			c := b.charge("held")
			b.claims(payment.Capture, "kc1", 400)
			b.do(c, capture, "kc1", 400)
			b.lapse(c)
		}},
		{name: "a hold, captured by hand beside a capture of ours that is refused", happen: func(b *bank) {
			c := b.charge("held")
			b.claims(payment.Capture, "kc", whole)
			b.do(c, capture, "", 400)
			b.refuses(capture, "kc", "exceeds_remaining")
			b.lapse(c)
		}},
		{name: "a capture is refused, the next one is not", happen: func(b *bank) {
			c := b.charge("held")
			b.claims(payment.Capture, "kc1", whole)
			b.refuses(capture, "kc1", "do_not_honor")
			b.claims(payment.Capture, "kc2", whole)
			b.do(c, capture, "kc2", whole, true)
		}},
		{name: "a hold lapses", happen: func(b *bank) { b.lapse(b.charge("held")) }},
		{name: "a cancel releases a hold", happen: func(b *bank) {
			c := b.charge("held")
			b.claims(payment.Cancel, "kx", 0)
			b.do(c, reverse, "kx", 0)
		}},
		{name: "a cancel is refused: captured by hand", happen: func(b *bank) {
			c := b.charge("held")
			b.claims(payment.Cancel, "kx", 0)
			b.do(c, capture, "", whole, true)
			b.refuses(reverse, "kx", "already_captured")
		}},
		{name: "a cancel gives captured money back", happen: func(b *bank) {
			c := b.charge("held")
			b.claims(payment.Cancel, "kx", 0)
			b.do(c, capture, "", whole, true)
			b.do(c, reverse, "kx", whole)
		}},
		{name: "a cancel meets a hold that was released by hand", happen: func(b *bank) {
			c := b.charge("held")
			b.claims(payment.Cancel, "kx", 0)
			b.do(c, reverse, "", 0)
			b.refuses(reverse, "kx", "nothing_to_reverse")
		}},
		{name: "a cancel that waits, and a sale", happen: func(b *bank) {
			b.claims(payment.Cancel, "kx", 0)
			b.last().waits = true
			b.charge("succeeded")
		}},
		{name: "a cancel that waits, and a hold", happen: func(b *bank) {
			b.claims(payment.Cancel, "kx", 0)
			b.last().waits = true
			c := b.charge("held")
			b.binds("kx")
			b.do(c, reverse, "kx", 0)
		}},
		{name: "a page is paid", flow: payment.Hosted, happen: func(b *bank) {
			b.open()
			b.charge("succeeded")
		}},
		{name: "a page holds, and it is captured", flow: payment.Hosted, happen: func(b *bank) {
			b.open()
			c := b.charge("held")
			b.claims(payment.Capture, "kc", whole)
			b.do(c, capture, "kc", whole, true)
		}},
		{name: "a page lapses", flow: payment.Hosted, happen: func(b *bank) { b.open(); b.shut("") }},
		{name: "a page is closed by a cancel", flow: payment.Hosted, happen: func(b *bank) {
			b.open()
			b.claims(payment.Cancel, "kx", 0)
			b.shut("kx")
		}},
		{name: "a page is paid before a cancel closes it", flow: payment.Hosted, happen: func(b *bank) {
			b.open()
			b.claims(payment.Cancel, "kx", 0)
			b.charge("succeeded")
			b.refuses(acquirer.ActionClose, "kx", "already_paid")
		}},
		{name: "a page holds before a cancel closes it", flow: payment.Hosted, happen: func(b *bank) {
			b.open()
			b.claims(payment.Cancel, "kx", 0)
			b.charge("held")
			b.refuses(acquirer.ActionClose, "kx", "already_paid")
		}},
	}
}

// livesOfBack are the histories in which money goes back.
func livesOfBack() []life {
	return []life{
		{name: "partial refunds of a sale", happen: func(b *bank) {
			c := b.charge("succeeded")
			b.claims(payment.Refund, "kr1", 300)
			b.do(c, refund, "kr1", 300)
			b.do(c, refund, "", 200)
			b.claims(payment.Refund, "kr2", 300)
			b.do(c, refund, "kr2", 300)
		}},
		{name: "a refund of ours and one by hand of the same amount", happen: func(b *bank) {
			c := b.charge("succeeded")
			b.claims(payment.Refund, "kr", 300)
			b.do(c, refund, "kr", 300)
			b.do(c, refund, "", 300)
		}},
		{name: "a refund is refused, the same by hand", happen: func(b *bank) {
			c := b.charge("succeeded")
			b.claims(payment.Refund, "kr", 300)
			b.do(c, refund, "", 300)
			b.refuses(refund, "kr", "do_not_honor")
		}},
		{name: "a refund fails at the bank", happen: func(b *bank) {
			c := b.charge("succeeded")
			b.claims(payment.Refund, "kr", 300)
			b.becomes(b.do(c, refund, "kr", 300), "failed")
		}},
		{name: "a refund fails at the bank, the next one does not", happen: func(b *bank) {
			c := b.charge("succeeded")
			b.claims(payment.Refund, "kr1", whole)
			b.becomes(b.do(c, refund, "kr1", whole), "failed")
			b.claims(payment.Refund, "kr2", whole)
			b.do(c, refund, "kr2", whole)
		}},
		{name: "a refund by hand takes the room of a refund of ours, which is refused", happen: func(b *bank) {
			c := b.charge("succeeded")
			b.claims(payment.Refund, "kr", 700)
			b.do(c, refund, "", 800)
			b.refuses(refund, "kr", "exceeds_remaining")
		}},
		{name: "two refunds by hand, of which the first fails at the bank", happen: func(b *bank) {
			c := b.charge("succeeded")
			b.becomes(b.do(c, refund, "", 700), "failed")
			b.do(c, refund, "", 800)
		}},
		{name: "a sale is refunded by hand", happen: func(b *bank) { b.do(b.charge("succeeded"), refund, "", whole) }},
		{name: "a refund by hand fails at the bank", happen: func(b *bank) { b.becomes(b.do(b.charge("succeeded"), refund, "", 300), "failed") }},
		{name: "a sale is reversed by hand", happen: func(b *bank) { b.do(b.charge("succeeded"), reverse, "", whole) }},
		{name: "a sale is reversed by us", happen: func(b *bank) {
			c := b.charge("succeeded")
			b.claims(payment.Refund, "kr", whole)
			b.last().void = true
			b.do(c, reverse, "kr", whole)
		}},
		{name: "held, captured and refunded, by us", happen: func(b *bank) {
			c := b.charge("held")
			b.claims(payment.Capture, "kc", whole)
			b.do(c, capture, "kc", whole, true)
			b.claims(payment.Refund, "kr", 300)
			b.do(c, refund, "kr", 300)
		}},
		{name: "held, captured and refunded, by hand", happen: func(b *bank) {
			c := b.charge("held")
			b.do(c, capture, "", 700, true)
			b.do(c, refund, "", 300)
			b.do(c, refund, "", 400)
		}},
		{name: "a part is captured and given back, then the rest is captured", happen: func(b *bank) {
			c := b.charge("held")
			b.do(c, capture, "", 400)
			b.do(c, refund, "", 300)
			b.do(c, capture, "", 600, true)
		}},
		// The table tells a refused step that was seen (failed) from one that was not (declined): no contradiction, but two states.
		{name: "a payer's step is refused", contradicts: true, happen: func(b *bank) {
			b.step3()
			b.charges[0].status = "declined"
			b.step("declined ch_1", b.word(b.charges[0]), "")
		}},
		{name: "a payer's step is done", happen: func(b *bank) {
			b.step3()
			b.charges[0].status, b.charges[0].captured = "succeeded", whole
			b.book(acquirer.MovementCharge, "ch_1", whole)
			b.step("done ch_1", b.word(b.charges[0]), "")
		}},
		{name: "a payer's step lapses", happen: func(b *bank) { b.step3(); b.lapse(b.charges[0]) }},
		{name: "a sale is voided by hand beside a refund of ours that is refused", happen: func(b *bank) {
			c := b.charge("succeeded")
			b.claims(payment.Refund, "kr", whole)
			b.do(c, reverse, "", whole)
			b.refuses(refund, "kr", "not_refundable")
		}},
	}
}

// livesOfTwo are the histories in which an acquirer charges twice.
func livesOfTwo() []life {
	return []life{
		{name: "a second charge", contradicts: true, happen: func(b *bank) { b.charge("succeeded"); b.charge("succeeded") }},
		{name: "a second charge, refunded by hand", contradicts: true, happen: func(b *bank) {
			b.charge("succeeded")
			b.do(b.charge("succeeded"), refund, "", whole)
		}},
		{name: "a second charge, whose refund by hand fails at the bank", contradicts: true, happen: func(b *bank) {
			b.charge("succeeded")
			b.becomes(b.do(b.charge("succeeded"), refund, "", whole), "failed")
		}},
		{name: "a second charge, refunded in two parts", contradicts: true, happen: func(b *bank) {
			b.charge("succeeded")
			c := b.charge("succeeded")
			b.do(c, refund, "", 400)
			b.do(c, refund, "", 600)
		}},
		{name: "a second charge, and a dispute of it that is won", contradicts: true, happen: func(b *bank) {
			b.charge("succeeded")
			b.becomes(b.do(b.charge("succeeded"), chargeback, "", whole), "won")
		}},
		{name: "a second charge, and a dispute of it that is won, refunded by hand", contradicts: true, happen: func(b *bank) {
			b.charge("succeeded")
			c := b.charge("succeeded")
			b.becomes(b.do(c, chargeback, "", whole), "won")
			b.do(c, refund, "", whole)
		}},
		{name: "a second hold, captured and given back", contradicts: true, happen: func(b *bank) {
			b.charge("held")
			c := b.charge("held")
			b.do(c, capture, "", whole, true)
			b.do(c, refund, "", whole)
		}},
		{name: "a charge after a refusal", contradicts: true, happen: func(b *bank) { b.charge("declined"); b.charge("succeeded") }},
		{name: "a second hold, compensated", contradicts: true, happen: func(b *bank) {
			b.charge("succeeded")
			c := b.charge("held")
			b.claims(payment.Compensation, "km", whole)
			b.do(c, reverse, "km", 0)
		}},
		{name: "a second hold", contradicts: true, happen: func(b *bank) { b.charge("held"); b.charge("held") }},
		{name: "a second charge, compensated", contradicts: true, happen: func(b *bank) {
			b.charge("succeeded")
			c := b.charge("succeeded")
			b.claims(payment.Compensation, "km", whole)
			b.do(c, refund, "km", whole)
		}},
		{name: "a compensation fails at the bank", contradicts: true, happen: func(b *bank) {
			b.charge("succeeded")
			c := b.charge("succeeded")
			b.claims(payment.Compensation, "km", whole)
			b.becomes(b.do(c, refund, "km", whole), "failed")
		}},
	}
}

// outcome is how one order of a life ends.
type outcome struct {
	way, facts, end string
	conflict        bool // by the news alone, which may be a part of the truth that contradicts itself
}

// differ says in what two orders of the same news differ that should not; nothing: in nothing.
func (o outcome) differ(other outcome) string {
	switch {
	case o.conflict != other.conflict, !o.conflict && o.facts != other.facts:
		return fmt.Sprintf("the same news. Order\n%s\nends in\n%s\norder\n%s\nin\n%s", o.way, o.facts, other.way, other.facts)
	case o.end != other.end:
		return fmt.Sprintf("when all is told, order\n%s\nends in\n%s\norder\n%s\nin\n%s", o.way, o.end, other.way, other.end)
	}
	return ""
}

// live plays pieces in an order; done is false where a client could not have got that far in this order.
func live(l life, b *bank, remembers bool, order []piece) (o outcome, done bool, wrong string) {
	w := newStory(l.flow, remembers)
	var way []string
	for _, p := range order {
		way = append(way, p.name)
		if p.claim != nil {
			if !w.claim(*p.claim) {
				return o, false, w.wrong
			}
			w.sound()
			continue
		}
		w.bring(p)
		w.sound()
		before := w.copy()
		w.bring(p) // the same once more changes nothing
		if !w.same(before) {
			w.fails("told twice, it changed\n%s\nto\n%s", before.end(), w.end())
		}
		if w.wrong != "" {
			return outcome{way: strings.Join(way, " > ")}, true, w.wrong
		}
	}
	o = outcome{way: strings.Join(way, " > "), facts: w.end(), conflict: w.p.Conflict}
	if w.wrong != "" {
		return o, true, w.wrong
	}
	for range 3 { // the sweep: everybody whose operation is open asks
		w.bring(piece{name: "last check", at: b.at + 1, owner: chargeKey, said: asLookup(b, b.tellAll())})
		for _, m := range w.mods {
			if m.Status.Open() && m.Action != "" {
				w.bring(piece{name: "last lookup", at: b.at + 1, owner: m.AcquirerKey, said: asLookup(b, b.answer(m))})
			}
		}
		w.sound()
	}
	o.end = w.state()
	w.complete(b)
	return o, true, w.wrong
}

func asLookup(b *bank, said truth) truth {
	said = slices.Clone(said)
	for n := range said {
		said[n].Source, said[n].AskedAt = lookup, b.asked().Add(1)
	}
	return said
}

// complete compares a story's books with what the acquirer really did, when everything is told (I-14).
func (w *story) complete(b *bank) {
	if w.p.Early && w.p.Conflict {
		return // a part of what is kept aside went back: that is booked when a person has decided about the whole
	}
	if got := w.entries[ledger.Receivable(w.p.Account)]; got != b.net {
		w.fails("the acquirer has %d for us, by our books %d", b.net, got)
	}
	if (b.net > whole || w.p.Status.Refusal() && b.net > 0) && !w.p.Conflict {
		w.fails("the acquirer has %d for us, the payment is %s, and there is no conflict", b.net, w.p.Status)
	}
	booked := map[string]bool{}
	for _, m := range w.movements {
		if m.Kind != acquirer.MovementHold {
			booked[string(m.Kind)+" "+m.Reference] = true
		}
	}
	for key := range b.moved {
		id := key[strings.IndexByte(key, ' '):]
		cameAndWent := b.moved["refund"+id] && b.moved["reverse"+id] // told as failed from the beginning, nothing moved
		if !booked[key] && !(cameAndWent && !booked["refund"+id] && !booked["reverse"+id]) {
			w.fails("%s is not booked", key)
		}
	}
	for key := range booked {
		if !b.moved[key] {
			w.fails("%s is booked, and never was", key)
		}
	}
}

// possible says whether pieces can come in this order: news of what a claim led to cannot come before it.
func possible(order []piece) bool {
	for n, p := range order {
		for _, before := range order[:n] {
			if p.claim != nil && before.at > p.at {
				return false
			}
		}
	}
	return true
}

const (
	most  = 6  // pieces that are brought in every order
	picks = 2  // choices of them, where there are more
	tries = 60 // choices until one is possible at all
)

// choose picks the news that is brought in one play, beside all claims: all of it, or by chance, some of it twice.
func choose(r *rand.Rand, pool []piece) []piece {
	var claims, news []piece
	for _, p := range pool {
		if p.claim != nil {
			claims = append(claims, p)
		} else {
			news = append(news, p)
		}
	}
	r.Shuffle(len(news), func(i, j int) { news[i], news[j] = news[j], news[i] })
	news = news[:min(len(news), most-len(claims))]
	if len(news) > 1 && r.IntN(3) == 0 {
		news[0] = news[1] // a duplicate
	}
	return append(claims, news...)
}

// All orders of {reply, check, webhook, capture, cancel, refund} for one payment end in one state and one set of books
// (PROTOCOL E1). Generated: every permutation of many choices of the news of every life.
func TestEveryOrderOfALifeEndsTheSame(t *testing.T) {
	for _, l := range slices.Concat(lives(), livesOfPages(), livesOfBack(), livesOfDisputes(), livesOfTwo()) {
		for _, remembers := range []bool{true, false} {
			t.Run(fmt.Sprint(l.name, ", refusals remembered ", remembers), func(t *testing.T) { everyOrder(t, l, remembers) })
		}
	}
}

func everyOrder(t *testing.T, l life, remembers bool) {
	b := newBank()
	l.happen(b)
	var first *outcome
	played := 0
	for seed := range uint64(tries) {
		if before := played; seed >= picks && before > 0 {
			break
		}
		chosen := choose(rand.New(rand.NewPCG(seed, 1)), b.pieces)
		var sameNews *outcome
		permute(len(chosen), func(order []int) {
			pieces := make([]piece, len(order))
			for i, n := range order {
				pieces[i] = chosen[n]
			}
			if t.Failed() || !possible(pieces) {
				return
			}
			o, done, wrong := live(l, b, remembers, pieces)
			if wrong != "" {
				t.Errorf("seed %d: %s:\n%s", seed, o.way, wrong)
				return
			}
			if !done {
				return
			}
			played++
			if first == nil {
				first = &o
			}
			if sameNews == nil {
				sameNews = &o
			}
			if l.contradicts {
				return
			}
			if no := sameNews.differ(o); no != "" {
				t.Errorf("seed %d: %s", seed, no)
			} else if o.end != first.end {
				t.Errorf("seed %d: when all is told, order\n%s\nends in\n%s\norder\n%s\nin\n%s", seed, first.way, first.end, o.way, o.end)
			}
		})
	}
	if played == 0 {
		t.Error("no order was possible")
	}
}

// permute visits every order of n things.
func permute(n int, visit func([]int)) {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	var swap func(k int)
	swap = func(k int) {
		if k == n {
			visit(order)
			return
		}
		for i := k; i < n; i++ {
			order[k], order[i] = order[i], order[k]
			swap(k + 1)
			order[k], order[i] = order[i], order[k]
		}
	}
	swap(0)
}
