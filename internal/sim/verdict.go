package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/ledger"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
)

// judge collects what is wrong.
type judge struct {
	w     *World
	wrong []string
}

func (j *judge) say(format string, args ...any) {
	j.wrong = append(j.wrong, fmt.Sprintf(format, args...))
}

// verdict checks the end of a world, by the numbers of PROTOCOL section 16.
func (w *World) verdict() []string {
	j := &judge{w: w}
	for _, d := range w.Store.Defects {
		j.say("defect: %s", d)
	}
	for _, f := range w.Faults {
		j.say("fault: %s", f)
	}
	for _, a := range w.Acquirers {
		for _, d := range a.Defects {
			j.say("acquirer: %s", d)
		}
	}
	if w.Scheduler.Steps > maxSteps {
		j.say("more than %d steps", maxSteps)
	}
	j.intents()
	j.payments()
	j.modifications()
	j.operations()
	j.keys()
	j.money()
	j.books()
	j.answers()
	j.messages()
	return j.wrong
}

// intents: at most one net movement (I-1), one live payment (I-2), events in order.
func (j *judge) intents() {
	w := j.w
	w.Store.intents.each(func(i payment.Intent) bool {
		moved, live, mistakes := 0, 0, 0
		w.Store.payments.each(func(p payment.Payment) bool {
			if p.Intent != i.ID {
				return true
			}
			a := w.accounts[p.Account]
			for _, net := range a.Net(p.AcquirerKey) {
				if net > 0 {
					moved++
				}
			}
			mistakes += a.Mistakes[p.AcquirerKey]
			if !p.Status.Refusal() {
				live++
			}
			return true
		})
		if moved > 1+mistakes {
			j.say("I-1: %d net movements for %s", moved, i.ClientReference)
		}
		if live > 1 {
			j.say("I-2: %d live payments for %s", live, i.ClientReference)
		}
		j.events(i)
		return true
	})
}

// events: versions without a gap, one "paid" for a payment, one "in_review" for a review.
func (j *judge) events(i payment.Intent) {
	type kind struct {
		payment id.ID
		what    payment.EventType
	}
	count, reviews := map[kind]int{}, map[id.ID]int{}
	for version := int64(1); version <= i.EventVersion; version++ {
		e, ok := j.w.Store.events.get(eventKey{i.Merchant, i.ID, version})
		if !ok {
			j.say("I-10: event %d of %s is missing", version, i.ClientReference)
			continue
		}
		count[kind{e.Payment, e.Type}]++
	}
	j.w.Store.reviews.each(func(r payment.Review) bool { reviews[r.Payment]++; return true })
	j.w.Store.payments.each(func(p payment.Payment) bool {
		for _, once := range []payment.EventType{payment.EventPaid, payment.EventDeclined, payment.EventFailed, payment.EventCanceled,
			payment.EventAuthorized} {
			if n := count[kind{p.ID, once}]; n > 1 {
				j.say("I-11: %d events %s for one payment of %s", n, once, i.ClientReference)
			}
		}
		told := count[kind{p.ID, payment.EventReview}] + count[kind{p.ID, payment.EventConflict}]
		if p.Intent == i.ID && told > reviews[p.ID] {
			j.say("I-11: %d events of review or conflict for %d reviews of %s", told, reviews[p.ID], i.ClientReference)
		}
		return true
	})
}

// payments: paid means money of that sum at the acquirer (I-7); refused means none, or a conflict (I-16); everything
// came to an end; what the acquirer's charge says of amounts is what we say (I-9).
func (j *judge) payments() {
	w := j.w
	w.Store.payments.each(func(p payment.Payment) bool {
		a, asked := w.accounts[p.Account], p.Conflict || w.openReview(p.ID)
		net := int64(0)
		for _, n := range a.Net(p.AcquirerKey) {
			net += n
		}
		c := find(a.charges, p.AcquirerReference)
		switch {
		case p.Status == payment.Paid:
			if c == nil || c.reference != p.AcquirerKey || c.captured == 0 {
				j.say("I-7: payment %s is paid and no money moved", p.ID)
			} else if whole := p.Authorized == 0; whole && p.Captured != p.Amount.Minor() || p.Captured > p.Amount.Minor() || p.Captured != c.captured && !asked {
				j.say("I-7: payment %s is paid with %d, and %d moved", p.ID, p.Captured, c.captured)
			}
			if a.Terms.Lookup && !asked && (p.Refunded != c.refunded+c.returned || p.Disputed != c.disputed || p.Refunding+p.Capturing != 0) {
				j.say("I-9: payment %s has %d given back and %d disputed, its charge %d and %d", p.ID, p.Refunded, p.Disputed,
					c.refunded+c.returned, c.disputed)
			}
		case p.Status.Refusal():
			if net > 0 && !asked && (a.Terms.Lookup || a.Mistakes[p.AcquirerKey] == 0) {
				j.say("I-16: payment %s is %s, money moved, and no conflict is open", p.ID, p.Status)
			}
			if !p.GateOpen && !asked {
				j.say("I-5: payment %s is %s and its gate never opened", p.ID, p.Status)
			}
		case !w.openReview(p.ID):
			j.say("I-5: payment %s is still %s", p.ID, p.Status)
		}
		return true
	})
}

// modifications: each came to an end or is with a person (I-5); one that succeeded was done at the acquirer, under its own key,
// and one that failed was not (I-7, I-16).
func (j *judge) modifications() {
	w := j.w
	w.Store.modifications.each(func(m payment.Modification) bool {
		asked, a := w.openReview(m.Payment), w.accounts[m.Account]
		p, _ := w.Store.payments.get(flow.Row{Merchant: m.Merchant, ID: m.Payment})
		done := a.Done(m.AcquirerKey)
		switch {
		case m.Status.Open() && !asked:
			j.say("I-5: %s %s is still %s", m.Type, m.ID, m.Status)
		case m.External || m.Status.Open() || p.Conflict || asked || !a.Terms.Lookup:
		case m.Status == payment.ModSucceeded && m.Type != payment.Cancel && done == nil:
			j.say("I-7: %s %s succeeded, and the acquirer did nothing under its key", m.Type, m.ID)
		case m.Status == payment.ModSucceeded && m.Type != payment.Cancel && (done.id != m.AcquirerReference || done.amount != m.Amount.Minor()):
			j.say("I-7: %s %s is %s of %d, and the acquirer did %s of %d", m.Type, m.ID, m.AcquirerReference, m.Amount.Minor(), done.id, done.amount)
		case m.Status == payment.ModFailed && m.Type != payment.Cancel && done != nil:
			j.say("I-16: %s %s failed, and the acquirer did %s", m.Type, m.ID, done.id)
		}
		return true
	})
}

// keys: at an acquirer that does not honour the keys or references of a call, none is ever sent twice (PROTOCOL A2, section 6).
func (j *judge) keys() {
	for _, a := range j.w.Acquirers {
		for _, key := range slices.Sorted(maps.Keys(a.Arrived)) {
			if n := a.Arrived[key]; n > 1 && !a.Terms.honours(a.Asked[key]) {
				j.say("section 6: %d requests %s with one key, which the acquirer does not honour: %s", n, a.Asked[key], key)
			}
		}
	}
}

// operations: all completed or with a person (I-5), requests at most as many as permits (I-13).
func (j *judge) operations() {
	w := j.w
	w.Store.operations.each(func(o operation.Operation) bool {
		if o.State != operation.Completed && !w.withPerson(o) && !w.openReview(o.Payment) {
			j.say("I-5: operation %s is still %s", o.Key, o.State)
		}
		if o.State == operation.InReview && !w.openReview(o.Payment) {
			j.say("I-5: operation %s is in review without an open entry", o.Key)
		}
		if o.Action != "" && w.accounts[o.Account].Arrived[o.AcquirerKey] > o.Sends-o.Unsent {
			j.say("I-13: %d requests and %d permits, %d unsent, for %s", w.accounts[o.Account].Arrived[o.AcquirerKey], o.Sends, o.Unsent, o.Key)
		}
		return true
	})
}

// money: every movement of the registers is booked, or a person is asked about its payment (I-14); none is invented.
func (j *judge) money() {
	w := j.w
	booked, unknown := map[string]payment.Movement{}, map[string]bool{}
	name := func(account id.ID, object string, kind acquirer.MovementKind) string {
		return account.String() + object + string(kind)
	}
	w.Store.movements.each(func(m payment.Movement) bool {
		if m.Kind != acquirer.MovementHold {
			booked[name(m.Account, m.Reference, m.Kind)] = m
			unknown[name(m.Account, m.Reference, m.Kind)] = true
		}
		return true
	})
	for n, k := range w.Store.accounts.order {
		a := w.Acquirers[n]
		for _, moved := range a.Register {
			m, known := booked[name(k.ID, moved.Object, moved.Kind)]
			delete(unknown, name(k.ID, moved.Object, moved.Kind))
			p, ok := w.Store.payments.by("payment_acquirer_key", merchantText{k.Merchant, moved.Under})
			// What nobody of ours asked for is learned by asking: of the page, where there is one.
			backAgain := a.Net(moved.Under)[moved.Charge] == 0
			byNobody := !a.Terms.Lookup && (moved.Reference == "" || a.Mistakes[moved.Under] > 0 || moved.Undoes != "" || backAgain) ||
				p.Flow == payment.Hosted && a.Mistakes[moved.Under] > 0
			if t := find(a.acts, moved.Object); t != nil && t.status == "failed" { // went and came back before anybody asked
				_, went := booked[name(k.ID, moved.Object, acquirer.MovementRefund)]
				byNobody = byNobody || !went
			}
			switch {
			case known && m.Amount != amountOf(moved):
				j.say("I-14: movement %s is booked with another amount", moved.Object)
			case !known && !moved.Held && !byNobody && (!ok || !w.openReview(p.ID)):
				j.say("I-14: %s %s under %s is known to nobody", moved.Kind, moved.Object, moved.Under)
			}
		}
	}
	for n, k := range w.Store.accounts.order {
		for _, t := range w.Acquirers[n].acts { // a payer's step that was closed: no money moved with it
			if t.kind == acquirer.ActionReverse {
				delete(unknown, name(k.ID, t.id, acquirer.MovementReverse))
			}
		}
	}
	for _, left := range slices.Sorted(maps.Keys(unknown)) {
		j.say("I-14: a %s %s is booked that no register has", booked[left].Kind, booked[left].Reference)
	}
}

// books: debits equal credits, and what the acquirers owe is what was booked (I-8).
func (j *judge) books() {
	byMerchant := map[id.ID][]ledger.Entry{}
	owed := map[string]int64{}
	for _, k := range j.w.Store.entries.order {
		e := j.w.Store.entries.rows[k]
		byMerchant[e.Merchant] = append(byMerchant[e.Merchant], e)
		owed[e.Account] += e.Amount.Minor()
	}
	for _, m := range j.w.merchants {
		if !ledger.Balanced(byMerchant[m]) {
			j.say("I-8: the ledger of %s is not balanced", m)
		}
	}
	for n, k := range j.w.Store.accounts.order {
		known, rest := true, owed[ledger.Receivable(k.ID)]
		for _, m := range j.w.Acquirers[n].Register {
			_, booked := j.w.Store.movements.by("movement_once", merchantRow{k.Merchant, k.ID, m.Object + " " + string(m.Kind)})
			known = known && (booked || m.Held)
			rest -= m.sign() * m.Amount
		}
		if known && rest != 0 {
			j.say("I-8: receivable and register differ by %d", rest)
		}
	}
}

// answers: all final answers to one key are the same, and none is an untruth (I-17).
func (j *judge) answers() {
	first := map[operation.Ref]Told{}
	for _, t := range j.w.Told {
		if !t.Final {
			continue
		}
		if f, again := first[t.Ref]; again && (f.Status != t.Status || f.Body != t.Body) {
			j.say("I-17: two final answers to %s: %d and %d", t.Ref.Key, f.Status, t.Status)
		}
		first[t.Ref] = t
		if t.Ref.Kind == operation.CreatePayment || t.Ref.Kind == operation.CancelPayment {
			j.answer(t)
		}
	}
}

// answer judges one final answer that tells what became of a payment.
func (j *judge) answer(t Told) {
	p, ok := j.w.Store.payments.get(flow.Row{Merchant: t.Ref.Merchant, ID: t.Payment})
	if !ok {
		j.say("I-17: a final answer to %s shows no payment", t.Ref.Key)
		return
	}
	a, asked := j.w.accounts[p.Account], p.Conflict || j.w.openReview(p.ID)
	net := int64(0)
	for _, n := range a.Net(p.AcquirerKey) {
		net += n
	}
	canceled := t.Ref.Kind == operation.CancelPayment && t.Status == 201
	refused := t.Ref.Kind == operation.CreatePayment && t.refused()
	switch {
	case t.State == string(payment.Paid) && len(a.Taken(p.AcquirerKey)) == 0:
		j.say("I-17: %s was told paid, and no money moved", t.Ref.Key)
	case t.State == string(payment.Authorized) && !a.held(p.AcquirerKey):
		j.say("I-17: %s was told authorized, and nothing was held", t.Ref.Key)
	case (refused || canceled) && net > 0 && !asked && (a.Terms.Lookup || a.Mistakes[p.AcquirerKey] == 0):
		j.say("I-17: %s was told %s, money moved, and no conflict is open", t.Ref.Key, t.State)
	}
}
