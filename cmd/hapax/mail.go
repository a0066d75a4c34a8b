package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/outbox/mail"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/store"
)

type mailCmd struct {
	Template mailTemplateCmd `cmd:"" help:"What mails look like: set, show, disable, try. Nothing is sent without an enabled template and HAPAX_SMTP_URL."`
	List     mailListCmd     `cmd:"" help:"List mails, newest first: what was sent, and of what it is unknown."`
	Resolve  mailResolveCmd  `cmd:"" help:"Say what became of an unknown or refused mail: that it was sent, or that it is to be sent again."`
}

type mailTemplateCmd struct {
	Set     mailSetCmd     `cmd:"" help:"Write a template and enable it."`
	Show    mailShowCmd    `cmd:"" help:"Print a template."`
	Disable mailDisableCmd `cmd:"" help:"Send no more mails of a kind; the template stays."`
	Try     mailTryCmd     `cmd:"" help:"Print the mail that a template makes of an example. Nothing is sent."`
}

// ofKind names a tenant's template.
type ofKind struct {
	ofMerchant
	Kind string `required:"" enum:"receipt,cancel_code" help:"receipt (a payment is paid) or cancel_code (a one-time code was issued)."`
}

func (c ofKind) kind() payment.Notification { return payment.Notification(c.Kind) }

// open finds the tenant; done must be called.
func (c ofKind) open(t *tool) (s *store.Store, m store.Merchant, done func(), err error) {
	if s, done, err = t.store(); err != nil {
		return s, m, nil, err
	}
	if m, err = c.find(t, s); err != nil {
		done()
	}
	return s, m, done, err
}

// template reads what is there.
func (c ofKind) template(t *tool, s *store.Store, m store.Merchant) (store.MailTemplate, error) {
	tpl, found, err := s.MailTemplateOf(t.ctx, m.ID, c.kind())
	if err == nil && !found {
		err = fmt.Errorf("%s has no template of this kind", m.Name)
	}
	return tpl, err
}

type mailSetCmd struct {
	ofKind
	Sender   string `required:"" help:"Who it is from: \"The Shop <receipts@shop.example>\"."`
	Subject  string `required:"" help:"One line, with {{.Field}}."`
	BodyFile string `required:"" name:"body-file" help:"File with the text; - reads standard input. Fields: docs/mail.md."`
}

// maxBodyFile bounds what is read of a body: more than a template may have.
const maxBodyFile = 128 << 10

// Run judges a template, and writes it.
func (c mailSetCmd) Run(t *tool) error {
	body, err := c.body(t)
	if err != nil {
		return err
	}
	if _, err := mail.Parse(c.kind(), c.Sender, c.Subject, body); err != nil {
		return err
	}
	s, m, done, err := c.open(t)
	if err != nil {
		return err
	}
	defer done()
	if err := s.SetMailTemplate(t.ctx, store.MailTemplate{Merchant: m.ID, Kind: c.kind(), Sender: c.Sender, Subject: c.Subject, Body: body}); err != nil {
		return err
	}
	return t.tell(map[string]any{"ok": true, "merchant": m.ID.Text(id.Merchant), "kind": c.Kind, "enabled": true},
		fmt.Sprintf("%s sends a mail for each %s from now on, where HAPAX_SMTP_URL is set and the intent has a receipt_email.", m.Name, c.Kind))
}

func (c mailSetCmd) body(t *tool) (string, error) {
	in := t.in
	if c.BodyFile != "-" {
		f, err := os.Open(c.BodyFile)
		if err != nil {
			return "", err
		}
		defer f.Close() //nolint:errcheck // it was only read
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, maxBodyFile))
	return strings.ReplaceAll(string(raw), "\r\n", "\n"), err
}

type mailShowCmd struct{ ofKind }

// Run prints a template.
func (c mailShowCmd) Run(t *tool) error {
	s, m, done, err := c.open(t)
	if err != nil {
		return err
	}
	defer done()
	tpl, err := c.template(t, s, m)
	if err != nil {
		return err
	}
	state := "disabled"
	if tpl.Enabled {
		state = "enabled"
	}
	return t.tell(map[string]any{"ok": true, "merchant": m.ID.Text(id.Merchant), "kind": c.Kind, "enabled": tpl.Enabled, "sender": tpl.Sender,
		"subject": tpl.Subject, "body": tpl.Body, "updated_at": present.Time(tpl.UpdatedAt)},
		fmt.Sprintf("%s, %s, %s since %s\n\nFrom: %s\nSubject: %s\n\n%s", m.Name, c.Kind, state, present.Time(tpl.UpdatedAt), tpl.Sender, tpl.Subject, tpl.Body))
}

type mailDisableCmd struct{ ofKind }

// Run turns a template off.
func (c mailDisableCmd) Run(t *tool) error {
	s, m, done, err := c.open(t)
	if err != nil {
		return err
	}
	defer done()
	found, err := s.EnableMailTemplate(t.ctx, m.ID, c.kind(), false)
	if err == nil && !found {
		err = fmt.Errorf("%s has no template of this kind", m.Name)
	}
	if err != nil {
		return err
	}
	return t.tell(map[string]any{"ok": true, "merchant": m.ID.Text(id.Merchant), "kind": c.Kind, "enabled": false},
		fmt.Sprintf("%s sends no more mails for a %s. `hapax mail template set` turns it on again.", m.Name, c.Kind))
}

type mailTryCmd struct {
	ofKind
	To string `required:"" help:"Whose mail it would be."`
}

// Run prints what a template makes of an example.
func (c mailTryCmd) Run(t *tool) error {
	if !payment.MailAddress(c.To) {
		return errors.New("--to is not a bare mail address")
	}
	s, m, done, err := c.open(t)
	if err != nil {
		return err
	}
	defer done()
	tpl, err := c.template(t, s, m)
	if err != nil {
		return err
	}
	parsed, err := mail.Parse(tpl.Kind, tpl.Sender, tpl.Subject, tpl.Body)
	if err != nil {
		return err
	}
	values := mail.Sample(tpl.Kind)
	values[mail.FieldMerchant] = m.Name
	letter, err := parsed.Render(values)
	if err != nil {
		return err
	}
	return t.tell(map[string]any{"ok": true, "from": letter.From.String(), "to": c.To, "subject": letter.Subject, "body": letter.Body},
		fmt.Sprintf("From: %s\nTo: %s\nSubject: %s\n\n%s", letter.From.String(), c.To, letter.Subject, letter.Body))
}

type mailListCmd struct {
	ofMerchant
	State string `enum:",sending,not_sent,sent,unknown,refused" default:"" help:"Only mails in this state. Empty: all."`
	Limit int    `default:"100" help:"At most so many, up to 1000."`
}

// maxMails bounds a list.
const maxMails = 1000

// Run lists mails. What has been on its way for too long is unknown, and is written so first.
func (c mailListCmd) Run(t *tool) error {
	if c.Limit < 1 || c.Limit > maxMails {
		return fmt.Errorf("--limit wants a number from 1 to %d", maxMails)
	}
	s, done, err := t.store()
	if err != nil {
		return err
	}
	defer done()
	m, err := c.find(t, s)
	if err != nil {
		return err
	}
	if _, err := s.LoseMails(t.ctx, m.ID, store.MailGivenUpAfter); err != nil {
		return err
	}
	mails, err := s.Mails(t.ctx, m.ID, store.MailState(c.State), c.Limit)
	if err != nil {
		return err
	}
	objects := []map[string]any{}
	var rows [][]string
	for _, x := range mails {
		objects = append(objects, map[string]any{"key": x.Key, "kind": string(x.Kind), "payment": x.Payment.Text(id.Payment), "event": x.Event.Text(id.Event),
			"message_id": x.MessageID, "state": string(x.State), "why": x.Why, "created_at": present.Time(x.CreatedAt), "updated_at": present.Time(x.UpdatedAt)})
		rows = append(rows, []string{present.Time(x.UpdatedAt), string(x.State), x.Payment.Text(id.Payment), x.Key, x.MessageID, cmp.Or(x.Why, "-")})
	}
	return t.tellList("mails", objects, "SINCE\tSTATE\tPAYMENT\tKEY\tMESSAGE-ID\tWHY", rows)
}

type mailResolveCmd struct {
	ofMerchant
	Key string `required:"" help:"The mail's key, as list tells it."`
	As  string `required:"" enum:"sent,again" help:"sent: the mail server's log shows that it went out. again: it shows that it did not; the mail is sent again."`
}

// Run writes what a person found out.
func (c mailResolveCmd) Run(t *tool) error {
	s, done, err := t.store()
	if err != nil {
		return err
	}
	defer done()
	m, err := c.find(t, s)
	if err != nil {
		return err
	}
	if _, err := s.LoseMails(t.ctx, m.ID, store.MailGivenUpAfter); err != nil {
		return err
	}
	again := c.As == "again"
	found, err := s.ResolveMail(t.ctx, m.ID, c.Key, again)
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("%s has no mail of this key that is unknown or refused, with a delivery that is still kept", m.Name)
	case again:
		return t.tell(map[string]any{"ok": true, "key": c.Key, "state": string(store.MailNotSent)}, "It is sent again, with the same Message-ID.")
	}
	return t.tell(map[string]any{"ok": true, "key": c.Key, "state": string(store.MailSent)}, "It counts as sent.")
}
