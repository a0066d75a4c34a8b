package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/auth"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/store/dbgen"
	"github.com/jackc/pgx/v5/pgtype"
)

// messageDoublings bounds how often the lease of a message doubles: 128 times the first one.
const messageDoublings = 7

// Mailboxes implements flow.Inbox.
func (t *tx) Mailboxes(ctx context.Context, accounts []flow.Row) ([]flow.Mailbox, error) {
	if len(accounts) == 0 {
		return nil, nil
	}
	rows, err := t.q.Mailboxes(ctx, dbgen.MailboxesParams{Merchants: column(accounts, func(r flow.Row) pgtype.UUID { return dbID(r.Merchant) }),
		Ids: column(accounts, func(r flow.Row) pgtype.UUID { return dbID(r.ID) })})
	return column(rows, func(r dbgen.MailboxesRow) flow.Mailbox {
		return flow.Mailbox{Account: domainAccount(r.AcquirerAccount), Live: auth.Mode(r.Mode) == auth.Live}
	}), t.fail("mailboxes", err)
}

// KeepMessage implements flow.Inbox. Of twenty that come at once one is stored; the others wait for its commit and count.
func (t *tx) KeepMessage(ctx context.Context, m flow.Message) (fresh bool, err error) {
	n, err := t.q.InsertMessage(ctx, dbgen.InsertMessageParams{MerchantID: dbID(m.Merchant), ID: dbID(m.ID), AccountID: dbID(m.Account),
		MessageID: m.NoticeID, Raw: append([]byte{}, m.Raw...), RawHash: m.Hash[:], Trust: m.Trust.String()})
	if err == nil && n == 0 {
		if m.Trust == acquirer.TrustHint {
			_, err = t.q.RenewHint(ctx, dbgen.RenewHintParams{MerchantID: dbID(m.Merchant), AccountID: dbID(m.Account), MessageID: m.NoticeID, RawHash: m.Hash[:]})
			if err != nil {
				return false, t.fail("renew hint", err)
			}
		}
		n, err = t.q.RepeatMessage(ctx, dbgen.RepeatMessageParams{MerchantID: dbID(m.Merchant), AccountID: dbID(m.Account), MessageID: m.NoticeID, RawHash: m.Hash[:]})
		if err == nil {
			err = affected(n, 1)
		}
		return false, t.fail("repeat message", err)
	}
	return err == nil, t.fail("keep message", err)
}

// PickMessages implements flow.Inbox (PROTOCOL S2).
func (t *tx) PickMessages(ctx context.Context, limit, perMerchant int, lease time.Duration, claim func() id.ID) ([]flow.Message, error) {
	due, err := t.dueMessages(ctx, dbgen.DueMessagesParams{PerMerchant: int32(perMerchant), MaxRows: int32(limit)})
	if err != nil || len(due) == 0 {
		return nil, t.fail("due messages", err)
	}
	type row = dbgen.DueMessagesRow
	taken, err := t.q.TakeMessages(ctx, dbgen.TakeMessagesParams{LeaseUs: lease.Microseconds(), Doublings: messageDoublings,
		Merchants: column(due, func(r row) pgtype.UUID { return r.MerchantID }), Ids: column(due, func(r row) pgtype.UUID { return r.ID }),
		Attempts: column(due, func(r row) int32 { return r.Attempts }), ClaimIds: column(due, func(row) pgtype.UUID { return dbID(claim()) })})
	if err != nil {
		return nil, t.fail("take messages", err)
	}
	messages := column(taken, domainReceived)
	slices.SortStableFunc(messages, func(a, b flow.Message) int { return a.ReceivedAt.Compare(b.ReceivedAt) })
	return messages, nil
}

func (t *tx) dueMessages(ctx context.Context, p dbgen.DueMessagesParams) ([]dbgen.DueMessagesRow, error) {
	if !t.s.cfg.Distributed {
		return t.q.DueMessages(ctx, p)
	}
	rows, err := t.q.DueMessagesWaiting(ctx, dbgen.DueMessagesWaitingParams(p))
	return column(rows, func(r dbgen.DueMessagesWaitingRow) dbgen.DueMessagesRow { return dbgen.DueMessagesRow(r) }), err
}

func domainReceived(m dbgen.InboxMessage) flow.Message {
	return flow.Message{Merchant: domainID(m.MerchantID), ID: domainID(m.ID), Account: domainID(m.AccountID), NoticeID: m.MessageID,
		Raw: m.Raw, Hash: domainHash(m.RawHash), Trust: domainTrust(m.Trust), Type: m.Type, State: flow.MessageState(m.State), Why: m.Why,
		Intent: domainID(m.IntentID), Payment: domainID(m.PaymentID), Attempts: int(m.Attempts), Repeats: int(m.Repeats), Claim: domainID(m.ClaimID),
		DueAt: domainAt(m.DueAt), ReceivedAt: domainAt(m.ReceivedAt), EndedAt: domainAt(m.EndedAt)}
}

// domainTrust reads anything but "signed" as a hint.
func domainTrust(s string) acquirer.Trust {
	if s == acquirer.TrustSigned.String() {
		return acquirer.TrustSigned
	}
	return acquirer.TrustHint
}

// SaveMessage implements flow.Inbox. A message that is open without a due time, or due without being open, is a defect.
func (t *tx) SaveMessage(ctx context.Context, m flow.Message) (bool, error) {
	if m.State.Open() == m.DueAt.IsZero() {
		return false, t.fail("save message", fmt.Errorf("a message %s with due time %v", m.State, m.DueAt))
	}
	n, err := t.q.SaveMessage(ctx, dbgen.SaveMessageParams{State: string(m.State), Why: m.Why, Type: m.Type, IntentID: dbID(m.Intent),
		PaymentID: dbID(m.Payment), DueAt: dbTime(m.DueAt), MerchantID: dbID(m.Merchant), ID: dbID(m.ID), ClaimID: dbID(m.Claim)})
	return n == 1, t.fail("save message", err)
}

// PaymentsBySession implements flow.Inbox.
func (t *tx) PaymentsBySession(ctx context.Context, account flow.Row, sessions []string) ([]payment.Payment, error) {
	if len(sessions) == 0 {
		return nil, nil
	}
	rows, err := t.q.PaymentsBySession(ctx, dbgen.PaymentsBySessionParams{MerchantID: dbID(account.Merchant), AccountID: dbID(account.ID), Sessions: sessions})
	if err != nil {
		return nil, t.fail("payments by session", err)
	}
	payments, err := each(rows, domainPayment)
	return payments, t.fail("payments by session", err)
}

// Messages reads what the acquirers told a merchant, newest first, without the bytes; an empty state: all.
func (s *Store) Messages(ctx context.Context, merchant id.ID, state flow.MessageState, p Page) (found []flow.Message, err error) {
	err = s.look(ctx, "messages", func(ctx context.Context, q *dbgen.Queries) error {
		rows, err := q.Messages(ctx, dbgen.MessagesParams{MerchantID: dbID(merchant), State: string(state), BeforeID: dbID(p.Before), MaxRows: int32(p.Limit)})
		found = column(rows, func(m dbgen.MessagesRow) flow.Message {
			return flow.Message{Merchant: merchant, ID: domainID(m.ID), Account: domainID(m.AccountID), NoticeID: m.MessageID, Hash: domainHash(m.RawHash),
				Trust: domainTrust(m.Trust), Type: m.Type, State: flow.MessageState(m.State), Why: m.Why, Intent: domainID(m.IntentID),
				Payment: domainID(m.PaymentID), Attempts: int(m.Attempts), Repeats: int(m.Repeats), DueAt: domainAt(m.DueAt),
				ReceivedAt: domainAt(m.ReceivedAt), EndedAt: domainAt(m.EndedAt)}
		})
		return err
	})
	return found, err
}

// RetryMessage makes a message due now, also one that has ended without being applied. False: there is none such.
func (s *Store) RetryMessage(ctx context.Context, merchant, message id.ID) (found bool, err error) {
	err = s.change(ctx, "retry message", func(ctx context.Context, q *dbgen.Queries) error {
		n, err := q.RetryMessage(ctx, dbgen.RetryMessageParams{MerchantID: dbID(merchant), ID: dbID(message)})
		found = n == 1
		return err
	})
	return found, err
}

// PurgeMessages deletes up to limit messages that were applied or ignored so long ago, and says how many.
func (s *Store) PurgeMessages(ctx context.Context, retention time.Duration, limit int) (purged int, err error) {
	err = s.change(ctx, "purge messages", func(ctx context.Context, q *dbgen.Queries) error {
		n, err := q.PurgeMessages(ctx, dbgen.PurgeMessagesParams{RetentionUs: retention.Microseconds(), MaxRows: int32(limit)})
		purged = int(n)
		return err
	})
	return purged, err
}
