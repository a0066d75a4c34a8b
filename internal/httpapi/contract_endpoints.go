package httpapi

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/problem"
)

const aboutEndpointKey = "One key for one command, kept until the answer, reused on every retry. 1 to 255 visible ASCII characters, bare or as a quoted string."

// TransformSchema completes the contract: what must be there.
func (EndpointRequest) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Required = []string{"url"}
	return ofTypes(s)
}

// TransformSchema completes the contract: the types that there are.
func (EndpointUpdateRequest) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	return ofTypes(s)
}

func ofTypes(s *huma.Schema) *huma.Schema {
	var all []any
	for _, t := range payment.EventTypes {
		all = append(all, string(t))
	}
	s.Properties["types"].Items = &huma.Schema{Type: huma.TypeString, Enum: all}
	return s
}

// TransformSchema completes the contract: what must be there.
func (ResendRequest) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Required = []string{"event"}
	return s
}

// TransformSchema completes the contract: what must be there.
func (ResendFailedRequest) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Required = []string{"since"}
	return s
}

// endpointRoutes are all about webhook endpoints.
func (d *door) endpointRoutes() []route {
	c := d.contract
	endpoint, send := c.schema(present.EndpointBody{}), c.schema(present.EndpointSendBody{})
	create := d.endpointCommand("", "create-webhook-endpoint", "Make an endpoint to which events are sent", EndpointRequest{}, 201, endpoint, problem.LimitReached)
	create.Description = "Webhooks are signed by the Standard Webhooks specification, see docs/webhooks.md. The secret is read at …/secret: no stored answer holds it."
	create.handle = d.endpoint(operation.CreateEndpoint, d.createEndpoint)
	update := d.endpointCommand("/{id}", "update-webhook-endpoint", "Change an endpoint", EndpointUpdateRequest{}, 200, endpoint)
	update.handle = d.endpoint(operation.UpdateEndpoint, d.updateEndpoint)
	disable := d.endpointCommand("/{id}/disable", "disable-webhook-endpoint", "Send nothing to an endpoint from now on", EndpointActRequest{}, 200, endpoint)
	disable.Description = "What waits for it rests, and goes on when it is enabled. What happens meanwhile is not put in line: see resend_failed."
	disable.handle = d.endpoint(operation.DisableEndpoint, plainAct)
	enable := d.endpointCommand("/{id}/enable", "enable-webhook-endpoint", "Send to an endpoint again", EndpointActRequest{}, 200, endpoint)
	enable.handle = d.endpoint(operation.EnableEndpoint, plainAct)
	rotate := d.endpointCommand("/{id}/rotate_secret", "rotate-webhook-secret", "Make a new secret, beside which the old ones stay good for a while", RotateRequest{}, 200, endpoint, problem.LimitReached)
	rotate.handle = d.endpoint(operation.RotateSecret, rotateSecret)
	test := d.endpointCommand("/{id}/test", "test-webhook-endpoint", "Send an event of the type webhook_endpoint.test to this endpoint alone", EndpointActRequest{}, 200, send, problem.EndpointDisabled)
	test.handle = d.endpoint(operation.TestEndpoint, plainAct)
	resend := d.endpointCommand("/{id}/resend", "resend-event", "Send one event again, with the same id and the same bytes", ResendRequest{}, 200, send)
	resend.RequestBody.Required = true
	resend.handle = d.endpoint(operation.ResendEvent, resendEvent)
	failed := d.endpointCommand("/{id}/resend_failed", "resend-failed-events", "Send again what failed or was given up, and what was not sent while the endpoint was disabled", ResendFailedRequest{}, 200, send)
	failed.RequestBody.Required = true
	failed.handle = d.endpoint(operation.ResendFailed, resendFailed)
	return []route{create, d.routeEndpoints(), d.routeEndpoint(), update, disable, enable, rotate, d.routeSecrets(), test, d.routeDeliveries(), resend, failed}
}

func (d *door) endpointCommand(path, name, summary string, body any, status int, answer *huma.Schema, codes ...problem.Code) route {
	c := d.contract
	op := d.operation(http.MethodPost, "/v1/webhook_endpoints"+path, name, summary)
	if path != "" {
		op.Parameters = []*huma.Param{pathID("we_")}
		codes = append(codes, problem.NotFound)
	}
	op.Parameters = append(op.Parameters, keyParameter(aboutEndpointKey))
	request, members := c.takes(body)
	op.RequestBody = request
	bare := path != ""
	request.Required = !bare
	op.Responses = c.tells(map[int]*huma.Response{
		status: c.good("Done", answer, answerHeaders...),
		202:    c.good("Not known yet: repeat the same key", c.schema(present.UnknownBody{}), answerHeaders...),
	}, append(codes, commands...)...)
	return route{Operation: op, body: members, bare: bare}
}

func (d *door) routeEndpoints() route {
	c := d.contract
	op := d.operation(http.MethodGet, "/v1/webhook_endpoints", "list-webhook-endpoints", "All endpoints, the newest first")
	op.Responses = c.tells(map[int]*huma.Response{200: c.good("All of them: there are few", c.list(c.schema(present.EndpointBody{})))})
	return route{Operation: op, handle: d.listEndpoints}
}

func (d *door) routeEndpoint() route {
	c := d.contract
	op := d.operation(http.MethodGet, "/v1/webhook_endpoints/{id}", "get-webhook-endpoint", "Look at an endpoint")
	op.Parameters = []*huma.Param{pathID("we_")}
	op.Responses = c.tells(map[int]*huma.Response{200: c.good("The endpoint", c.schema(present.EndpointBody{}))}, problem.NotFound)
	return route{Operation: op, handle: d.endpointByID}
}

func (d *door) routeSecrets() route {
	c := d.contract
	op := d.operation(http.MethodGet, "/v1/webhook_endpoints/{id}/secret", "get-webhook-secrets", "The secrets by which webhooks to an endpoint are signed")
	op.Parameters = []*huma.Param{pathID("we_")}
	op.Responses = c.tells(map[int]*huma.Response{200: c.good("Those that are good now", c.schema(present.EndpointSecretsBody{}))}, problem.NotFound)
	return route{Operation: op, handle: d.endpointSecrets}
}

func (d *door) routeDeliveries() route {
	c := d.contract
	op := d.operation(http.MethodGet, "/v1/webhook_endpoints/{id}/deliveries", "list-webhook-deliveries", "What became of events at an endpoint, with each request and its answer")
	var states []any
	for _, s := range deliveryStates {
		states = append(states, s)
	}
	op.Parameters = append([]*huma.Param{pathID("we_"),
		{Name: "state", In: "query", Description: "Filters can be joined", Schema: &huma.Schema{Type: huma.TypeString, Enum: states}},
		{Name: "event", In: "query", Description: "Of this event", Schema: &huma.Schema{Type: huma.TypeString}}}, pageOf(aboutCursor)...)
	op.Responses = c.tells(map[int]*huma.Response{200: c.good("A page", c.list(c.schema(present.DeliveryBody{})))}, problem.NotFound)
	return route{Operation: op, list: true, handle: d.deliveries}
}
