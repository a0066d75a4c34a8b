package mail

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/outbox"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/store"
	"github.com/hapaxpay/hapax/money"
)

// Book is what the sink needs of the store.
type Book interface {
	MailContentOf(ctx context.Context, merchant, pay id.ID, kind payment.Notification) (store.MailContent, bool, error)
	LoseMails(ctx context.Context, merchant id.ID, after time.Duration) (int, error)
	BeginMail(ctx context.Context, m store.Mail) (stands store.Mail, mine bool, err error)
	EndMail(ctx context.Context, m store.Mail) error
}

// Config joins the sink.
type Config struct {
	Server      *Server
	Book        Book
	Environment string // scopes the Message-ID, as it scopes keys (PROTOCOL D2)
	Clock       wire.Clock
	NewID       func() id.ID
	// Code derives a one-time code when it is sent: it stands nowhere.
	Code func(merchant, pay id.ID, amount int64, ordinal int) string
	// Faults are the crash points, nil: none. After PointMailSent the server has the mail, and nothing of ours knows.
	Faults interface {
		Hit(ctx context.Context, point string) error
	}
	// Counted is told how each try ended.
	Counted func(state store.MailState)
}

// Sink sends a notification for each event that wants one, at most once by its derived key (docs/decisions/0033).
type Sink struct{ Config }

var _ outbox.Sink = (*Sink)(nil)

// New makes the sink.
func New(c Config) *Sink { return &Sink{c} }

const (
	// parallel bounds the conversations of one call.
	parallel = 4
	// tries bounds the writing of what is known, where a database's answer is lost.
	tries = 3
	// writeWithin bounds it in time, also where the caller's is over.
	writeWithin = 5 * time.Second
	// staleAfter is how late a receipt may come. Who bought something five days ago does not expect it any more.
	staleAfter = 3 * 24 * time.Hour
)

// Deliver implements outbox.Sink.
func (s *Sink) Deliver(ctx context.Context, messages []outbox.Message) []outbox.Result {
	results := make([]outbox.Result, len(messages))
	if err := s.lose(ctx, messages); err != nil {
		for n := range results {
			results[n].Err = err
		}
		return results
	}
	var all sync.WaitGroup
	places := make(chan struct{}, parallel)
	for n := range messages {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			results[n] = s.one(ctx, messages[n])
		})
	}
	all.Wait()
	return results
}

// lose gives up the mails of those who vanished while they sent: before anything else, so that no later state of a template
// or code hides one.
func (s *Sink) lose(ctx context.Context, messages []outbox.Message) error {
	seen := map[id.ID]bool{}
	for _, m := range messages {
		if seen[m.Merchant] {
			continue
		}
		seen[m.Merchant] = true
		lost, err := s.Book.LoseMails(ctx, m.Merchant, store.MailGivenUpAfter)
		if err != nil {
			return err
		}
		for range lost {
			s.Counted(store.MailUnknown)
		}
	}
	return nil
}

// abandoned says why a mail is never sent by itself.
func abandoned(format string, args ...any) outbox.Result {
	return outbox.Result{Err: fmt.Errorf(format, args...), Abandon: true}
}

func (s *Sink) one(ctx context.Context, m outbox.Message) outbox.Result {
	if err := ctx.Err(); err != nil {
		return outbox.Result{Err: err}
	}
	// Measured before the claim: what the claim allows ends with it (PROTOCOL A5).
	permit := &wire.Permit{GrantedAt: s.Clock.Instant(), Fresh: sendWithin}
	kind := payment.EventType(m.Type).Notification()
	c, found, err := s.Book.MailContentOf(ctx, m.Merchant, m.Payment, kind)
	switch {
	case err != nil:
		return outbox.Result{Err: err}
	case kind == "" || !found:
		return abandoned("nobody is told of %s by mail", m.Type)
	}
	letter, no := s.letter(c, m, permit.GrantedAt.Wall)
	if no != nil {
		return outbox.Result{Err: no, Abandon: true}
	}
	mine, done := s.begin(ctx, s.row(c, m, letter))
	if done != nil {
		return *done
	}
	return s.finish(ctx, c, mine, letter, permit)
}

// letter says what is to be read; an error: nothing is to be sent, and why.
func (s *Sink) letter(c store.MailContent, m outbox.Message, now time.Time) (Letter, error) {
	switch {
	case !c.Template.Enabled:
		return Letter{}, errors.New("the merchant has no enabled template")
	case c.Intent.Receipt == "":
		return Letter{}, errors.New("the intent has no receipt_email")
	case c.Template.Kind == payment.CancelCodeByMail && (c.Code.Ordinal == 0 || c.Code.Over(c.Now)):
		return Letter{}, errors.New("the code was used, tried too often, or has expired")
	case now.Sub(m.At) > staleAfter:
		return Letter{}, fmt.Errorf("it is older than %v", staleAfter)
	}
	t, err := Parse(c.Template.Kind, c.Template.Sender, c.Template.Subject, c.Template.Body)
	if err != nil {
		return Letter{}, fmt.Errorf("template: %w", err)
	}
	values, err := s.values(c, m)
	if err != nil {
		return Letter{}, err
	}
	return t.Render(values)
}

// values fill the gaps of the template.
func (s *Sink) values(c store.MailContent, m outbox.Message) (map[string]string, error) {
	values := map[string]string{FieldMerchant: c.Template.MerchantName, FieldClientReference: c.Intent.ClientReference,
		FieldDescription: c.Intent.Description, FieldDate: minute(m.At)}
	minor := c.Payment.Captured // what was taken, which may be less than was held
	if c.Template.Kind == payment.CancelCodeByMail {
		minor = c.Code.Amount
		values[FieldDate], values[FieldExpires] = minute(c.Code.CreatedAt), minute(c.Code.ExpiresAt)
		values[FieldCode] = s.Code(c.Payment.Merchant, c.Payment.ID, c.Code.Amount, c.Code.Ordinal)
	}
	amount, err := money.New(minor, c.Payment.Amount.Currency())
	values[FieldAmount] = amount.String()
	return values, err
}

func minute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// row is the mail by its derived key. A code's mail has the key of the code that counts: an event about one that was replaced
// brings the one that took its place, once.
func (s *Sink) row(c store.MailContent, m outbox.Message, l Letter) store.Mail {
	key := payment.ReceiptKey(c.Intent.KeySeed, c.Payment.N)
	if c.Template.Kind == payment.CancelCodeByMail {
		key = payment.CodeMailKey(c.Intent.KeySeed, c.Payment.N, c.Code.Ordinal)
	}
	return store.Mail{Merchant: m.Merchant, Key: key, Kind: c.Template.Kind, Event: m.ID, Payment: m.Payment, Claim: s.NewID(),
		MessageID: messageID(s.Environment, m.Merchant, key, l)}
}

// begin writes that the mail is being sent, before any byte of it leaves. done: it is not for us to send it.
func (s *Sink) begin(ctx context.Context, mail store.Mail) (stands store.Mail, done *outbox.Result) {
	for range tries {
		var mine bool
		var err error
		stands, mine, err = s.Book.BeginMail(ctx, mail)
		switch {
		case errors.Is(err, operation.ErrCommitUnknown):
			done = &outbox.Result{Err: err}
			continue // by its claim the row tells whose it is
		case err != nil:
			return stands, &outbox.Result{Err: err}
		case mine:
			return stands, nil
		}
		return stands, s.standing(stands)
	}
	return stands, done
}

// standing says what a mail means that somebody else has begun.
func (s *Sink) standing(m store.Mail) *outbox.Result {
	switch m.State {
	case store.MailSent:
		return &outbox.Result{}
	case store.MailSending:
		return &outbox.Result{Err: errors.New("it is being sent by another, or whoever sent it has just vanished")}
	case store.MailUnknown:
		r := abandoned("it may have been sent, and is not sent again by itself: %s", m.Why)
		return &r
	}
	r := abandoned("%s", m.Why)
	return &r
}

// finish sends what was begun, and writes what that proved.
func (s *Sink) finish(ctx context.Context, c store.MailContent, mail store.Mail, l Letter, permit *wire.Permit) outbox.Result {
	var p proof
	if e, err := seal(l, c.Intent.Receipt, mail.MessageID, permit.GrantedAt.Wall); err != nil {
		p = proof{store.MailRefused, "it cannot be made into a mail"}
	} else if err := s.hit(ctx, outbox.PointMailBegun); err != nil {
		return outbox.Result{Err: err}
	} else {
		within, cancel := context.WithTimeout(ctx, sendWithin)
		p = s.Server.send(within, e, permit, s.Clock)
		cancel()
	}
	if err := s.hit(ctx, outbox.PointMailSent); err != nil {
		return outbox.Result{Err: err}
	}
	mail.State, mail.Why = p.state, p.why
	s.Counted(mail.State)
	if err := s.end(ctx, mail); err != nil {
		return outbox.Result{Err: err} // the row stays as being sent, and is unknown once it is given up
	}
	return outbox.Result{Err: p.err(), Abandon: p.state == store.MailRefused || p.state == store.MailUnknown}
}

// end writes what is known, whether or not the caller's time is over (PROTOCOL K11).
func (s *Sink) end(ctx context.Context, mail store.Mail) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeWithin)
	defer cancel()
	for range tries {
		if err = s.Book.EndMail(ctx, mail); err == nil {
			return nil
		}
	}
	return err
}

func (s *Sink) hit(ctx context.Context, point string) error {
	if s.Faults == nil {
		return nil
	}
	return s.Faults.Hit(ctx, point)
}
