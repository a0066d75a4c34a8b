package payment_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/ledger"
	"github.com/hapaxpay/hapax/internal/payment"
)

// balanced says whether the books balance, and no line was written twice (I-8).
func balanced(w *world) bool {
	lines := map[string]bool{}
	for _, e := range w.entries {
		key := fmt.Sprint(e.TxKey, "/", e.Line)
		if lines[key] {
			return false
		}
		lines[key] = true
	}
	return ledger.Balanced(w.entries)
}

// anything draws an observation of an attempt: every outcome, road, inference, owner and time.
func anything(t *rapid.T, w *world, a *attempt) seen {
	source := rapid.SampledFrom([]evidence.Source{call, lookup, webhook, listing, evidence.FromPerson}).Draw(t, "source")
	s := say(source, rapid.Bool().Draw(t, "owner"), acquirer.Outcome(rapid.IntRange(0, int(acquirer.OutcomeKeyReused)).Draw(t, "outcome")))
	s.AskedAt = w.now.Add(-time.Duration(rapid.IntRange(0, 90).Draw(t, "asked")) * time.Second)
	if source == lookup && a.Status.Refusal() && rapid.Bool().Draw(t, "for the gate") {
		s.Fence = 0
	}
	s.Code = rapid.SampledFrom([]string{listed, "other"}).Draw(t, "code")
	infers(rapid.SampledFrom([]evidence.Inference{evidence.InferNothing, evidence.InferNotExecuted, evidence.InferGiveUp}).Draw(t, "inference"))(&s.Observation)
	if s.Outcome == acquirer.OutcomeSucceeded {
		// The acquirer tells one movement with one amount, under one key.
		n := rapid.IntRange(1, 3).Draw(t, "movement")
		s.Reference = fmt.Sprint("ch_", a.N, "_", n)
		s.Amount = price
		if n == 3 {
			s.Amount = wrongPrice
		}
	}
	return s
}

// history is one intent under random requests, evidence, pauses and decisions.
func history(t *rapid.T) {
	w := newWorld(rapid.Bool().Draw(t, "remembers"))
	if rapid.IntRange(0, 4).Draw(t, "stray") == 0 {
		w.stray("key1", "ch_1_1")
	}
	for range rapid.IntRange(1, 30).Draw(t, "steps") {
		step := rapid.SampledFrom([]string{"create", "observe", "observe", "observe", "observe", "wait", "permit", "unsent", "hand back"}).Draw(t, "step")
		if len(w.attempts) == 0 {
			step = "create"
		}
		switch step {
		case "create":
			tryCreate(t, w)
		case "wait":
			w.now = w.now.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second)
		case "hand back":
			w.handBack(fmt.Sprint("ch_", rapid.IntRange(1, len(w.attempts)).Draw(t, "attempt"), "_", rapid.IntRange(1, 3).Draw(t, "movement")))
		default:
			a := rapid.SampledFrom(w.attempts).Draw(t, "attempt")
			switch {
			case step == "observe":
				observe(t, w, a)
			case step == "permit" && a.Status.Open() && !w.intent.Conflict && !w.standing().Money:
				a.sends, a.lastPermit = a.sends+1, w.now
			case step == "unsent" && a.Status.Open() && a.unsent < a.sends:
				a.unsent++
			}
		}
		invariants(t, w)
	}
}

// tryCreate asks for a payment under a key of its own (I-2, P5, P7).
func tryCreate(t *rapid.T, w *world) {
	before, s := len(w.attempts), w.standing()
	admitted := w.create() == payment.Admit
	if admitted != (len(w.attempts) == before+1) || admitted && (s.Money || s.Intent.Conflict) {
		t.Fatalf("admitted %v with money %v, conflict %v:\n%s", admitted, s.Money, s.Intent.Conflict, w.story())
	}
	if admitted && s.Latest != nil && (!s.Latest.Status.Refusal() || !s.Latest.GateOpen) {
		t.Fatalf("admitted beside a live payment or a closed gate:\n%s", w.story())
	}
}

// observe applies one observation, and the same once more, which changes nothing (E1, I-11).
func observe(t *rapid.T, w *world, a *attempt) {
	was, o := a.Payment, anything(t, w, a)
	d := w.record(a, o)[0]
	row := slices.ContainsFunc(payment.Table, func(r payment.Transition) bool { return r.From == was.Status && r.To == d.Payment.Status })
	if d.Payment.Status != was.Status && (!row || d.Effect != evidence.Moved) {
		t.Fatalf("%s moved to %s with effect %s by %+v", was.Status, d.Payment.Status, d.Effect, o)
	}
	if was.Status.Final() && (a.Status != was.Status || a.Captured != was.Captured || a.Failure != was.Failure || !a.RefusedAt.Equal(was.RefusedAt)) {
		t.Fatalf("a final payment changed from %+v to %+v", was, a.Payment)
	}
	if d.Why == "" || d.Effect == "" {
		t.Fatalf("no reason: %+v", d)
	}
	story := w.story()
	again := w.record(a, o)[0]
	if w.story() != story || len(again.Book) > 0 || len(again.Change) > 0 || again.Conflict || len(again.Events) > 0 || again.Payment != a.Payment {
		t.Fatalf("the same once more changed something: %+v\n%+v\nbefore:\n%s\nafter:\n%s", o, again, story, w.story())
	}
}

// invariants are those of PROTOCOL section 16 that one intent can show.
func invariants(t *rapid.T, w *world) {
	live, applied, booked := 0, map[string]int{}, map[string]bool{}
	for _, m := range w.movements {
		if booked[m.Reference] {
			t.Fatalf("%s is booked twice", m.Reference)
		}
		booked[m.Reference] = true
		if m.State == payment.Applied {
			applied[m.Payment.String()]++
		}
		if m.State == payment.Unapplied && m.Cause == "" {
			t.Fatalf("%s is kept aside without a cause", m.Reference)
		}
	}
	for _, a := range w.attempts {
		if !a.Status.Refusal() {
			live++
		}
		receipts := applied[a.ID.String()]
		if receipts > 1 || (a.Status == payment.Paid) != (receipts == 1) || (a.Status == payment.Paid) != (a.Captured > 0) || a.Captured > a.Amount.Minor() {
			t.Fatalf("payment %d is %s with %d receipts and %d captured:\n%s", a.N, a.Status, receipts, a.Captured, w.story())
		}
		kept := slices.ContainsFunc(w.movements, func(m payment.Movement) bool { return m.Payment == a.ID && m.State != payment.Returned })
		if a.Status.Refusal() && kept && !(a.Conflict && w.intent.Conflict) { // I-17
			t.Fatalf("payment %d was refused, its money is here, and there is no conflict:\n%s", a.N, w.story())
		}
		if a.Status.Refusal() == a.RefusedAt.IsZero() || a.GateOpen && !a.Status.Refusal() || a.Status.Refusal() && !a.GateOpen && a.DueAt.IsZero() {
			t.Fatalf("payment %d: %s, refused at %v, gate %v, due %v", a.N, a.Status, a.RefusedAt, a.GateOpen, a.DueAt)
		}
		if _, known := acquirer.FailureCodes[a.Failure.Code]; a.Status.Refusal() && (!known || a.Failure.Message == "") {
			t.Fatalf("payment %d was refused with %+v", a.N, a.Failure)
		}
	}
	if live > 1 {
		t.Fatalf("%d live payments (I-2):\n%s", live, w.story())
	}
	if !balanced(w) {
		t.Fatalf("the ledger does not balance (I-8):\n%s", w.story())
	}
}

func TestInvariantsHoldInEveryHistory(t *testing.T) { rapid.Check(t, history) }
