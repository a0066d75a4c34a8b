package flow

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/problem"
)

func updateEndpoint(ctx context.Context, w *endpointWork) (*problem.Problem, error) {
	if w.c.Target != nil {
		return w.c.Target, nil
	}
	e := w.e
	if w.c.URL != nil && e.URL != *w.c.URL {
		e.URL, e.FailingSince = *w.c.URL, time.Time{} // what the old address did says nothing of the new one
	}
	if w.c.Description != nil {
		e.Description = *w.c.Description
	}
	if w.c.Types != nil {
		e.Types = *w.c.Types
	}
	if e.URL == w.e.URL && e.Description == w.e.Description && slices.Equal(e.Types, w.e.Types) {
		return nil, nil
	}
	w.e = e
	return nil, w.save(ctx, payment.EventEndpointUpdated)
}

func disableEndpoint(ctx context.Context, w *endpointWork) (*problem.Problem, error) {
	if !w.e.Enabled {
		return nil, nil
	}
	w.e = w.e.Disable(payment.DisabledByMerchant)
	return nil, w.save(ctx, payment.EventEndpointDisabled)
}

// enableEndpoint lets what rests at the endpoint go on, each delivery when its next try is due.
func enableEndpoint(ctx context.Context, w *endpointWork) (*problem.Problem, error) {
	if w.e.Enabled {
		return nil, nil
	}
	w.e = w.e.Enable()
	return nil, w.save(ctx, payment.EventEndpointEnabled)
}

// rotateSecret adds a secret; the others stay good for the overlap, so that a receiver can change at its own time.
func rotateSecret(ctx context.Context, w *endpointWork) (*problem.Problem, error) {
	row := Row{w.e.Merchant, w.e.ID}
	live, err := w.tx.Endpoints().LiveSecrets(ctx, row)
	if err != nil {
		return nil, err
	}
	overlap := payment.DefaultOverlap
	if w.c.Overlap != nil {
		overlap = *w.c.Overlap
	}
	if overlap > 0 && len(live) >= payment.MaxSecrets {
		return problem.New(problem.LimitReached, "An endpoint has at most "+strconv.Itoa(payment.MaxSecrets)+
			" secrets that are good at once.").Advise("Wait until the oldest one has ended, or rotate with overlap_seconds 0, which ends all others at once."), nil
	}
	sealed, err := w.f.cfg.NewSecret(w.e.Merchant, w.e.ID)
	if err != nil {
		return nil, err
	}
	next := payment.EndpointSecret{Merchant: w.e.Merchant, Endpoint: w.e.ID, Ordinal: live[0].Ordinal + 1, Sealed: sealed}
	if err := w.tx.Endpoints().AddSecret(ctx, next, w.g.Now.Add(overlap)); err != nil {
		return nil, err
	}
	return nil, w.save(ctx, payment.EventSecretRotated)
}

func testEndpoint(ctx context.Context, w *endpointWork) (*problem.Problem, error) {
	if !w.e.Enabled {
		return problem.New(problem.EndpointDisabled, ""), nil
	}
	return nil, w.save(ctx, payment.EventEndpointTest)
}

func resendEvent(ctx context.Context, w *endpointWork) (*problem.Problem, error) {
	found, err := w.tx.Endpoints().SendAgain(ctx, Row{w.e.Merchant, w.e.ID}, w.c.Event)
	if err != nil {
		return nil, err
	}
	if !found {
		return problem.New(problem.NotFound, "There is no such event in your feed.").On("event"), nil
	}
	w.done.Event, w.done.Sends = w.c.Event, 1
	return nil, nil
}

// resendFailed goes back no further than what became of deliveries is known: beyond that, everything would look as if it had
// never been sent.
func resendFailed(ctx context.Context, w *endpointWork) (_ *problem.Problem, err error) {
	since := w.c.Since
	if since.Before(w.g.Now.Add(-w.f.cfg.Retention)) {
		return problem.New(problem.InvalidValue, "It is further back than deliveries are kept.").On("since"), nil
	}
	if since.Before(w.e.CreatedAt) {
		since = w.e.CreatedAt // what happened before is not failed: it was never asked for
	}
	if err := w.tx.Endpoints().LockFeed(ctx, w.e.Merchant); err != nil {
		return nil, err
	}
	w.done.Sends, w.done.More, err = w.tx.Endpoints().SendFailed(ctx, w.e, since, payment.MaxResend)
	return nil, err
}

// EndpointTried notes what tries at an endpoint have shown, and disables it where they say so: the event about that is
// written in the same transaction, and goes to the merchant's other endpoints. seen is the endpoint as it was read before the
// tries: what it need not write takes no transaction.
func (f *Flow) EndpointTried(ctx context.Context, seen payment.Endpoint, tried payment.Tried, at time.Time) error {
	if _, changed := seen.After(tried, at, f.cfg.EndpointPatience); !changed {
		return nil
	}
	return f.store.InTx(ctx, "endpoint tried", func(ctx context.Context, tx Tx) error {
		e, now, found, err := tx.Endpoints().LockEndpoint(ctx, Row{seen.Merchant, seen.ID})
		if err != nil || !found || e.URL != seen.URL {
			return err
		}
		next, changed := e.After(tried, now, f.cfg.EndpointPatience)
		if !changed {
			return nil
		}
		var events []payment.Event
		if !next.Enabled {
			next.UpdatedAt = now
			events = append(events, f.endpointEvent(&next, payment.EventEndpointDisabled, now))
		}
		if err := tx.Endpoints().SaveEndpoint(ctx, next, !next.Enabled); err != nil {
			return err
		}
		return tx.InsertEvents(ctx, events)
	})
}

var _ operation.Handler[Tx] = (*endpoints)(nil)
