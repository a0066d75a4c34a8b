package evidence_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
)

const (
	tick    = time.Nanosecond
	lag     = 2 * time.Second
	flight  = time.Minute
	settled = lag + flight
	cutOff  = 12 * time.Hour
	process = 10 * time.Minute
)

var firstPermit = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// profile makes a contract; what is not changed is the strongest promise.
func profile(changes ...func(*acquirer.Contract)) acquirer.Contract {
	c := acquirer.Contract{Name: "x", Identity: acquirer.IdentityKey, KeyWindow: 2 * cutOff, KeyLength: acquirer.MinKeyLength,
		MaxFlight: flight, MaxProcessing: process, LookupByKey: true, LookupLag: lag, NotFoundFinal: true}
	for _, change := range changes {
		change(&c)
	}
	return c
}

func vague(c *acquirer.Contract)      { c.NotFoundFinal = false }
func forgets(c *acquirer.Contract)    { c.LookupKept = 6 * time.Hour }
func noLookup(c *acquirer.Contract)   { c.LookupByKey, c.NotFoundFinal = false, false }
func neither(c *acquirer.Contract)    { c.Identity, c.KeyWindow = acquirer.IdentityNone, 0 }
func reference(c *acquirer.Contract)  { c.Identity = acquirer.IdentityReference }
func windowless(c *acquirer.Contract) { c.KeyWindow = 0 }
func noFlight(c *acquirer.Contract)   { c.MaxFlight = 0 }

// moment is a row of the table of PROTOCOL section 7. Age and since count from the first and the last permit.
type moment struct {
	name          string
	contract      acquirer.Contract
	outcome       acquirer.Outcome
	age, since    time.Duration
	sends, unsent int // 0 sends: one
	late          bool
	lost          bool
	want          evidence.Step
	review        string
	notBefore     time.Duration
}

func (m moment) asked() evidence.Asked {
	reply := acquirer.Reply{Outcome: m.outcome}
	if m.outcome == acquirer.OutcomeSucceeded || m.outcome == acquirer.OutcomeHeld {
		reply.Amount, reply.Reference = asked, "ch_1"
	}
	now := firstPermit.Add(m.age)
	return evidence.Asked{Contract: m.contract, Reply: reply, AskedAt: now, FirstPermitAt: firstPermit,
		LastPermitAt: now.Add(-m.since), Sends: max(m.sends, 1), Unsent: m.unsent, MaySend: !m.late, Lost: m.lost}
}

const (
	found, gone, busy, mute = acquirer.OutcomeSucceeded, acquirer.OutcomeNotFound, acquirer.OutcomePending, acquirer.OutcomeUnknown

	wait, rec, again, never, person = evidence.Wait, evidence.Record, evidence.SendAgain, evidence.NotExecutedStep, evidence.GiveUp
)

// Point 1: lookup says what it is. Point 2: processing, until the contract's longest time.
var saysWhatItIs = []moment{
	{name: "succeeded", contract: profile(), outcome: found, age: 1, since: 1, want: rec},
	{name: "declined", contract: profile(neither, noLookup), outcome: acquirer.OutcomeDeclined, age: 9 * cutOff, since: 9 * cutOff, want: rec},
	{name: "held", contract: profile(), outcome: acquirer.OutcomeHeld, age: process + tick, since: 1, want: rec},
	{name: "over", contract: profile(), outcome: acquirer.OutcomeClosed, age: process + tick, since: 1, want: rec},
	{name: "the payer's step", contract: profile(), outcome: acquirer.OutcomeRegistered, age: 1, since: 1, want: wait},
	{name: "the payer's step, for its whole life", contract: profile(), outcome: acquirer.OutcomeRegistered, age: acquirer.DefaultSessionLife + process + lag, since: 1, want: wait},
	{name: "the payer's step, open for too long", contract: profile(), outcome: acquirer.OutcomeRegistered, age: acquirer.DefaultSessionLife + process + lag + tick, since: 1, want: person, review: "processing_too_long"},
	{name: "processing", contract: profile(), outcome: busy, age: process - tick, since: 1, want: wait},
	{name: "processing, exactly the longest time", contract: profile(), outcome: busy, age: process, since: 1, want: wait},
	{name: "processing for too long", contract: profile(), outcome: busy, age: process + tick, since: 1, want: person, review: "processing_too_long"},
	{name: "processing counts from the first permit", contract: profile(), outcome: busy, age: process + tick, sends: 2, since: 1, want: person, review: "processing_too_long"},
	{name: "processing of undeclared length", contract: acquirer.Contract{}, outcome: busy, age: 1, since: 1, want: person, review: "processing_too_long"},
}

// Point 3: not found.
var notFound = []moment{
	{name: "at once", contract: profile(), outcome: gone, want: wait, notBefore: lag},
	{name: "just before the lag is over", contract: profile(), outcome: gone, age: lag - tick, since: lag - tick, want: wait, notBefore: tick},
	{name: "exactly the lag", contract: profile(), outcome: gone, age: lag, since: lag, want: wait},
	{name: "after the lag", contract: profile(), outcome: gone, age: lag + tick, since: lag + tick, want: again},
	{name: "reference accepted once", contract: profile(reference), outcome: gone, age: lag + tick, since: lag + tick, want: again},
	{name: "exactly lag and flight", contract: profile(), outcome: gone, age: settled, since: settled, want: again},
	{name: "after lag and flight", contract: profile(), outcome: gone, age: settled + tick, since: settled + tick, want: never},
	{name: "the lag counts from the last permit", contract: profile(), outcome: gone, age: time.Hour, since: lag, sends: 2, want: wait},
	{name: "flight counts from the last permit", contract: profile(), outcome: gone, age: time.Hour, since: settled, sends: 2, want: again},
	{name: "undeclared flight is long", contract: profile(noFlight), outcome: gone, age: acquirer.DefaultMaxFlight + lag, since: acquirer.DefaultMaxFlight + lag, want: again},
	{name: "after the undeclared flight", contract: profile(noFlight), outcome: gone, age: acquirer.DefaultMaxFlight + lag + tick, since: acquirer.DefaultMaxFlight + lag + tick, want: never},

	{name: "nobody waits any more, before flight", contract: profile(), outcome: gone, late: true, age: lag + tick, since: lag + tick, want: wait, notBefore: flight - tick},
	{name: "nobody waits any more, after flight", contract: profile(), outcome: gone, late: true, age: settled + tick, since: settled + tick, want: never},
	{name: "nobody waits any more and it is not final", contract: profile(vague), outcome: gone, late: true, age: settled + tick, since: settled + tick, want: person, review: "no_proof"},

	{name: "not final: send", contract: profile(vague), outcome: gone, age: settled + tick, since: settled + tick, want: again},
	{name: "not final, just before the cut-off", contract: profile(vague), outcome: gone, age: cutOff - tick, since: settled + tick, want: again},
	{name: "not final, exactly the cut-off", contract: profile(vague), outcome: gone, age: cutOff, since: settled + tick, want: person, review: "window_over"},
	{name: "not final, after the cut-off", contract: profile(vague), outcome: gone, age: cutOff + tick, since: settled + tick, want: person, review: "window_over"},
	{name: "at the cut-off, bytes under way", contract: profile(vague), outcome: gone, age: cutOff, since: lag + tick, sends: 2, want: wait, notBefore: flight - tick},
	{name: "final is final after the cut-off too", contract: profile(), outcome: gone, age: cutOff, since: settled + tick, want: never},

	{name: "an acquirer that forgets: within half of what it keeps", contract: profile(forgets), outcome: gone, age: 3*time.Hour - tick, since: settled + tick, want: never},
	{name: "an acquirer that forgets: past half of it", contract: profile(forgets), outcome: gone, late: true, age: 3 * time.Hour, since: settled + tick, want: person, review: "no_proof"},

	{name: "last send of the budget", contract: profile(vague), outcome: gone, age: time.Hour, since: settled + tick, sends: 3, want: again},
	{name: "budget used up", contract: profile(vague), outcome: gone, age: time.Hour, since: settled + tick, sends: 4, want: person, review: "no_proof"},
	{name: "budget counts what may have left", contract: profile(vague), outcome: gone, age: time.Hour, since: settled + tick, sends: 5, unsent: 2, want: again},

	{name: "lost interval: not found proves nothing", contract: profile(), outcome: gone, lost: true, age: settled + tick, since: settled + tick, want: again},
	{name: "lost interval after the cut-off", contract: profile(), outcome: gone, lost: true, age: cutOff, since: settled + tick, want: person, review: "window_over"},

	{name: "neither key nor reference, before flight", contract: profile(neither), outcome: gone, age: settled, since: settled, want: wait},
	{name: "neither, after flight", contract: profile(neither), outcome: gone, age: settled + tick, since: settled + tick, want: never},
	{name: "neither and not final", contract: profile(neither, vague), outcome: gone, age: settled + tick, since: settled + tick, want: person, review: "no_proof"},
	{name: "neither, and nothing left us", contract: profile(neither, vague), outcome: gone, age: lag + tick, since: lag + tick, unsent: 1, want: wait, notBefore: flight - tick},
	{name: "a key without a window is none", contract: profile(windowless, vague), outcome: gone, age: lag + tick, since: lag + tick, want: wait, notBefore: flight - tick},
	{name: "the zero contract", contract: acquirer.Contract{}, outcome: gone, age: acquirer.DefaultMaxFlight + tick, since: acquirer.DefaultMaxFlight + tick, want: person, review: "no_proof"},
}

// Point 4: lookup is not possible or fails.
var cannotAsk = []moment{
	{name: "lookup fails", contract: profile(), outcome: mute, age: settled + tick, since: settled + tick, want: wait},
	{name: "lookup fails, just before the cut-off", contract: profile(), outcome: mute, age: cutOff - tick, since: 1, want: wait},
	{name: "lookup fails, exactly the cut-off", contract: profile(), outcome: mute, age: cutOff, since: 1, want: wait},
	{name: "lookup fails, after the cut-off", contract: profile(), outcome: mute, age: cutOff + tick, since: 1, want: person, review: "window_over"},
	{name: "lookup refused at connect", contract: profile(), outcome: acquirer.OutcomeNotSent, age: cutOff + tick, since: 1, want: person, review: "window_over"},
	{name: "lookup rejected", contract: profile(), outcome: acquirer.OutcomeRejected, age: cutOff + tick, since: 1, want: person, review: "window_over"},
	{name: "no lookup", contract: profile(noLookup), outcome: mute, age: cutOff, since: cutOff, want: wait},
	{name: "no lookup, after the cut-off", contract: profile(noLookup), outcome: mute, age: cutOff + tick, since: 1, want: person, review: "window_over"},
	{name: "neither, lookup fails", contract: profile(neither), outcome: mute, age: settled + process, since: 1, want: wait},
	{name: "neither, lookup fails for too long", contract: profile(neither), outcome: mute, age: settled + process + tick, since: 1, want: person, review: "repeats_forbidden"},
	{name: "neither, no lookup", contract: profile(neither, noLookup), outcome: mute, age: settled + process + tick, since: 1, want: person, review: "repeats_forbidden"},
}

func TestNext(t *testing.T) {
	for point, rows := range map[string][]moment{"says": saysWhatItIs, "not found": notFound, "cannot ask": cannotAsk} {
		for _, m := range rows {
			t.Run(point+"/"+m.name, func(t *testing.T) {
				a := m.asked()
				got := evidence.Next(a)
				if got.Step != m.want || got.Review != m.review || got.NotBefore != m.notBefore {
					t.Errorf("step %d, review %q, not before %v; want %d, %q, %v", got.Step, got.Review, got.NotBefore, m.want, m.review, m.notBefore)
				}
				if got.Why == "" {
					t.Error("no reason in words")
				}
				a.InReview = true
				want := m.want
				if want == again || want == person {
					want = wait
				}
				if got := evidence.Next(a); got.Step != want || got.Review != "" {
					t.Errorf("in review: step %d, review %q; want %d", got.Step, got.Review, want)
				}
			})
		}
	}
}

// A success without an amount proves nothing, and being told it for ever does not keep a person away.
func TestSuccessWithoutAmountEndsInReview(t *testing.T) {
	m := moment{contract: profile(), outcome: found, age: cutOff, since: cutOff}
	a := m.asked()
	a.Reply.Amount = noMoney
	if got := evidence.Next(a); got.Step != wait {
		t.Errorf("before the cut-off: step %d", got.Step)
	}
	a.AskedAt = a.AskedAt.Add(tick)
	if got := evidence.Next(a); got.Step != person || got.Review != "window_over" {
		t.Errorf("after the cut-off: step %d, review %q", got.Step, got.Review)
	}
}

func anyContract() *rapid.Generator[acquirer.Contract] {
	return rapid.Custom(func(t *rapid.T) acquirer.Contract {
		d := func(name string) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(48*time.Hour)).Draw(t, name))
		}
		return acquirer.Contract{Identity: acquirer.Identity(rapid.IntRange(0, 2).Draw(t, "identity")), KeyWindow: d("window"),
			MaxFlight: d("flight"), MaxProcessing: d("processing"), LookupLag: d("lag"), LookupByKey: rapid.Bool().Draw(t, "lookup"),
			NotFoundFinal: rapid.Bool().Draw(t, "final"), RepeatBudget: rapid.IntRange(0, 20).Draw(t, "budget")}
	})
}

// The road to a second charge: whatever the inputs, a request is sent again only where PROTOCOL section 7 allows.
func TestSendAgainIsNarrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := anyContract().Draw(t, "contract")
		// Borders are drawn more often than chance would.
		age := rapid.OneOf(rapid.Int64Range(0, int64(72*time.Hour)),
			rapid.SampledFrom([]int64{int64(c.CutOff()) - 1, int64(c.CutOff()), int64(c.CutOff()) + 1})).Draw(t, "age")
		since := rapid.OneOf(rapid.Int64Range(-int64(time.Hour), max(age, 0)),
			rapid.SampledFrom([]int64{int64(c.LookupLag), int64(c.LookupLag) + 1, int64(c.LookupLag + c.Flight()), int64(c.LookupLag+c.Flight()) + 1})).Draw(t, "since")
		sends := rapid.IntRange(1, 20).Draw(t, "sends")
		now := firstPermit.Add(time.Duration(age))
		a := evidence.Asked{Contract: c, AskedAt: now, FirstPermitAt: firstPermit, LastPermitAt: now.Add(-time.Duration(since)),
			Sends: sends, Unsent: rapid.IntRange(0, sends).Draw(t, "unsent"), MaySend: rapid.Bool().Draw(t, "may"),
			Lost: rapid.Bool().Draw(t, "lost"), InReview: rapid.Bool().Draw(t, "review")}
		a.Reply.Outcome = acquirer.Outcome(rapid.IntRange(0, int(none)).Draw(t, "outcome"))
		p := evidence.Next(a)
		asked := p.Step == evidence.SendAgain
		allowed := c.Identity != acquirer.IdentityNone && c.KeyWindow > 0 && time.Duration(age) < c.KeyWindow/2 &&
			a.Sends-a.Unsent < c.MaxSends() && a.MaySend && time.Duration(since) > c.LookupLag && !a.InReview &&
			a.Reply.Outcome == acquirer.OutcomeNotFound
		if asked && !allowed {
			t.Fatalf("sent again: %+v", a)
		}
		if p.Step == evidence.NotExecutedStep && (!c.NotFoundFinal || a.Lost || a.Reply.Outcome != acquirer.OutcomeNotFound ||
			time.Duration(since) <= c.LookupLag+c.Flight()) {
			t.Fatalf("concluded that nothing was executed: %+v", a)
		}
		if a.InReview && p.Step == evidence.GiveUp {
			t.Fatalf("given up twice: %+v", a)
		}
		if p.Why == "" || (p.Step == evidence.GiveUp) != (p.Review != "") || p.NotBefore < 0 {
			t.Fatalf("%+v", p)
		}
	})
}

// Checks follow 2, 5, 15, 30 s, then grow to a cap; in review they are rarer; jitter adds up to a quarter (S1, K6).
func TestBackoff(t *testing.T) {
	for checks, want := range []time.Duration{2 * time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute} {
		if got := evidence.Backoff(checks, false, 0); got != want {
			t.Errorf("check %d: %v, want %v", checks, got, want)
		}
	}
	for checks, want := range []time.Duration{5 * time.Minute, 10 * time.Minute, 20 * time.Minute} {
		if got := evidence.Backoff(checks, true, 0); got != want {
			t.Errorf("in review, check %d: %v, want %v", checks, got, want)
		}
	}
	for _, tc := range []struct {
		review bool
		cap    time.Duration
	}{{false, 30 * time.Minute}, {true, 12 * time.Hour}} {
		if got := evidence.Backoff(1<<40, tc.review, 0); got != tc.cap {
			t.Errorf("review %v: cap %v, want %v", tc.review, got, tc.cap)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		checks, review := rapid.IntRange(-5, 1000).Draw(t, "checks"), rapid.Bool().Draw(t, "review")
		jitter := rapid.Float64Range(0, 0.999).Draw(t, "jitter")
		base, got := evidence.Backoff(checks, review, 0), evidence.Backoff(checks, review, jitter)
		if base <= 0 || got < base || got > base+base/4 {
			t.Fatalf("%v with jitter, %v without", got, base)
		}
		if next := evidence.Backoff(checks+1, review, 0); next < base {
			t.Fatalf("%v after %v", next, base)
		}
		if rarer := evidence.Backoff(checks, true, 0); rarer < evidence.Backoff(checks, false, 0) {
			t.Fatalf("in review %v: more often than before", rarer)
		}
	})
}
