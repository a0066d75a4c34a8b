package payment_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/payment"
)

// chance draws what happens at a bank, step by step: only what the bank itself would do.
type chance struct {
	*bank
	t       *rapid.T
	keys    int
	waiting []claimed // commands that the bank has not answered yet
	l       *life
}

// ask lets a client claim a change.
func (c *chance) ask(kind payment.ModificationType, minor int64, final, void bool) {
	c.keys++
	c.claims(kind, fmt.Sprint("k", c.keys), minor)
	c.last().final, c.last().void = final, void
	c.waiting = append(c.waiting, *c.last())
}

// asked says whether a change of the kind has no answer yet.
func (c *chance) asked(kinds ...payment.ModificationType) bool {
	return slices.ContainsFunc(c.waiting, func(o claimed) bool { return slices.Contains(kinds, o.kind) })
}

// returnable is what a charge has left to give back.
func (c *chance) returnable(of *bankCharge) int64 {
	left := of.captured
	for _, a := range c.acts {
		if a.of == of && a.kind != capture && !a.held && a.status != "failed" && a.status != "won" {
			left -= a.amount
		}
	}
	return left
}

func (c *chance) part(label string, of int64) int64 {
	if rapid.Bool().Draw(c.t, label+" in full") {
		return of
	}
	return rapid.Int64Range(1, of).Draw(c.t, label)
}

// begin draws how the payment begins.
func (c *chance) begin() {
	switch rapid.SampledFrom([]string{"sale", "hold", "page", "step", "refusal", "waits"}).Draw(c.t, "begins with") {
	case "sale":
		c.charge("succeeded")
	case "hold":
		c.charge("held")
	case "refusal":
		c.charge("declined")
	case "step":
		c.step3()
	case "waits":
		c.claims(payment.Cancel, "kx", 0)
		c.last().waits = true
		c.charge("held")
		c.binds("kx")
		c.do(c.charges[0], reverse, "kx", 0)
	case "page":
		c.l.flow = payment.Hosted
		c.open()
		switch rapid.SampledFrom([]string{"paid", "held", "lapses", "closed", "too late"}).Draw(c.t, "page") {
		case "paid":
			c.charge("succeeded")
		case "held":
			c.charge("held")
		case "lapses":
			c.shut("")
		case "closed":
			c.claims(payment.Cancel, "kx", 0)
			c.shut("kx")
		default:
			c.claims(payment.Cancel, "kx", 0)
			c.charge(rapid.SampledFrom([]string{"succeeded", "held"}).Draw(c.t, "paid as"))
			c.refuses(acquirer.ActionClose, "kx", "already_paid")
		}
	}
}

// goOn draws one more step; nothing where nothing fits.
func (c *chance) goOn() {
	if len(c.charges) == 0 {
		return
	}
	of := c.charges[rapid.IntRange(0, len(c.charges)-1).Draw(c.t, "charge")]
	what := rapid.SampledFrom([]string{"ask", "answer", "by itself"}).Draw(c.t, "next")
	switch {
	case what == "ask" && len(c.charges) == 1: // of two charges, what is told first is the payment's, and is what we call
		c.asks(of)
	case what == "answer" && len(c.waiting) > 0:
		n := rapid.IntRange(0, len(c.waiting)-1).Draw(c.t, "answered")
		next := c.waiting[n]
		c.waiting = slices.Delete(c.waiting, n, n+1)
		c.answers(c.charges[0], next)
	case of.status == "held":
		c.byItself(of)
	case of.status == "action_required":
		of.status, of.captured = "succeeded", whole
		c.book(acquirer.MovementCharge, of.id, whole)
		c.step("done "+of.id, c.word(of), "")
	case c.returnable(of) > 0:
		c.goesBack(of)
	}
	c.decide()
}

// asks draws a change that a client wants.
func (c *chance) asks(of *bankCharge) {
	left, busy := c.returnable(of), c.asked(payment.Capture, payment.Cancel)
	for _, o := range c.waiting {
		if o.kind == payment.Refund {
			left -= o.minor
		}
	}
	switch {
	case of.status == "held" && !busy && of.captured == 0 && rapid.Bool().Draw(c.t, "cancel"):
		c.ask(payment.Cancel, 0, false, false)
	case of.status == "held" && !busy:
		c.ask(payment.Capture, c.part("to capture", of.amount-of.captured), rapid.Bool().Draw(c.t, "final"), false)
	case of.status == "held", left <= 0:
	case left == of.captured && rapid.Bool().Draw(c.t, "void"):
		c.ask(payment.Refund, left, false, true)
	default:
		c.ask(payment.Refund, c.part("to refund", left), false, false)
	}
}

// answers draws how the bank ends a change that was asked for.
func (c *chance) answers(of *bankCharge, o claimed) {
	untouched := of.status == "succeeded" && of.captured > 0 && c.returnable(of) == of.captured
	will := rapid.IntRange(0, 3).Draw(c.t, "willing") > 0
	switch {
	case o.kind == payment.Capture && will && of.status == "held" && o.minor <= of.amount-of.captured:
		if o.final || o.minor == of.amount-of.captured {
			c.do(of, capture, o.key, o.minor, true)
		} else {
			c.do(of, capture, o.key, o.minor)
		}
	case o.kind == payment.Capture:
		c.refuses(capture, o.key, "exceeds_remaining")
	case o.kind == payment.Cancel && of.status == "held" && of.captured == 0:
		c.do(of, reverse, o.key, 0)
	case o.kind == payment.Cancel && will && untouched:
		c.do(of, reverse, o.key, of.captured)
	case o.kind == payment.Cancel:
		c.refuses(reverse, o.key, "already_captured")
	case o.void && will && untouched:
		c.do(of, reverse, o.key, of.captured)
	case o.void:
		c.refuses(reverse, o.key, "not_reversible")
	case will && o.minor <= c.returnable(of):
		c.do(of, refund, o.key, o.minor)
	default:
		c.refuses(refund, o.key, "exceeds_remaining")
	}
}

// byItself draws what becomes of a hold without us.
func (c *chance) byItself(of *bankCharge) {
	switch rapid.SampledFrom([]string{"capture", "capture", "lapse", "reverse"}).Draw(c.t, "hold") {
	case "capture":
		if amount := c.part("captured", of.amount-of.captured); rapid.Bool().Draw(c.t, "last") || amount == of.amount-of.captured {
			c.do(of, capture, "", amount, true)
		} else {
			c.do(of, capture, "", amount)
		}
	case "lapse":
		c.lapse(of)
	default:
		if of.captured == 0 {
			c.do(of, reverse, "", 0)
		}
	}
}

// goesBack draws what gives or takes money back without us.
func (c *chance) goesBack(of *bankCharge) {
	left := c.returnable(of)
	if of != c.charges[0] && left < of.captured {
		return // of what is kept aside a person decides, unless all of it goes back
	}
	switch rapid.SampledFrom([]string{"refund", "refund", "void", "chargeback", "second"}).Draw(c.t, "back") {
	case "chargeback":
		if of == c.charges[0] {
			c.do(of, chargeback, "", c.part("disputed", left))
		}
	case "second":
		if !of.hold && len(c.waiting) == 0 {
			c.l.contradicts = true
			c.charge("succeeded")
		}
	case "void":
		if left == of.captured {
			c.do(of, reverse, "", left)
		}
	default:
		if of == c.charges[0] {
			left = c.part("refunded", left)
		}
		c.do(of, refund, "", left)
	}
}

// decide lets a payer's bank send a refund back, or decide a dispute.
func (c *chance) decide() {
	for _, a := range c.acts {
		switch {
		case a.kind == refund && a.status == "succeeded" && rapid.IntRange(0, 3).Draw(c.t, "fails") == 0:
			c.becomes(a, "failed")
		case a.kind == chargeback && a.status == "opened" && rapid.IntRange(0, 2).Draw(c.t, "decided") == 0:
			c.becomes(a, rapid.SampledFrom([]string{"won", "lost"}).Draw(c.t, "dispute"))
		default:
			continue
		}
		return
	}
}

const (
	mostSteps = 6
	mostNews  = 10
	rounds    = 50 // of as many lives as rapid makes in one: 100, where no flag says otherwise
)

// order draws an order of news and claims: before a claim its client has looked, and no news of what a claim led to comes before it.
func order(t *rapid.T, label string, news, claims []piece) []piece {
	told := rapid.Permutation(news).Draw(t, label)
	least := 0
	for _, c := range claims {
		last := slices.IndexFunc(told, func(p piece) bool { return p.at > c.at })
		if last < 0 {
			last = len(told)
		}
		n := rapid.IntRange(min(least, last), last).Draw(t, label+": "+c.name)
		told = slices.Insert(told, n, c)
		least = n + 1
	}
	return told
}

// Random lives, told in two random orders, with repeats: the same end, and every invariant after every step (PROTOCOL E1). A failure
// prints the seed that plays it again.
func TestRandomLivesEndTheSame(t *testing.T) {
	compared, drawn := 0, 0
	for range rounds {
		rapid.Check(t, func(t *rapid.T) {
			drawn++
			if sameEnd(t) {
				compared++
			}
		})
	}
	if compared < drawn/4 {
		t.Errorf("only %d of %d pairs of orders were possible", compared, drawn)
	}
}

// sameEnd draws a life and two orders of some of its news. False: a client could not have got that far in one of them.
func sameEnd(t *rapid.T) bool {
	c := &chance{bank: newBank(), t: t, l: &life{}}
	c.begin()
	for range rapid.IntRange(0, mostSteps).Draw(t, "steps") {
		c.goOn()
	}
	var news, claims []piece
	for n, p := range c.pieces {
		if p.claim == nil {
			news = append(news, p)
			continue
		}
		if n > 0 { // the client has looked
			claims = append(claims, piece{name: "look before " + p.name, at: p.at - 1, said: c.seenBefore(n)})
		}
		claims = append(claims, p)
	}
	news = rapid.SliceOfN(rapid.SampledFrom(news), 1, mostNews).Draw(t, "news")
	remembers := rapid.Bool().Draw(t, "refusals are remembered")
	first, ok1, wrong1 := live(*c.l, c.bank, remembers, order(t, "first", news, claims))
	second, ok2, wrong2 := live(*c.l, c.bank, remembers, order(t, "second", news, claims))
	if wrong1+wrong2 != "" {
		t.Fatalf("%s\n%s\n%s\n%s", first.way, wrong1, second.way, wrong2)
	}
	if no := first.differ(second); ok1 && ok2 && !c.l.contradicts && no != "" {
		t.Fatal(no)
	}
	return ok1 && ok2
}

// seenBefore is what the check before the n-th piece was told.
func (b *bank) seenBefore(n int) truth {
	for n--; n >= 0; n-- {
		if strings.Contains(b.pieces[n].name, " check: ") {
			return b.pieces[n].said
		}
	}
	return nil
}
