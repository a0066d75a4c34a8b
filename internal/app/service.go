package app

import (
	"context"

	"github.com/hapaxpay/hapax/internal/auth"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/httpapi"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/internal/store"
)

// service is what the HTTP door leads to: commands go to the flows, questions to the store.
type service struct {
	*flow.Flow
	store *store.Store
	ring  *auth.Keyring // opens the secrets of webhook endpoints
}

func (r *Replica) service() *service { return &service{r.Flow, r.Store, r.ring} }

var _ httpapi.Service = (*service)(nil)

// Intent implements httpapi.Service.
func (s *service) Intent(ctx context.Context, merchant, intent id.ID) (present.IntentReading, error) {
	o, found, err := s.store.IntentByID(ctx, merchant, intent)
	if err == nil && !found {
		err = problem.New(problem.NotFound, "")
	}
	return readingOf(o), err
}

// Payment implements httpapi.Service.
func (s *service) Payment(ctx context.Context, merchant, payment id.ID) (present.PaymentReading, error) {
	a, found, err := s.store.PaymentByID(ctx, merchant, payment)
	if err == nil && !found {
		err = problem.New(problem.NotFound, "")
	}
	return paymentReading(a), err
}

// IntentByReference implements httpapi.Service.
func (s *service) IntentByReference(ctx context.Context, merchant id.ID, reference string) (present.IntentReading, bool, error) {
	o, found, err := s.store.IntentByReference(ctx, merchant, reference)
	return readingOf(o), found, err
}

// IntentsByCustomer implements httpapi.Service.
func (s *service) IntentsByCustomer(ctx context.Context, merchant id.ID, customer string, page httpapi.Page) ([]present.IntentReading, bool, error) {
	found, err := s.store.IntentsByCustomer(ctx, merchant, customer, oneMore(page))
	all := make([]present.IntentReading, len(found))
	for n, o := range found {
		all[n] = readingOf(o)
	}
	all, more := cut(all, page)
	return all, more, err
}

// Payments implements httpapi.Service.
func (s *service) Payments(ctx context.Context, merchant id.ID, q httpapi.PaymentQuery, page httpapi.Page) ([]present.PaymentReading, bool, error) {
	found, err := s.store.Payments(ctx, merchant, store.PaymentFilter(q), oneMore(page))
	all := make([]present.PaymentReading, len(found))
	for n, a := range found {
		all[n] = paymentReading(a)
	}
	all, more := cut(all, page)
	return all, more, err
}

// RefundByID implements httpapi.Service.
func (s *service) RefundByID(ctx context.Context, merchant, refund id.ID) (present.RefundReading, error) {
	m, found, err := s.store.RefundByID(ctx, merchant, refund)
	if err == nil && !found {
		err = problem.New(problem.NotFound, "")
	}
	return present.RefundReading{Modification: m}, err
}

// Refunds implements httpapi.Service.
func (s *service) Refunds(ctx context.Context, merchant, payment id.ID, page httpapi.Page) ([]present.RefundReading, bool, error) {
	if _, err := s.Payment(ctx, merchant, payment); err != nil {
		return nil, false, err
	}
	found, err := s.store.Refunds(ctx, merchant, payment, oneMore(page))
	all := make([]present.RefundReading, len(found))
	for n, m := range found {
		all[n] = present.RefundReading{Modification: m}
	}
	all, more := cut(all, page)
	return all, more, err
}

// Event implements httpapi.Service.
func (s *service) Event(ctx context.Context, merchant, event id.ID) ([]byte, error) {
	e, found, err := s.store.EventByID(ctx, merchant, event)
	if err == nil && !found {
		err = problem.New(problem.NotFound, "")
	}
	return e.Payload, err
}

// Events implements httpapi.Service.
func (s *service) Events(ctx context.Context, merchant id.ID, q httpapi.EventQuery) (httpapi.EventPage, error) {
	page, err := s.store.Feed(ctx, merchant, store.FeedFilter{Intent: q.Intent, Customer: q.Customer, Type: string(q.Type)}, q.After, q.Limit)
	return httpapi.EventPage(page), err
}

// codeText gives the text of an issued one-time code that still counts, see httpapi.Config.ShowCancelCode.
func (s *service) codeText(ctx context.Context, merchant, payment id.ID, ordinal int) (text string, err error) {
	err = s.store.InTx(ctx, "cancel code", func(ctx context.Context, tx flow.Tx) error {
		c, found, err := tx.LatestCancelCode(ctx, flow.Row{Merchant: merchant, ID: payment})
		if text = ""; found && c.Ordinal == ordinal {
			text = s.CancelCode(merchant, payment, c.Amount, ordinal)
		}
		return err
	})
	return text, err
}

// oneMore asks for one item beyond the page: that is how it is known that more follow.
func oneMore(p httpapi.Page) store.Page { return store.Page{Before: p.After, Limit: p.Limit + 1} }

func cut[T any](all []T, p httpapi.Page) ([]T, bool) {
	if len(all) > p.Limit {
		return all[:p.Limit], true
	}
	return all, false
}

func readingOf(o store.Order) present.IntentReading {
	r := present.IntentReading{Intent: o.Intent}
	for _, a := range o.Payments {
		r.Payments = append(r.Payments, paymentReading(a))
	}
	return r
}

func paymentReading(a store.Attempt) present.PaymentReading {
	return present.PaymentReading{Intent: a.Intent, Payment: a.Payment, Extra: present.Extra{InReview: a.InReview, KeptAside: a.KeptAside}}
}
