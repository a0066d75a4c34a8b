package flow

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
)

// Told applies what a webhook says of a payment, each word of it in the order in which it is given, as a message that was stored and
// is marked in the same transaction: the truth of an acquirer reaches tests of orders by the one way that there is (PROTOCOL
// section 8, V3).
func (f *Flow) Told(ctx context.Context, merchant, pay id.ID, word acquirer.Reply) error {
	at, _, _, err := f.standing(ctx, merchant, pay)
	if err != nil {
		return err
	}
	route, err := f.routeFor(ctx, merchant, at.Payment.Account)
	if err != nil {
		return err
	}
	m := Message{Merchant: merchant, ID: f.rt.NewID(), Account: at.Payment.Account, Trust: acquirer.TrustSigned}
	m.NoticeID, m.Raw = m.ID.String(), []byte(m.ID.String())
	m.Hash = sha256.Sum256(m.Raw)
	r := Reading{News: acquirer.News{Type: "told", Known: true, Replies: append([]acquirer.Reply{word}, word.Also...)}, adapter: route.adapter}
	err = f.store.InTx(ctx, "keep", func(ctx context.Context, tx Tx) error {
		_, kept := tx.KeepMessage(ctx, m)
		picked, err := tx.PickMessages(ctx, 1, 1, time.Minute, f.rt.NewID)
		if len(picked) == 1 {
			r.Message = picked[0]
		}
		return errors.Join(kept, err)
	})
	if err != nil {
		return err
	}
	told := f.heard(r)
	return f.mark(ctx, "told", func(ctx context.Context, tx Tx, g operation.Guard) (Message, error) {
		return f.applyMessage(ctx, tx, g, r, at.Payment, f.contract(route.adapter), told)
	})
}
