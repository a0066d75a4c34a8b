package payment_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/ledger"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/money"
)

// story is one payment with what was done to it, to which news comes in some order. It carries decisions over as internal/flow
// does: one truth after another, each in a transaction; evidence that came too early is judged again.
type story struct {
	intent    payment.Intent
	p         payment.Payment
	mods      []payment.Modification
	disputes  []payment.Dispute
	movements []payment.Movement
	entries   map[string]int64 // sums for each account
	keys      map[string]bool  // of ledger transactions
	early     []evidence.Observation
	reviews   []openReview
	done      bool // the operation that makes the payment is over
	terms     acquirer.Contract
	now       time.Time
	ids       byte
	wrong     string // the first thing that must never be
}

type openReview struct {
	reason   payment.ReviewReason
	movement id.ID
	of       id.ID // the modification that it is about
}

// truth is what one road brings at once: a reply, the answers to a lookup, a webhook.
type truth []evidence.Observation

// offered are the terms, with refusals remembered or not.
var offered = map[bool]acquirer.Contract{true: terms(true), false: terms(false)}

func newStory(flow payment.Flow, remembers bool) *story {
	w := &story{entries: map[string]int64{}, keys: map[string]bool{}, terms: offered[remembers], now: start,
		intent: payment.Intent{Merchant: merchant, ID: id.ID{15: 99}, Amount: money.Must(whole, "KZT"), KeySeed: "seed"}}
	w.p = payment.Payment{Merchant: merchant, ID: id.ID{15: 1}, Intent: w.intent.ID, N: 1, Status: payment.Pending, Amount: w.intent.Amount,
		Account: id.ID{15: 50}, AcquirerKey: chargeKey, Flow: flow, Version: 1}
	return w
}

func (w *story) next() id.ID { w.ids++; return id.ID{13: 9, 15: w.ids} }

// terms is what an acquirer offers: everything.
func terms(remembers bool) acquirer.Contract {
	all := map[acquirer.Action]acquirer.Terms{}
	for _, a := range []acquirer.Action{acquirer.ActionSession, acquirer.ActionCapture, acquirer.ActionReverse, acquirer.ActionClose, acquirer.ActionRefund} {
		all[a] = acquirer.Terms{RemembersRefusals: remembers}
	}
	return acquirer.Contract{RemembersRefusals: remembers, Others: all, HoldLife: 24 * time.Hour, SeveralCaptures: true, PartialRefunds: true,
		ReverseCaptured: time.Hour, MaxFlight: time.Second, Holds: true}
}

// claim makes a command's change where it is admitted; false: not now, so that no client gets that far in this order.
func (w *story) claim(c claimed) bool {
	if c.bind {
		return w.bind(c.key)
	}
	x := payment.Changing{Payment: w.p, Conflict: w.intent.Conflict, Modifications: w.mods, Movements: w.movements, Contract: w.terms, Now: w.now}
	m := payment.Modification{Merchant: merchant, ID: w.next(), Intent: w.intent.ID, Payment: w.p.ID, Type: c.kind, K: x.NextK(c.kind),
		Status: payment.ModPending, Amount: money.Must(max(c.minor, 1), "KZT"), Account: w.p.Account, AcquirerKey: c.key, Version: 1, CreatedAt: w.now, UpdatedAt: w.now}
	switch c.kind {
	case payment.Capture:
		amount, last, no := x.AdmitCapture(&c.minor, &c.final)
		if no != "" {
			return false
		}
		m.Action, m.Amount, m.Final, w.p.Capturing = acquirer.ActionCapture, money.Must(amount, "KZT"), last, amount
	case payment.Refund:
		amount, no := x.AdmitRefund(&c.minor, c.void)
		if no != "" {
			return false
		}
		m.Action, m.Amount = acquirer.ActionRefund, money.Must(amount, "KZT")
		if c.void {
			m.Action = acquirer.ActionReverse
		}
		w.p.Refunding += amount
	case payment.Cancel:
		if join, no := x.AdmitCancel(); no != "" || join != nil {
			return false
		}
		m.Amount = w.p.Amount
		w.p.Status, _ = w.p.Status.Next(payment.CancelClaimed)
	case payment.Compensation:
		n := slices.IndexFunc(w.movements, func(mv payment.Movement) bool { return mv.State == payment.Unapplied })
		if n < 0 {
			return false
		}
		m.Action, m.Amount, m.Movement = acquirer.ActionRefund, w.movements[n].Amount, w.movements[n].ID
		if w.movements[n].Kind == acquirer.MovementHold {
			m.Action = acquirer.ActionReverse
		}
	}
	w.mods = append(w.mods, m)
	return c.kind != payment.Cancel || c.waits != w.bind(c.key)
}

// bind tells a cancel what to call, where that is known.
func (w *story) bind(key string) bool {
	for n := range w.mods {
		m := &w.mods[n]
		switch {
		case m.AcquirerKey != key || m.Action != "" || !m.Status.Open() || w.p.Status != payment.Canceling:
		case w.p.Authorized > 0:
			m.Action = acquirer.ActionReverse
			return true
		case w.p.Session != "":
			m.Action = acquirer.ActionClose
			return true
		}
	}
	return false
}

// bring applies what one road brings, in one transaction.
func (w *story) bring(p piece) {
	w.now = w.now.Add(time.Second)
	if asked := start.Add(time.Duration(p.at) * time.Minute); !w.now.After(asked) {
		w.now = asked.Add(time.Second)
	}
	owns := w.owned(p.owner)
	sent := map[id.ID]bool{} // modifications whose operation is open in this transaction
	for _, m := range w.mods {
		sent[m.ID] = m.Status.Open()
	}
	turn := &turn{story: w, owner: owns, open: !w.done, sent: sent}
	for n, o := range p.said {
		o.Merchant, o.Account = merchant, w.p.Account
		if at := slices.IndexFunc(w.mods, func(m payment.Modification) bool { return m.AcquirerKey == p.owner }); at >= 0 && n == len(p.said)-1 {
			o.Modification = w.mods[at].ID
		}
		m := payment.MatchModification(w.mods, o)
		if owns != nil && (m == nil && owns.IsZero() || m != nil && m.ID == *owns) {
			o.Fence = 1
		} else if o.Inference != "" {
			o.Inference = ""
		}
		if d := turn.judge(o); d.Effect == evidence.Early {
			o.Fence = 0
			w.early = append(w.early, o)
		}
	}
	turn.again()
	turn.fit()
	turn.resolve()
	w.done = w.done || w.p.Status.Final() || w.p.Status == payment.Authorized
}

// owned gives what the bringer's operation is about, while that operation is open: the zero id stands for the payment itself.
func (w *story) owned(key string) *id.ID {
	if key == chargeKey && !w.done {
		return &id.ID{}
	}
	for _, m := range w.mods {
		if key != "" && m.AcquirerKey == key && m.Status.Open() {
			return &m.ID
		}
	}
	return nil
}

// copy keeps a story as it is now.
func (w *story) copy() *story {
	was := *w
	was.mods, was.movements, was.disputes, was.reviews = slices.Clone(w.mods), slices.Clone(w.movements), slices.Clone(w.disputes), slices.Clone(w.reviews)
	return &was
}

// same says whether nothing has changed since.
func (w *story) same(was *story) bool {
	same := func(a, b payment.Modification) bool { a.UpdatedAt = b.UpdatedAt; return a == b }
	return w.p == was.p && w.intent.Conflict == was.intent.Conflict && slices.EqualFunc(w.mods, was.mods, same) &&
		slices.Equal(w.movements, was.movements) && slices.Equal(w.disputes, was.disputes) && slices.Equal(w.reviews, was.reviews)
}

// books is the ledger of a story in words.
func (w *story) books() (lines []string) {
	for account, v := range w.entries {
		if v != 0 {
			lines = append(lines, fmt.Sprintf("books %s %d", account, v))
		}
	}
	return lines
}

// end is everything that must not depend on the order in which the same news comes.
func (w *story) end() string {
	lines := []string{w.state()}
	for _, m := range w.mods {
		if w.moot(m) {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s %s %s %v external %v %s", m.Type, m.AcquirerReference, m.Status, m.Amount, m.External, m.Failure.Code))
	}
	for _, m := range w.movements {
		if m.Kind == acquirer.MovementHold && m.State == payment.Returned {
			continue // no money moved, and the books are the same
		}
		lines = append(lines, fmt.Sprintf("movement %s %s of %s %v %s %s", m.Kind, m.Reference, m.Object, m.Amount, m.State, m.Cause))
	}
	slices.Sort(lines[1:])
	return strings.Join(lines, "\n")
}

// moot says that a cancel got its answer, and the payment is canceled whichever it was: it was refused before the hold lapsed by
// itself, or was told that it is done since the hold was over already. What a client was answered is never changed.
func (w *story) moot(m payment.Modification) bool {
	return m.Type == payment.Cancel && w.p.Status == payment.Canceled && !m.Status.Open()
}

// state is everything that must not depend on which news comes, once the last check has told all.
func (w *story) state() string {
	p := w.p
	if p.Status.Refusal() {
		p.Authorized = 0 // a hold that was told after its end is told to nobody
	}
	lines := append(w.books(), fmt.Sprintf("%s captured %d of %d held, capturing %d, refunded %d, refunding %d, disputed %d %s, conflict %v %v, early %v, gate %v",
		p.Status, p.Captured, p.Authorized, p.Capturing, p.Refunded, p.Refunding, p.Disputed, p.Dispute, p.Conflict, w.intent.Conflict, p.Early, p.GateOpen))
	for _, m := range w.mods {
		if w.moot(m) {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s %s %v external %v", m.Type, m.Status, m.Amount, m.External))
	}
	for _, x := range w.disputes {
		lines = append(lines, fmt.Sprintf("dispute %s %v %s aside %v", x.Reference, x.Amount, x.Status, x.Aside))
	}
	for _, r := range w.reviews {
		lines = append(lines, "review "+string(r.reason))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// fails notes the first thing that must never be.
func (w *story) fails(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
	}
}

// sound checks what must hold at every moment (I-2, I-8, I-9, I-17, the CHECKs of the schema).
func (w *story) sound() {
	p, payable, capturing, refunding, unapplied, held := w.p, int64(0), int64(0), int64(0), int64(0), int64(0)
	for _, m := range w.mods {
		switch {
		case m.Type == payment.Capture && m.Status.Open():
			capturing += m.Amount.Minor()
		case m.Type == payment.Refund && m.Status.Open():
			refunding += m.Amount.Minor()
		}
	}
	for _, m := range w.movements {
		switch {
		case m.Kind == acquirer.MovementHold && m.State == payment.Applied:
			held += m.Amount.Minor()
		case m.State != payment.Unapplied || m.Kind == acquirer.MovementHold:
		case m.Taken(), m.Cause == string(payment.ReviewCompensation):
			unapplied += m.Amount.Minor()
		default:
			unapplied -= m.Amount.Minor()
		}
	}
	payable = p.Captured - p.Refunded - p.Disputed
	sum := int64(0)
	for _, v := range w.entries {
		sum += v
	}
	receivable := w.entries[ledger.Receivable(p.Account)]
	switch {
	case sum != 0:
		w.fails("the books do not balance: %v", w.entries)
	case min(p.Captured, p.Capturing, p.Refunded, p.Refunding, p.Disputed, p.Authorized) < 0:
		w.fails("a negative amount: %+v", p)
	case p.Authorized > p.Amount.Minor() || p.Captured > p.Amount.Minor() || p.Authorized > 0 && p.Captured > p.Authorized:
		w.fails("more captured than held, or than asked: %+v", p)
	case p.Capturing > 0 && p.Captured+p.Capturing > p.Authorized:
		w.fails("capturing more than is held: %+v", p)
	case p.Refunded+p.Refunding+p.Disputed > p.Captured:
		w.fails("more given back than captured: %+v", p)
	case p.Capturing > capturing:
		w.fails("capturing %d, and open captures of %d", p.Capturing, capturing)
	case p.Refunding != min(refunding, payable):
		w.fails("refunding %d, and open refunds of %d", p.Refunding, refunding)
	case w.entries[ledger.MerchantPayable] != -payable:
		w.fails("the merchant is owed %d by the books, %d by the payment", -w.entries[ledger.MerchantPayable], payable)
	case w.entries[ledger.UnappliedMoney] != -unapplied:
		w.fails("kept aside: %d by the books, %d by the movements", -w.entries[ledger.UnappliedMoney], unapplied)
	case receivable != payable+unapplied:
		w.fails("the acquirer owes %d by the books, %d by the rest", receivable, payable+unapplied)
	case w.entries[ledger.Authorized(p.Account)] != held:
		w.fails("held: %d by the books, %d by the movements", w.entries[ledger.Authorized(p.Account)], held)
	case p.Status.Refusal() == p.RefusedAt.IsZero():
		w.fails("%s, refused at %v", p.Status, p.RefusedAt)
	case p.Status.Final() && held > 0:
		w.fails("%s, and %d is held", p.Status, held)
	case p.Status.Refusal() && p.Captured != 0:
		w.fails("%s, and %d is captured", p.Status, p.Captured)
	case (p.Status.Refusal() && unapplied > 0) && !p.Conflict:
		w.fails("refused, with money and without a conflict")
	case p.Status == payment.Canceling && !slices.ContainsFunc(w.mods, func(m payment.Modification) bool { return m.Type == payment.Cancel && m.Status.Open() }):
		w.fails("canceling, and no cancel is open")
	case p.Status == payment.Paid && p.Captured == 0:
		w.fails("paid, and nothing is captured")
	}
}
