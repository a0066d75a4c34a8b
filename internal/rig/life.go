package rig

import (
	"slices"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// ReturnURL is where the payers of tests are sent back to.
const ReturnURL = "https://shop.example/thanks"

// Hosted asks for a page on which the order can be paid.
func (p *Replica) Hosted(key string, o Order) (operation.Answer, error) {
	c := p.rig.Command(key, o)
	url := ReturnURL
	c.Flow, c.ReturnURL, c.Method = payment.Hosted, &url, ""
	return p.Flow.CreatePayment(p.rig.T.Context(), c)
}

// Hold pays the order in two steps: the funds are held.
func (p *Replica) Hold(key string, o Order) (operation.Answer, error) {
	c := p.rig.Command(key, o)
	manual := payment.CaptureManual
	c.Inline.Capture = &manual
	return p.Flow.CreatePayment(p.rig.T.Context(), c)
}

// PaymentOf is the payment that the key created.
func (r *Rig) PaymentOf(key string) id.ID {
	r.T.Helper()
	found, err := id.ParseUUID(r.Text("SELECT id::text FROM payment WHERE idempotency_key = $1", key))
	r.must(err)
	return found
}

// Capture captures so much of a held payment, 0: all that is left; final nil: not said.
func (p *Replica) Capture(key string, pay id.ID, minor int64, final *bool) (operation.Answer, error) {
	c := flow.CapturePaymentCommand{Merchant: p.rig.Merchant.ID, Key: key, RequestID: "req_" + key, Payment: pay, Final: final}
	if minor != 0 {
		c.Minor = &minor
	}
	return p.Flow.Capture(p.rig.T.Context(), c)
}

// Cancel gives a payment up.
func (p *Replica) Cancel(key string, pay id.ID, code string) (operation.Answer, error) {
	return p.Flow.Cancel(p.rig.T.Context(), flow.CancelPaymentCommand{Merchant: p.rig.Merchant.ID, Key: key, RequestID: "req_" + key,
		Payment: pay, Code: code})
}

// IssueCode issues a one-time code for a cancel.
func (p *Replica) IssueCode(key string, pay id.ID) (operation.Answer, error) {
	return p.Flow.IssueCancelCode(p.rig.T.Context(), flow.IssueCancelCodeCommand{Merchant: p.rig.Merchant.ID, Key: key,
		RequestID: "req_" + key, Payment: pay})
}

// Refund gives so much of a payment back, 0: all that is left.
func (p *Replica) Refund(key string, pay id.ID, minor int64) (operation.Answer, error) {
	c := flow.CreateRefundCommand{Merchant: p.rig.Merchant.ID, Key: key, RequestID: "req_" + key, Payment: pay}
	if minor != 0 {
		c.Minor = &minor
	}
	return p.Flow.Refund(p.rig.T.Context(), c)
}

// Check asks the acquirer about a payment now.
func (p *Replica) Check(pay id.ID) (operation.Answer, error) {
	return p.Flow.Check(p.rig.T.Context(), p.rig.Merchant.ID, pay, "req_check")
}

// SessionOf is the acquirer's page of a payment.
func (r *Rig) SessionOf(pay id.ID) sandbox.Session {
	r.T.Helper()
	key := r.Text("SELECT acquirer_key FROM payment WHERE id = $1", pay)
	all, err := r.Acquirer.Sessions(r.T.Context(), key)
	r.must(err)
	if len(all) != 1 {
		r.T.Fatalf("%d pages at the acquirer, want 1", len(all))
	}
	return all[0]
}

// ChargeOf is the acquirer's only charge of a payment.
func (r *Rig) ChargeOf(pay id.ID) sandbox.Charge {
	r.T.Helper()
	key := r.Text("SELECT acquirer_key FROM payment WHERE id = $1", pay)
	all, err := r.Acquirer.Charges(r.T.Context(), key)
	r.must(err)
	if len(all) != 1 {
		r.T.Fatalf("%d charges at the acquirer, want 1", len(all))
	}
	return all[0]
}

// Moved counts the lines of a kind in the acquirer's register.
func (r *Rig) Moved(kind string) int {
	r.T.Helper()
	return len(slices.DeleteFunc(slices.Clone(r.Movements()), func(m sandbox.Movement) bool { return m.Kind != kind }))
}

// Sent counts the requests that arrived at the acquirer and match.
func (r *Rig) Sent(match func(sandbox.WireEntry) bool) int {
	r.T.Helper()
	all, err := r.Acquirer.Wire(r.T.Context(), 0)
	r.must(err)
	n := 0
	for _, e := range all {
		if match(e) {
			n++
		}
	}
	return n
}

// AddAccount gives a merchant one more account at the same acquirer, with the terms of its first one.
func (r *Rig) AddAccount(m Merchant) id.ID {
	r.T.Helper()
	account := r.runtime.NewID()
	sealed, err := r.ring.Seal(m.ID, account, Secrets)
	r.must(err)
	_, err = r.Owner.Exec(r.T.Context(), `INSERT INTO acquirer_account (merchant_id, id, adapter, settings, secrets)
		SELECT merchant_id, $2, adapter, settings, $3 FROM acquirer_account WHERE merchant_id = $1 AND id = $4`, m.ID, account, sealed, m.Account)
	r.must(err)
	return account
}
