package store_test

import (
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/store"
)

func TestMailTemplates(t *testing.T) {
	sh := newShop(t)
	get := func() (store.MailTemplate, bool) {
		t.Helper()
		tpl, found, err := sh.s.MailTemplateOf(t.Context(), sh.merchant, payment.Receipt)
		if err != nil {
			t.Fatal(err)
		}
		return tpl, found
	}
	if _, found := get(); found {
		t.Fatal("a template that nobody wrote")
	}
	if found, err := sh.s.EnableMailTemplate(t.Context(), sh.merchant, payment.Receipt, false); found || err != nil {
		t.Fatal(found, err)
	}
	for _, subject := range []string{"first", "second"} {
		if err := sh.s.SetMailTemplate(t.Context(), store.MailTemplate{Merchant: sh.merchant, Kind: payment.Receipt, Sender: "a@b", Subject: subject, Body: "b"}); err != nil {
			t.Fatal(err)
		}
		if tpl, found := get(); !found || !tpl.Enabled || tpl.Subject != subject || tpl.MerchantName == "" {
			t.Fatalf("%+v", tpl)
		}
		if found, err := sh.s.EnableMailTemplate(t.Context(), sh.merchant, payment.Receipt, false); !found || err != nil {
			t.Fatal(found, err)
		}
		if tpl, _ := get(); tpl.Enabled {
			t.Fatal("it is still enabled")
		}
	}
}

// A mail has one sender at a time; what is proven not sent has another one, what is unknown or done has none.
func TestAMailIsBegunOnce(t *testing.T) {
	sh := newShop(t)
	st := sh.start("order-1")
	event := newID()
	sh.owner("INSERT INTO event (merchant_id, id, intent_id, payment_id, version, event_key, type, payload) VALUES ($1, $2, $3, $4, 77, 'k', 'payment.paid', '{}')",
		sh.merchant, event, st.intent.ID, st.payment.ID)
	begin := func(claim id.ID) (store.Mail, bool) {
		t.Helper()
		m, mine, err := sh.s.BeginMail(t.Context(), store.Mail{Merchant: sh.merchant, Key: "seed:receipt:1", Kind: payment.Receipt, Event: event,
			Payment: st.payment.ID, MessageID: claim.String() + "@shop.example", Claim: claim})
		if err != nil {
			t.Fatal(err)
		}
		return m, mine
	}
	end := func(claim id.ID, state store.MailState) {
		t.Helper()
		if err := sh.s.EndMail(t.Context(), store.Mail{Merchant: sh.merchant, Key: "seed:receipt:1", Claim: claim, State: state, Why: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	state := func(want store.MailState) {
		t.Helper()
		all, err := sh.s.Mails(t.Context(), sh.merchant, want, 10)
		if err != nil || len(all) != 1 {
			t.Fatalf("%d mails are %s, want 1 (%v)", len(all), want, err)
		}
	}
	first, second, third := newID(), newID(), newID()
	m, mine := begin(first)
	if !mine || m.State != store.MailSending {
		t.Fatalf("first: %v %+v", mine, m)
	}
	if _, mine := begin(first); !mine {
		t.Error("a lost COMMIT: the same claim again is not ours")
	}
	if m, mine := begin(second); mine || m.State != store.MailSending {
		t.Errorf("a second sender: %v %+v", mine, m)
	}
	end(second, store.MailSent)
	state(store.MailSending) // it is not the second's
	end(first, store.MailNotSent)
	if m, mine := begin(second); !mine || m.MessageID != first.String()+"@shop.example" {
		t.Errorf("again: %v %+v", mine, m)
	}
	if n, err := sh.s.LoseMails(t.Context(), sh.merchant, time.Hour); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := sh.s.LoseMails(t.Context(), sh.merchant, -time.Second); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	state(store.MailUnknown)
	if _, mine := begin(third); mine {
		t.Error("what is unknown is sent again")
	}
	end(first, store.MailNotSent)
	state(store.MailUnknown) // the first has lost it
	end(second, store.MailUnknown)
	end(second, store.MailSent) // a fact that came late
	state(store.MailSent)
	end(second, store.MailNotSent)
	state(store.MailSent)
	if _, mine := begin(third); mine {
		t.Error("what was sent is sent again")
	}
}
