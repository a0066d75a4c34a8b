package sandbox_test

import (
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/acquirertest"
	"github.com/hapaxpay/hapax/acquirer/signature"
)

// TestWebhooksConform: the adapter's webhooks pass the kit, signed and as hints.
func TestWebhooksConform(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	message := func(body string, known bool, told ...acquirer.Outcome) acquirertest.Message {
		h, err := signature.Headers([]signature.Secret{hookSecret}, "evt_1", at, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		return acquirertest.Message{Header: h, Body: body, At: at, Known: known, Outcomes: told}
	}
	messages := []acquirertest.Message{
		message(newsOf("charge", "succeeded", toldCharge+`,"capture":true,"captured_amount":18600`), true, acquirer.OutcomeSucceeded),
		message(newsOf("charge", "declined", toldCharge+`,"capture":true,"captured_amount":0,"reason":"expired_card"`), true, acquirer.OutcomeDeclined),
		message(newsOf("refund", "failed", `"id":"rf_1","kind":"refund","reference":"","code":"account_closed",`+toldAct), true, acquirer.OutcomeDeclined),
		message(newsOf("session", "closed", toldSession), true, acquirer.OutcomeClosed),
		message(`{"id":"evt_1","type":"payout.paid","created_at":"2026-01-02T03:04:05Z","livemode":true,"data":{"amount":1}}`, false),
	}
	signed := acquirertest.NotifierFactory{Notifier: notifier(t, "", signedBy(hookSecret.Text())), Messages: messages, Secret: hookSecret.Text(),
		Signed: []string{signature.HeaderID, signature.HeaderTimestamp, signature.HeaderSignature}}
	t.Run("signed", func(t *testing.T) { acquirertest.RunNotifier(t, signed) })
	hints := acquirertest.NotifierFactory{Notifier: notifier(t, "", `{"secret":"s"}`), Messages: messages}
	t.Run("hints", func(t *testing.T) { acquirertest.RunNotifier(t, hints) })
}
