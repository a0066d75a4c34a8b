package payment_test

import (
	"testing"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/payment"
)

// livesOfDisputes are the histories in which a payer's bank takes money back.
func livesOfDisputes() []life {
	return []life{
		{name: "a dispute is opened", happen: func(b *bank) { b.do(b.charge("succeeded"), chargeback, "", 400) }},
		{name: "everything goes back twice: a dispute beside a refund by hand", happen: func(b *bank) {
			c := b.charge("succeeded")
			b.do(c, refund, "", 700)
			b.do(c, chargeback, "", whole)
		}, contradicts: true},
		{name: "a dispute beside a refund of ours that fails later", happen: func(b *bank) {
			c := b.charge("succeeded")
			b.claims(payment.Refund, "kr", 700)
			a := b.do(c, refund, "kr", 700)
			b.do(c, chargeback, "", 300)
			b.becomes(a, "failed")
		}},
		{name: "a dispute is won", happen: func(b *bank) { b.becomes(b.do(b.charge("succeeded"), chargeback, "", 400), "won") }},
		{name: "a dispute is lost", happen: func(b *bank) { b.becomes(b.do(b.charge("succeeded"), chargeback, "", 400), "lost") }},
		{name: "a dispute beside a refund", happen: func(b *bank) {
			c := b.charge("succeeded")
			b.claims(payment.Refund, "kr", 300)
			b.do(c, refund, "kr", 300)
			b.becomes(b.do(c, chargeback, "", 700), "won")
		}},
		{name: "two disputes, one won and one lost", happen: func(b *bank) {
			c := b.charge("succeeded")
			x, y := b.do(c, chargeback, "", 400), b.do(c, chargeback, "", 300)
			b.becomes(x, "lost")
			b.becomes(y, "won")
		}},
		{name: "a dispute is lost, and won after that", contradicts: true, happen: func(b *bank) {
			x := b.do(b.charge("succeeded"), chargeback, "", 400)
			b.becomes(x, "lost")
			b.becomes(x, "won")
		}},
		{name: "two disputes", happen: func(b *bank) {
			c := b.charge("succeeded")
			b.becomes(b.do(c, chargeback, "", 400), "won")
			b.do(c, chargeback, "", 400)
		}},
		{name: "a dispute takes the room of a refund that failed at the bank", happen: func(b *bank) {
			c := b.charge("succeeded")
			b.claims(payment.Refund, "kr", 700)
			b.becomes(b.do(c, refund, "kr", 700), "failed")
			b.do(c, chargeback, "", whole)
		}},
	}
}

// disputed brings a sale of 1000, and then the news of two disputes in the order that is given.
func disputed(news ...func(*bank) piece) *story {
	b := newBank()
	b.charge("succeeded")
	w := newStory(payment.Direct, true)
	w.bring(b.pieces[0])
	for _, n := range news {
		w.bring(n(b))
		w.sound()
	}
	return w
}

func news(id, status string) func(*bank) piece {
	return func(b *bank) piece {
		a := bankAct{kind: acquirer.ActionChargeback, id: id, of: b.charges[0], amount: 400, status: status}
		return piece{name: id + " " + status, at: b.at, said: truth{a.tell()}}
	}
}

// The sum of the disputes of a payment is not what was told last: lost where one was lost, whichever was decided first (PROTOCOL E1).
func TestOneDisputeWonAndOneLost(t *testing.T) {
	for name, order := range map[string][]func(*bank) piece{
		"won first":                {news("cb_1", "opened"), news("cb_2", "opened"), news("cb_1", "won"), news("cb_2", "lost")},
		"lost first":               {news("cb_1", "opened"), news("cb_2", "opened"), news("cb_2", "lost"), news("cb_1", "won")},
		"told when all is decided": {news("cb_2", "lost"), news("cb_1", "won")},
	} {
		w := disputed(order...)
		if w.wrong != "" || w.p.Dispute != payment.DisputeLost || w.p.Disputed != 400 || w.p.Conflict {
			t.Errorf("%s: %s disputed %d, conflict %v %s", name, w.p.Dispute, w.p.Disputed, w.p.Conflict, w.wrong)
		}
	}
}

// One dispute that is told as won and as lost: the money that came back is booked, and a person looks (PROTOCOL E1).
func TestADisputeWonAndLost(t *testing.T) {
	for name, order := range map[string][]func(*bank) piece{
		"won first":  {news("cb_1", "won"), news("cb_1", "lost"), news("cb_1", "lost")},
		"lost first": {news("cb_1", "lost"), news("cb_1", "won"), news("cb_1", "won")},
	} {
		w := disputed(order...)
		if w.wrong != "" || w.p.Dispute != payment.DisputeWon || w.p.Disputed != 0 || !w.p.Conflict || len(w.reviews) != 1 {
			t.Errorf("%s: %s disputed %d, conflict %v, reviews %v %s", name, w.p.Dispute, w.p.Disputed, w.p.Conflict, w.reviews, w.wrong)
		}
	}
}
