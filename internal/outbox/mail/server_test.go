package mail

import (
	"errors"
	"fmt"
	"net/textproto"
	"strings"
	"testing"

	"github.com/hapaxpay/hapax/internal/store"
)

func TestParseServer(t *testing.T) {
	for url, want := range map[string]Server{
		"smtp://mail.shop.example":                             {host: "mail.shop.example", port: "587"},
		"smtps://ann:p%40ss@mail.shop.example":                 {host: "mail.shop.example", port: "465", user: "ann", password: "p@ss", implicit: true},
		"smtp://ann:p@mail.shop.example:2525/?helo=me":         {host: "mail.shop.example", port: "2525", user: "ann", password: "p", hello: "me"},
		"smtp://relay.internal:25?starttls=off":                {host: "relay.internal", port: "25", plain: true},
		"smtp://ann:p@127.0.0.1:25?starttls=off&helo=a.b":      {host: "127.0.0.1", port: "25", user: "ann", password: "p", plain: true, hello: "a.b"},
		"smtp://ann:p@[::1]:25?starttls=off&helo=shop.example": {host: "::1", port: "25", user: "ann", password: "p", plain: true, hello: "shop.example"},
	} {
		got, err := ParseServer(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if want.hello == "" {
			want.hello = got.hello
		}
		if got.dial = nil; fmt.Sprint(*got) != fmt.Sprint(want) || got.hello == "" {
			t.Errorf("%s: %+v", url, *got)
		}
	}
	for _, url := range []string{"", "mail.shop.example:25", "http://secret@h", "smtp://", "smtp://secret@h", "smtp://:secret@h", "smtp://h/secret", "smtp://h#secret",
		"smtp://u:secret@h?starttls=off", "smtps://h?starttls=off", "smtp://h?starttls=no", "smtp://h?tls=secret", "smtp://h?helo=a%0d%0aMAIL", "smtp://h?helo=",
		"smtp://h?starttls=off&starttls=off", "smtp:secret", "smtp://u:secret%zz@h"} {
		if _, err := ParseServer(url); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// What an answer proves, and that the server's words go no further: they repeat the address.
func TestWhatAnAnswerProves(t *testing.T) {
	answer := func(code int, words string) error { return &textproto.Error{Code: code, Msg: words} }
	lost := errors.New("EOF")
	for name, c := range map[string]struct {
		got  proof
		want proof
	}{
		"no such person":        {refusal("recipient", answer(550, "5.1.1 <ann@shop.example>: unknown")), proof{store.MailRefused, "recipient: answer 550 5.1.1"}},
		"come back later":       {refusal("recipient", answer(450, "4.2.0 ann@shop.example is greylisted")), proof{store.MailNotSent, "recipient: answer 450 4.2.0"}},
		"log in first":          {refusal("recipient", answer(530, "5.7.0 log in")), proof{store.MailNotSent, "recipient: answer 530 5.7.0"}},
		"lost at the recipient": {refusal("recipient", lost), proof{store.MailNotSent, "recipient: EOF"}},
		"refused at the end":    {afterTheEnd(answer(554, "spam for ann@shop.example")), proof{store.MailRefused, "the mail: answer 554"}},
		"not now, at the end":   {afterTheEnd(answer(451, "4.3.0 disk full")), proof{store.MailNotSent, "the mail: answer 451 4.3.0"}},
		"another yes":           {afterTheEnd(answer(251, "fine")), proof{store.MailUnknown, "no answer to the end of the data: answer 251"}},
		"lost at the end":       {afterTheEnd(lost), proof{store.MailUnknown, "no answer to the end of the data: EOF"}},
		"noise at the end":      {afterTheEnd(textproto.ProtocolError("short response: ann@shop.example")), proof{store.MailUnknown, "no answer to the end of the data: an answer that is no SMTP"}},
	} {
		if c.got != c.want {
			t.Errorf("%s: %+v, want %+v", name, c.got, c.want)
		}
	}
}
