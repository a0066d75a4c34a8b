package sim

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
)

func (s *script) keepMessage() (string, statement) {
	m := flow.Message{Merchant: s.merchant[0], ID: s.newID(), Account: s.account[0], NoticeID: pick(s, "evt_1", "evt_2", "evt_3", ""), Raw: []byte(pick(s, "a", "b")),
		Trust: pick(s, acquirer.TrustSigned, acquirer.TrustHint)}
	m.Hash = sha256.Sum256(m.Raw)
	return "keep message", func(ctx context.Context, tx flow.Tx) (any, error) { return tx.KeepMessage(ctx, m) }
}

func (s *script) workOnMessages() (string, statement) {
	lease, claim, stolen := pick(s, time.Microsecond, time.Hour), s.newID(), s.r.IntN(4) == 0
	state, due := pick(s, flow.MessageParked, flow.MessageReceived, flow.MessageApplied, flow.MessageIgnored, flow.MessageUnreadable), pick(s, time.Time{}, longAgo, farAway)
	limit, per := 1+s.r.IntN(3), 1+s.r.IntN(3)
	return "work on messages", func(ctx context.Context, tx flow.Tx) (any, error) {
		all, err := tx.PickMessages(ctx, limit, per, lease, func() id.ID { return claim })
		if err != nil || len(all) == 0 {
			return len(all), err
		}
		m := all[0]
		m.State, m.DueAt, m.Why, m.Type = state, due, "why", "type"
		if stolen {
			m.Claim = id.ID{15: 1}
		}
		saved, err := tx.SaveMessage(ctx, m)
		return []any{len(all), all[0].Attempts, all[0].Repeats, saved}, err
	}
}

func (s *script) readMailboxes() (string, statement) {
	account := flow.Row{Merchant: s.merchant[0], ID: pick(s, s.account[0], s.account[0], s.newID())}
	session := pick(s, "https://pay.example/1", "")
	return "mailboxes", func(ctx context.Context, tx flow.Tx) (any, error) {
		boxes, err := tx.Mailboxes(ctx, []flow.Row{account})
		if err != nil {
			return nil, err
		}
		found, err := tx.PaymentsBySession(ctx, account, []string{session})
		return []any{boxes, len(found)}, err
	}
}
