package flow

import (
	"testing"

	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/money"
)

// A client that repeats a request of before an upgrade must meet its own operation: what is said without a member that came
// later has the fingerprint that it had (PROTOCOL W2).
func TestFingerprintsFromBeforeReceipts(t *testing.T) {
	customer, address := "c", "payer@shop.example"
	plain := IntentFields{Amount: money.Must(18600, "KWD"), Customer: &customer}
	asked := plain
	asked.Receipt = &address
	before := []payment.Field{words("amount", "18.600 KWD"), text("client_reference", nil), text("customer", &customer), text("description", nil),
		text("metadata", nil), text("capture_method", nil), text("pay_before", nil)}
	intent := payment.Fingerprint(append([]payment.Field{words("kind", "create_intent")}, before...)...)
	if got := (CreateIntentCommand{Intent: plain}).Fingerprint(); got != intent {
		t.Error("an intent without a receipt has another fingerprint than before")
	}
	if got := (CreateIntentCommand{Intent: asked}).Fingerprint(); got == intent {
		t.Error("the address is not part of the fingerprint")
	}
	pay := append(append([]payment.Field{words("kind", "create_payment")}, before...),
		words("payment_method", "pm_ok"), words("flow", "direct"), text("return_url", nil))
	c := CreatePaymentCommand{Inline: &plain, Method: "pm_ok", Flow: payment.Direct}
	if c.Fingerprint() != payment.Fingerprint(pay...) {
		t.Error("a payment without a receipt has another fingerprint than before")
	}
	if c.Inline = &asked; c.Fingerprint() == payment.Fingerprint(pay...) {
		t.Error("the address is not part of the fingerprint")
	}
}
