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
	// Expected and Key are what the payment asked for.
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
	MoneyTaken             // a fact: amount, currency and reference are ours
	MoneyMismatch          // a fact: money moved, but not as asked
	Declined               // refused, final
	NotExecuted            // an inference: nothing was executed
	StaleInference         // would prove something only if its bringer still held the fence
)

// Prove judges one observation (PROTOCOL section 5). A fact holds whoever brings it; an inference holds only for the
// owner; whatever is not listed proves nothing.
func Prove(o Observation, s Standing) Verdict {
	switch o.Outcome {
	case acquirer.OutcomeSucceeded:
		if !o.Amount.IsPositive() || o.Reference == "" {
			break // says nothing that could be booked, or recognised when it is told again (I-7)
		}
		if o.Amount != s.Expected || (o.OurReference != "" && o.OurReference != s.Key) {
			return MoneyMismatch
		}
		return MoneyTaken
	case acquirer.OutcomeDeclined:
		// A refusal that the acquirer does not remember may be the answer to an older send: only its owner may
		// conclude from it that the payment is over.
		if s.Contract.RemembersRefusals || s.Owner {
			return Declined
		}
		return StaleInference
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
