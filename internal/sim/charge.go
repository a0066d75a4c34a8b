package sim

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
)

// charge is one charge at the acquirer.
type charge struct {
	id, reference, session, status, reason string
	amount                                 int64
	currency                               string
	hold                                   bool // funds are held first, and taken by captures
	expires                                time.Duration
	acts                                   []*act
	captured, refunded, disputed, returned int64
	capturedAt                             time.Duration
	told                                   told
	news                                   string // the status that was told last
}

// act is a capture, reversal, refund or chargeback upon a charge.
type act struct {
	id, reference, status, code string
	kind                        acquirer.Action
	charge                      *charge
	amount                      int64
	final                       bool
	held                        bool // a reverse that moved no money
	at                          time.Duration
	told                        told
}

func (c *charge) name() string     { return c.id }
func (c *charge) refused() bool    { return c.status == "declined" }
func (c *charge) processing() bool { return c.status == "processing" }
func (t *act) name() string        { return t.id }
func (t *act) refused() bool       { return t.status == "failed" }
func (t *act) processing() bool    { return t.status == "processing" }

func moment(at time.Duration) string { return Start.Add(at).Format(time.RFC3339Nano) }

// members are those of a charge without its acts, which have messages of their own.
func (c *charge) members() string {
	more := ""
	if c.reason != "" {
		more += `,"reason":"` + c.reason + `"`
	}
	if c.session != "" {
		more += `,"session":"` + c.session + `"`
	}
	if c.status == "action_required" {
		more += `,"redirect_url":"http://acquirer.sim/challenge/` + c.id + `"`
	}
	if c.status == "action_required" || c.status == "held" {
		more += `,"expires_at":"` + moment(c.expires) + `"`
	}
	return `"id":"` + c.id + `","reference":"` + c.reference + `","idempotency_key":"` + c.reference + `","status":"` + c.status +
		`","amount":` + strconv.FormatInt(c.amount, 10) + `,"currency":"` + c.currency + `","captured_amount":` + strconv.FormatInt(c.captured, 10) +
		`,"refunded_amount":` + strconv.FormatInt(c.refunded, 10) + more + `,"created_at":"2026-01-01T00:00:00Z"`
}

func (c *charge) json() string {
	var acts []string
	for _, t := range c.acts {
		acts = append(acts, t.json())
	}
	return "{" + c.members() + `,"acts":[` + strings.Join(acts, ",") + "]}"
}

func (t *act) json() string {
	more := ""
	if t.final {
		more += `,"final":true`
	}
	if t.held {
		more += `,"held":true`
	}
	if t.code != "" {
		more += `,"code":"` + t.code + `"`
	}
	return fmt.Sprintf(`{"id":%q,"kind":%q,"charge":%q,"reference":%q,"status":%q,"amount":%d,"currency":%q%s,"at":%q}`,
		t.id, string(t.kind), t.charge.id, t.reference, t.status, t.amount, t.charge.currency, more, moment(t.at))
}

func (c *charge) tell() answer {
	if c.status == "declined" {
		return answer{status: 402, body: c.json()}
	}
	return answer{status: 200, body: c.json()}
}

func (t *act) tell() answer { return answer{status: 200, body: t.json()} }

// newCharge makes a charge that nothing was decided about.
func (a *Acquirer) newCharge(reference string, amount int64, currency string, hold bool) *charge {
	c := &charge{id: a.newID("ch_", len(a.charges)), reference: reference, status: "processing", amount: amount, currency: currency, hold: hold}
	a.charges = append(a.charges, c)
	return c
}

// charge makes the charge of a request: in processing, at a payer's step, or decided.
func (a *Acquirer) charge(o order, slow bool) *charge {
	c := a.newCharge(o.key, o.asked.Amount, o.asked.Currency, !o.asked.Capture)
	switch {
	case slow:
		a.changed(c)
	case o.asked.Method == methodStep:
		c.status, c.expires = "action_required", a.s.now+a.Terms.SessionLife
		a.changed(c)
		a.lapsesAt(c)
		a.payerOfStep(c)
	default:
		a.decide(c)
	}
	return c
}

// methodStep is the payment method whose payer must confirm on a page.
const methodStep = "pm_3ds"

// decide takes or holds the money, or refuses.
func (a *Acquirer) decide(c *charge) {
	if a.s.Odds(a.Mischief.Declines) {
		c.status, c.reason = "declined", "insufficient_funds"
		a.s.Note("acquirer declines", c.id, c.reference)
		a.changed(c)
		return
	}
	if a.s.Odds(a.Mischief.WrongAmount) {
		c.amount++
	}
	a.goThrough(c)
}

// goThrough takes the money of a sale, or holds it.
func (a *Acquirer) goThrough(c *charge) {
	if c.hold {
		c.status, c.expires = "held", a.s.now+a.Terms.HoldLife
		a.s.Note("acquirer holds", strconv.FormatInt(c.amount, 10), c.currency, c.id, c.reference)
		a.changed(c)
		a.lapsesAt(c)
		a.deskOfHold(c)
		return
	}
	c.status = "succeeded"
	a.moves(c, Movement{Object: c.id, Reference: c.reference, Kind: acquirer.MovementCharge, Amount: c.amount})
	a.changed(c)
	a.deskOfMoney(c)
}

// moves books a line of the register.
func (a *Acquirer) moves(c *charge, m Movement) {
	m.Charge, m.Under, m.Currency, m.At = c.id, c.reference, c.currency, a.s.now
	a.Register = append(a.Register, m)
	switch m.Kind {
	case acquirer.MovementCharge, acquirer.MovementCapture:
		if c.captured == 0 {
			c.capturedAt = a.s.now
		}
		c.captured += m.Amount
	}
	a.s.Note("acquirer moves", string(m.Kind), strconv.FormatInt(m.Amount, 10), m.Currency, m.Object, m.Undoes, c.id, c.reference)
}

// changed makes the present state visible, sooner or later.
func (a *Acquirer) changed(c *charge) {
	a.note(&c.told, c.json())
	if p := find(a.sessions, c.session); p != nil {
		a.note(&p.told, a.page(p, a.Terms.PageByAddress))
	}
	a.newsOfCharge(c)
}

// lapsesAt ends a hold or a payer's step when its time is over. What was captured of it stays taken.
func (a *Acquirer) lapsesAt(c *charge) {
	was := c.expires
	a.s.After(c.expires-a.s.now, func() {
		if c.expires == was {
			a.lapse(c)
		}
	})
}

func (a *Acquirer) lapse(c *charge) {
	if c.status != "held" && c.status != "action_required" || a.s.now < c.expires || c.open() {
		return
	}
	if c.status = "expired"; c.captured > 0 {
		c.status = "succeeded"
	}
	a.s.Note("acquirer lets lapse", c.id, c.reference)
	a.changed(c)
}

// open says whether an act is in processing.
func (c *charge) open() bool {
	for _, t := range c.acts {
		if t.processing() {
			return true
		}
	}
	return false
}

// sum adds up the acts in processing.
func (c *charge) sum(kinds ...acquirer.Action) (amount int64) {
	for _, t := range c.acts {
		for _, k := range kinds {
			if t.processing() && t.kind == k {
				amount += t.amount
			}
		}
	}
	return amount
}

func (c *charge) rest() int64 { return c.captured - c.refunded - c.disputed - c.returned }

// returnable is what may still be given back.
func (c *charge) returnable() int64 {
	return c.rest() - c.sum(acquirer.ActionRefund, acquirer.ActionReverse, acquirer.ActionChargeback)
}

func (c *charge) capturable() int64 { return c.amount - c.captured - c.sum(acquirer.ActionCapture) }

// lasts says whether a capture in processing is the last one.
func (c *charge) lasts() bool {
	for _, t := range c.acts {
		if t.processing() && t.kind == acquirer.ActionCapture && t.final {
			return true
		}
	}
	return false
}

func (c *charge) closing() bool { return c.sum(acquirer.ActionReverse) > 0 }
