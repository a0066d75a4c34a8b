package mail

import (
	"bufio"
	"context"
	"errors"
	"io"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/store"
)

// script is a server that says one line for each line it hears, and hangs up where it has none left. net.Pipe keeps nothing
// in between: what was not heard has not left.
type script struct {
	answers []string
	stopAt  int    // hang up after so many bytes of the data; 0: never
	heard   string // of the data
	ended   bool   // the last line of the data was heard
}

func (s *script) serve(conn net.Conn) {
	defer conn.Close() //nolint:errcheck // this is how it hangs up
	in := bufio.NewReader(conn)
	for n, answer := range s.answers {
		if n > 0 && !s.hear(in, s.answers[n-1]) {
			return
		}
		if answer == "" {
			return
		}
		if _, err := io.WriteString(conn, answer+"\r\n"); err != nil {
			return
		}
	}
	s.hear(in, "") // whatever comes after the last answer
}

// hear takes a line, or after 354 the data.
func (s *script) hear(in *bufio.Reader, last string) bool {
	for {
		line, err := in.ReadString('\n')
		if err != nil || !strings.HasPrefix(last, "354") {
			return err == nil
		}
		if line == ".\r\n" {
			s.ended = true
			return true
		}
		if s.heard += line; s.stopAt > 0 && len(s.heard) > s.stopAt {
			return false
		}
	}
}

// What each way of ending proves.
func TestEachEndProvesWhatItCan(t *testing.T) {
	good := []string{"220 hello", "250 hello", "250 sender", "250 recipient", "354 go on"}
	with := func(answers ...string) []string { return append(append([]string{}, good...), answers...) }
	for name, c := range map[string]struct {
		script script
		late   bool // the process stands still before the end of the data
		want   store.MailState
		ended  bool
	}{
		"taken":                           {script{answers: with("250 taken", "221 bye")}, false, store.MailSent, true},
		"taken, and hung up":              {script{answers: with("250 taken", "")}, false, store.MailSent, true},
		"hung up at once":                 {script{answers: []string{""}}, false, store.MailNotSent, false},
		"no greeting":                     {script{answers: []string{"554 go away"}}, false, store.MailNotSent, false},
		"hung up after the greeting":      {script{answers: good[:1]}, false, store.MailNotSent, false},
		"sender refused":                  {script{answers: append(good[:2:2], "553 not you", "221 bye")}, false, store.MailNotSent, false},
		"recipient refused":               {script{answers: append(good[:3:3], "550 5.1.1 no such person", "221 bye")}, false, store.MailRefused, false},
		"recipient later":                 {script{answers: append(good[:3:3], "450 4.2.1 later", "221 bye")}, false, store.MailNotSent, false},
		"hung up after the recipient":     {script{answers: good[:4]}, false, store.MailNotSent, false},
		"no data wanted":                  {script{answers: append(good[:4:4], "554 5.5.1 none", "221 bye")}, false, store.MailRefused, false},
		"hung up in the data":             {script{answers: good, stopAt: 100}, false, store.MailNotSent, false},
		"stood still before the end":      {script{answers: with("250 taken", "221 bye")}, true, store.MailNotSent, false},
		"hung up after the end":           {script{answers: with("")}, false, store.MailUnknown, true},
		"refused after the end":           {script{answers: with("554 5.7.1 spam", "221 bye")}, false, store.MailRefused, true},
		"later, after the end":            {script{answers: with("451 4.3.0 full", "221 bye")}, false, store.MailNotSent, true},
		"nonsense after the end":          {script{answers: with("hm", "221 bye")}, false, store.MailUnknown, true},
		"going on after the end is a no?": {script{answers: with("354 go on", "221 bye")}, false, store.MailUnknown, true},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			served := make(chan struct{})
			go func() { defer close(served); c.script.serve(theirs) }()
			s := &Server{host: "mail.shop.example", port: "25", plain: true, hello: "me",
				dial: func(context.Context, string, string) (net.Conn, error) { return ours, nil }}
			clock := &stopped{now: wire.Instant{Mono: time.Hour, Wall: time.Unix(1e9, 0)}}
			permit := &wire.Permit{GrantedAt: clock.now, Fresh: sendWithin}
			if c.late {
				clock.now.Wall = clock.now.Wall.Add(sendWithin) // a suspended machine: only the wall clock shows it
			}
			e := envelope{from: "a@shop.example", to: "b@home.example", data: []byte(strings.Repeat("a line of text\r\n", 1000))}
			p := s.send(t.Context(), e, permit, clock)
			<-served
			if p.state != c.want || c.script.ended != c.ended || (p.err() == nil) != (p.state == store.MailSent) {
				t.Errorf("%+v, and the end of the data was heard: %v", p, c.script.ended)
			}
		})
	}
}

type stopped struct{ now wire.Instant }

func (s *stopped) Instant() wire.Instant { return s.now }

// Whoever waits may leave before the end of the data; after it the answer is waited for.
func TestLeavingBeforeAndAfterTheEnd(t *testing.T) {
	for _, after := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { leaving(t, after) })
	}
}

func leaving(t *testing.T, after bool) {
	ours, theirs := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		in := bufio.NewReader(theirs)
		say := func(line string) bool {
			_, err := io.WriteString(theirs, line+"\r\n")
			return err == nil
		}
		say("220 hello")
		for {
			line, err := in.ReadString('\n')
			switch {
			case err != nil:
				return
			case strings.HasPrefix(line, "MAIL") && !after:
				cancel()
			case strings.HasPrefix(line, "DATA"):
				say("354 go on")
			case line == ".\r\n":
				cancel()
				synctest.Wait() // whoever closes the connection because of that has done it
				say("250 taken")
			case strings.HasPrefix(line, "EHLO"), strings.HasPrefix(line, "MAIL"), strings.HasPrefix(line, "RCPT"):
				say("250 good")
			case strings.HasPrefix(line, "QUIT"):
				say("221 bye")
				return
			}
		}
	}()
	s := &Server{host: "h", port: "25", plain: true, hello: "me", dial: func(context.Context, string, string) (net.Conn, error) { return ours, nil }}
	p := s.send(ctx, envelope{from: "a@b", to: "c@d", data: []byte("x\r\n")}, &wire.Permit{GrantedAt: wire.SystemClock{}.Instant(), Fresh: sendWithin}, wire.SystemClock{})
	want := store.MailNotSent
	if after {
		want = store.MailSent
	}
	if p.state != want {
		t.Errorf("left after the end: %v: %+v", after, p)
	}
}

// A mail is as it was written, in headers that nothing can break, and says how to answer it.
func TestSeal(t *testing.T) {
	l := Letter{From: mail.Address{Name: "Магазин, \"the\" shop", Address: "receipts@shop.example"},
		Subject: "Чек № 1 — " + strings.Repeat("long words ", 60), Body: "Спасибо!\n.\nFrom here\n" + strings.Repeat("x", 2000) + "\n"}
	at := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	e, err := seal(l, "ann@home.example", "hpxabc@shop.example", at)
	if err != nil || e.from != "receipts@shop.example" || e.to != "ann@home.example" {
		t.Fatal(e.from, e.to, err)
	}
	for line := range strings.SplitSeq(string(e.data), "\r\n") {
		if len(line) > 998 || strings.ContainsAny(line, "\r\n") || strings.IndexFunc(line, func(r rune) bool { return r > '~' }) >= 0 {
			t.Fatalf("a line that a mail server may not take: %q", line)
		}
	}
	m, err := mail.ReadMessage(strings.NewReader(string(e.data)))
	if err != nil {
		t.Fatal(err)
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
	body, bodyErr := io.ReadAll(quotedprintable.NewReader(m.Body))
	from, fromErr := m.Header.AddressList("From")
	to, toErr := m.Header.AddressList("To")
	date, dateErr := m.Header.Date()
	if err := errors.Join(err, bodyErr, fromErr, toErr, dateErr); err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(subject) != strings.TrimSpace(l.Subject) || strings.ReplaceAll(string(body), "\r\n", "\n") != l.Body {
		t.Errorf("%q\n%q", subject, body)
	}
	if *from[0] != l.From || to[0].Address != "ann@home.example" || len(to) != 1 || !date.Equal(at) {
		t.Errorf("%v %v %v", from, to, date)
	}
	for name, want := range map[string]string{"Message-Id": "<hpxabc@shop.example>", "Auto-Submitted": "auto-generated", "Content-Transfer-Encoding": "quoted-printable", "Mime-Version": "1.0"} {
		if got := m.Header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if kind, params, err := mime.ParseMediaType(m.Header.Get("Content-Type")); err != nil || kind != "text/plain" || params["charset"] != "UTF-8" {
		t.Error(kind, params, err)
	}
}
