// Package mail tries the mail sink against a real SMTP server and a real database.
package mail

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/app"
	"github.com/hapaxpay/hapax/internal/config"
	"github.com/hapaxpay/hapax/internal/host"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/outbox"
	"github.com/hapaxpay/hapax/internal/outbox/mail"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/store"
)

const (
	payer     = "ann+boots@home.example"
	sender    = "The Shop <receipts@shop.example>"
	plainText = "?starttls=off"
)

// shop is an installation whose merchant sends mails.
type shop struct {
	*rig.Rig
	t       *testing.T
	replica *rig.Replica
	counted map[store.MailState]int
	mu      sync.Mutex
}

func newShop(t *testing.T) *shop {
	s := &shop{Rig: rig.New(t, nil), t: t, counted: map[store.MailState]int{}}
	s.replica = s.Replica()
	s.template(payment.Receipt, "Receipt for {{.ClientReference}}", "{{.Merchant}} took {{.Amount}} on {{.Date}}.\n{{if .Description}}For: {{.Description}}\n{{end}}")
	s.template(payment.CancelCodeByMail, "Your code", "Code {{.Code}} for {{.Amount}} until {{.Expires}}")
	return s
}

func (s *shop) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) template(kind payment.Notification, subject, body string) {
	s.t.Helper()
	_, err := mail.Parse(kind, sender, subject, body)
	s.must(err)
	s.must(s.replica.Store.SetMailTemplate(s.t.Context(), store.MailTemplate{Merchant: s.Merchant.ID, Kind: kind, Sender: sender, Subject: subject, Body: body}))
}

// sink makes one that talks to the server at this address.
func (s *shop) sink(server *server, url string, faults operation.Faults) *mail.Sink {
	s.t.Helper()
	parsed, err := mail.ParseServer(url)
	s.must(err)
	if server.roots != nil {
		parsed = parsed.WithTLS(&tls.Config{RootCAs: server.roots})
	}
	runtime := &host.Runtime{}
	c := mail.Config{Server: parsed, Book: s.replica.Store, Environment: "test", Clock: wire.SystemClock{}, NewID: runtime.NewID,
		Code: s.replica.Flow.CancelCode, Counted: func(state store.MailState) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.counted[state]++
		}}
	if faults != nil {
		c.Faults = faults
	}
	return mail.New(c)
}

// paid pays an order, and gives the event that tells of it.
func (s *shop) paid(o rig.Order) outbox.Message {
	s.t.Helper()
	if o.Receipt == "" {
		o.Receipt = payer
	}
	_, err := s.replica.Pay("key-"+o.Reference, o)
	s.must(err)
	return s.message(s.PaymentOf("key-"+o.Reference), payment.EventPaid, 0)
}

// message is the n-th event of a type, as a relay tells it.
func (s *shop) message(pay id.ID, kind payment.EventType, n int) outbox.Message {
	s.t.Helper()
	m := outbox.Message{Merchant: s.Merchant.ID, Payment: pay, Sink: outbox.SinkMail, Type: string(kind), Attempt: 1}
	s.must(s.Owner.QueryRow(s.t.Context(), `SELECT id, intent_id, version, event_key, payload, created_at FROM event
		WHERE merchant_id = $1 AND payment_id = $2 AND type = $3 ORDER BY version OFFSET $4 LIMIT 1`, m.Merchant, pay, m.Type, n).Scan(&m.ID, &m.Subject, &m.Version, &m.Key, &m.Payload, &m.At))
	m.Since = m.At
	return m
}

// deliver makes one try.
func (s *shop) deliver(to *mail.Sink, m outbox.Message) outbox.Result {
	s.t.Helper()
	results := to.Deliver(s.t.Context(), []outbox.Message{m})
	if len(results) != 1 {
		s.t.Fatalf("%d results for one message", len(results))
	}
	if err := results[0].Err; err != nil && strings.Contains(err.Error(), payer) {
		s.t.Errorf("the address is in an error: %v", err)
	}
	return results[0]
}

// delivered makes one try that must succeed.
func (s *shop) delivered(to *mail.Sink, m outbox.Message) {
	s.t.Helper()
	if r := s.deliver(to, m); r.Err != nil || r.Abandon {
		s.t.Fatalf("%+v", r)
	}
}

// failed makes one try that must fail, and says whether it is given up.
func (s *shop) failed(to *mail.Sink, m outbox.Message, abandoned bool, words string) {
	s.t.Helper()
	if r := s.deliver(to, m); r.Err == nil || r.Abandon != abandoned || !strings.Contains(r.Err.Error(), words) {
		s.t.Fatalf("%+v, want abandoned %v and %q", r, abandoned, words)
	}
}

// state is what is known of the only mail.
func (s *shop) state(want store.MailState) store.Mail {
	s.t.Helper()
	all, err := s.replica.Store.Mails(s.t.Context(), s.Merchant.ID, "", 10)
	s.must(err)
	if len(all) != 1 || all[0].State != want {
		s.t.Fatalf("%+v, want one that is %s", all, want)
	}
	if strings.Contains(fmt.Sprint(all[0]), payer) {
		s.t.Errorf("the address is in %+v", all[0])
	}
	return all[0]
}

// One receipt for each payment, however often its event comes, one after the other and all at once, over two processes.
func TestOneReceiptHoweverOftenTheEventComes(t *testing.T) {
	s, server := newShop(t), listen(t, how{plain: true})
	url := server.url("smtp", "", plainText)
	sinks := []*mail.Sink{s.sink(server, url, nil), s.sink(server, url, nil)}
	m := s.paid(rig.Order{Reference: "order-1", Minor: 18600, Currency: "KWD"})
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() {
			if r := s.deliver(sinks[n%2], m); r.Abandon {
				t.Errorf("abandoned: %v", r.Err)
			}
		})
	}
	all.Wait()
	for range 5 {
		s.delivered(sinks[0], m)
	}
	mails := server.taken()
	if len(mails) != 1 {
		t.Fatalf("%d mails", len(mails))
	}
	got, row := mails[0], s.state(store.MailSent)
	subject, err := new(mime.WordDecoder).DecodeHeader(got.Header.Get("Subject"))
	s.must(err)
	date := m.At.UTC().Format("2006-01-02 15:04 UTC")
	if subject != "Receipt for order-1" || got.body != "a shop took 18.600 KWD on "+date+".\r\n" {
		t.Errorf("%q %q", subject, got.body)
	}
	if got.from != "receipts@shop.example" || len(got.to) != 1 || got.to[0] != payer || got.Header.Get("Message-ID") != "<"+row.MessageID+">" {
		t.Errorf("%s %v %v", got.from, got.to, got.Header)
	}
	if want := s.Text("SELECT key_seed FROM payment_intent") + ":receipt:1"; row.Key != want || s.counted[store.MailSent] != 1 {
		t.Errorf("%s, want %s; counted %v", row.Key, want, s.counted)
	}
}

// STARTTLS and TLS from the first byte, with a user; nothing leaves where the server is not who it should be.
func TestEncryptionAndLogin(t *testing.T) {
	s := newShop(t)
	for n, c := range []struct {
		how                        how
		scheme, credentials, query string
		trusted                    bool
		wrong                      string // empty: sent
	}{
		{how{login: true}, "smtp", "ann:p%40ss%3Aword@", "", true, ""},
		{how{login: true, implicit: true}, "smtps", "ann:p%40ss%3Aword@", "", true, ""},
		{how{}, "smtp", "", "?helo=shop.example", true, ""},
		{how{login: true, plain: true}, "smtp", "ann:p%40ss%3Aword@", plainText, true, ""},
		{how{login: true}, "smtp", "ann:other@", "", true, "AUTH PLAIN: answer 535 5.7.8"},
		{how{login: true}, "smtp", "", "", true, "sender: answer 502 5.7.0"},
		{how{login: true}, "smtp", "ann:p%40ss%3Aword@", "", false, "certificate"},
		{how{login: true, implicit: true}, "smtps", "ann:p%40ss%3Aword@", "", false, "certificate"},
		{how{login: true, plain: true}, "smtp", "ann:p%40ss%3Aword@", "", true, "no STARTTLS"},
		{how{}, "smtp", "ann:p%40ss%3Aword@", "", true, "AUTH: the server offers none"},
	} {
		server := listen(t, c.how)
		if !c.trusted {
			server.roots = nil
		}
		m := s.paid(rig.Order{Reference: fmt.Sprintf("order-%d", n)})
		sink := s.sink(server, server.url(c.scheme, c.credentials, c.query), nil)
		sent := 1
		if c.wrong == "" {
			s.delivered(sink, m)
		} else {
			sent = 0
			s.failed(sink, m, false, c.wrong)
		}
		if got := len(server.taken()); got != sent {
			t.Errorf("%+v: %d mails", c, got)
		}
		if logins := server.loggedIn(); len(logins) > 0 && c.wrong != "" && !strings.Contains(c.wrong, "535") {
			t.Errorf("%+v: a password left", c)
		}
	}
}

// A process that vanishes while it sends leaves a mail of which nobody knows: it is visible, and sent again only by a person.
func TestVanishingNeverSendsTwice(t *testing.T) {
	for point, sent := range map[string]int{outbox.PointMailBegun: 0, outbox.PointMailSent: 1} {
		t.Run(point, func(t *testing.T) {
			s, server := newShop(t), listen(t, how{plain: true})
			url := server.url("smtp", "", plainText)
			m := s.paid(rig.Order{Reference: "order-1"})
			s.failed(s.sink(server, url, rig.CrashAt(point, 1)), m, false, operation.ErrVanished.Error())
			next := s.sink(server, url, nil)
			s.failed(next, m, false, "by another")
			s.state(store.MailSending)
			s.Later(store.MailGivenUpAfter + time.Second)
			s.failed(next, m, true, "not sent again by itself")
			s.failed(next, m, true, "not sent again by itself")
			if row := s.state(store.MailUnknown); len(server.taken()) != sent || s.counted[store.MailUnknown] != 1 || row.Why == "" {
				t.Fatalf("%d mails, counted %v, %+v", len(server.taken()), s.counted, row)
			}
		})
	}
}

// The line is cut in the middle of the data: no mail, and not two afterwards.
func TestCutInTheMiddleOfTheData(t *testing.T) {
	s, server := newShop(t), listen(t, how{plain: true})
	s.template(payment.Receipt, "s", strings.Repeat("{{.Merchant}} ünd {{.Amount}}\n", 100))
	server.onData = func(n int, c *smtp.Conn) error {
		if n == 1 {
			return c.Conn().Close()
		}
		return nil
	}
	sink := s.sink(server, server.url("smtp", "", plainText), nil)
	m := s.paid(rig.Order{Reference: "order-1"})
	first := s.deliver(sink, m)
	if first.Err == nil {
		t.Fatal("sent over a line that was cut")
	}
	second := s.deliver(sink, m)
	// Whether the last line had left was for the network to decide; what follows from it was not.
	if taken := len(server.taken()); first.Abandon == (second.Err == nil) || taken > 1 || (second.Err == nil) != (taken == 1) {
		t.Errorf("%+v, then %+v, %d mails", first, second, taken)
	}
}

// The server is away, then busy, then takes the mail: once, with the id of the first try.
func TestLaterUntilItIsTaken(t *testing.T) {
	s, server := newShop(t), listen(t, how{plain: true})
	address, url := server.address, server.url("smtp", "", plainText)
	server.stopped()
	sink := s.sink(server, url, nil)
	m := s.paid(rig.Order{Reference: "order-1"})
	s.failed(sink, m, false, "not reached")
	first := s.state(store.MailNotSent)
	server = listen(t, how{plain: true, address: address})
	server.onRcpt = func(n int) error {
		if n == 1 {
			return answer(450, "4.2.0")
		}
		return nil
	}
	server.onData = func(n int, _ *smtp.Conn) error {
		if n == 1 {
			return answer(451, "4.3.0")
		}
		return nil
	}
	s.failed(sink, m, false, "recipient: answer 450 4.2.0")
	s.failed(sink, m, false, "the mail: answer 451 4.3.0")
	s.delivered(sink, m)
	s.delivered(sink, m)
	last := s.state(store.MailSent)
	if mails := server.taken(); len(mails) != 1 || mails[0].Header.Get("Message-ID") != "<"+first.MessageID+">" || last.MessageID != first.MessageID {
		t.Errorf("%d mails, %+v, %+v", len(mails), first, last)
	}
}

func TestARefusalIsFinal(t *testing.T) {
	s, server := newShop(t), listen(t, how{plain: true})
	server.onRcpt = func(int) error { return answer(550, "5.1.1") }
	sink := s.sink(server, server.url("smtp", "", plainText), nil)
	m := s.paid(rig.Order{Reference: "order-1"})
	s.failed(sink, m, true, "recipient: answer 550 5.1.1")
	server.onRcpt = func(int) error { return nil }
	s.failed(sink, m, true, "recipient: answer 550 5.1.1")
	if s.state(store.MailRefused); len(server.taken()) != 0 {
		t.Error("sent after a refusal")
	}
}

// What a client wrote begins no header and is not run, and its address goes nowhere else.
func TestWhatClientsWrote(t *testing.T) {
	s, server := newShop(t), listen(t, how{plain: true})
	s.template(payment.Receipt, "For {{.Description}}", "{{.ClientReference}}: {{.Description}}")
	var log strings.Builder
	s.replica = s.Replica(func(_ *config.Config, o *app.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	m := s.paid(rig.Order{Reference: "order-1"})
	for _, table := range []string{"event", "history", "evidence", "operation", "outbox", "payment"} {
		if n := s.Count("SELECT count(*) FROM "+table+" x WHERE x::text LIKE '%' || $1 || '%' OR x::text LIKE '%' || encode($1::bytea, 'hex') || '%'", payer); n != 0 {
			t.Errorf("the address is in %s", table)
		}
	}
	_, err := s.Owner.Exec(t.Context(), "UPDATE payment_intent SET description = $1", "a\r\nBcc: all@home.example\r\n\r\n{{.Amount}}\n.\nQUIT")
	s.must(err)
	s.delivered(s.sink(server, server.url("smtp", "", plainText), nil), m)
	mails := server.taken()
	if len(mails) != 1 || len(mails[0].to) != 1 || mails[0].Header.Get("Bcc") != "" || mails[0].Header.Get("Subject") != "For a  Bcc: all@home.example    {{.Amount}} . QUIT" ||
		mails[0].body != "order-1: a  Bcc: all@home.example    {{.Amount}} . QUIT\r\n" {
		t.Errorf("%+v", mails)
	}
	if strings.Contains(log.String(), payer) {
		t.Error("the address is in the log")
	}
}

var sixDigits = regexp.MustCompile(`Code (\d{6}) for`)

// The code that counts is sent once, and works; one that was replaced, used or has expired is not sent. It stands nowhere.
func TestOneTimeCodes(t *testing.T) {
	s, server := newShop(t), listen(t, how{plain: true})
	sink := s.sink(server, server.url("smtp", "", plainText), nil)
	hold := func(key string) id.ID {
		_, err := s.replica.Hold(key, rig.Order{Reference: key, Receipt: payer})
		s.must(err)
		return s.PaymentOf(key)
	}
	issue := func(key string, pay id.ID) {
		a, err := s.replica.IssueCode(key, pay)
		if s.must(err); a.Status != 201 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	pay := hold("held")
	issue("code-1", pay)
	issue("code-2", pay)
	first, second := s.message(pay, payment.EventCancelCode, 0), s.message(pay, payment.EventCancelCode, 1)
	s.delivered(sink, first)
	s.delivered(sink, second)
	s.delivered(sink, first)
	mails := server.taken()
	if len(mails) != 1 {
		t.Fatalf("%d mails", len(mails))
	}
	found := sixDigits.FindStringSubmatch(mails[0].body)
	if found == nil || found[1] != s.replica.Flow.CancelCode(s.Merchant.ID, pay, 499_000, 2) || s.Count("SELECT count(*) FROM mail WHERE mail_key LIKE '%:cancel_code:1:2'") != 1 {
		t.Fatalf("%q", mails[0].body)
	}
	for _, column := range []string{"mail.why", "mail.message_id", "mail.mail_key", "event.event_key", "history.why"} {
		table, _, _ := strings.Cut(column, ".")
		if n := s.Count("SELECT count(*) FROM " + table + " WHERE " + column + "::text LIKE '%" + found[1] + "%'"); n != 0 {
			t.Errorf("the code is in %s", column)
		}
	}
	if a, err := s.replica.Cancel("cancel", pay, found[1]); err != nil || a.Status != 200 && a.Status != 201 {
		t.Errorf("the code does not work: %v %d %s", err, a.Status, a.Body)
	}
	s.failed(sink, second, true, "used")
	other := hold("held-2")
	issue("code-3", other)
	s.Later(payment.CodeLife + time.Second)
	s.failed(sink, s.message(other, payment.EventCancelCode, 0), true, "expired")
	if n := len(server.taken()); n != 1 {
		t.Errorf("%d mails", n)
	}
}

// Without a template or an address nothing is sent, and nothing is tried again.
func TestNothingToSend(t *testing.T) {
	s, server := newShop(t), listen(t, how{plain: true})
	sink := s.sink(server, server.url("smtp", "", plainText), nil)
	m := s.paid(rig.Order{Reference: "order-1"})
	old := m
	old.At = m.At.Add(-4 * 24 * time.Hour)
	s.failed(sink, old, true, "older than")
	other := m
	other.Type = string(payment.EventDeclined)
	s.failed(sink, other, true, "nobody is told")
	if found, err := s.replica.Store.EnableMailTemplate(t.Context(), s.Merchant.ID, payment.Receipt, false); !found || err != nil {
		t.Fatal(found, err)
	}
	s.failed(sink, m, true, "no enabled template")
	s.template(payment.Receipt, "s", "b")
	_, err := s.Owner.Exec(t.Context(), "UPDATE payment_intent SET receipt_email = NULL")
	s.must(err)
	s.failed(sink, m, true, "no receipt_email")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := sink.Deliver(ctx, []outbox.Message{m})[0]; r.Abandon || !errors.Is(r.Err, context.Canceled) {
		t.Errorf("after the end: %+v", r)
	}
	if len(server.taken()) != 0 || s.Count("SELECT count(*) FROM mail") != 0 {
		t.Error("something was sent")
	}
}

// Through the relays of two replicas: one mail for each paid order whose payer gave an address, also where one of them vanishes
// after the server took a mail, and where the server was away.
func TestThroughTheRelay(t *testing.T) {
	s, server := newShop(t), listen(t, how{plain: true})
	address, url := server.address, server.url("smtp", "", plainText)
	mailing := rig.With(func(c *config.Config) { c.SMTPURL = url })
	first, second := s.Replica(mailing), s.Replica(mailing)
	for n := range 20 {
		s.paid(rig.Order{Reference: fmt.Sprintf("order-%d", n)})
	}
	_, err := s.replica.Pay("key-silent", rig.Order{Reference: "silent"})
	s.must(err)
	pass := func(replicas ...*rig.Replica) {
		t.Helper()
		var all sync.WaitGroup
		for _, p := range replicas {
			all.Go(func() {
				if _, err := p.Relay.Pass(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	deliveries := func(state string) int {
		t.Helper()
		return s.Count("SELECT count(*) FROM delivery WHERE sink = 'mail' AND state = $1", state)
	}
	pass(first, second)
	if mails := server.taken(); len(mails) != 20 || deliveries("delivered") != 20 || s.Count("SELECT count(*) FROM delivery") != 20 {
		t.Fatalf("%d mails, %d delivered", len(mails), deliveries("delivered"))
	}
	server.stopped()
	s.paid(rig.Order{Reference: "later"})
	pass(first, second)
	if deliveries("waiting") != 1 {
		t.Fatal("it does not wait")
	}
	server = listen(t, how{plain: true, address: address})
	s.Later(time.Hour)
	pass(first, second)
	if len(server.taken()) != 1 || deliveries("delivered") != 21 {
		t.Fatalf("%d mails", len(server.taken()))
	}
	dying := s.Replica(mailing, rig.WithFaults(rig.CrashAt(outbox.PointMailSent, 1)))
	s.paid(rig.Order{Reference: "last"})
	pass(dying)
	for range 3 {
		s.Later(store.MailGivenUpAfter + time.Second)
		pass(first, second)
	}
	unknown, err := s.replica.Store.Mails(t.Context(), s.Merchant.ID, store.MailUnknown, 10)
	if s.must(err); len(server.taken()) != 2 || len(unknown) != 1 || deliveries("abandoned") != 1 || deliveries("waiting") != 0 {
		t.Fatalf("%d mails, unknown: %+v", len(server.taken()), unknown)
	}
	// Only a person sends it again, and it can be recognised.
	if found, err := s.replica.Store.ResolveMail(t.Context(), s.Merchant.ID, unknown[0].Key, true); !found || err != nil {
		t.Fatal(found, err)
	}
	pass(first, second)
	mails := server.taken()
	if len(mails) != 3 || mails[1].Header.Get("Message-ID") != mails[2].Header.Get("Message-ID") || deliveries("abandoned") != 0 {
		t.Errorf("%d mails", len(mails))
	}
	if found, err := s.replica.Store.ResolveMail(t.Context(), s.Merchant.ID, unknown[0].Key, true); found || err != nil {
		t.Errorf("what was sent is opened again: %v %v", found, err)
	}
}
