package store

import (
	"context"
	"errors"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/store/dbgen"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// MailTemplate is what a merchant's notifications of one kind look like.
type MailTemplate struct {
	Merchant              id.ID
	Kind                  payment.Notification
	Enabled               bool
	Sender, Subject, Body string
	MerchantName          string // read only
	UpdatedAt             time.Time
}

// MailState is what is known of a mail.
type MailState string

// The states. sending: somebody is at it, or died there. not_sent: proven, and tried again. unknown: it may have arrived, and
// is never sent again by itself. refused: the server refused the recipient or the mail, finally.
const (
	MailSending MailState = "sending"
	MailNotSent MailState = "not_sent"
	MailSent    MailState = "sent"
	MailUnknown MailState = "unknown"
	MailRefused MailState = "refused"
)

// MailStates are all of them.
var MailStates = []MailState{MailSending, MailNotSent, MailSent, MailUnknown, MailRefused}

// Mail is one notification by its derived key. It holds neither the address nor what was written.
type Mail struct {
	Merchant             id.ID
	Key                  string
	Kind                 payment.Notification
	Event, Payment       id.ID
	MessageID            string // of the mail, derived from the key
	State                MailState
	Why                  string
	Claim                id.ID // of whoever sends it, or sent it last
	CreatedAt, UpdatedAt time.Time
}

// SetMailTemplate writes a template and enables it. What it holds was judged by internal/outbox/mail.
func (s *Store) SetMailTemplate(ctx context.Context, t MailTemplate) error {
	return s.change(ctx, "set mail template", func(ctx context.Context, q *dbgen.Queries) error {
		row := dbgen.InsertMailTemplateParams{MerchantID: dbID(t.Merchant), Kind: string(t.Kind), Sender: t.Sender, Subject: t.Subject, Body: t.Body}
		n, err := q.InsertMailTemplate(ctx, row)
		if err != nil || n == 1 {
			return err
		}
		n, err = q.UpdateMailTemplate(ctx, dbgen.UpdateMailTemplateParams{MerchantID: row.MerchantID, Kind: row.Kind, Sender: t.Sender, Subject: t.Subject, Body: t.Body})
		if err == nil {
			err = affected(n, 1)
		}
		return err
	})
}

// EnableMailTemplate turns a template on or off; false: there is none. It holds for events that are numbered from then on,
// and off for mails that were not begun as well.
func (s *Store) EnableMailTemplate(ctx context.Context, merchant id.ID, kind payment.Notification, enabled bool) (found bool, err error) {
	err = s.change(ctx, "enable mail template", func(ctx context.Context, q *dbgen.Queries) error {
		n, err := q.EnableMailTemplate(ctx, dbgen.EnableMailTemplateParams{MerchantID: dbID(merchant), Kind: string(kind), Enabled: enabled})
		found = n == 1
		return err
	})
	return found, err
}

// MailTemplateOf reads a template; false: there is none.
func (s *Store) MailTemplateOf(ctx context.Context, merchant id.ID, kind payment.Notification) (t MailTemplate, found bool, err error) {
	err = s.look(ctx, "mail template", func(ctx context.Context, q *dbgen.Queries) (err error) {
		t, found, err = mailTemplate(ctx, q, merchant, kind)
		return err
	})
	return t, found, err
}

func mailTemplate(ctx context.Context, q *dbgen.Queries, merchant id.ID, kind payment.Notification) (MailTemplate, bool, error) {
	r, err := q.MailTemplate(ctx, dbgen.MailTemplateParams{MerchantID: dbID(merchant), Kind: string(kind)})
	if errors.Is(err, pgx.ErrNoRows) {
		return MailTemplate{}, false, nil
	}
	return MailTemplate{Merchant: merchant, Kind: kind, Enabled: r.Enabled, Sender: r.Sender, Subject: r.Subject, Body: r.Body,
		MerchantName: r.Name, UpdatedAt: domainAt(r.UpdatedAt)}, err == nil, err
}

// MailContent is what a mail is made of, as it is now.
type MailContent struct {
	Template MailTemplate // zero: none
	Intent   payment.Intent
	Payment  payment.Payment
	Code     payment.CancelCode // the one that counts; zero: none was issued, or the kind wants none
	Now      time.Time          // the database's, with Code
}

// MailContentOf reads what a mail of the kind is made of; false: the merchant has no such payment.
func (s *Store) MailContentOf(ctx context.Context, merchant, pay id.ID, kind payment.Notification) (c MailContent, found bool, err error) {
	err = s.look(ctx, "mail content", func(ctx context.Context, q *dbgen.Queries) error {
		rows, err := q.ReadPayments(ctx, dbgen.ReadPaymentsParams{Merchants: []pgtype.UUID{dbID(merchant)}, Ids: []pgtype.UUID{dbID(pay)}})
		if found = err == nil && len(rows) > 0; !found {
			return err
		}
		if c.Intent, err = domainIntent(rows[0].PaymentIntent); err != nil {
			return err
		}
		if c.Payment, err = domainPayment(rows[0].Payment); err != nil {
			return err
		}
		if kind == payment.CancelCodeByMail {
			codes, err := q.MailCode(ctx, dbgen.MailCodeParams{MerchantID: dbID(merchant), PaymentID: dbID(pay)})
			if err != nil {
				return err
			}
			for _, r := range codes { // one at most
				c.Code, c.Now = domainCancelCode(r.CancelCode), domainAt(r.ReadAt)
			}
		}
		c.Template, _, err = mailTemplate(ctx, q, merchant, kind)
		return err
	})
	return c, found, err
}

// BeginMail writes that a mail is being sent now; mine says that the caller, by m.Claim, is the one who sends it. It is called
// before any byte leaves, and may be repeated with the same claim until then: after a lost COMMIT the claim tells whose the row
// is (PROTOCOL K10). The mail that comes back is what stands, with the Message-ID of its first try.
func (s *Store) BeginMail(ctx context.Context, m Mail) (stands Mail, mine bool, err error) {
	err = s.change(ctx, "begin mail", func(ctx context.Context, q *dbgen.Queries) error {
		n, err := q.InsertMail(ctx, dbgen.InsertMailParams{MerchantID: dbID(m.Merchant), MailKey: m.Key, Kind: string(m.Kind),
			EventID: dbID(m.Event), PaymentID: dbID(m.Payment), MessageID: m.MessageID, ClaimID: dbID(m.Claim)})
		if err == nil && n == 0 {
			n, err = q.ClaimMail(ctx, dbgen.ClaimMailParams{ClaimID: dbID(m.Claim), MerchantID: dbID(m.Merchant), MailKey: m.Key})
		}
		if mine = n == 1; err != nil {
			return err
		}
		r, err := q.ReadMail(ctx, dbgen.ReadMailParams{MerchantID: dbID(m.Merchant), MailKey: m.Key})
		stands = domainMail(r)
		return err
	})
	return stands, mine && err == nil, err
}

// MailGivenUpAfter is how long whoever sends a mail may be silent: longer than all its limits together.
const MailGivenUpAfter = 2 * time.Minute

// LoseMails gives up the merchant's mails that have been on their way for longer than after: it is unknown whether they
// arrived. It says how many.
func (s *Store) LoseMails(ctx context.Context, merchant id.ID, after time.Duration) (lost int, err error) {
	err = s.change(ctx, "lose mails", func(ctx context.Context, q *dbgen.Queries) error {
		n, err := q.LoseMails(ctx, dbgen.LoseMailsParams{Why: "whoever was sending it vanished", MerchantID: dbID(merchant), AfterUs: after.Microseconds()})
		lost = int(n)
		return err
	})
	return lost, err
}

// EndMail writes what became of a mail that BeginMail gave to this claim; it may be repeated.
func (s *Store) EndMail(ctx context.Context, m Mail) error {
	return s.change(ctx, "end mail", func(ctx context.Context, q *dbgen.Queries) error {
		_, err := q.EndMail(ctx, dbgen.EndMailParams{State: string(m.State), Why: m.Why, MerchantID: dbID(m.Merchant), MailKey: m.Key, ClaimID: dbID(m.Claim)})
		return err
	})
}

// ResolveMail writes what a person found out about a mail that is unknown or refused: it was sent, or it is sent again. false:
// there is no such mail, or its delivery is not kept any more.
func (s *Store) ResolveMail(ctx context.Context, merchant id.ID, key string, again bool) (found bool, err error) {
	state := MailSent
	if again {
		state = MailNotSent
	}
	err = s.change(ctx, "resolve mail", func(ctx context.Context, q *dbgen.Queries) error {
		n, err := q.ResolveMail(ctx, dbgen.ResolveMailParams{State: string(state), Why: "a person said so", MerchantID: dbID(merchant), MailKey: key})
		if found = n == 1; err != nil || !found || !again {
			return err
		}
		if n, err = q.ReopenMailDelivery(ctx, dbgen.ReopenMailDeliveryParams{MerchantID: dbID(merchant), MailKey: key}); err == nil && n == 0 {
			return errNoDelivery
		}
		return err
	})
	if errors.Is(err, errNoDelivery) {
		return false, nil
	}
	return found, err
}

// errNoDelivery undoes what was resolved: without its delivery nobody would send it.
var errNoDelivery = errors.New("the delivery is not kept any more")

// Mails lists a merchant's mails, newest first; state empty: all.
func (s *Store) Mails(ctx context.Context, merchant id.ID, state MailState, limit int) (all []Mail, err error) {
	err = s.look(ctx, "mails", func(ctx context.Context, q *dbgen.Queries) error {
		rows, err := q.Mails(ctx, dbgen.MailsParams{MerchantID: dbID(merchant), State: string(state), MaxRows: int32(limit)})
		all = column(rows, domainMail)
		return err
	})
	return all, err
}

func domainMail(m dbgen.Mail) Mail {
	return Mail{Merchant: domainID(m.MerchantID), Key: m.MailKey, Kind: payment.Notification(m.Kind), Event: domainID(m.EventID),
		Payment: domainID(m.PaymentID), MessageID: m.MessageID, State: MailState(m.State), Why: m.Why, Claim: domainID(m.ClaimID),
		CreatedAt: domainAt(m.CreatedAt), UpdatedAt: domainAt(m.UpdatedAt)}
}
