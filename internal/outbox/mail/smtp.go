package mail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"regexp"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/store"
)

// envelope is one mail, ready to leave.
type envelope struct {
	from, to string
	data     []byte
}

// seal makes the bytes of a mail. The message's id is the same on each try: who gets it twice can see that.
func seal(l Letter, to, messageID string, at time.Time) (envelope, error) {
	m := gomail.NewMsg(gomail.WithEncoding(gomail.EncodingQP), gomail.WithCharset(gomail.CharsetUTF8), gomail.WithNoDefaultUserAgent())
	m.FromMailAddress(&l.From)
	err := m.To(to)
	m.Subject(l.Subject)
	m.SetDateWithValue(at)
	m.SetMessageIDWithValue(messageID)
	m.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: nobody's vacation answers it
	m.SetBodyString(gomail.TypeTextPlain, l.Body)
	var b bytes.Buffer
	if err == nil {
		_, err = m.WriteTo(&b)
	}
	return envelope{from: l.From.Address, to: to, data: b.Bytes()}, err
}

// proof is what a conversation proved of one mail. why never holds the server's words: they may repeat the address.
type proof struct {
	state store.MailState // MailSent, MailNotSent, MailRefused or MailUnknown
	why   string
}

func (p proof) err() error {
	if p.state == store.MailSent {
		return nil
	}
	return errors.New(p.why)
}

// send sends one mail once. The server has the mail when it answers 250 to the end of the data; it has none while the last
// line was not sent (RFC 5321 4.1.1.4); in between nothing is proven. permit is checked just before that line.
//
// The conversation is led here, and not by the library's Send: that one says QUIT after data that were cut short, which ends
// them with that last line.
func (s *Server) send(ctx context.Context, e envelope, permit *wire.Permit, clock wire.Clock) proof {
	c, err := s.connect(ctx)
	if err != nil {
		return proof{store.MailNotSent, err.Error()}
	}
	defer c.stop()
	if err := c.Mail("<" + e.from + ">"); err != nil {
		return proof{store.MailNotSent, "sender: " + plainly(err).Error()}
	}
	if err := c.Rcpt("<" + e.to + ">"); err != nil {
		return refusal("recipient", err)
	}
	data, err := c.Data()
	if err != nil {
		return refusal("DATA", err)
	}
	if _, err := data.Write(e.data); err != nil {
		return proof{store.MailNotSent, "cut off in the middle of the data: " + plainly(err).Error()}
	}
	if err := permit.Use(clock.Instant()); err != nil {
		return proof{store.MailNotSent, "this process stood still for too long before the end of the data"}
	}
	if err := c.hold(lastWord); err != nil {
		return proof{store.MailNotSent, "the time was over before the end of the data"}
	}
	if err := data.Close(); err != nil {
		return afterTheEnd(err)
	}
	goodbye(c)
	return proof{store.MailSent, ""}
}

// goodbye is polite; the mail is with the server whatever it says.
func goodbye(c *session) {
	if err := c.Quit(); err != nil {
		return
	}
}

// refusal judges the answer to a command about this very mail. 4xx and a lost connection are tried again; 503 and 530 are
// about us and not about the mail.
func refusal(what string, err error) proof {
	p := proof{store.MailNotSent, what + ": " + plainly(err).Error()}
	if code := answered(err); code >= 500 && code != 503 && code != 530 {
		p.state = store.MailRefused
	}
	return p
}

// afterTheEnd judges what came after the last line: only an answer proves anything.
func afterTheEnd(err error) proof {
	if code := answered(err); code >= 400 && code < 600 {
		return refusal("the mail", err)
	}
	return proof{store.MailUnknown, "no answer to the end of the data: " + plainly(err).Error()}
}

// answered gives the code of the server's answer; 0: the error is no answer.
func answered(err error) int {
	var e *textproto.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// enhanced is the status code of RFC 3463 with which an answer may begin.
var enhanced = regexp.MustCompile(`^[245]\.\d{1,3}\.\d{1,3}\b`)

// plainly says an error without the server's words: they may repeat an address, or what we logged in with.
func plainly(err error) error {
	var answer *textproto.Error
	var network net.Error
	switch {
	case errors.As(err, &answer):
		if detail := enhanced.FindString(answer.Msg); detail != "" {
			return fmt.Errorf("answer %d %s", answer.Code, detail)
		}
		return fmt.Errorf("answer %d", answer.Code)
	case errors.As(err, &network) && network.Timeout():
		return errors.New("no answer in time")
	case errors.As(err, &network):
		return network
	case errors.As(err, new(textproto.ProtocolError)):
		return errors.New("an answer that is no SMTP")
	}
	return err
}

// messageID names a mail for whoever gets it twice: the same on each try, and opaque (PROTOCOL D2).
func messageID(environment string, merchant id.ID, key string, l Letter) string {
	_, domain, _ := strings.Cut(l.From.Address, "@")
	return payment.Wire(environment, merchant, key, longestID) + "@" + domain
}

// longestID is the longest part of a Message-ID before its domain, in bytes.
const longestID = 40
