package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/store"
)

// maxMessages bounds a list of messages.
const maxMessages = 1000

type inboxCmd struct {
	List  inboxListCmd  `cmd:"" help:"List messages, newest first: what became of each, and why."`
	Retry inboxRetryCmd `cmd:"" help:"Work on a message again now, also on one that was ignored or could not be read."`
}

type inboxListCmd struct {
	Merchant string `help:"Of one tenant: mer_…, or its name. Empty: of all."`
	State    string `default:"" enum:",received,parked,applied,ignored,unreadable" help:"received (not applied yet), parked (fits no payment yet), applied, ignored or unreadable. Empty: all."`
	Limit    int    `default:"50" help:"Most messages of the list."`
}

// Run lists what acquirers told us. The bytes themselves are not printed.
func (c inboxListCmd) Run(t *tool) error {
	s, done, err := t.store()
	if err != nil {
		return err
	}
	defer done()
	limit := min(max(c.Limit, 1), maxMessages)
	var only store.Merchant
	if c.Merchant != "" {
		if only, err = (ofMerchant{c.Merchant}).find(t, s); err != nil {
			return err
		}
	}
	var all []flow.Message
	err = eachMerchant(t, s, func(m store.Merchant) (bool, error) {
		if c.Merchant != "" && m.ID != only.ID {
			return false, nil
		}
		some, err := s.Messages(t.ctx, m.ID, flow.MessageState(c.State), store.Page{Limit: limit})
		all = append(all, some...)
		return false, err
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(all, func(a, b flow.Message) int { return b.ReceivedAt.Compare(a.ReceivedAt) })
	objects := []map[string]any{}
	var rows [][]string
	for _, m := range all[:min(len(all), limit)] {
		objects = append(objects, messageObject(m))
		rows = append(rows, []string{m.ID.Text(id.Message), m.ReceivedAt.Format(time.RFC3339), cmp.Or(m.Type, "-"), m.Trust.String(), string(m.State),
			strconv.Itoa(m.Attempts), strconv.Itoa(m.Repeats), cmp.Or(m.Payment.Text(id.Payment), "-"), m.Why})
	}
	return t.tellList("messages", objects, "MESSAGE\tRECEIVED\tTYPE\tTRUST\tSTATE\tTRIES\tREPEATS\tPAYMENT\tWHY", rows)
}

func messageObject(m flow.Message) map[string]any {
	o := map[string]any{"id": m.ID.Text(id.Message), "merchant": m.Merchant.Text(id.Merchant), "acquirer_account": m.Account.Text(id.Account),
		"acquirer_message": m.NoticeID, "type": m.Type, "trust": m.Trust.String(), "state": string(m.State), "why": m.Why,
		"tries": m.Attempts, "repeats": m.Repeats, "received_at": present.Time(m.ReceivedAt)}
	for name, v := range map[string]string{"payment_intent": m.Intent.Text(id.Intent), "payment": m.Payment.Text(id.Payment)} {
		if v != "" {
			o[name] = v
		}
	}
	for name, at := range map[string]time.Time{"due_at": m.DueAt, "ended_at": m.EndedAt} {
		if !at.IsZero() {
			o[name] = present.Time(at)
		}
	}
	return o
}

type inboxRetryCmd struct {
	Message string `arg:"" help:"The message: msg_…"`
}

// Run makes a message due now. One that was applied stays as it is.
func (c inboxRetryCmd) Run(t *tool) error {
	message, err := parseID(id.Message, c.Message)
	if err != nil {
		return err
	}
	s, done, err := t.store()
	if err != nil {
		return err
	}
	defer done()
	found := false
	err = eachMerchant(t, s, func(m store.Merchant) (bool, error) {
		if found, err = s.RetryMessage(t.ctx, m.ID, message); err != nil {
			return true, err
		}
		return found, nil
	})
	if err == nil && !found {
		err = fmt.Errorf("no message %s waits or can be tried again: it does not exist, or was applied", c.Message)
	}
	if err != nil {
		return err
	}
	return t.tell(map[string]any{"ok": true, "id": c.Message}, c.Message+" is due now; a worker takes it")
}
