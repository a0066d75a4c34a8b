package evidence

import (
	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/money"
)

// Standing is what is known about an operation's sends when an observation is judged.
type Standing struct {
	Contract acquirer.Contract
	Sends    int // permits granted
	Unsent   int // permits whose own holder, with the current fence, saw zero request bytes written
	// Owner says that the bringer holds the current fence and the operation is open.
	Owner bool
	// Lost says that the row may stem from an interval lost in a failover or restore (PROTOCOL A8).
	Lost bool
	// Expected and Key are what was asked for; Expected is zero where no amount is told (closing a page, releasing a hold).
	Expected money.Amount
	Key      string
}

// Left is how many requests may have left us.
func (s Standing) Left() int { return s.Sends - s.Unsent }

// Verdict is what an observation proves.
type Verdict int

// The verdicts. The zero value proves nothing.
const (
	Nothing        Verdict = iota
	Done                   // a fact: what was asked is done, with amount, currency and reference as asked
	DoneOtherwise          // a fact: money moved, but not as asked
	FundsHeld              // a fact: funds are held as asked
	HeldOtherwise          // a fact: funds are held, but not as asked
	PageOpen               // a fact: the payer has a step to do
	Over                   // a fact: the charge or page is over and holds nothing
	Declined               // refused, final
	NotExecuted            // an inference: nothing was executed
	StaleInference         // would prove something only if its bringer still held the fence
)

// Prove judges one observation (PROTOCOL section 5). A fact holds whoever brings it; an inference holds only for the
// owner; whatever is not listed proves nothing.
func Prove(o Observation, s Standing) Verdict {
	switch o.Outcome {
	case acquirer.OutcomeSucceeded:
		if v := s.done(o, Done, DoneOtherwise); v != Nothing {
			return v
		}
	case acquirer.OutcomeHeld:
		if v := s.done(o, FundsHeld, HeldOtherwise); v != Nothing {
			return v
		}
	case acquirer.OutcomeRegistered:
		if o.Reference != "" {
			return PageOpen
		}
	case acquirer.OutcomeClosed:
		return Over
	case acquirer.OutcomeDeclined:
		if v := s.declined(o); v != Nothing {
			return v
		}
	case acquirer.OutcomeRejected:
		// The rejection of a question says nothing about what was sent.
		if o.Source == FromCall && s.Left() == 1 && s.Contract.ProvesNotExecuted(o.Code) {
			return s.infer()
		}
	case acquirer.OutcomeNotSent:
		if s.Left() == 0 {
			return s.infer()
		}
	case acquirer.OutcomeNotFound, acquirer.OutcomeUnknown:
		if o.Inference == InferNotExecuted {
			return s.infer()
		}
	}
	if o.Inference == InferGiveUp && !s.Owner {
		return StaleInference
	}
	return Nothing
}

// done judges an answer that says that something was done.
func (s Standing) done(o Observation, asAsked, otherwise Verdict) Verdict {
	silent := s.Expected.IsZero() && (o.About == acquirer.ActionReverse || o.About == acquirer.ActionClose)
	switch {
	case o.Reference == "", !o.Amount.IsPositive() && !silent:
		return Nothing // says nothing that could be booked, or recognised when it is told again (I-7)
	case o.Amount != s.Expected && !silent, o.OurReference != "" && o.OurReference != s.Key:
		return otherwise
	}
	return asAsked
}

// declined judges a refusal. One that the acquirer does not remember may be the answer to an older send: only its owner may
// conclude from it. Of a change to a payment, the refusal of one send says nothing about an earlier one: "already captured"
// is what the second one is told when the first one captured (cases 18, 19).
func (s Standing) declined(o Observation) Verdict {
	change := o.About != acquirer.ActionCharge && o.About != acquirer.ActionSession && o.About != ""
	switch {
	case change && o.Source == FromCall && s.Left() > 1:
		return Nothing
	case s.Contract.RemembersRefusals, s.Owner:
		return Declined
	}
	return StaleInference
}

// infer applies the two conditions of every inference: the fence, and no lost interval (PROTOCOL O1, K3).
func (s Standing) infer() Verdict {
	switch {
	case s.Lost:
		return Nothing
	case !s.Owner:
		return StaleInference
	}
	return NotExecuted
}
