package payment_test

import (
	"fmt"
	"testing"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/payment"
)

// back is news of money that went back for the sale of a story.
func back(b *bank, kind acquirer.Action, id, key string, minor int64, status string) piece {
	a := bankAct{kind: kind, id: id, key: key, of: b.charges[0], amount: minor, status: status}
	return piece{name: id + " " + status, at: b.at, owner: key, said: truth{a.tell()}}
}

// A refund by hand takes the room of our own open refund. The acquirer refuses one of the two: until that is known nothing is
// contradicted, and in any order the books are the same (PROTOCOL E1).
func TestARefundByHandBesideAnOpenOne(t *testing.T) {
	b := newBank()
	b.charge("succeeded")
	open := func() *story {
		w := newStory(payment.Direct, true)
		w.bring(b.pieces[0])
		if !w.claim(claimed{kind: payment.Refund, key: "kr", minor: 700}) {
			t.Fatal("no refund may begin")
		}
		return w
	}
	hand, refused := back(b, refund, "rf_1", "", 800, "succeeded"), piece{owner: "kr", said: truth{{Reply: acquirer.Reply{About: refund, Outcome: acquirer.OutcomeDeclined}}}}
	first, second := open(), open()
	for _, p := range []piece{hand, refused} {
		first.bring(p)
		if first.p.Conflict {
			t.Errorf("a conflict, and the refund of ours is %s", first.mods[0].Status)
		}
	}
	second.bring(refused)
	second.bring(hand)
	if first.end() != second.end() || first.p.Refunded != 800 {
		t.Errorf("by hand first:\n%s\nrefused first:\n%s", first.end(), second.end())
	}
	if fmt.Sprint(first.keys) != fmt.Sprint(second.keys) {
		t.Errorf("by hand first, the ledger has\n%v\nrefused first\n%v", first.keys, second.keys)
	}
	third := open()
	third.bring(hand)
	third.bring(back(b, refund, "rf_2", "kr", 700, "succeeded"))
	if third.sound(); third.p.Refunded != 800 || !third.p.Conflict || third.wrong != "" {
		t.Errorf("both went out: refunded %d, conflict %v %s", third.p.Refunded, third.p.Conflict, third.wrong)
	}
	third.bring(back(b, refund, "rf_1", "", 800, "failed"))
	if third.sound(); third.p.Refunded != 700 || third.p.Conflict || third.mods[0].Status != payment.ModSucceeded || third.wrong != "" {
		t.Errorf("and the one by hand failed: refunded %d, conflict %v, ours %s %s", third.p.Refunded, third.p.Conflict, third.mods[0].Status, third.wrong)
	}
}

// Refunds by hand that were more than what was taken while one of them is not known to have failed at the bank: the conflict is over
// when that is told, and in any order the books are the same.
func TestARefundByHandThatFailsMakesRoom(t *testing.T) {
	b := newBank()
	b.charge("succeeded")
	out, other, failed := back(b, refund, "rf_1", "", 700, "succeeded"), back(b, refund, "rf_2", "", 800, "succeeded"), back(b, refund, "rf_1", "", 700, "failed")
	var ends []string
	permute(3, func(order []int) {
		w := newStory(payment.Direct, true)
		w.bring(b.pieces[0])
		name := ""
		for _, n := range order {
			p := []piece{out, other, failed}[n]
			name += " > " + p.name
			w.bring(p)
			w.sound()
		}
		if w.wrong != "" || w.p.Conflict || len(w.reviews) > 0 || w.p.Refunded != 800 {
			t.Errorf("%s: %s, conflict %v, reviews %v, refunded %d", name, w.wrong, w.p.Conflict, w.reviews, w.p.Refunded)
		}
		if ends = append(ends, w.end()); w.end() != ends[0] {
			t.Errorf("%s ends in\n%s\nthe first order in\n%s", name, w.end(), ends[0])
		}
	})
}
