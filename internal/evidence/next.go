package evidence

import (
	"time"

	"github.com/hapaxpay/hapax/acquirer"
)

// Step is what an owner does after it asked the acquirer.
type Step int

// The steps. The zero value is the safest.
const (
	Wait            Step = iota // ask again later
	Record                      // the reply itself is the answer
	SendAgain                   // the same stored request, under a permit
	NotExecutedStep             // record that nothing was executed
	GiveUp                      // a person decides
)

// Asked is the situation of an operation whose owner has just asked the acquirer (PROTOCOL section 7).
// All times are database times.
type Asked struct {
	Contract acquirer.Contract // as it stands for the action
	Action   acquirer.Action
	Reply    acquirer.Reply // OutcomeUnknown or OutcomeNotSent: the lookup failed
	// AskedAt is read before the question left.
	AskedAt                     time.Time
	FirstPermitAt, LastPermitAt time.Time
	Sends, Unsent               int
	// MaySend is false past send_until with no client waiting (W3), past pay_before, during a hold (A8), or in review (K6).
	MaySend bool
	// Lost says that the row may stem from a lost interval: "not found" proves nothing then (PROTOCOL O1).
	Lost     bool
	InReview bool
}

// Plan is a step with its reason in words, and for GiveUp the reason of the review.
type Plan struct {
	Step   Step
	Why    string
	Review string
	// NotBefore delays the next question; zero: the usual back-off.
	NotBefore time.Duration
}

// Reasons of a review that Next can give, equal to payment.ReviewReason values.
const (
	reviewNoProof    = "no_proof"
	reviewWindowOver = "window_over"
	reviewProcessing = "processing_too_long"
	reviewForbidden  = "repeats_forbidden"
)

// Patience is how long an operation may stay without a usable answer before a person is asked: the cut-off, or where
// there is no window to keep, the longest time in which the acquirer could still execute and show it.
func Patience(c acquirer.Contract) time.Duration {
	if c.Repeatable() {
		return c.CutOff()
	}
	return c.LookupLag + c.Flight() + c.MaxProcessing
}

// Next decides after a lookup (PROTOCOL section 7, points 1 to 4).
func Next(a Asked) Plan {
	p := a.plan()
	if a.InReview && (p.Step == GiveUp || p.Step == SendAgain) {
		return Plan{Step: Wait, Why: "in review: looked up, never sent again"}
	}
	return p
}

func (a Asked) plan() Plan {
	age := a.AskedAt.Sub(a.FirstPermitAt)
	switch a.Reply.Outcome {
	case acquirer.OutcomeSucceeded, acquirer.OutcomeHeld:
		// Without an amount or an id it proves nothing, however often it is told.
		silent := a.Action == acquirer.ActionReverse || a.Action == acquirer.ActionClose
		if (a.Reply.Amount.IsPositive() || silent) && a.Reply.Reference != "" {
			return Plan{Step: Record, Why: "the acquirer says what it is"}
		}
	case acquirer.OutcomeDeclined, acquirer.OutcomeClosed:
		return Plan{Step: Record, Why: "the acquirer says what it is"}
	case acquirer.OutcomeRegistered:
		if age > a.Contract.PayerStep()+a.Contract.MaxProcessing+a.Contract.LookupLag {
			return Plan{Step: GiveUp, Why: "the payer's step is open for longer than the contract's longest time", Review: reviewProcessing}
		}
		return Plan{Step: Wait, Why: "the payer has a step to do"}
	case acquirer.OutcomePending:
		if age > a.Contract.MaxProcessing {
			return Plan{Step: GiveUp, Why: "processing for longer than the contract's longest time", Review: reviewProcessing}
		}
		return Plan{Step: Wait, Why: "the acquirer is processing"}
	case acquirer.OutcomeNotFound:
		return a.notFound(age)
	}
	if age > Patience(a.Contract) {
		why, reason := "the acquirer cannot be asked and the cut-off has passed", reviewWindowOver
		if !a.Contract.Repeatable() {
			why, reason = "the acquirer cannot be asked and must never be sent to twice", reviewForbidden
		}
		return Plan{Step: GiveUp, Why: why, Review: reason}
	}
	return Plan{Step: Wait, Why: "the acquirer could not be asked"}
}

func (a Asked) notFound(age time.Duration) Plan {
	since := a.AskedAt.Sub(a.LastPermitAt)
	lag, settled := a.Contract.LookupLag, a.Contract.LookupLag+a.Contract.Flight()
	if since <= lag {
		return Plan{Step: Wait, Why: "not found, but the lookup may lag", NotBefore: lag - since}
	}
	if since > settled && a.Contract.NotFoundProves(age) && !a.Lost {
		return Plan{Step: NotExecutedStep, Why: "not found after lag and flight, and the contract makes that final"}
	}
	inWindow := a.Contract.Repeatable() && age < a.Contract.CutOff()
	if inWindow && a.MaySend && a.Sends-a.Unsent < a.Contract.MaxSends() {
		return Plan{Step: SendAgain, Why: "not found after the lag, and the same key is still kept"}
	}
	if since <= settled {
		return Plan{Step: Wait, Why: "not found, but bytes may still be under way", NotBefore: settled - since}
	}
	if a.Contract.Repeatable() && !inWindow {
		return Plan{Step: GiveUp, Why: "not found, and the key's window is over", Review: reviewWindowOver}
	}
	return Plan{Step: GiveUp, Why: "not found, which proves nothing here, and it must not be sent again", Review: reviewNoProof}
}

// checkDelays are the first delays after an answer without proof (PROTOCOL S1).
var checkDelays = []time.Duration{2 * time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second}

// Bounds of the growing delays.
const (
	maxCheckDelay  = 30 * time.Minute
	maxReviewDelay = 12 * time.Hour
)

// Backoff is the delay before the next question after the given number of questions, with jitter in [0, 1) adding up
// to a quarter. Review asks ever more rarely (PROTOCOL S1, K6).
func Backoff(checks int, review bool, jitter float64) time.Duration {
	limit, d := maxCheckDelay, checkDelays[len(checkDelays)-1]
	if review {
		limit, d = maxReviewDelay, 5*time.Minute
	} else if checks < len(checkDelays) {
		d = checkDelays[max(checks, 0)]
		return d + time.Duration(float64(d)*jitter/4)
	} else {
		checks -= len(checkDelays) - 1
	}
	for range min(max(checks, 0), 16) {
		if d = d * 2; d >= limit {
			d = limit
			break
		}
	}
	return d + time.Duration(float64(d)*jitter/4)
}
