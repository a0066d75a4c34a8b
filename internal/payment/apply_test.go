package payment_test

import (
	"slices"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/payment"
)

// begun is a world with one payment, of which so many requests left.
func begun(remembers bool, sends, unsent int) (*world, *attempt) {
	w := newWorld(remembers)
	w.create()
	a := w.attempts[0]
	a.sends, a.unsent = sends, unsent
	w.now = start.Add(time.Second)
	return w, a
}

func askedAt(at time.Time) func(*evidence.Observation) {
	return func(o *evidence.Observation) { o.AskedAt = at }
}

// ofNobody is what a lookup for the gate is: no operation, no fence.
func ofNobody(o *evidence.Observation) { o.Fence = 0 }

// The gate of a refused payment (P6 a, b): when the next payment may start at once, and when not before flight is over.
func TestGateOfARefusal(t *testing.T) {
	quiet := start.Add(quietTime)
	for _, tc := range []struct {
		name          string
		remembers     bool
		sends, unsent int
		evidence      seen
		now           time.Time // zero: a second after the permit
		want          payment.Status
		open          bool
	}{
		{name: "a: declined, the only send", sends: 1, evidence: say(call, true, acquirer.OutcomeDeclined), want: payment.Declined, open: true},
		{name: "a: declined, the only send that left", sends: 3, unsent: 2, evidence: say(call, true, acquirer.OutcomeDeclined), want: payment.Declined, open: true},
		{name: "a: declined, found by lookup, one send", sends: 1, evidence: say(lookup, true, acquirer.OutcomeDeclined), want: payment.Declined, open: true},
		{name: "a: rejected, the only send", sends: 1, evidence: say(call, true, acquirer.OutcomeRejected, coded(listed)), want: payment.Failed, open: true},
		{name: "a: rejected, the only send that left", sends: 2, unsent: 1, evidence: say(call, true, acquirer.OutcomeRejected, coded(listed)), want: payment.Failed, open: true},
		{name: "a: nothing left", sends: 2, unsent: 2, evidence: say(call, true, acquirer.OutcomeNotSent), want: payment.Failed, open: true},
		{name: "rejected, an older send may have charged", sends: 2, evidence: say(call, true, acquirer.OutcomeRejected, coded(listed)), want: payment.Unknown},
		{name: "rejected with another code", sends: 1, evidence: say(call, true, acquirer.OutcomeRejected, coded("other")), want: payment.Unknown},
		{name: "not sent, an older send may have charged", sends: 2, unsent: 1, evidence: say(call, true, acquirer.OutcomeNotSent), want: payment.Unknown},
		{name: "b: declined and remembered, several sends", remembers: true, sends: 3, evidence: say(call, true, acquirer.OutcomeDeclined), want: payment.Declined, open: true},
		{name: "b: told by a webhook", remembers: true, sends: 3, evidence: say(webhook, false, acquirer.OutcomeDeclined), want: payment.Declined, open: true},
		{name: "declined, not remembered, several sends", sends: 2, evidence: say(call, true, acquirer.OutcomeDeclined), want: payment.Declined},
		{name: "the same, told by lookup before flight is over", sends: 2, evidence: say(lookup, true, acquirer.OutcomeDeclined, askedAt(quiet)), now: quiet.Add(1), want: payment.Declined},
		{name: "d: told by a lookup that was asked after flight", sends: 2, evidence: say(lookup, true, acquirer.OutcomeDeclined, askedAt(quiet.Add(1))), now: quiet.Add(2), want: payment.Declined, open: true},
		{name: "answered early, recorded by an owner that slept", sends: 2, evidence: say(call, true, acquirer.OutcomeDeclined), now: quiet.Add(time.Hour), want: payment.Declined},
		{name: "asked early, recorded by an owner that slept", sends: 2, evidence: say(lookup, true, acquirer.OutcomeDeclined), now: quiet.Add(time.Hour), want: payment.Declined},
		{name: "not found, final, after flight", sends: 2, evidence: say(lookup, true, acquirer.OutcomeNotFound, infers(evidence.InferNotExecuted), askedAt(quiet.Add(1))), now: quiet.Add(2), want: payment.Failed, open: true},
		{name: "a person says so, before flight is over", sends: 1, evidence: say(evidence.FromPerson, true, acquirer.OutcomeUnknown, infers(evidence.InferNotExecuted)), want: payment.Failed},
		{name: "a person says so, after flight", sends: 1, evidence: say(evidence.FromPerson, true, acquirer.OutcomeUnknown, infers(evidence.InferNotExecuted)), now: quiet.Add(1), want: payment.Failed, open: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, a := begun(tc.remembers, tc.sends, tc.unsent)
			if !tc.now.IsZero() {
				w.now = tc.now
			}
			w.record(a, tc.evidence)
			if a.Status != tc.want || a.GateOpen != tc.open {
				t.Errorf("%s, gate %v; want %s, %v", a.Status, a.GateOpen, tc.want, tc.open)
			}
			if a.Status.Refusal() && !a.GateOpen && !a.DueAt.Equal(quiet) {
				t.Errorf("the gate is due at %v, want %v", a.DueAt, quiet)
			}
			want := payment.RefuseClosed
			switch {
			case a.Status.Open():
				want = payment.Join
			case tc.open:
				want = payment.Admit
			}
			if got := w.create(); got != want {
				t.Errorf("a new payment: admission %d, want %d", got, want)
			}
		})
	}
}

// Where the time of the last permit is not known, it is read as now.
func TestGateWithoutATimeStaysClosed(t *testing.T) {
	w, a := begun(false, 2, 0)
	a.lastPermit = time.Time{}
	w.record(a, say(lookup, true, acquirer.OutcomeDeclined, askedAt(w.now)))
	if want := w.now.Add(quietTime); a.GateOpen || !a.DueAt.Equal(want) {
		t.Errorf("gate %v, due %v, want %v", a.GateOpen, a.DueAt, want)
	}
}

// P6 d: the longest flight time after the refusal, a lookup that still says refused opens the gate; nothing else does.
func TestGateOpensByLookup(t *testing.T) {
	refusedAt := start.Add(time.Second)
	quiet := refusedAt.Add(quietTime)
	for _, tc := range []struct {
		name     string
		evidence seen
		money    bool
		open     bool
	}{
		{name: "still refused", evidence: say(lookup, false, acquirer.OutcomeDeclined, ofNobody, askedAt(quiet.Add(1))), open: true},
		{name: "not found, and that is final", evidence: say(lookup, false, acquirer.OutcomeNotFound, ofNobody, infers(evidence.InferNotExecuted), askedAt(quiet.Add(1))), open: true},
		{name: "exactly at the end of flight", evidence: say(lookup, false, acquirer.OutcomeDeclined, ofNobody, askedAt(quiet))},
		{name: "asked before, told after", evidence: say(lookup, false, acquirer.OutcomeDeclined, ofNobody, askedAt(quiet.Add(-time.Hour)))},
		{name: "not found, and that proves nothing", evidence: say(lookup, false, acquirer.OutcomeNotFound, ofNobody, askedAt(quiet.Add(1)))},
		{name: "processing", evidence: say(lookup, false, acquirer.OutcomePending, ofNobody, askedAt(quiet.Add(1)))},
		{name: "lookup failed", evidence: say(lookup, false, acquirer.OutcomeUnknown, ofNobody, askedAt(quiet.Add(1)))},
		{name: "lookup rejected", evidence: say(lookup, false, acquirer.OutcomeRejected, ofNobody, coded(listed), askedAt(quiet.Add(1)))},
		{name: "a late answer of a call", evidence: say(call, false, acquirer.OutcomeDeclined, askedAt(quiet.Add(1)))},
		{name: "a stale owner's lookup", evidence: say(lookup, false, acquirer.OutcomeDeclined, askedAt(quiet.Add(1)))},
		{name: "a late webhook", evidence: say(webhook, false, acquirer.OutcomeDeclined, askedAt(quiet.Add(1)))},
		{name: "money arrived meanwhile", money: true, evidence: say(lookup, false, acquirer.OutcomeDeclined, ofNobody, askedAt(quiet.Add(1)))},
		{name: "a person", evidence: say(evidence.FromPerson, false, acquirer.OutcomeUnknown, infers(evidence.InferNotExecuted)), open: true},
		{name: "a person, but money arrived meanwhile", money: true, evidence: say(evidence.FromPerson, false, acquirer.OutcomeUnknown, infers(evidence.InferNotExecuted))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, a := begun(false, 2, 0)
			w.record(a, say(call, true, acquirer.OutcomeDeclined))
			if tc.money {
				w.record(a, say(webhook, false, acquirer.OutcomeSucceeded, moved("ch_1", price)))
			}
			w.now = quiet.Add(time.Second)
			d := w.record(a, tc.evidence)[0]
			if a.GateOpen != tc.open || a.Status != payment.Declined {
				t.Errorf("gate %v, want %v: %s %s", a.GateOpen, tc.open, d.Effect, d.Why)
			}
			if tc.open != (w.create() == payment.Admit) {
				t.Error("admission does not follow the gate")
			}
		})
	}
}

// A refused payment whose acquirer cannot be asked goes to a person; a stale owner's giving up does not.
func TestGateWithoutLookupGoesToReview(t *testing.T) {
	w, a := begun(false, 2, 0)
	w.record(a, say(call, true, acquirer.OutcomeDeclined))
	w.now = w.now.Add(quietTime + 1)
	if d := w.record(a, say(lookup, false, acquirer.OutcomeUnknown, infers(evidence.InferGiveUp)))[0]; d.Review != "" {
		t.Errorf("a stale owner opened a review: %s", d.Review)
	}
	if d := w.record(a, say(lookup, false, acquirer.OutcomeUnknown, ofNobody, infers(evidence.InferGiveUp)))[0]; d.Review != payment.ReviewNoProof || a.GateOpen {
		t.Errorf("review %q, gate %v", d.Review, a.GateOpen)
	}
}

// What one observation does to a payment that is unknown, paid or refused.
func TestEffects(t *testing.T) {
	a, b := moved("ch_1", price), moved("ch_2", price)
	paid := say(call, true, acquirer.OutcomeSucceeded, a)
	declined := say(call, true, acquirer.OutcomeDeclined)
	for _, tc := range []struct {
		name   string
		before []seen
		then   seen
		effect evidence.Effect
		status payment.Status
		review payment.ReviewReason
		events []payment.EventType
	}{
		{"money", nil, paid, evidence.Moved, payment.Paid, "", []payment.EventType{payment.EventPaid}},
		{"money that a stale owner brings", nil, say(call, false, acquirer.OutcomeSucceeded, a), evidence.Moved, payment.Paid, "", []payment.EventType{payment.EventPaid}},
		{"the same money by another road", []seen{paid}, say(webhook, false, acquirer.OutcomeSucceeded, a), evidence.Repeat, payment.Paid, "", nil},
		{"money without the acquirer's id", nil, say(call, true, acquirer.OutcomeSucceeded, moved("", price)), evidence.Moved, payment.Unknown, "", nil},
		{"the same money in another amount", []seen{paid}, say(webhook, false, acquirer.OutcomeSucceeded, moved("ch_1", wrongPrice)), evidence.Conflict, payment.Paid, payment.ReviewContradiction, []payment.EventType{payment.EventConflict}},
		{"other money", []seen{paid}, say(webhook, false, acquirer.OutcomeSucceeded, b), evidence.Conflict, payment.Paid, payment.ReviewSecondMovement, []payment.EventType{payment.EventConflict}},
		{"another amount", nil, say(call, true, acquirer.OutcomeSucceeded, moved("ch_1", wrongPrice)), evidence.Moved, payment.Unknown, payment.ReviewAmountMismatch, nil},
		{"another amount, unknown already", []seen{say(call, true, acquirer.OutcomeUnknown)}, say(lookup, true, acquirer.OutcomeSucceeded, moved("ch_1", wrongPrice)), evidence.Booked, payment.Unknown, payment.ReviewAmountMismatch, nil},
		{"money after a refusal", []seen{declined}, say(webhook, false, acquirer.OutcomeSucceeded, a), evidence.Conflict, payment.Declined, payment.ReviewMoneyAfterRefusal, []payment.EventType{payment.EventConflict}},
		{"a refusal", nil, declined, evidence.Moved, payment.Declined, "", []payment.EventType{payment.EventDeclined}},
		{"a refusal again", []seen{declined}, say(lookup, true, acquirer.OutcomeDeclined), evidence.Repeat, payment.Declined, "", nil},
		{"a refusal after money", []seen{paid}, say(webhook, false, acquirer.OutcomeDeclined), evidence.Conflict, payment.Paid, payment.ReviewContradiction, []payment.EventType{payment.EventConflict}},
		{"a refusal beside money of another amount", []seen{say(call, true, acquirer.OutcomeSucceeded, moved("ch_1", wrongPrice))}, declined, evidence.Conflict, payment.Unknown, payment.ReviewContradiction, []payment.EventType{payment.EventConflict}},
		{"that refusal again", []seen{say(call, true, acquirer.OutcomeSucceeded, moved("ch_1", wrongPrice)), declined}, declined, evidence.Repeat, payment.Unknown, "", nil},
		{"no proof", nil, say(call, true, acquirer.OutcomeUnknown), evidence.Moved, payment.Unknown, "", nil},
		{"no proof, by a stale owner", nil, say(call, false, acquirer.OutcomeUnknown), evidence.Stale, payment.Pending, "", nil},
		{"no proof, by nobody", nil, say(webhook, false, acquirer.OutcomeUnknown), evidence.Noted, payment.Pending, "", nil},
		{"processing", nil, say(call, true, acquirer.OutcomePending), evidence.Noted, payment.Pending, "", nil},
		{"no proof after money", []seen{paid}, say(lookup, true, acquirer.OutcomeUnknown), evidence.Behind, payment.Paid, "", nil},
		{"given up", nil, say(lookup, true, acquirer.OutcomeUnknown, infers(evidence.InferGiveUp)), evidence.Moved, payment.Unknown, payment.ReviewNoProof, nil},
		{"given up by a stale owner", nil, say(lookup, false, acquirer.OutcomeRejected, infers(evidence.InferGiveUp)), evidence.Stale, payment.Pending, "", nil},
		{"given up after money, by whoever owned it", []seen{paid}, say(lookup, true, acquirer.OutcomeUnknown, infers(evidence.InferGiveUp)), evidence.Stale, payment.Paid, "", nil},
		{"not executed, after money", []seen{paid}, say(evidence.FromPerson, true, acquirer.OutcomeUnknown, infers(evidence.InferNotExecuted)), evidence.Behind, payment.Paid, "", nil},
		{"not executed, beside money of another amount", []seen{say(call, true, acquirer.OutcomeSucceeded, moved("ch_1", wrongPrice))}, say(evidence.FromPerson, true, acquirer.OutcomeUnknown, infers(evidence.InferNotExecuted)), evidence.Behind, payment.Unknown, "", nil},
		{"money while a conflict is open", []seen{say(call, true, acquirer.OutcomeSucceeded, moved("ch_1", wrongPrice)), declined}, say(webhook, false, acquirer.OutcomeSucceeded, b), evidence.Conflict, payment.Unknown, payment.ReviewSecondMovement, []payment.EventType{payment.EventConflict}},
		{"not executed, by a stale owner", nil, say(lookup, false, acquirer.OutcomeNotFound, infers(evidence.InferNotExecuted)), evidence.Stale, payment.Pending, "", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, a := begun(true, 2, 0)
			w.record(a, tc.before...)
			d := w.record(a, tc.then)[0]
			if d.Effect != tc.effect || a.Status != tc.status || d.Review != tc.review || !slices.Equal(d.Events, tc.events) {
				t.Errorf("%s, %s, review %q, events %v (%s); want %s, %s, %q, %v",
					d.Effect, d.Payment.Status, d.Review, d.Events, d.Why, tc.effect, tc.status, tc.review, tc.events)
			}
			if d.Why == "" {
				t.Error("no reason in words")
			}
		})
	}
}

// Failure codes: the acquirer's where it is one of ours, else the general one, whose words name the acquirer's own.
func TestFailureCodes(t *testing.T) {
	for _, tc := range []struct {
		evidence      seen
		sends, unsent int
		want          string
	}{
		{say(call, true, acquirer.OutcomeDeclined, func(o *evidence.Observation) { o.Failure = "insufficient_funds" }), 1, 0, "insufficient_funds"},
		{say(call, true, acquirer.OutcomeDeclined, func(o *evidence.Observation) { o.Failure = "a code of theirs" }), 1, 0, "declined"},
		{say(call, true, acquirer.OutcomeNotSent), 1, 1, "acquirer_unreachable"},
		{say(call, true, acquirer.OutcomeRejected, coded(listed)), 1, 0, "rejected"},
		{say(call, true, acquirer.OutcomeDeclined, coded("two words")), 1, 0, "declined"},
		{say(lookup, true, acquirer.OutcomeNotFound, infers(evidence.InferNotExecuted)), 1, 0, "not_executed"},
		{say(evidence.FromPerson, true, acquirer.OutcomeUnknown, infers(evidence.InferNotExecuted)), 1, 0, "decided_not_executed"},
	} {
		w, a := begun(true, tc.sends, tc.unsent)
		w.record(a, tc.evidence)
		message := acquirer.FailureCodes[tc.want]
		if tc.want == "rejected" {
			message += " Its own code for it: " + listed + "."
		}
		if a.Failure.Code != tc.want || a.Failure.Message != message {
			t.Errorf("%s from %s: %+v, want %s", tc.evidence.Outcome, tc.evidence.Source, a.Failure, tc.want)
		}
	}
}

// Money that was booked before its payment was known is adopted, not booked again (A8).
func TestStrayMoneyIsAdopted(t *testing.T) {
	w, a := begun(true, 1, 0)
	w.stray("key1", "ch_1")
	d := w.record(a, say(lookup, true, acquirer.OutcomeSucceeded, moved("ch_1", price), echo))[0]
	if len(d.Change) != 1 || len(d.Book) != 0 || a.Status != payment.Paid || a.Captured != price.Minor() || len(w.movements) != 1 || !balanced(w) {
		t.Errorf("%+v\n%s", d, w.story())
	}
	// A refusal beside stray money of the same key is a contradiction, and the payment stays.
	w, a = begun(true, 1, 0)
	w.stray("key1", "ch_1")
	if d := w.record(a, say(lookup, true, acquirer.OutcomeDeclined))[0]; !d.Conflict || a.Status.Refusal() {
		t.Errorf("%+v", d)
	}
}

// Nothing is concluded for a row that may stem from a lost interval (O1, A8).
func TestLostIntervalConcludesNothing(t *testing.T) {
	for _, o := range []seen{
		say(call, true, acquirer.OutcomeRejected, coded(listed)),
		say(lookup, true, acquirer.OutcomeNotFound, infers(evidence.InferNotExecuted)),
	} {
		w, a := begun(true, 1, 0)
		s := w.situation(a, o, true)
		s.Standing.Lost = true
		if d := payment.Apply(s, o.Observation); d.Payment.Status != payment.Unknown || d.Payment.GateOpen {
			t.Errorf("%s: %s, gate %v", o.Outcome, d.Payment.Status, d.Payment.GateOpen)
		}
	}
}
