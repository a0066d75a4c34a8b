package timeline_test

import (
	"strings"
	"testing"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/store"
	"github.com/hapaxpay/hapax/internal/timeline"
)

// The story names each mail and what became of it, and nobody's address.
func TestMailsAreTold(t *testing.T) {
	r := rig.New(t, nil)
	p := r.Replica()
	if _, err := p.Pay("pay", rig.Order{Reference: "A-1", Receipt: "ann@home.example"}); err != nil {
		t.Fatal(err)
	}
	event, err := id.ParseUUID(r.Text("SELECT id::text FROM event WHERE type = 'payment.paid'"))
	if err != nil {
		t.Fatal(err)
	}
	m := store.Mail{Merchant: r.Merchant.ID, Key: "k", Kind: payment.Receipt, Event: event, Payment: r.PaymentOf("pay"), MessageID: "hpx1@shop.example", Claim: event}
	for _, step := range []struct {
		state store.MailState
		words string
	}{
		{store.MailSending, "The receipt is on its way to the mail server (Message-ID hpx1@shop.example)."},
		{store.MailNotSent, "The receipt was not sent (busy); it is tried again (Message-ID"},
		{store.MailUnknown, "The receipt may have been sent or not (busy); it is not sent again by itself (Message-ID"},
		{store.MailSent, "The receipt was taken by the mail server (Message-ID"},
	} {
		if _, mine, err := p.Store.BeginMail(t.Context(), m); err != nil || !mine {
			t.Fatal(mine, err)
		}
		if m.State, m.Why = step.state, "busy"; step.state != store.MailSending {
			if err := p.Store.EndMail(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		stories, err := timeline.Find(t.Context(), r.Owner, "A-1", r.Merchant.ID)
		if err != nil {
			t.Fatal(err)
		}
		if told := timeline.Text(stories); !strings.Contains(told, step.words) || strings.Contains(told, "ann@home") {
			t.Errorf("%s:\n%s", step.state, told)
		}
		if step.state == store.MailUnknown { // as if it had never been begun
			if _, err := r.Owner.Exec(t.Context(), "DELETE FROM mail"); err != nil {
				t.Fatal(err)
			}
		}
	}
}
