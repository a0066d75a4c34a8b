package payment_test

import (
	"testing"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/payment"
)

// P6 (a) rests on the number of sends; a row of a lost interval does not know it (O1).
func TestALostRowDoesNotOpenTheGateAtOnce(t *testing.T) {
	w := newWorld(false)
	p := payment.Payment{Merchant: w.intent.Merchant, Intent: w.intent.ID, N: 1, Status: payment.Unknown, Amount: price, AcquirerKey: "k"}
	s := payment.Situation{Intent: w.intent, Payment: p, LastPermitAt: w.now, Now: w.now,
		Standing: evidence.Standing{Contract: w.contract, Sends: 1, Owner: true, Lost: true, Expected: price, Key: "k"}}
	d := payment.Apply(s, evidence.Observation{Source: evidence.FromLookup, AskedAt: w.now,
		Reply: acquirer.Reply{Outcome: acquirer.OutcomeDeclined, Reference: "ch_1"}})
	if d.Payment.Status != payment.Declined || d.Payment.GateOpen {
		t.Errorf("%s, gate open %v: a lost second send may still arrive", d.Payment.Status, d.Payment.GateOpen)
	}
}
