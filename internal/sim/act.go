package sim

import (
	"cmp"
	"strconv"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
)

// act makes an act upon a charge, or says why not. An amount of zero is all that is left.
func (a *Acquirer) act(c *charge, kind acquirer.Action, reference string, amount int64, currency string, final, slow bool) (*act, string) {
	a.lapse(c)
	amount, code := a.allowed(c, kind, amount)
	switch {
	case code != "":
		return nil, code
	case currency != "" && currency != c.currency:
		return nil, "wrong_currency"
	}
	t := &act{id: a.newID(actPrefix[kind], len(a.acts)), reference: reference, kind: kind, charge: c, amount: amount, at: a.s.now, status: "processing"}
	t.final = kind == acquirer.ActionCapture && (final || a.Terms.OneCapture || amount == c.capturable())
	a.acts, c.acts = append(a.acts, t), append(c.acts, t)
	if slow {
		a.note(&t.told, t.json())
		a.changed(c)
		return t, ""
	}
	a.finish(t)
	return t, ""
}

var actPrefix = map[acquirer.Action]string{acquirer.ActionCapture: "cp_", acquirer.ActionReverse: "rv_", acquirer.ActionRefund: "rf_",
	acquirer.ActionChargeback: "cb_"}

// allowed gives the amount of an act, or the code of its refusal.
func (a *Acquirer) allowed(c *charge, kind acquirer.Action, amount int64) (int64, string) {
	switch kind {
	case acquirer.ActionReverse:
		return a.reversible(c)
	case acquirer.ActionCapture:
		amount = cmp.Or(amount, c.capturable())
		switch {
		case c.status == "succeeded" && c.hold, c.status == "held" && (c.lasts() || c.capturable() <= 0), a.Terms.OneCapture && c.sum(kind) > 0:
			return 0, "already_captured"
		case c.status != "held" || c.closing():
			return 0, "not_capturable"
		case amount > c.capturable():
			return 0, "exceeds_remaining"
		}
		return amount, ""
	}
	amount = cmp.Or(amount, c.returnable())
	switch {
	case c.captured == 0 || c.closing() || c.status == "reversed" && c.returnable() <= 0:
		return 0, "not_refundable"
	case c.returnable() <= 0 || amount > c.returnable():
		return 0, "exceeds_remaining"
	case kind == acquirer.ActionRefund && a.Terms.WholeRefunds && amount != c.captured:
		return 0, "partial_not_allowed"
	}
	return amount, ""
}

func (a *Acquirer) reversible(c *charge) (int64, string) {
	switch {
	case c.closing():
		return 0, "nothing_to_reverse"
	case c.status == "action_required":
		return c.amount, ""
	case c.status == "held" && c.captured+c.sum(acquirer.ActionCapture) > 0:
		return 0, "already_captured"
	case c.status == "held":
		return c.amount, ""
	case c.status != "succeeded" || c.returnable() <= 0:
		return 0, "nothing_to_reverse"
	case a.s.now-c.capturedAt >= a.Terms.ReverseCaptured:
		return 0, "too_late"
	}
	return c.returnable(), ""
}

// finish decides an act: it is carried out, or decided against.
func (a *Acquirer) finish(t *act) {
	c := t.charge
	if t.kind != acquirer.ActionChargeback && a.s.Odds(a.Mischief.ActFails) {
		t.status, t.code = "failed", "do_not_honor"
		a.s.Note("acquirer fails", string(t.kind), t.id, c.id, t.reference)
	} else {
		t.status = "succeeded"
		a.succeeds(t)
	}
	a.note(&t.told, t.json())
	a.newsOfAct(t)
	a.changed(c)
	a.lapse(c)
}

// succeeds books what a successful act does.
func (a *Acquirer) succeeds(t *act) {
	c, m := t.charge, Movement{Object: t.id, Reference: t.reference, Kind: acquirer.MovementKind(t.kind), Amount: t.amount}
	switch t.kind {
	case acquirer.ActionCapture:
		a.moves(c, m)
		if t.final || c.captured >= c.amount {
			c.status = "succeeded"
		}
		a.deskOfMoney(c)
		return
	case acquirer.ActionReverse:
		m.Undoes, m.Held = c.id, c.status == "held"
		t.held = c.status == "held" || c.status == "action_required"
		if was := c.status; was != "action_required" {
			a.moves(c, m)
		}
		if c.captured > 0 {
			c.returned += t.amount
		}
		c.status = "reversed"
		return
	case acquirer.ActionRefund:
		c.refunded += t.amount
		a.bankOf(t)
	case acquirer.ActionChargeback:
		t.status = "opened"
		c.disputed += t.amount
		a.disputed(t)
	}
	a.moves(c, m)
}

// undone books that the money of a refund or chargeback comes back.
func (a *Acquirer) undone(t *act, status, code string) {
	t.status, t.code = status, code
	if t.kind == acquirer.ActionRefund {
		t.charge.refunded -= t.amount
	} else {
		t.charge.disputed -= t.amount
	}
	a.moves(t.charge, Movement{Object: t.id, Undoes: t.id, Reference: t.reference, Kind: acquirer.MovementReverse, Amount: t.amount})
	a.note(&t.told, t.json())
	a.newsOfAct(t)
	a.changed(t.charge)
}

// bankOf lets a refund fail later at the payer's bank.
func (a *Acquirer) bankOf(t *act) {
	if a.s.Odds(a.Mischief.BankFails) {
		a.later(a.s.Between(time.Minute, 4*time.Hour), func() { a.undone(t, "failed", "account_closed") })
	}
}

// disputed lets the payer's bank decide about a chargeback.
func (a *Acquirer) disputed(t *act) {
	a.later(a.s.Between(time.Minute, 8*time.Hour), func() {
		if a.s.Odds(500) {
			a.undone(t, "won", "")
			return
		}
		t.status = "lost"
		a.note(&t.told, t.json())
		a.newsOfAct(t)
		a.changed(t.charge)
	})
}

// deskOfMoney lets happen what others do to a charge with money.
func (a *Acquirer) deskOfMoney(c *charge) {
	if a.s.Odds(a.Mischief.ByHand) {
		a.byHand(c, []acquirer.Action{acquirer.ActionRefund, acquirer.ActionRefund, acquirer.ActionReverse, acquirer.ActionCapture}[a.s.Chance.IntN(4)])
	}
	if a.s.Odds(a.Mischief.Chargeback) {
		a.byHand(c, acquirer.ActionChargeback)
	}
	if a.s.Odds(a.Mischief.Mistake) {
		a.later(a.s.Between(time.Second, time.Hour), func() {
			a.Mistakes[c.reference]++
			a.s.Note("acquirer charges by mistake", c.reference)
			a.goThrough(a.newCharge(c.reference, c.amount, c.currency, false))
		})
	}
}

// deskOfHold lets happen what others do to a hold.
func (a *Acquirer) deskOfHold(c *charge) {
	if a.s.Odds(a.Mischief.ByHand) {
		a.byHand(c, []acquirer.Action{acquirer.ActionReverse, acquirer.ActionCapture}[a.s.Chance.IntN(2)])
	}
}

// byHand does an act at the acquirer's own desk, of a part or of all that is left.
func (a *Acquirer) byHand(c *charge, kind acquirer.Action) {
	amount := int64(0)
	if a.s.Odds(500) {
		amount = 1 + a.s.Chance.Int64N(c.amount)
	}
	a.later(a.s.Between(time.Second, 5*time.Hour), func() {
		made, code := a.act(c, kind, "", amount, "", a.s.Odds(500), false)
		if made == nil {
			a.s.Note("by hand, refused:", string(kind), code, c.id)
			return
		}
		a.s.Note("by hand:", string(kind), strconv.FormatInt(made.amount, 10), made.id, c.id)
	})
}
