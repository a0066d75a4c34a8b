package payment_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/money"
)

// bank is what truly happens at an acquirer to one payment, step by step, told as the sandbox's adapter tells it. Each step
// leaves pieces of news, by every road, as true as they were at that moment.
type bank struct {
	charges []*bankCharge
	acts    []*bankAct
	page    string // hosted: open, paid, closed; empty: none
	at      int    // steps so far
	pieces  []piece
	net     int64           // money that the merchant has
	moved   map[string]bool // every movement, by kind and id
}

type bankCharge struct {
	id       string
	amount   int64
	hold     bool // it was held first
	status   string
	captured int64
	paged    bool
}

type bankAct struct {
	kind        acquirer.Action
	id, key     string
	of          *bankCharge
	amount      int64
	status      string // succeeded, failed, opened, won, lost
	held, final bool
}

// piece is what one road brings at once, or a claim of a client's.
type piece struct {
	name  string
	at    int    // the step after which it was true
	owner string // whose fence it comes under: chargeKey, a modification's key, or empty
	said  truth
	claim *claimed
}

// GoString is how a failure of a generated test prints it.
func (p piece) GoString() string { return p.name }

// claimed is a command that begins a change, or binds one that waited to what it calls.
type claimed struct {
	kind  payment.ModificationType
	key   string
	minor int64
	final bool
	bind  bool
	void  bool // refund: by a reversal
	waits bool // cancel: of a charge that is not settled yet
}

const (
	chargeKey = "key"
	whole     = 1000
	pageID    = "ps_1"
)

func newBank() *bank { return &bank{moved: map[string]bool{}} }

func tenge(minor int64) money.Amount {
	if minor == 0 {
		return money.Amount{}
	}
	return money.Must(minor, "KZT")
}

// step counts what happened and leaves what can be told of it now.
func (b *bank) step(name string, own evidence.Observation, owner string) {
	b.at++
	if owner != "" {
		reply := own
		b.leave("reply: "+name, owner, evidence.FromCall, truth{reply})
	}
	b.leave("webhook: "+name, "", evidence.FromWebhook, truth{own})
	b.look(name)
}

// look leaves what a check, and what the owner's lookup, is told now.
func (b *bank) look(name string) {
	b.leave("check: "+name, "", evidence.FromLookup, b.tellAll())
	b.leave("owner's lookup: "+name, chargeKey, evidence.FromLookup, b.tellAll())
}

func (b *bank) leave(name, owner string, source evidence.Source, said truth) {
	said = slices.Clone(said)
	for n := range said {
		said[n].Source, said[n].AskedAt = source, b.asked()
	}
	b.pieces = append(b.pieces, piece{name: fmt.Sprint(b.at, " ", name), at: b.at, owner: owner, said: said})
}

func (b *bank) asked() time.Time { return start.Add(time.Duration(b.at) * time.Minute) }

func (b *bank) book(kind acquirer.MovementKind, id string, minor int64) {
	b.net += minor
	b.moved[string(kind)+" "+id] = true
}

// charge makes a charge under the payment's key: a sale, a hold or a refusal.
func (b *bank) charge(status string) *bankCharge {
	c := &bankCharge{id: fmt.Sprint("ch_", len(b.charges)+1), amount: whole, status: status, hold: status == "held", paged: b.page == "open"}
	owner := chargeKey
	if c.paged {
		b.page, owner = "paid", ""
	}
	if len(b.charges) > 0 {
		owner = "" // by the acquirer's own mistake
	}
	b.charges = append(b.charges, c)
	if status == "succeeded" {
		c.captured = whole
		b.book(acquirer.MovementCharge, c.id, whole)
	}
	b.step(status+" "+c.id, b.word(c), owner)
	return c
}

// step3 makes a charge that waits for the payer's step.
func (b *bank) step3() {
	b.charges = append(b.charges, &bankCharge{id: "ch_1", amount: whole, status: "action_required"})
	b.step("step asked ch_1", b.word(b.charges[0]), chargeKey)
}

// open opens a page; shut closes it, or lets a hold or payer's step lapse.
func (b *bank) open() {
	b.page = "open"
	b.step("page opens", b.tellAll()[0], chargeKey)
}

func (b *bank) shut(key string) {
	b.page = "closed"
	b.at++
	if key != "" {
		done := evidence.Observation{Reply: acquirer.Reply{About: acquirer.ActionClose, Outcome: acquirer.OutcomeSucceeded, Reference: pageID, Session: pageID}}
		b.leave("reply: page closed", key, evidence.FromCall, truth{done})
		b.leave("lookup: page closed", key, evidence.FromLookup, truth{done})
	}
	b.leave("webhook: page closed", "", evidence.FromWebhook, b.tellAll())
	b.look("page closed")
}

func (b *bank) lapse(c *bankCharge) {
	c.status = "expired"
	if c.captured > 0 {
		c.status = "succeeded"
	}
	b.at++
	b.leave("webhook: lapsed", "", evidence.FromWebhook, b.tellAll())
	b.look("lapsed")
}

// do makes an act upon a charge; without a key it is done by hand at the acquirer.
func (b *bank) do(c *bankCharge, kind acquirer.Action, key string, minor int64, final ...bool) *bankAct {
	a := &bankAct{kind: kind, key: key, of: c, amount: minor, status: "succeeded", final: len(final) > 0,
		id: fmt.Sprint(map[acquirer.Action]string{acquirer.ActionCapture: "cp_", acquirer.ActionReverse: "rv_", acquirer.ActionRefund: "rf_",
			acquirer.ActionChargeback: "cb_"}[kind], len(b.acts)+1)}
	switch kind {
	case acquirer.ActionCapture:
		c.captured += minor
		b.book(acquirer.MovementCapture, a.id, minor)
		if a.final || c.captured == c.amount {
			c.status = "succeeded"
		}
	case acquirer.ActionReverse:
		a.held = c.status == "held"
		c.status = "reversed"
		if !a.held {
			b.book(acquirer.MovementReverse, a.id, -minor)
		}
	case acquirer.ActionRefund:
		b.book(acquirer.MovementRefund, a.id, -minor)
	case acquirer.ActionChargeback:
		a.status = "opened"
		b.book(acquirer.MovementChargeback, a.id, -minor)
	}
	b.acts = append(b.acts, a)
	b.told(a, string(kind))
	return a
}

func (b *bank) told(a *bankAct, name string) {
	b.step(name+" "+a.id, a.tell(), a.key)
	if a.key != "" {
		b.leave("lookup: "+a.id, a.key, evidence.FromLookup, truth{a.tell()})
		nameless := a.tell()
		nameless.OurReference = "" // some do not echo it
		b.leave("webhook without our reference: "+a.id, "", evidence.FromWebhook, truth{nameless})
	}
}

// becomes lets a payer's bank send a refund back, or decide a dispute.
func (b *bank) becomes(a *bankAct, status string) {
	a.status = status
	if status != "lost" {
		b.book(acquirer.MovementReverse, a.id, a.amount)
	}
	b.told(a, status)
}

// refuses leaves the answer to a call that changes nothing.
func (b *bank) refuses(kind acquirer.Action, key, code string) {
	b.at++
	no := evidence.Observation{Reply: acquirer.Reply{About: kind, Outcome: acquirer.OutcomeDeclined, Code: code, Failure: code}}
	b.leave("reply: "+string(kind)+" refused", key, evidence.FromCall, truth{no})
	reply := &b.pieces[len(b.pieces)-1]
	seen := b.tellAll()
	for n := range seen { // as flow confirms it
		seen[n].Source, seen[n].AskedAt = evidence.FromLookup, b.asked()
	}
	reply.said = append(seen, reply.said...)
}

// claims leaves a client's command, which can only come after what happened before it led to it.
func (b *bank) claims(kind payment.ModificationType, key string, minor int64, final ...bool) {
	b.at++
	b.pieces = append(b.pieces, piece{name: fmt.Sprint(b.at, " claim ", kind, " ", key), at: b.at,
		claim: &claimed{kind: kind, key: key, minor: minor, final: len(final) > 0}})
}

func (b *bank) last() *claimed { return b.pieces[len(b.pieces)-1].claim }

// binds leaves the moment at which a cancel that waited learns what to call.
func (b *bank) binds(key string) {
	b.at++
	b.pieces = append(b.pieces, piece{name: fmt.Sprint(b.at, " binds ", key), at: b.at, claim: &claimed{kind: payment.Cancel, key: key, bind: true}})
}

// word is what a charge comes to, in the sandbox's words.
func (b *bank) word(c *bankCharge) evidence.Observation {
	o := evidence.Observation{Reply: acquirer.Reply{About: acquirer.ActionCharge, Reference: c.id, OurReference: chargeKey}}
	if c.paged {
		o.Session = pageID
	}
	switch {
	case c.status == "action_required":
		o.Outcome, o.RedirectURL = acquirer.OutcomeRegistered, "https://pay.example/step"
	case c.status == "declined":
		o.Outcome = acquirer.OutcomeDeclined
	case c.status == "held", c.hold && c.captured > 0:
		o.Outcome, o.Amount = acquirer.OutcomeHeld, tenge(c.amount)
	case c.captured > 0:
		o.Outcome, o.Amount = acquirer.OutcomeSucceeded, tenge(c.amount)
	default:
		o.Outcome = acquirer.OutcomeClosed
	}
	return o
}

// tell tells a charge with everything that was done upon it.
func (b *bank) tell(c *bankCharge) truth {
	all, last := truth{b.word(c)}, -1
	for _, a := range b.acts {
		if a.of != c || a.held {
			continue
		}
		all = append(all, a.tell())
		if a.kind == acquirer.ActionCapture {
			last = len(all) - 1
		}
	}
	if last >= 0 && c.status != "held" {
		all[last].Final = true
	}
	return all
}

// tellAll is the answer to a lookup by the payment's key.
func (b *bank) tellAll() truth {
	page := evidence.Observation{Reply: acquirer.Reply{About: acquirer.ActionSession, Reference: pageID, Session: pageID, OurReference: chargeKey}}
	switch b.page {
	case "open":
		page.Outcome, page.RedirectURL = acquirer.OutcomeRegistered, "https://pay.example/ps_1"
		return truth{page}
	case "closed":
		page.Outcome = acquirer.OutcomeClosed
		return truth{page}
	}
	var all truth
	for _, c := range b.charges {
		all = append(all, b.tell(c)...)
	}
	if len(all) == 0 {
		return truth{{Reply: acquirer.Reply{About: acquirer.ActionCharge, Outcome: acquirer.OutcomeNotFound}}}
	}
	return all
}

func (a *bankAct) tell() evidence.Observation {
	o := evidence.Observation{Reply: acquirer.Reply{About: a.kind, Outcome: acquirer.OutcomeSucceeded, Reference: a.id, OurReference: a.key,
		Object: a.of.id, Amount: tenge(a.amount), Final: a.final}}
	switch {
	case a.held:
		o.Amount = money.Amount{}
	case a.kind == acquirer.ActionChargeback:
		o.Code = a.status
	case a.status == "failed":
		o.Outcome, o.Code, o.Failure = acquirer.OutcomeDeclined, "failed_at_bank", "failed_at_bank"
	}
	return o
}

// answer is what a lookup under a modification's key is told in the end.
func (b *bank) answer(m payment.Modification) truth {
	if m.Action == acquirer.ActionClose {
		page := evidence.Observation{Reply: acquirer.Reply{About: acquirer.ActionClose, Reference: pageID, Session: pageID, Outcome: acquirer.OutcomeSucceeded}}
		if b.page == "paid" {
			page.Outcome, page.Code = acquirer.OutcomeDeclined, "already_paid"
			return append(b.tellAll(), page)
		}
		return truth{page}
	}
	for _, a := range b.acts {
		if a.key == m.AcquirerKey {
			return truth{a.tell()}
		}
	}
	none := evidence.Observation{Inference: evidence.InferNotExecuted, Reply: acquirer.Reply{About: m.Action, Outcome: acquirer.OutcomeNotFound}}
	if m.Type == payment.Cancel {
		return append(b.tellAll(), none) // as flow confirms it
	}
	return truth{none}
}
