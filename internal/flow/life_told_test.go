package flow

import (
	"context"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/id"
)

// Told applies what a webhook says of a payment, each word of it in the order in which it is given, in one transaction: the truth of
// an acquirer reaches tests of orders by the one way that there is (PROTOCOL section 8).
func (f *Flow) Told(ctx context.Context, merchant, pay id.ID, word acquirer.Reply) error {
	at, _, now, err := f.standing(ctx, merchant, pay)
	if err != nil {
		return err
	}
	r, err := f.routeFor(ctx, merchant, at.Payment.Account)
	if err != nil {
		return err
	}
	news := f.observations(at.Payment, word.About, evidence.FromWebhook, word, now, "")
	return f.store.InTx(ctx, "told", func(ctx context.Context, tx Tx) error {
		g, err := tx.Guard(ctx)
		if err != nil {
			return err
		}
		fresh := append([]evidence.Observation(nil), news...) // a second run judges them anew
		return f.apply(ctx, tx, g, []truth{{row: Row{merchant, pay}, intent: at.Intent.ID, contract: f.contract(r.adapter), observations: fresh}})
	})
}
