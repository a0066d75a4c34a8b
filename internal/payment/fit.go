package payment

import (
	"slices"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/ledger"
)

// Fit finds money that had gone back beyond what was left and that fits now, and counts it as if it had been told now: what makes the
// room may be told after it, in whichever order it happened (PROTOCOL E1). False: nothing fits. A refund of ours that gave back
// otherwise than it was asked stays for a person.
func Fit(s Situation) (Decision, bool) {
	for _, mv := range s.Movements {
		excess := mv.Payment == s.Payment.ID && mv.State == Unapplied && mv.Cause == string(ReviewExcess)
		if !excess || mv.Amount.Currency() != s.Payment.Amount.Currency() || mv.Amount.Minor() > s.Payment.returnable() {
			continue
		}
		d := Decision{Payment: s.Payment, Effect: evidence.Booked, Why: "what had gone back beyond what was left fits now"}
		mv.State, mv.Cause = Applied, ""
		if s.fitDispute(&d, mv) || s.fitRefund(&d, mv) {
			d.Change = append(d.Change, mv)
			d.post(ledger.ExcessApplied, mv.Reference, mv)
			s.reserve(&d)
			return d, true
		}
	}
	return Decision{}, false
}

func (s Situation) fitDispute(d *Decision, mv Movement) bool {
	n := slices.IndexFunc(s.Disputes, func(x Dispute) bool {
		return mv.Kind == acquirer.MovementChargeback && x.Account == mv.Account && x.Reference == mv.Reference
	})
	if n < 0 {
		return false
	}
	x := s.Disputes[n]
	x.Aside = false
	d.Dispute = &x
	d.Payment.Disputed += mv.Amount.Minor()
	return true
}

func (s Situation) fitRefund(d *Decision, mv Movement) bool {
	if mv.Kind == acquirer.MovementChargeback {
		return false
	}
	about := evidence.Observation{Account: mv.Account}
	about.About, about.Reference, about.OurReference = acquirer.ActionRefund, mv.Reference, mv.AcquirerKey
	s.Modification = MatchModification(s.Modifications, about)
	switch _, mine := s.ofCharge(mv.Charge()); {
	case !mine:
		return false
	case s.Modification == nil:
		d.Created = s.external(mv)
	case s.Modification.Type == Refund && s.Modification.Status != ModSucceeded && s.Modification.Amount == mv.Amount:
		s.succeed(d, mv.Reference)
	default:
		return false
	}
	d.Payment.Refunded += mv.Amount.Minor()
	d.tell(EventRefundSucceeded)
	return true
}
