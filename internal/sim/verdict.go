package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/ledger"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/problem"
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
	j.operations()
	j.money()
	j.books()
	j.answers()
	return j.wrong
}

// intents: at most one net movement (I-1), one live payment (I-2), events in order.
func (j *judge) intents() {
	w := j.w
	w.Store.intents.each(func(i payment.Intent) bool {
		moved, live := 0, 0
		w.Store.payments.each(func(p payment.Payment) bool {
			if p.Intent != i.ID {
				return true
			}
			moved += len(w.accounts[p.Account].Taken(p.AcquirerKey))
			if !p.Status.Refusal() {
				live++
			}
			return true
		})
		if moved > 1 {
			j.say("I-1: %d movements for %s", moved, i.ClientReference)
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
		for _, once := range []payment.EventType{payment.EventPaid, payment.EventDeclined, payment.EventFailed} {
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
// came to an end.
func (j *judge) payments() {
	w := j.w
	w.Store.payments.each(func(p payment.Payment) bool {
		moved := w.accounts[p.Account].Taken(p.AcquirerKey)
		switch {
		case p.Status == payment.Paid:
			if len(moved) == 0 {
				j.say("I-7: payment %s is paid and no money moved", p.ID)
			} else if amountOf(moved[0]) != p.Amount || p.Captured != p.Amount.Minor() || p.AcquirerReference != moved[0].Charge {
				j.say("I-7: payment %s is paid with other money than moved", p.ID)
			}
		case p.Status.Refusal():
			if len(moved) > 0 && !p.Conflict && !w.openReview(p.ID) {
				j.say("I-16: payment %s is %s, money moved, and no conflict is open", p.ID, p.Status)
			}
			if !p.GateOpen && !p.Conflict && !w.openReview(p.ID) {
				j.say("I-5: payment %s is %s and its gate never opened", p.ID, p.Status)
			}
		case !w.openReview(p.ID):
			j.say("I-5: payment %s is still %s", p.ID, p.Status)
		}
		return true
	})
}

// operations: all completed or with a person (I-5), requests at most as many as permits (I-13).
func (j *judge) operations() {
	w := j.w
	w.Store.operations.each(func(o operation.Operation) bool {
		if o.State != operation.Completed && !w.withPerson(o) {
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
	booked := map[string]payment.Movement{}
	w.Store.movements.each(func(m payment.Movement) bool {
		booked[m.Account.String()+m.Reference] = m
		return true
	})
	found := 0
	for n, k := range w.Store.accounts.order {
		for _, moved := range w.Acquirers[n].Register {
			m, known := booked[k.ID.String()+moved.Charge]
			switch {
			case known && m.Amount != amountOf(moved):
				j.say("I-14: movement %s is booked with another amount", moved.Charge)
			case known:
				found++
			default:
				p, ok := w.Store.payments.by("payment_acquirer_key", merchantText{k.Merchant, moved.Reference})
				if !ok || !w.openReview(p.ID) {
					j.say("I-14: movement %s under %s is known to nobody", moved.Charge, moved.Reference)
				}
			}
		}
	}
	if found != len(booked) {
		j.say("I-14: %d movements are booked that no register has", len(booked)-found)
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
	j.w.Store.movements.each(func(m payment.Movement) bool {
		if m.State != payment.Returned {
			owed[ledger.Receivable(m.Account)] -= m.Amount.Minor()
		}
		return true
	})
	for _, k := range j.w.Store.accounts.order {
		if rest := owed[ledger.Receivable(k.ID)]; rest != 0 {
			j.say("I-8: receivable and movements differ by %d", rest)
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
		p, ok := j.w.Store.payments.get(flow.Row{Merchant: t.Ref.Merchant, ID: t.Payment})
		if !ok {
			j.say("I-17: a final answer to %s shows no payment", t.Ref.Key)
			continue
		}
		moved := j.w.accounts[p.Account].Taken(p.AcquirerKey)
		switch {
		case t.Status == 201 && len(moved) == 0:
			j.say("I-17: %s was told paid, and no money moved", t.Ref.Key)
		case t.refused() && len(moved) > 0 && !p.Conflict && !j.w.openReview(p.ID):
			j.say("I-17: %s was told refused, money moved, and no conflict is open", t.Ref.Key)
		}
	}
}

// lateRepeats lets retention pass and repeats every key: nothing new happens, and the final answers are the same in
// status and code, from what the commands created (PROTOCOL K8).
func (w *World) lateRepeats() []string {
	s := w.Scheduler
	later := s.now + w.Config.Engine.Retention + 24*time.Hour
	w.over = true // the sweeps end; passes are made here
	s.Run(later, func() bool { return false })
	s.now = later
	j := &judge{w: w}
	final := map[operation.Ref]Told{}
	var refs []operation.Ref
	for _, t := range w.Told {
		if _, again := final[t.Ref]; t.Final && !again && !t.Altered {
			final[t.Ref] = t
			refs = append(refs, t.Ref)
		}
	}
	payments, entries, moved := len(w.Store.payments.order), len(w.Store.entries.order), w.moved()
	p := w.pods[0]
	p.replica.Go(func() {
		if _, err := w.Store.PurgeExpired(context.Background(), maxSteps); err != nil {
			j.say("purge: %v", err)
		}
		for _, ref := range refs {
			j.lateRepeat(p, ref, final[ref])
		}
	})
	s.Run(later+24*time.Hour, func() bool { return s.Steps > 2*maxSteps })
	if len(w.Store.payments.order) != payments || len(w.Store.entries.order) != entries || w.moved() != moved {
		j.say("I-11: late repeats added something")
	}
	return j.wrong
}

func (j *judge) lateRepeat(p *pod, ref operation.Ref, was Told) {
	w := j.w
	command := flow.CommandRef{Merchant: ref.Merchant, Kind: string(ref.Kind), Key: ref.Key}
	created, known := w.Store.payments.by("payment_command", command)
	if joined, ok := w.Store.joined.get(command); !known && ok {
		created, known = w.Store.payments.get(flow.Row{Merchant: joined.Merchant, ID: joined.Payment})
		created.By = joined.By
	}
	if !known {
		return // it was refused before anything was made
	}
	i, _ := w.Store.intents.get(flow.Row{Merchant: created.Merchant, ID: created.Intent})
	b := &buyer{w: w, merchant: ref.Merchant, key: ref.Key, order: i.ClientReference, amount: created.Amount.Minor(), method: created.Method}
	c := b.payment()
	if c.Fingerprint() != created.By.Fingerprint {
		b.intent = i.ID
		c = b.payment()
	}
	a, err := p.flow.CreatePayment(context.Background(), c)
	if t := w.tell(ref, a, err); t.Status != was.Status || t.Payment != was.Payment {
		j.say("I-17: the late repeat of %s was told %d %s, before %d", ref.Key, t.Status, t.Code, was.Status)
	}
	c.Method = "pm_different"
	if a, err = p.flow.CreatePayment(context.Background(), c); !problem.Is(err, problem.KeyReuse) {
		j.say("I-17: the late repeat of %s with other parameters was told %d %v", ref.Key, a.Status, err)
	}
}

func (w *World) moved() (n int) {
	for _, a := range w.Acquirers {
		n += len(a.Register)
	}
	return n
}
