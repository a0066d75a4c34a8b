package store_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/store"
)

func (sh *shop) message(name string) flow.Message {
	return flow.Message{Merchant: sh.merchant, ID: newID(), Account: sh.account, NoticeID: name, Raw: []byte("raw " + name), Hash: sha256.Sum256([]byte("raw " + name)),
		Trust: acquirer.TrustSigned}
}

func (sh *shop) keepMessage(m flow.Message) (fresh bool) {
	sh.t.Helper()
	sh.tx(func(ctx context.Context, tx flow.Tx) (err error) {
		fresh, err = tx.KeepMessage(ctx, m)
		return err
	})
	return fresh
}

func (sh *shop) pickMessages(limit, per int) (picked []flow.Message) {
	sh.t.Helper()
	sh.tx(func(ctx context.Context, tx flow.Tx) (err error) {
		picked, err = tx.PickMessages(ctx, limit, per, lease, newID)
		return err
	})
	return picked
}

func (sh *shop) saveMessage(m flow.Message) (saved bool) {
	sh.t.Helper()
	sh.tx(func(ctx context.Context, tx flow.Tx) (err error) {
		saved, err = tx.SaveMessage(ctx, m)
		return err
	})
	return saved
}

func TestAMessageIsStoredOnce(t *testing.T) {
	sh := newShop(t)
	m := sh.message("evt_1")
	again, other := m, m
	again.ID, other.ID, other.Raw, other.Hash = newID(), newID(), []byte("other"), sha256.Sum256([]byte("other"))
	if !sh.keepMessage(m) || sh.keepMessage(again) || sh.keepMessage(again) || !sh.keepMessage(other) {
		t.Error("fresh is said of a repeat, or not of news")
	}
	all, err := sh.s.Messages(t.Context(), sh.merchant, "", store.Page{Limit: 10})
	if err != nil || len(all) != 2 || all[1].ID != m.ID || all[1].Repeats != 2 || all[0].Repeats != 0 || all[1].Trust != acquirer.TrustSigned ||
		all[1].State != flow.MessageReceived || !all[1].DueAt.Equal(all[1].ReceivedAt) {
		t.Errorf("%+v, %v", all, err)
	}
	got := sh.pickMessages(1, 1)
	if len(got) != 1 || string(got[0].Raw) != "raw evt_1" || got[0].Hash != m.Hash || got[0].NoticeID != "evt_1" || got[0].Account != sh.account {
		t.Errorf("picked %+v", got)
	}
}

// Many due messages of one merchant do not starve another; a pick moves the due time, ever further.
func TestMessagesArePickedMerchantByMerchant(t *testing.T) {
	for _, distributed := range []bool{false, true} {
		t.Run(fmt.Sprint("distributed ", distributed), func(t *testing.T) {
			sh := newShop(t, func(c *store.Config) { c.Distributed = distributed })
			other := *sh
			other.merchant, other.account = sh.addMerchant()
			for n := range 5 {
				sh.keepMessage(sh.message(fmt.Sprint("evt_", n)))
			}
			other.keepMessage(other.message("evt_0"))
			picked := map[id.ID]int{}
			for _, m := range sh.pickMessages(10, 2) {
				picked[m.Merchant]++
				if m.Attempts != 1 || m.Claim.IsZero() || m.DueAt.Sub(m.ReceivedAt) < lease {
					t.Errorf("picked %+v", m)
				}
			}
			if picked[sh.merchant] != 2 || picked[other.merchant] != 1 {
				t.Errorf("picked %v", picked)
			}
			if rest := sh.pickMessages(10, 10); len(rest) != 3 {
				t.Errorf("picked %d more, want the 3 that nobody has", len(rest))
			}
			if rest := sh.pickMessages(10, 10); len(rest) != 0 {
				t.Errorf("picked again within the lease: %d", len(rest))
			}
			sh.db.Age(t, lease+time.Second)
			for _, m := range sh.pickMessages(10, 10) {
				if from := time.Now().Add(2*lease - time.Second); m.Attempts != 2 || m.DueAt.Before(from) || m.DueAt.After(from.Add(10*time.Second)) {
					t.Errorf("the second lease: %+v", m)
				}
			}
		})
	}
}

// Only the last pick writes, and only while the message is open; a person brings back what was not applied.
func TestTheLastPickWrites(t *testing.T) {
	sh := newShop(t)
	sh.keepMessage(sh.message("evt_1"))
	first := sh.pickMessages(1, 1)[0]
	sh.db.Age(t, time.Hour)
	second := sh.pickMessages(1, 1)[0]
	ended := func(m flow.Message, s flow.MessageState) flow.Message {
		m.State, m.DueAt, m.Why, m.Type = s, time.Time{}, "why", "type"
		return m
	}
	if sh.saveMessage(ended(first, flow.MessageApplied)) {
		t.Error("a pick wrote whose lease was over")
	}
	if !sh.saveMessage(ended(second, flow.MessageIgnored)) || sh.saveMessage(ended(second, flow.MessageApplied)) {
		t.Error("the last pick did not write, or wrote twice")
	}
	sh.count1("state = 'ignored' AND ended_at IS NOT NULL AND due_at IS NULL AND why = 'why' AND type = 'type'")
	if found, err := sh.s.RetryMessage(t.Context(), sh.merchant, first.ID); !found || err != nil {
		t.Errorf("%v, %v", found, err)
	}
	third := sh.pickMessages(1, 1)
	if len(third) != 1 || third[0].State != flow.MessageReceived || third[0].Attempts != 1 {
		t.Fatalf("brought back: %+v", third)
	}
	if !sh.saveMessage(ended(third[0], flow.MessageApplied)) {
		t.Error("not written")
	}
	if found, err := sh.s.RetryMessage(t.Context(), sh.merchant, first.ID); found || err != nil {
		t.Errorf("what was applied is brought back: %v, %v", found, err)
	}
	err := sh.s.InTx(t.Context(), "open without a due time", func(ctx context.Context, tx flow.Tx) error {
		m := third[0]
		m.DueAt = time.Time{}
		_, err := tx.SaveMessage(ctx, m)
		return err
	})
	if err == nil {
		t.Error("a message that is open and due at no time")
	}
}

// What is applied or ignored goes when its retention is over; what nobody could read or place stays.
func TestMessagesArePurged(t *testing.T) {
	sh := newShop(t)
	for n, s := range []flow.MessageState{flow.MessageApplied, flow.MessageIgnored, flow.MessageUnreadable, flow.MessageParked} {
		sh.keepMessage(sh.message(fmt.Sprint("evt_", n)))
		m := sh.pickMessages(1, 1)[0]
		m.State = s
		if !s.Open() {
			m.DueAt = time.Time{}
		}
		sh.saveMessage(m)
	}
	if n, err := sh.s.PurgeMessages(t.Context(), time.Hour, 10); n != 0 || err != nil {
		t.Errorf("purged %d too soon, %v", n, err)
	}
	sh.db.Age(t, 2*time.Hour)
	for want := range 3 {
		if n, err := sh.s.PurgeMessages(t.Context(), time.Hour, 1); n != min(1, 2-want) || err != nil {
			t.Errorf("purged %d, %v", n, err)
		}
	}
	sh.count1("state = 'unreadable'")
	sh.count1("state = 'parked'")
}

func (sh *shop) count1(where string) {
	sh.t.Helper()
	if n := sh.count("inbox_message", where); n != 1 {
		sh.t.Errorf("%d messages with %s", n, where)
	}
}
