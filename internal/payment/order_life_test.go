package payment_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/ledger"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/money"
)

// story is one payment with what was done to it, to which evidence comes in some order. It carries decisions over as
// internal/flow does: one truth after another, evidence that came too early judged again.
type story struct {
	intent    payment.Intent
	p         payment.Payment
	mods      []payment.Modification
	disputes  []payment.Dispute
	movements []payment.Movement
	entries   map[string]int64 // sums for each account
	early     []evidence.Observation
	ids       byte
}

// truth is what one road brings at once: a reply, the answers to a lookup, a webhook.
type truth []evidence.Observation

// telling is a true history at the acquirer: the standing at its beginning, and everything that is told of it, by whomever.
type telling struct {
	name  string
	begin func() *story
	told  []truth
	last  truth // what the owner of what is still open learns in the end
}

const chargeID, whole = "ch_1", 1000

func (w *story) next() id.ID { w.ids++; return id.ID{13: 9, 15: w.ids} }

func begin(status payment.Status, mods ...payment.Modification) *story {
	w := &story{entries: map[string]int64{}, intent: payment.Intent{Merchant: merchant, ID: id.ID{15: 99}, Amount: money.Must(whole, "KZT"), KeySeed: "seed"}}
	w.p = payment.Payment{Merchant: merchant, ID: id.ID{15: 1}, Intent: w.intent.ID, N: 1, Status: payment.Pending, Amount: w.intent.Amount,
		Account: id.ID{15: 50}, AcquirerKey: "key", Flow: payment.Direct}
	switch status {
	case payment.Authorized, payment.Canceling:
		w.bring(truth{about("", acquirer.OutcomeHeld, chargeID, whole)})
	case payment.Paid:
		w.bring(truth{about("", acquirer.OutcomeSucceeded, chargeID, whole)})
	}
	for _, m := range mods {
		m.Merchant, m.ID, m.Payment, m.Status, m.Account = merchant, w.next(), w.p.ID, payment.ModPending, w.p.Account
		switch m.Type {
		case payment.Capture:
			w.p.Capturing = m.Amount.Minor()
		case payment.Refund:
			w.p.Refunding += m.Amount.Minor()
		case payment.Cancel:
			w.p.Status = payment.Canceling
		}
		w.mods = append(w.mods, m)
	}
	return w
}

func mod(t payment.ModificationType, a acquirer.Action, key string, minor int64) payment.Modification {
	return payment.Modification{Type: t, Action: a, K: 1, AcquirerKey: key, Amount: money.Must(minor, "KZT")}
}

// about tells of an object; a key of ours and a code may follow.
func about(a acquirer.Action, outcome acquirer.Outcome, reference string, minor int64, more ...string) evidence.Observation {
	o := evidence.Observation{Source: evidence.FromWebhook, Reply: acquirer.Reply{About: a, Outcome: outcome, Reference: reference, Object: chargeID}}
	if minor != 0 {
		o.Amount = money.Must(minor, "KZT")
	}
	if a == "" {
		o.About, o.Object = acquirer.ActionCharge, ""
	}
	for n, text := range more {
		if n == 0 {
			o.OurReference = text
		} else {
			o.Code, o.Failure = text, text
		}
	}
	return o
}

func final(o evidence.Observation) evidence.Observation { o.Final = true; return o }

func lookedUp(all ...evidence.Observation) truth {
	for n := range all {
		all[n].Source, all[n].AskedAt = evidence.FromLookup, start
	}
	return all
}

func (w *story) situation(o evidence.Observation, fresh acquirer.Outcome) payment.Situation {
	m := payment.MatchModification(w.mods, o)
	return payment.Situation{Intent: w.intent, Payment: w.p, Modification: m, Modifications: w.mods, Disputes: w.disputes, Movements: w.movements,
		Standing: evidence.Standing{Contract: acquirer.Contract{RemembersRefusals: true}, Sends: 1, Owner: true, Expected: w.p.Amount, Key: w.p.AcquirerKey},
		Fresh:    fresh, Now: start.Add(time.Minute)}
}

func (w *story) judge(o evidence.Observation, fresh acquirer.Outcome) payment.Decision {
	d := payment.Apply(w.situation(o, fresh), o)
	w.p = d.Payment
	if d.Conflict {
		w.p.Conflict, w.intent.Conflict = true, true
	}
	if d.Modification != nil {
		for n := range w.mods {
			if w.mods[n].ID == d.Modification.ID {
				w.mods[n] = *d.Modification
			}
		}
	}
	if d.Created != nil {
		d.Created.ID = w.next()
		w.mods = append(w.mods, *d.Created)
	}
	if d.Dispute != nil {
		n := slices.IndexFunc(w.disputes, func(x payment.Dispute) bool { return x.Reference == d.Dispute.Reference })
		if n < 0 {
			w.disputes = append(w.disputes, *d.Dispute)
		} else {
			w.disputes[n] = *d.Dispute
		}
	}
	for _, m := range d.Book {
		m.ID = w.next()
		w.movements = append(w.movements, m)
	}
	for _, m := range d.Change {
		n := slices.IndexFunc(w.movements, func(k payment.Movement) bool { return k.ID == m.ID })
		w.movements[n] = m
	}
	for _, p := range d.Posts {
		entries, err := ledger.Post(ledger.Subject{Merchant: merchant, Payment: w.p.ID, Account: w.p.Account, Base: "seed:auth:1"}, p)
		if err != nil {
			panic(err)
		}
		for _, e := range entries {
			w.entries[e.Account] += e.Amount.Minor()
		}
	}
	return d
}

func (w *story) bring(t truth) {
	fresh := acquirer.OutcomeUnknown
	for _, o := range t {
		if o.About == acquirer.ActionCharge && o.Source == evidence.FromLookup {
			fresh = o.Outcome
		}
		if d := w.judge(o, fresh); d.Effect == evidence.Early {
			w.early = append(w.early, o)
		}
	}
	for progress := true; progress; {
		progress = false
		waiting := w.early
		w.early = nil
		w.p.Early = false
		for _, o := range waiting {
			switch payment.Apply(w.situation(o, fresh), o).Effect {
			case evidence.Early:
				w.early = append(w.early, o)
			case evidence.Repeat, evidence.Behind:
			default:
				w.judge(o, fresh)
				progress = true
			}
		}
	}
	w.p.Early = len(w.early) > 0
}

// sound checks what must hold at every moment (I-8, I-9, the CHECKs of the schema).
func (w *story) sound(t *testing.T, way string) {
	t.Helper()
	p, sum := w.p, int64(0)
	for _, v := range w.entries {
		sum += v
	}
	if sum != 0 || min(p.Captured, p.Capturing, p.Refunded, p.Refunding, p.Disputed) < 0 || p.Captured > p.Amount.Minor() ||
		p.Authorized > 0 && p.Captured+p.Capturing > p.Authorized || p.Refunded+p.Refunding+p.Disputed > p.Captured {
		t.Fatalf("%s: the sums are wrong: %+v, books %v", way, p, w.entries)
	}
}

// end is everything that must not depend on the order.
func (w *story) end() string {
	lines := []string{fmt.Sprintf("%s captured %d of %d held, capturing %d, refunded %d, refunding %d, disputed %d %s, conflict %v, early %v",
		w.p.Status, w.p.Captured, w.p.Authorized, w.p.Capturing, w.p.Refunded, w.p.Refunding, w.p.Disputed, w.p.Dispute, w.p.Conflict, w.p.Early)}
	for account, v := range w.entries {
		if v != 0 {
			lines = append(lines, fmt.Sprintf("books %s %d", account, v))
		}
	}
	for _, m := range w.mods {
		lines = append(lines, fmt.Sprintf("%s %s %s %v external %v", m.Type, m.AcquirerReference, m.Status, m.Amount, m.External))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// tellings are the histories: each piece is told by another road, some of them twice.
func tellings() []telling {
	const cap1, ref1 = "cp_1", "rf_1"
	held := about("", acquirer.OutcomeHeld, chargeID, whole)
	taken := about("", acquirer.OutcomeSucceeded, chargeID, whole)
	captured := final(about(acquirer.ActionCapture, acquirer.OutcomeSucceeded, cap1, whole, "kc"))
	byHand := final(about(acquirer.ActionCapture, acquirer.OutcomeSucceeded, cap1, whole))
	refunded := about(acquirer.ActionRefund, acquirer.OutcomeSucceeded, ref1, 300)
	refundedOurs := about(acquirer.ActionRefund, acquirer.OutcomeSucceeded, ref1, 300, "kr")
	refundFailed := about(acquirer.ActionRefund, acquirer.OutcomeDeclined, ref1, 300, "kr", "failed_at_bank")
	chargeback := func(code string) evidence.Observation {
		o := about(acquirer.ActionChargeback, acquirer.OutcomeSucceeded, "cb_1", 200)
		o.Code = code
		return o
	}
	refusedCancel := about(acquirer.ActionReverse, acquirer.OutcomeDeclined, "", 0, "kx", "already_captured")
	released := about(acquirer.ActionReverse, acquirer.OutcomeSucceeded, "rv_1", 0, "kx")
	over := about("", acquirer.OutcomeClosed, chargeID, 0)
	return []telling{
		{"two steps: reply, check, webhook, capture, refund", func() *story {
			return begin(payment.Authorized, mod(payment.Capture, acquirer.ActionCapture, "kc", whole))
		}, []truth{{held}, lookedUp(held, captured, refunded), {captured}, {captured}, {refunded}}, nil},
		{"the same, and nothing of it is known", func() *story { return begin(payment.Pending) },
			[]truth{{held}, lookedUp(held, byHand, refunded), {byHand}, {refunded}, {chargeback("opened")}}, nil},
		{"a sale: reply, check, webhook, refund by hand, dispute that is won", func() *story { return begin(payment.Pending) },
			[]truth{{taken}, lookedUp(taken, refunded, chargeback("opened")), {refunded}, {chargeback("opened")}, {taken}}, truth{chargeback("won")}},
		{"a refund of ours, told with and without our reference", func() *story {
			return begin(payment.Paid, mod(payment.Refund, acquirer.ActionRefund, "kr", 300))
		}, []truth{{refundedOurs}, lookedUp(taken, refundedOurs), {refunded}, {refundedOurs}, {chargeback("lost")}}, nil},
		{"a refund that fails at the bank", func() *story {
			return begin(payment.Paid, mod(payment.Refund, acquirer.ActionRefund, "kr", 300))
		}, []truth{{refundedOurs}, {refundFailed}, {refundFailed}, {taken}, {refundedOurs}}, nil},
		{"a cancel that is refused because of a capture by hand", func() *story {
			return begin(payment.Authorized, mod(payment.Cancel, acquirer.ActionReverse, "kx", whole))
		}, []truth{{held}, lookedUp(held, byHand), {byHand}, {refusedCancel}, {refunded}}, append(lookedUp(held, byHand), refusedCancel)},
		{"a cancel that releases", func() *story {
			return begin(payment.Authorized, mod(payment.Cancel, acquirer.ActionReverse, "kx", whole))
		}, []truth{{held}, lookedUp(over), {released}, {released}, lookedUp(held)}, nil},
	}
}

// All orders of {reply, check, webhook, capture, cancel, refund} for one payment, each piece once or twice, end in one state and
// one set of books (PROTOCOL E1). Generated: every permutation of every history.
func TestEveryOrderOfALifeEndsTheSame(t *testing.T) {
	for _, tc := range tellings() {
		t.Run(tc.name, func(t *testing.T) {
			want, first := "", ""
			orders := 0
			permute(len(tc.told), func(order []int) {
				orders++
				way := fmt.Sprint(order)
				w := tc.begin()
				for _, n := range order {
					w.bring(tc.told[n])
					w.sound(t, way)
					before := w.end()
					w.bring(tc.told[n]) // the same once more changes nothing
					if again := w.end(); again != before {
						t.Fatalf("%s: told twice, %d changed\n%s\nto\n%s", way, n, before, again)
					}
				}
				w.bring(tc.last)
				w.sound(t, way)
				if want == "" {
					want, first = w.end(), way
				} else if got := w.end(); got != want {
					t.Fatalf("order %s ends in\n%s\norder %s in\n%s", first, want, way, got)
				}
			})
			if orders != 120 {
				t.Errorf("%d orders, want 120", orders)
			}
		})
	}
}

// permute visits every order of n things.
func permute(n int, visit func([]int)) {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	var swap func(k int)
	swap = func(k int) {
		if k == n {
			visit(order)
			return
		}
		for i := k; i < n; i++ {
			order[k], order[i] = order[i], order[k]
			swap(k + 1)
			order[k], order[i] = order[i], order[k]
		}
	}
	swap(0)
}
