package evidence_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/money"
)

// fact is one thing that Prove looks at, in a row of the table: yes, no, or it does not matter.
type fact int

const (
	either fact = iota
	yes
	no
)

func (f fact) fits(b bool) bool { return f == either || (f == yes) == b }

// said is what the acquirer told of the money.
type said int

const (
	anything said = iota
	asAsked
	otherAmount
	otherCurrency
	noAmount
	belowZero
	otherReference
)

// input is one combination that Prove is asked about.
type input struct {
	outcome                                 acquirer.Outcome
	inference                               evidence.Inference
	source                                  evidence.Source
	sends, unsent                           int
	owner, remembers, lost, listed, echoing bool
	said                                    said
}

// proof is one line of PROTOCOL section 5 with O1 and K3; what is left out does not matter.
type proof struct {
	why             string
	outcomes        []acquirer.Outcome
	said            said
	left            int // requests that may have left us; anyLeft: it does not matter
	notLeft         int // a number that it must not be; anyLeft: none
	fromCall, owner fact
	remembers, lost fact
	listed          fact
	inference       []evidence.Inference // nil: it does not matter
	want            evidence.Verdict
}

const anyLeft = -1

var (
	infersNothing  = []evidence.Inference{evidence.InferNothing}
	infersNot      = []evidence.Inference{evidence.InferNotExecuted}
	infersGiveUp   = []evidence.Inference{evidence.InferGiveUp}
	infersNoGiveUp = []evidence.Inference{evidence.InferNothing, evidence.InferNotExecuted}
	inferences     = []evidence.Inference{evidence.InferNothing, evidence.InferNotExecuted, evidence.InferGiveUp}
)

func (p proof) fits(in input) bool {
	left := in.sends - in.unsent
	inferred := p.inference == nil || slices.Contains(p.inference, in.inference)
	return slices.Contains(p.outcomes, in.outcome) && inferred && (p.said == anything || p.said == in.said) &&
		(p.left == anyLeft || p.left == left) && (p.notLeft == anyLeft || p.notLeft != left) &&
		p.fromCall.fits(in.source == evidence.FromCall) && p.owner.fits(in.owner) && p.remembers.fits(in.remembers) &&
		p.lost.fits(in.lost) && p.listed.fits(in.listed)
}

// none is a value that no outcome has: it is read in the strictest way.
const none = acquirer.OutcomeClosed + 1

var (
	succeeded, declined = acquirer.OutcomeSucceeded, acquirer.OutcomeDeclined
	rejected, notSent   = acquirer.OutcomeRejected, acquirer.OutcomeNotSent
	// silent outcomes leave room for an inference; what a said outcome contradicts cannot be inferred beside it.
	silent = []acquirer.Outcome{acquirer.OutcomeUnknown, acquirer.OutcomeNotFound}
	others = []acquirer.Outcome{acquirer.OutcomePending, acquirer.OutcomeDuplicate, acquirer.OutcomeKeyReused, none}
)

type table []proof

// row adds a line; where nothing else is set, only the outcome matters.
func (t *table) row(why string, want evidence.Verdict, outcomes []acquirer.Outcome, set ...func(*proof)) {
	p := proof{why: why, outcomes: outcomes, want: want, left: anyLeft, notLeft: anyLeft}
	for _, change := range set {
		change(&p)
	}
	*t = append(*t, p)
}

func saying(s said) func(*proof)                    { return func(p *proof) { p.said = s } }
func owner(f fact) func(*proof)                     { return func(p *proof) { p.owner = f } }
func lost(f fact) func(*proof)                      { return func(p *proof) { p.lost = f } }
func remembers(f fact) func(*proof)                 { return func(p *proof) { p.remembers = f } }
func left(n int) func(*proof)                       { return func(p *proof) { p.left = n } }
func notLeft(n int) func(*proof)                    { return func(p *proof) { p.notLeft = n } }
func inferring(i []evidence.Inference) func(*proof) { return func(p *proof) { p.inference = i } }
func listedCode(f fact) func(*proof)                { return func(p *proof) { p.listed = f } }
func toCall(f fact) func(*proof)                    { return func(p *proof) { p.fromCall = f } }
func only(o acquirer.Outcome) []acquirer.Outcome    { return []acquirer.Outcome{o} }

// proofs is the table. A combination may fit several lines, if they agree; it must fit one.
func proofs() table {
	var t table
	t.row("captured, with our reference, amount and currency equal", evidence.Done, only(succeeded), saying(asAsked))
	for _, other := range []said{otherAmount, otherCurrency, otherReference} {
		t.row("success, but not as asked", evidence.DoneOtherwise, only(succeeded), saying(other))
	}
	t.row("held, with our reference, amount and currency equal", evidence.FundsHeld, only(acquirer.OutcomeHeld), saying(asAsked))
	for _, other := range []said{otherAmount, otherCurrency, otherReference} {
		t.row("held, but not as asked", evidence.HeldOtherwise, only(acquirer.OutcomeHeld), saying(other))
	}
	t.row("the payer has a step to do", evidence.PageOpen, only(acquirer.OutcomeRegistered))
	t.row("the charge or page is over", evidence.Over, only(acquirer.OutcomeClosed))
	t.row("refusal, final and remembered", evidence.Declined, only(declined), remembers(yes))
	t.row("refusal, final, told to the owner", evidence.Declined, only(declined), owner(yes))
	t.row("refusal that is not remembered, brought by a stale owner", evidence.StaleInference, only(declined), remembers(no), owner(no))
	for _, o := range []struct {
		fact  fact
		holds evidence.Verdict
	}{{yes, evidence.NotExecuted}, {no, evidence.StaleInference}} {
		t.row("rejection of the only send", o.holds, only(rejected), left(1), listedCode(yes), toCall(yes), lost(no), owner(o.fact))
		t.row("no byte of any send", o.holds, only(notSent), left(0), lost(no), owner(o.fact))
		t.row("inferred where the acquirer says nothing", o.holds, silent, inferring(infersNot), lost(no), owner(o.fact))
	}
	t.row("inferred from a row of a lost interval", evidence.Nothing, silent, inferring(infersNot), lost(yes))
	t.row("rejection or not sent, in a lost interval", evidence.Nothing, []acquirer.Outcome{rejected, notSent}, lost(yes), inferring(infersNoGiveUp))
	// Where a reply proves nothing, nothing but giving up can go with it.
	unproven := func(outcomes []acquirer.Outcome, may []evidence.Inference, set ...func(*proof)) {
		t.row("not listed", evidence.Nothing, outcomes, append(set, inferring(may))...)
		t.row("given up by the owner", evidence.Nothing, outcomes, append(set, inferring(infersGiveUp), owner(yes))...)
		t.row("given up by a stale owner", evidence.StaleInference, outcomes, append(set, inferring(infersGiveUp), owner(no))...)
	}
	unproven(only(rejected), infersNoGiveUp, notLeft(1))
	unproven(only(rejected), infersNoGiveUp, listedCode(no))
	unproven(only(rejected), infersNoGiveUp, toCall(no))
	unproven(only(notSent), infersNoGiveUp, notLeft(0))
	unproven(only(succeeded), infersNoGiveUp, saying(noAmount))
	unproven(only(succeeded), infersNoGiveUp, saying(belowZero))
	unproven(only(acquirer.OutcomeHeld), infersNoGiveUp, saying(noAmount))
	unproven(only(acquirer.OutcomeHeld), infersNoGiveUp, saying(belowZero))
	unproven(silent, infersNothing)
	unproven(others, infersNoGiveUp)
	return t
}

const (
	ours   = "hpxkey"
	listed = "unauthorized"
)

var (
	asked   = money.Must(18600, "KWD")
	noMoney money.Amount
)

func (in input) ask() (evidence.Observation, evidence.Standing) {
	o := evidence.Observation{Source: in.source, Inference: in.inference}
	o.Outcome, o.Reference, o.Code = in.outcome, "ch_1", "other"
	if in.listed {
		o.Code = listed
	}
	if in.echoing {
		o.OurReference = ours
	}
	switch in.said {
	case asAsked:
		o.Amount = asked
	case otherAmount:
		o.Amount = money.Must(18601, "KWD")
	case otherCurrency:
		o.Amount = money.Must(18600, "USD")
	case belowZero:
		o.Amount = money.Must(-18600, "KWD")
	case otherReference:
		o.Amount, o.OurReference = asked, "hpxother"
	}
	c := acquirer.Contract{RemembersRefusals: in.remembers, BeforeExecution: []string{listed}}
	return o, evidence.Standing{Contract: c, Sends: in.sends, Unsent: in.unsent, Owner: in.owner, Lost: in.lost,
		Expected: asked, Key: ours}
}

// inputs are all combinations.
func inputs(visit func(input)) {
	both := []bool{false, true}
	for outcome := acquirer.OutcomeUnknown; outcome <= none; outcome++ {
		for _, source := range []evidence.Source{evidence.FromCall, evidence.FromLookup, evidence.FromWebhook} {
			for _, inference := range inferences {
				for _, sends := range [][2]int{{1, 0}, {1, 1}, {2, 0}, {2, 1}, {2, 2}, {4, 1}} {
					for bits := range 1 << 5 {
						bit := func(n int) bool { return both[bits>>n&1] }
						for s := asAsked; s <= otherReference; s++ {
							visit(input{outcome, inference, source, sends[0], sends[1], bit(0), bit(1), bit(2), bit(3), bit(4), s})
						}
					}
				}
			}
		}
	}
}

const maxFaults = 20

// Every combination is judged as the table says; a combination that no line speaks of, or two lines judge differently,
// is a fault of the table.
func TestProve(t *testing.T) {
	table := proofs()
	used := make([]bool, len(table))
	var faults []string
	inputs(func(in input) {
		o, s := in.ask()
		got, found := evidence.Prove(o, s), false
		for n, p := range table {
			if !p.fits(in) {
				continue
			}
			found, used[n] = true, true
			if got != p.want {
				faults = append(faults, fmt.Sprintf("%+v: verdict %d, want %d: %s", in, got, p.want, p.why))
			}
		}
		if !found && !in.unspoken(got) {
			faults = append(faults, fmt.Sprintf("%+v: no line of the table speaks of it (verdict %d)", in, got))
		}
	})
	for n := range table {
		if !used[n] {
			t.Errorf("line %d of the table fits nothing: %s", n, table[n].why)
		}
	}
	for _, fault := range faults[:min(len(faults), maxFaults)] {
		t.Error(fault)
	}
	if len(faults) > maxFaults {
		t.Errorf("and %d more", len(faults)-maxFaults)
	}
}

// unspoken says whether a combination is one that the table leaves open: a proof of "not executed" from a lost interval
// that is given up at once. Nothing may be recorded but the giving up.
func (in input) unspoken(got evidence.Verdict) bool {
	return in.lost && in.inference == evidence.InferGiveUp && (got == evidence.Nothing || got == evidence.StaleInference)
}

// The first call timed out and charged; the repeat is answered 401, or is refused at connect: not a failure (O1).
func TestRepeatProvesNothingAboutTheFirstCall(t *testing.T) {
	contract := acquirer.Contract{BeforeExecution: []string{listed}}
	charged := evidence.Standing{Contract: contract, Sends: 2, Owner: true, Expected: asked, Key: ours}
	unauthorized := evidence.Observation{Source: evidence.FromCall, Reply: acquirer.Reply{Outcome: acquirer.OutcomeRejected, Code: listed}}
	if got := evidence.Prove(unauthorized, charged); got != evidence.Nothing {
		t.Errorf("the repeat is answered 401: verdict %d", got)
	}
	refused := evidence.Observation{Source: evidence.FromCall, Reply: acquirer.Reply{Outcome: acquirer.OutcomeNotSent}}
	charged.Unsent = 1
	if got := evidence.Prove(refused, charged); got != evidence.Nothing {
		t.Errorf("the repeat is refused at connect: verdict %d", got)
	}
	// The same answers to the only send are proofs.
	if got := evidence.Prove(unauthorized, evidence.Standing{Contract: contract, Sends: 2, Unsent: 1, Owner: true}); got != evidence.NotExecuted {
		t.Errorf("the only request that left is answered 401: verdict %d", got)
	}
	if got := evidence.Prove(refused, evidence.Standing{Contract: contract, Sends: 2, Unsent: 2, Owner: true}); got != evidence.NotExecuted {
		t.Errorf("no request left: verdict %d", got)
	}
}

// A lookup that is answered 401 says nothing about the charge, even if only one request left.
func TestRejectedLookupProvesNothing(t *testing.T) {
	o := evidence.Observation{Source: evidence.FromLookup, Reply: acquirer.Reply{Outcome: acquirer.OutcomeRejected, Code: listed}}
	s := evidence.Standing{Contract: acquirer.Contract{BeforeExecution: []string{listed}}, Sends: 1, Owner: true}
	if got := evidence.Prove(o, s); got != evidence.Nothing {
		t.Errorf("verdict %d", got)
	}
}
