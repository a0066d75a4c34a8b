package payment_test

import (
	"testing"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/payment"
)

// livesOfPages are the histories of a page whose charge may be told before it, and of what ends a payment that is being canceled.
func livesOfPages() []life {
	return []life{
		{name: "a page holds, and lapses", flow: payment.Hosted, happen: func(b *bank) {
			b.open()
			b.lapse(b.charge("held"))
		}},
		{name: "a page holds, and is reversed by hand", flow: payment.Hosted, happen: func(b *bank) {
			b.open()
			b.do(b.charge("held"), reverse, "", 0)
		}},
		{name: "a page holds before a cancel closes it, and lapses", flow: payment.Hosted, happen: func(b *bank) {
			b.open()
			b.claims(payment.Cancel, "kx", 0)
			c := b.charge("held")
			b.refuses(acquirer.ActionClose, "kx", "already_paid")
			b.lapse(c)
		}},
		{name: "a page holds before a cancel closes it, and a part is captured at last", flow: payment.Hosted, happen: func(b *bank) {
			b.open()
			b.claims(payment.Cancel, "kx", 0)
			c := b.charge("held")
			b.refuses(acquirer.ActionClose, "kx", "already_paid")
			b.do(c, capture, "", 400, true)
		}},
	}
}

// A page that is told after its charge is over is older news: no conflict, whichever of the two came first (PROTOCOL section 4, E1).
func TestAPageToldAfterItsCharge(t *testing.T) {
	for name, happen := range map[string]func(*bank, *bankCharge){
		"lapsed":           func(b *bank, c *bankCharge) { b.lapse(c) },
		"reversed by hand": func(b *bank, c *bankCharge) { b.do(c, reverse, "", 0) },
	} {
		b := newBank()
		b.open()
		page := b.pieces[0]
		happen(b, b.charge("held"))
		var over piece
		for _, p := range b.pieces {
			if p.at == b.at && p.owner == "" && over.said == nil {
				over = p
			}
		}
		w := newStory(payment.Hosted, true)
		w.bring(over)
		w.bring(page)
		if w.sound(); w.p.Status != payment.Canceled || w.p.Conflict || w.wrong != "" {
			t.Errorf("%s: %s, conflict %v %s", name, w.p.Status, w.p.Conflict, w.wrong)
		}
		b.at += 5 // asked after the word that it is over: this contradicts it
		w.bring(piece{at: b.at, said: asLookup(b, page.said)})
		if !w.p.Conflict {
			t.Errorf("%s: a page that is open, by a later lookup, is no conflict", name)
		}
	}
}
