package payment_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/money"
)

// say makes an observation of the first payment.
func say(source evidence.Source, owner bool, outcome acquirer.Outcome, change ...func(*evidence.Observation)) seen {
	s := seen{owner: owner}
	s.Source, s.Outcome, s.AskedAt, s.Class = source, outcome, start, "test"
	if source == evidence.FromCall || source == evidence.FromLookup {
		s.Fence = 1
	}
	for _, c := range change {
		c(&s.Observation)
	}
	return s
}

func infers(i evidence.Inference) func(*evidence.Observation) {
	return func(o *evidence.Observation) {
		o.Inference, o.Note, o.Why = i, string(payment.ReviewNoProof), "a reason"
	}
}

func moved(reference string, amount money.Amount) func(*evidence.Observation) {
	return func(o *evidence.Observation) { o.Reference, o.Amount = reference, amount }
}

func echo(o *evidence.Observation) { o.OurReference = "key1" }

func coded(code string) func(*evidence.Observation) {
	return func(o *evidence.Observation) { o.Code = code }
}

const (
	call, lookup, webhook, listing = evidence.FromCall, evidence.FromLookup, evidence.FromWebhook, evidence.FromMovements
)

// noise is evidence that contradicts nothing: two requests may have left, so none of it proves anything.
func noise() []seen {
	return []seen{
		say(call, true, acquirer.OutcomeUnknown),
		say(call, false, acquirer.OutcomeUnknown),
		say(call, true, acquirer.OutcomeNotSent),
		say(call, false, acquirer.OutcomeNotSent),
		say(call, true, acquirer.OutcomeRejected, coded(listed)),
		say(lookup, true, acquirer.OutcomeRejected, coded(listed)),
		say(call, true, acquirer.OutcomeDuplicate),
		say(call, true, acquirer.OutcomeKeyReused),
		say(call, true, acquirer.OutcomePending),
		say(lookup, true, acquirer.OutcomePending),
		say(webhook, false, acquirer.OutcomePending),
		say(lookup, true, acquirer.OutcomeNotFound),
		say(lookup, false, acquirer.OutcomeNotFound, infers(evidence.InferNotExecuted)),
		say(lookup, false, acquirer.OutcomeUnknown, infers(evidence.InferGiveUp)),
		say(lookup, true, acquirer.OutcomeUnknown, infers(evidence.InferGiveUp)),
		say(lookup, true, acquirer.OutcomeSucceeded), // without an amount: not listed
	}
}

// taken is one movement, told by every road.
func taken(reference string, amount money.Amount) []seen {
	return []seen{
		say(call, true, acquirer.OutcomeSucceeded, moved(reference, amount), echo),
		say(call, false, acquirer.OutcomeSucceeded, moved(reference, amount)),
		say(lookup, true, acquirer.OutcomeSucceeded, moved(reference, amount), echo),
		say(webhook, false, acquirer.OutcomeSucceeded, moved(reference, amount), echo),
		say(listing, false, acquirer.OutcomeSucceeded, moved(reference, amount), echo),
	}
}

func refusal() []seen {
	return []seen{say(call, true, acquirer.OutcomeDeclined), say(lookup, true, acquirer.OutcomeDeclined), say(webhook, false, acquirer.OutcomeDeclined)}
}

var wrongPrice = money.Must(1860, "KWD")

// play applies the evidence in the order and the transactions that are drawn.
func play(t *rapid.T, label string, remembers bool, all []seen) *world {
	w := newWorld(remembers)
	w.create()
	a := w.attempts[0]
	a.sends = 2
	order := rapid.Permutation(all).Draw(t, label)
	for len(order) > 0 {
		n := rapid.IntRange(1, len(order)).Draw(t, "in one transaction")
		w.record(a, order[:n]...)
		order = order[n:]
	}
	if !balanced(w) {
		t.Fatalf("the ledger does not balance:\n%s", w.story())
	}
	return w
}

func some(t *rapid.T, label string, from []seen, least, most int) []seen {
	return rapid.SliceOfN(rapid.SampledFrom(from), least, most).Draw(t, label)
}

// Evidence that does not contradict itself ends, in any order and however often it is told, in the same state, the same
// movements, the same ledger and the same events (E1).
func TestCompatibleEvidenceConverges(t *testing.T) {
	for name, tc := range map[string]struct {
		truth  []seen
		status []payment.Status
		books  string
	}{
		"nothing":         {nil, []payment.Status{payment.Pending, payment.Unknown}, ""},
		"paid":            {taken("ch_1", price), []payment.Status{payment.Paid}, "ch_1 " + price.String()},
		"declined":        {refusal(), []payment.Status{payment.Declined}, ""},
		"another amount":  {taken("ch_1", wrongPrice), []payment.Status{payment.Unknown}, "ch_1 " + wrongPrice.String()},
		"other reference": {[]seen{say(webhook, false, acquirer.OutcomeSucceeded, moved("ch_1", price), func(o *evidence.Observation) { o.OurReference = "key9" })}, []payment.Status{payment.Unknown}, "ch_1 " + price.String()},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				all := some(t, "noise", noise(), 1, 6)
				if tc.truth != nil {
					all = append(all, some(t, "truth", tc.truth, 1, 5)...)
				}
				a, b := play(t, "first", true, all), play(t, "second", true, all)
				if a.story() != b.story() {
					t.Fatalf("two orders end differently:\n%s\n\n%s", a.story(), b.story())
				}
				p := a.attempts[0]
				if !slices.Contains(tc.status, p.Status) || a.books() != tc.books || a.intent.Conflict {
					t.Fatalf("%s, conflict %v, books %q", p.Status, a.intent.Conflict, a.books())
				}
				if len(p.events) > 1 {
					t.Fatalf("told more than once: %v", p.events)
				}
			})
		})
	}
}

// Contradicting evidence books the same movements in every order, and opens a conflict in every order (E1, E2, E5).
func TestContradictingEvidenceOpensAConflict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kinds := [][]seen{taken("ch_1", price), taken("ch_2", price), taken("ch_3", wrongPrice), refusal()}
		chosen := rapid.SliceOfNDistinct(rapid.IntRange(0, len(kinds)-1), 2, len(kinds), rapid.ID[int]).Draw(t, "kinds")
		all := some(t, "noise", noise(), 0, 4)
		var want []string
		for _, k := range chosen {
			all = append(all, some(t, "evidence", kinds[k], 1, 3)...)
			want = append(want, [...]string{"ch_1 18.600 KWD", "ch_2 18.600 KWD", "ch_3 1.860 KWD", ""}[k])
		}
		for _, label := range []string{"first", "second"} {
			w := play(t, label, true, all)
			if got := w.books(); got != strings.TrimPrefix(joined(want), "\n") {
				t.Fatalf("%s order books %q, want %q", label, got, want)
			}
			if !w.intent.Conflict || !w.attempts[0].Conflict || !slices.Contains(w.attempts[0].events, payment.EventConflict) {
				t.Fatalf("%s order opens no conflict:\n%s", label, w.story())
			}
		}
	})
}

// Where refusals are not remembered, a refusal may answer another send than the money; the money is booked all the same.
func TestContradictionWithoutMemoryBooksTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := append(some(t, "noise", noise(), 0, 4), some(t, "refusals", refusal(), 1, 3)...)
		all = append(all, some(t, "money", taken("ch_1", price), 1, 3)...)
		w := play(t, "order", false, all)
		if got := w.books(); got != "ch_1 18.600 KWD" {
			t.Fatalf("books %q", got)
		}
		if w.attempts[0].Status.Refusal() && !w.intent.Conflict {
			t.Fatalf("refused, with money and without a conflict:\n%s", w.story())
		}
	})
}
