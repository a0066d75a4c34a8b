package sim

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
)

// messageKey is the unique index inbox_message_once.
type messageKey struct {
	merchant, account id.ID
	notice            string
	hash              [32]byte
}

func keyOfMessage(m flow.Message) messageKey {
	return messageKey{m.Merchant, m.Account, m.NoticeID, m.Hash}
}

// maxNotice and maxRaw are the limits of the table inbox_message, in bytes.
const (
	maxNotice = 255
	maxRaw    = 256 << 10
)

func messageTable() *table[flow.Row, flow.Message] {
	return newTable("inbox_message", func(m flow.Message) flow.Row { return flow.Row{Merchant: m.Merchant, ID: m.ID} }, checkMessage,
		unique[flow.Message]{"inbox_message_once", func(m flow.Message) (any, bool) { return keyOfMessage(m), true }})
}

func checkMessage(m flow.Message) error {
	return rules(
		rule{"message_id", m.NoticeID != "" && len(m.NoticeID) <= maxNotice},
		rule{"raw", len(m.Raw) <= maxRaw},
		rule{"inbox_message_ended", m.State.Open() == m.EndedAt.IsZero()},
		rule{"inbox_message_due", m.DueAt.IsZero() != m.EndedAt.IsZero()},
	)
}

// Mailboxes implements flow.Inbox. Every merchant of a simulation is a test merchant.
func (t *tx) Mailboxes(_ context.Context, accounts []flow.Row) ([]flow.Mailbox, error) {
	var found []flow.Mailbox
	for _, row := range orderedRows(accounts) {
		if a, ok := t.accounts.get(row); ok {
			found = append(found, flow.Mailbox{Account: a})
		}
	}
	return found, nil
}

// KeepMessage implements flow.Inbox.
func (t *tx) KeepMessage(_ context.Context, m flow.Message) (bool, error) {
	if old, ok := t.messages.by("inbox_message_once", keyOfMessage(m)); ok {
		old.Repeats++
		if m.Trust == acquirer.TrustHint && old.Trust == acquirer.TrustHint {
			old.State, old.DueAt, old.ReceivedAt, old.EndedAt, old.Claim, old.Attempts = flow.MessageReceived, t.now, t.now, time.Time{}, id.ID{}, 0
		}
		return false, t.messages.put(t, old)
	}
	m.Type, m.State, m.Why, m.Attempts, m.Repeats, m.Claim, m.Intent, m.Payment = "", flow.MessageReceived, "", 0, 0, id.ID{}, id.ID{}, id.ID{}
	m.ReceivedAt, m.DueAt, m.EndedAt = t.now, t.now, time.Time{}
	if err := t.messages.insert(t, m); err != nil {
		return false, t.fail("keep message", err)
	}
	return true, nil
}

// messageDoublings bounds how often the lease of a message doubles, as the store's.
const messageDoublings = 7

// inTurns puts the first message of each merchant before the second of any.
func inTurns(due []flow.Message) []flow.Message {
	turn, count := map[id.ID]int{}, map[id.ID]int{}
	for _, m := range due {
		count[m.Merchant]++
		turn[m.ID] = count[m.Merchant]
	}
	slices.SortStableFunc(due, func(a, b flow.Message) int { return cmp.Compare(turn[a.ID], turn[b.ID]) })
	return due
}

// PickMessages implements flow.Inbox.
func (t *tx) PickMessages(_ context.Context, limit, perMerchant int, lease time.Duration, claim func() id.ID) ([]flow.Message, error) {
	due := t.messages.all(func(m flow.Message) bool { return !m.DueAt.IsZero() && !m.DueAt.After(t.now) })
	due = inTurns(fair(due, len(due), perMerchant, func(m flow.Message) (id.ID, time.Time) { return m.Merchant, m.DueAt }))
	due = due[:min(len(due), limit)]
	slices.SortFunc(due, func(a, b flow.Message) int {
		return compareRow(flow.Row{Merchant: a.Merchant, ID: a.ID}, flow.Row{Merchant: b.Merchant, ID: b.ID})
	})
	for n := range due {
		m := &due[n]
		m.Claim, m.DueAt = claim(), t.now.Add(lease<<min(m.Attempts, messageDoublings))
		m.Attempts++
		if err := t.messages.put(t, *m); err != nil {
			return nil, t.fail("take messages", err)
		}
	}
	slices.SortStableFunc(due, func(a, b flow.Message) int { return a.ReceivedAt.Compare(b.ReceivedAt) })
	return due, nil
}

// SaveMessage implements flow.Inbox.
func (t *tx) SaveMessage(_ context.Context, m flow.Message) (bool, error) {
	if m.State.Open() == m.DueAt.IsZero() {
		return false, t.fail("save message", violates("a message without due time, or with one it does not need"))
	}
	row, ok := t.messages.get(flow.Row{Merchant: m.Merchant, ID: m.ID})
	if !ok || row.Claim != m.Claim || row.DueAt.IsZero() {
		return false, nil
	}
	row.State, row.Why, row.Type, row.Intent, row.Payment, row.DueAt = m.State, m.Why, m.Type, m.Intent, m.Payment, micro(m.DueAt)
	if row.DueAt.IsZero() {
		row.EndedAt = t.now
	}
	if err := t.messages.put(t, row); err != nil {
		return false, t.fail("save message", err)
	}
	return true, nil
}

// PaymentsBySession implements flow.Inbox.
func (t *tx) PaymentsBySession(_ context.Context, account flow.Row, sessions []string) ([]payment.Payment, error) {
	return t.payments.all(func(p payment.Payment) bool {
		return p.Merchant == account.Merchant && p.Account == account.ID && p.Session != "" && slices.Contains(sessions, p.Session)
	}), nil
}
