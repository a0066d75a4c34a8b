package httpapi

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/problem"
)

// EndpointMembers describe a webhook endpoint.
type EndpointMembers struct {
	URL         *string   `json:"url,omitempty" format:"uri" maxLength:"2048" doc:"https, without user, password and fragment; it leads to a public address"`
	Description *string   `json:"description,omitempty" maxLength:"1000"`
	Types       *[]string `json:"types,omitempty" doc:"Of the events that are sent, see the catalogue in api/events; empty: all, those that come later too"`
}

// EndpointRequest is the body of POST /v1/webhook_endpoints.
type EndpointRequest struct{ EndpointMembers }

// EndpointUpdateRequest is the body of POST /v1/webhook_endpoints/{id}: what is left out stays.
type EndpointUpdateRequest struct{ EndpointMembers }

// EndpointActRequest is the body of what needs none.
type EndpointActRequest struct{}

// RotateRequest is the body of POST /v1/webhook_endpoints/{id}/rotate_secret.
type RotateRequest struct {
	Overlap *int64 `json:"overlap_seconds,omitempty" minimum:"0" maximum:"604800" doc:"How long the old secrets stay good beside the new one; default 86400. 0 ends them at once"`
}

// ResendRequest is the body of POST /v1/webhook_endpoints/{id}/resend.
type ResendRequest struct {
	Event *string `json:"event,omitempty" doc:"Any event of yours, whatever became of it at this endpoint"`
}

// ResendFailedRequest is the body of POST /v1/webhook_endpoints/{id}/resend_failed.
type ResendFailedRequest struct {
	Since *string `json:"since,omitempty" format:"date-time" doc:"Of events that happened from then on"`
}

// about judges the members; needed says that there must be an address.
func (b EndpointMembers) about(ctx context.Context, d *door, needed bool) (c flow.EndpointCommand, p *problem.Problem) {
	if needed {
		if p := missing(member{"url", b.URL != nil}); p != nil {
			return c, p
		}
	}
	var j judge
	c.URL, c.Description = j.words("url", b.URL, maxURL), j.words("description", b.Description, payment.MaxEndpointText)
	if b.Types != nil {
		types, ok := payment.EventTypesOf(*b.Types)
		if !ok {
			j.invalid("types", "There is no such type of event.")
		}
		c.Types = &types
	}
	if j.first != nil || b.URL == nil || d.cfg.Target == nil {
		return c, j.first
	}
	if err := d.cfg.Target(ctx, *b.URL); err != nil {
		c.Target = problem.New(problem.InvalidValue, "Webhooks are not sent to this address. "+err.Error()+".").On("url")
	}
	return c, nil
}

// endpoint runs a command about the endpoint of the path.
func (d *door) endpoint(kind operation.Kind, read func(context.Context, *exchange) (flow.EndpointCommand, *problem.Problem)) handler {
	return func(ctx context.Context, x *exchange) (reply, error) {
		key, err := x.idempotencyKey()
		if err != nil {
			return reply{}, err
		}
		var endpoint id.ID
		if kind != operation.CreateEndpoint {
			if endpoint, err = x.pathID(id.Endpoint); err != nil {
				return reply{}, err
			}
		}
		c, p := read(ctx, x)
		if p != nil {
			return reply{}, p
		}
		c.Kind, c.Merchant, c.Key, c.RequestID, c.Endpoint = kind, x.key.Merchant, key, x.requestID, endpoint
		return x.answered(d.cfg.Service.Endpoint(ctx, c))
	}
}

func (d *door) createEndpoint(ctx context.Context, x *exchange) (flow.EndpointCommand, *problem.Problem) {
	var body EndpointRequest
	decode(x.body, &body)
	return body.about(ctx, d, true)
}

func (d *door) updateEndpoint(ctx context.Context, x *exchange) (flow.EndpointCommand, *problem.Problem) {
	var body EndpointUpdateRequest
	decode(x.body, &body)
	return body.about(ctx, d, false)
}

func plainAct(context.Context, *exchange) (flow.EndpointCommand, *problem.Problem) {
	return flow.EndpointCommand{}, nil
}

func rotateSecret(_ context.Context, x *exchange) (c flow.EndpointCommand, p *problem.Problem) {
	var body RotateRequest
	decode(x.body, &body)
	if body.Overlap == nil {
		return c, nil
	}
	if *body.Overlap < 0 || *body.Overlap > int64(payment.MaxOverlap/time.Second) {
		return c, problem.New(problem.InvalidValue, "It is from 0 to 604800 seconds.").On("overlap_seconds")
	}
	overlap := time.Duration(*body.Overlap) * time.Second
	c.Overlap = &overlap
	return c, nil
}

func resendEvent(_ context.Context, x *exchange) (c flow.EndpointCommand, p *problem.Problem) {
	var body ResendRequest
	decode(x.body, &body)
	if p := missing(member{"event", body.Event != nil}); p != nil {
		return c, p
	}
	event, err := id.Parse(id.Event, *body.Event)
	if err != nil {
		return c, problem.New(problem.NotFound, "").On("event")
	}
	c.Event = event
	return c, nil
}

func resendFailed(_ context.Context, x *exchange) (c flow.EndpointCommand, p *problem.Problem) {
	var body ResendFailedRequest
	decode(x.body, &body)
	if p := missing(member{"since", body.Since != nil}); p != nil {
		return c, p
	}
	var j judge
	if since := j.instant("since", body.Since); since != nil {
		c.Since = *since
	}
	return c, j.first
}

func (d *door) listEndpoints(ctx context.Context, x *exchange) (reply, error) {
	all, err := d.cfg.Service.WebhookEndpoints(ctx, x.key.Merchant)
	bodies := make([][]byte, 0, len(all))
	for _, e := range all {
		bodies = append(bodies, present.Endpoint(e))
	}
	return reply{status: http.StatusOK, body: present.List(bodies, "")}, err
}

func (d *door) endpointByID(ctx context.Context, x *exchange) (reply, error) {
	endpoint, err := x.pathID(id.Endpoint)
	if err != nil {
		return reply{}, err
	}
	e, err := d.cfg.Service.EndpointByID(ctx, x.key.Merchant, endpoint)
	if err != nil {
		return reply{}, err
	}
	return reply{status: http.StatusOK, body: present.Endpoint(e)}, nil
}

func (d *door) endpointSecrets(ctx context.Context, x *exchange) (reply, error) {
	endpoint, err := x.pathID(id.Endpoint)
	if err != nil {
		return reply{}, err
	}
	secrets, err := d.cfg.Service.EndpointSecrets(ctx, x.key.Merchant, endpoint)
	if err != nil {
		return reply{}, err
	}
	return reply{status: http.StatusOK, body: present.EndpointSecrets(endpoint, secrets)}, nil
}

// DeliveryQuery names deliveries; members that are set must all hold.
type DeliveryQuery struct {
	State string
	Event id.ID
}

var (
	deliveryFilters = []string{"state", "event"}
	deliveryStates  = []string{"waiting", "delivered", "abandoned"}
)

func deliveryQuery(raw string) (DeliveryQuery, Page, *problem.Problem) {
	q, page := DeliveryQuery{}, Page{Limit: defaultPage}
	values, p := parseQuery(raw, append(slices.Clone(pageParameters), deliveryFilters...))
	if p != nil {
		return q, page, p
	}
	if q.State = values.Get("state"); values.Has("state") && !slices.Contains(deliveryStates, q.State) {
		return q, page, malformed("state", "The states are "+oneOf(deliveryStates)+".")
	}
	if values.Has("event") {
		event, err := id.Parse(id.Event, values.Get("event"))
		if err != nil {
			return q, page, malformed("event", "It is not the id of an event.")
		}
		q.Event = event
	}
	return q, page, readPage(values, &page)
}

func (d *door) deliveries(ctx context.Context, x *exchange) (reply, error) {
	endpoint, err := x.pathID(id.Endpoint)
	if err != nil {
		return reply{}, err
	}
	q, page, p := deliveryQuery(x.r.URL.RawQuery)
	if p != nil {
		return reply{}, p
	}
	found, more, err := d.cfg.Service.Deliveries(ctx, x.key.Merchant, endpoint, q, page)
	if err != nil {
		return reply{}, err
	}
	return listed(found, more, func(v present.Delivery) id.ID { return v.Event }), nil
}
