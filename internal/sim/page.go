package sim

import (
	"fmt"
	"time"
)

// session is one hosted page.
type session struct {
	id, reference, status string
	amount                int64
	currency              string
	hold                  bool
	expires               time.Duration
	charge                *charge
	tries                 int
	told                  told
	a                     *Acquirer
}

func (p *session) name() string { return p.id }

func (p *session) refused() bool { return false }

func (p *session) tell() answer { return answer{status: 200, body: p.a.page(p, false)} }

// page tells a page; lookups of some acquirers do not tell its address.
func (a *Acquirer) page(p *session, secret bool) string {
	address, charge := `"page_url":"http://acquirer.sim/pay/`+p.id+`",`, "null"
	if secret {
		address = ""
	}
	if p.charge != nil {
		charge = p.charge.json()
	}
	return fmt.Sprintf(`{"id":%q,"reference":%q,%s"status":%q,"amount":%d,"currency":%q,"expires_at":%q,"charge":%s,"tries":%d}`,
		p.id, p.reference, address, p.status, p.amount, p.currency, moment(p.expires), charge, p.tries)
}

// register opens a page and sends its payer there.
func (a *Acquirer) register(o order) *session {
	p := &session{id: a.newID("cs_", len(a.sessions)), reference: o.key, status: "open", amount: o.asked.Amount, currency: o.asked.Currency,
		hold: !o.asked.Capture, expires: a.s.now + a.Terms.SessionLife, a: a}
	if until, err := time.Parse(time.RFC3339Nano, o.asked.ExpiresAt); err == nil {
		p.expires = until.Sub(Start)
	}
	a.sessions = append(a.sessions, p)
	a.s.Note("acquirer opens", p.id, p.reference)
	a.pageChanged(p)
	a.s.After(p.expires-a.s.now, func() { a.endPage(p, "expired") })
	a.payer(p)
	return p
}

func (a *Acquirer) pageChanged(p *session) { a.note(&p.told, a.page(p, a.Terms.PageByAddress)) }

func (a *Acquirer) endPage(p *session, status string) {
	if p.status == "open" {
		p.status = status
		a.s.Note("acquirer ends", p.id, status)
		a.pageChanged(p)
		a.newsOfPage(p)
	}
}

// closed is the answer to closing a page.
type closed struct{ p *session }

func (c closed) refused() bool { return c.p.status == "paid" }

func (c closed) tell() answer {
	if c.p.status == "paid" {
		return failure(409, "already_paid")
	}
	return c.p.tell()
}

func (a *Acquirer) closePage(o order) (thing, answer) {
	p := find(a.sessions, o.object)
	if p == nil {
		return nil, failure(404, "not_found")
	}
	a.endPage(p, "closed")
	return closed{p}, answer{}
}

// pays lets the payer press "Pay". On a page that is not open nothing happens.
func (a *Acquirer) pays(p *session) {
	if p.status != "open" {
		a.s.Note("payer finds", p.id, p.status)
		return
	}
	c := a.newCharge(p.reference, p.amount, p.currency, p.hold)
	c.session, p.charge, p.status = p.id, c, "paid"
	a.goThrough(c)
}

func (a *Acquirer) declines(p *session) {
	if p.status == "open" {
		p.tries++
		a.s.Note("payer is declined on", p.id)
		a.pageChanged(p)
	}
}

// payer decides what the payer of a page does: pay, be declined and pay or not, pay as late as can be, or walk away.
func (a *Acquirer) payer(p *session) {
	soon := a.s.Between(3*time.Second, min(20*time.Minute, p.expires-a.s.now))
	switch odds := a.s.Chance.IntN(20); {
	case odds < 10:
		a.later(soon, func() { a.pays(p) })
	case odds < 13:
		a.later(soon, func() { a.declines(p) })
		a.later(soon+a.s.Between(time.Second, 5*time.Minute), func() { a.pays(p) })
	case odds < 15:
		a.later(soon, func() { a.declines(p) })
	case odds < 18:
		a.later(p.expires-a.s.now+a.s.Between(-2*time.Second, time.Second), func() { a.pays(p) })
	}
}

// payerOfStep decides what the payer of a charge does that asks for a confirmation.
func (a *Acquirer) payerOfStep(c *charge) {
	at := a.s.Between(3*time.Second, min(20*time.Minute, a.Terms.SessionLife))
	odds := a.s.Chance.IntN(10)
	if odds >= 8 {
		return // walks away
	}
	a.later(at, func() {
		switch {
		case c.status != "action_required" || c.open():
		case odds < 6:
			a.goThrough(c)
		default:
			c.status, c.reason = "declined", "do_not_honor"
			a.s.Note("payer refuses", c.id, c.reference)
			a.changed(c)
		}
	})
}
