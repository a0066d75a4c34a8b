package timeline

import (
	"context"
	"fmt"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
)

// mails tells what became of receipts and of one-time codes by mail. To whom stands in the intent, not here.
func (t *teller) mails(ctx context.Context) error {
	var kind, state, why, message string
	var at time.Time
	return t.each(ctx, "mails", `
SELECT m.kind, m.state, m.why, m.message_id, m.updated_at
  FROM payment p JOIN mail m ON m.merchant_id = p.merchant_id AND m.payment_id = p.id
 WHERE p.merchant_id = $1::uuid AND p.intent_id = $2::uuid ORDER BY m.updated_at, m.mail_key`, t.of(),
		[]any{&kind, &state, &why, &message, &at}, func() {
			t.say(at, ofEvent, id.ID{}, "mail", mailWords(kind, state, why)+" (Message-ID "+message+").")
		})
}

func mailWords(kind, state, why string) string {
	what := map[string]string{"receipt": "The receipt", "cancel_code": "The mail with the one-time code"}[kind]
	switch state {
	case "sending":
		return what + " is on its way to the mail server"
	case "sent":
		return what + " was taken by the mail server"
	case "not_sent":
		return fmt.Sprintf("%s was not sent (%s); it is tried again", what, why)
	case "refused":
		return fmt.Sprintf("%s was refused by the mail server for good (%s)", what, why)
	}
	return fmt.Sprintf("%s may have been sent or not (%s); it is not sent again by itself", what, why)
}
