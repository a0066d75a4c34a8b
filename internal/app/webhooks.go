package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/hapaxpay/hapax/acquirer/signature"
	"github.com/hapaxpay/hapax/internal/auth"
	"github.com/hapaxpay/hapax/internal/httpapi"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/outbox"
	"github.com/hapaxpay/hapax/internal/outbox/webhook"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/internal/store"
)

// webhooks gives the sink of all endpoints; nil in a silent replica, which sends nothing.
func (r *Replica) webhooks(o Options) outbox.Sink {
	if o.Silent {
		return nil
	}
	return webhook.New(webhook.Config{Endpoints: r.service(), Guard: r.guard(o), TLS: o.TLS,
		Now:    func() time.Time { return r.rt.Instant().Wall },
		Report: func(err error) { o.Log.Warn("webhooks", "error", err.Error()) }})
}

func (r *Replica) guard(o Options) webhook.Guard {
	return webhook.Guard{AllowPrivate: r.cfg.WebhookAllowPrivate, Resolver: o.Resolver}
}

// newSecret makes a secret of an endpoint, sealed for it alone.
func (r *Replica) newSecret(merchant, endpoint id.ID) ([]byte, error) {
	if r.ring == nil {
		return nil, auth.ErrSecretKey
	}
	var random [signature.NewSecretBytes]byte
	rand.Read(random[:]) // does not fail: it ends the process instead
	return r.ring.Seal(merchant, endpoint, random[:])
}

var _ webhook.Endpoints = (*service)(nil)

// WebhookEndpoint implements webhook.Endpoints.
func (s *service) WebhookEndpoint(ctx context.Context, merchant, endpoint id.ID) (webhook.Endpoint, time.Time, bool, error) {
	e, now, found, err := s.store.Endpoint(ctx, merchant, endpoint)
	if err != nil || !found {
		return webhook.Endpoint{}, now, false, err
	}
	sealed, err := s.store.EndpointSecrets(ctx, merchant, endpoint)
	if err != nil {
		return webhook.Endpoint{}, now, false, err
	}
	out := webhook.Endpoint{Endpoint: e}
	for _, secret := range sealed {
		open, err := s.open(secret)
		if err != nil {
			return out, now, false, err
		}
		out.Secrets = append(out.Secrets, open)
	}
	return out, now, true, nil
}

// open opens a sealed secret.
func (s *service) open(secret payment.EndpointSecret) (signature.Secret, error) {
	if s.ring == nil {
		return signature.Secret{}, auth.ErrSecretKey
	}
	raw, err := s.ring.Open(secret.Merchant, secret.Endpoint, secret.Sealed)
	if err == nil && len(raw) != signature.NewSecretBytes {
		err = auth.ErrSealed
	}
	if err != nil {
		return signature.Secret{}, fmt.Errorf("secret %d of endpoint %s: %w", secret.Ordinal, secret.Endpoint.Text(id.Endpoint), err)
	}
	return signature.NewSecret([signature.NewSecretBytes]byte(raw)), nil
}

// WebhookEndpoints implements httpapi.Service.
func (s *service) WebhookEndpoints(ctx context.Context, merchant id.ID) ([]payment.Endpoint, error) {
	return s.store.Endpoints(ctx, merchant)
}

// EndpointByID implements httpapi.Service.
func (s *service) EndpointByID(ctx context.Context, merchant, endpoint id.ID) (payment.Endpoint, error) {
	e, _, found, err := s.store.Endpoint(ctx, merchant, endpoint)
	if err == nil && !found {
		err = problem.New(problem.NotFound, "")
	}
	return e, err
}

// EndpointSecrets implements httpapi.Service.
func (s *service) EndpointSecrets(ctx context.Context, merchant, endpoint id.ID) ([]present.OpenSecret, error) {
	if _, err := s.EndpointByID(ctx, merchant, endpoint); err != nil {
		return nil, err
	}
	sealed, err := s.store.EndpointSecrets(ctx, merchant, endpoint)
	var all []present.OpenSecret
	for _, secret := range sealed {
		open, failed := s.open(secret)
		if failed != nil {
			return nil, failed
		}
		all = append(all, present.OpenSecret{Text: open.Text(), CreatedAt: secret.CreatedAt, ExpiresAt: secret.ExpiresAt})
	}
	return all, err
}

// Deliveries implements httpapi.Service.
func (s *service) Deliveries(ctx context.Context, merchant, endpoint id.ID, q httpapi.DeliveryQuery, page httpapi.Page) ([]present.Delivery, bool, error) {
	if _, err := s.EndpointByID(ctx, merchant, endpoint); err != nil {
		return nil, false, err
	}
	all, err := s.store.Deliveries(ctx, merchant, endpoint, store.DeliveryFilter(q), oneMore(page))
	all, more := cut(all, page)
	return all, more, err
}
