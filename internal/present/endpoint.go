package present

import (
	"time"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
)

const endpointsPath = "/v1/webhook_endpoints/"

// EndpointPath is where a webhook endpoint is read: the value of Location.
func EndpointPath(endpoint id.ID) string { return endpointsPath + endpoint.Text(id.Endpoint) }

// EndpointBody is the form in which a webhook endpoint leaves the house. It never holds a secret.
type EndpointBody struct {
	_              struct{} `additionalProperties:"true"`
	ID             string   `json:"id"`
	Object         string   `json:"object" enum:"webhook_endpoint"`
	URL            string   `json:"url"`
	Description    *string  `json:"description"`
	Types          []string `json:"types" nullable:"false" doc:"Of the events that are sent; empty: all"`
	Enabled        bool     `json:"enabled"`
	DisabledReason *string  `json:"disabled_reason" doc:"requested: by you. gone: it answered 410. failing: every try failed for too long"`
	FailingSince   *string  `json:"failing_since" format:"date-time" doc:"The first failed try since the last one that succeeded"`
	CreatedAt      string   `json:"created_at" format:"date-time"`
	UpdatedAt      string   `json:"updated_at" format:"date-time"`
}

// Endpoint renders a webhook endpoint.
func Endpoint(e payment.Endpoint) []byte {
	types := make([]string, len(e.Types))
	for n, t := range e.Types {
		types[n] = string(t)
	}
	return encode(EndpointBody{ID: e.ID.Text(id.Endpoint), Object: "webhook_endpoint", URL: e.URL, Description: orNull(e.Description), Types: types,
		Enabled: e.Enabled, DisabledReason: orNull(string(e.DisabledWhy)), FailingSince: orNull(Time(e.FailingSince)),
		CreatedAt: Time(e.CreatedAt), UpdatedAt: Time(e.UpdatedAt)})
}

// EndpointSendBody tells what a test or a resend has put in line.
type EndpointSendBody struct {
	_          struct{} `additionalProperties:"true"`
	Object     string   `json:"object" enum:"webhook_send"`
	Endpoint   string   `json:"webhook_endpoint"`
	Event      *string  `json:"event" doc:"The one that is sent; null for resend_failed"`
	Deliveries int      `json:"deliveries" doc:"How many were put in line"`
	More       bool     `json:"more" doc:"Some were left out, beyond the limit of one command: ask once more, with a new key"`
}

// EndpointSend renders what a test or a resend has put in line.
func EndpointSend(endpoint, event id.ID, deliveries int, more bool) []byte {
	return encode(EndpointSendBody{Object: "webhook_send", Endpoint: endpoint.Text(id.Endpoint), Event: orNull(event.Text(id.Event)),
		Deliveries: deliveries, More: more})
}

// EndpointSecretBody is one secret by which webhooks are signed.
type EndpointSecretBody struct {
	_         struct{} `additionalProperties:"true"`
	Secret    string   `json:"secret" doc:"whsec_ and base64, as the Standard Webhooks libraries take it"`
	CreatedAt string   `json:"created_at" format:"date-time"`
	ExpiresAt *string  `json:"expires_at" format:"date-time" doc:"Webhooks are signed by it until then; null: it is the newest"`
}

// EndpointSecretsBody is the answer to who asks for the secrets. It is never stored.
type EndpointSecretsBody struct {
	_        struct{}             `additionalProperties:"true"`
	Object   string               `json:"object" enum:"webhook_secrets"`
	Endpoint string               `json:"webhook_endpoint"`
	Secrets  []EndpointSecretBody `json:"secrets" nullable:"false" doc:"Those that are good now, the newest first"`
}

// OpenSecret is a secret of an endpoint in its text form.
type OpenSecret struct {
	Text                 string
	CreatedAt, ExpiresAt time.Time
}

// EndpointSecrets renders the secrets of an endpoint.
func EndpointSecrets(endpoint id.ID, secrets []OpenSecret) []byte {
	b := EndpointSecretsBody{Object: "webhook_secrets", Endpoint: endpoint.Text(id.Endpoint), Secrets: make([]EndpointSecretBody, 0, len(secrets))}
	for _, s := range secrets {
		b.Secrets = append(b.Secrets, EndpointSecretBody{Secret: s.Text, CreatedAt: Time(s.CreatedAt), ExpiresAt: orNull(Time(s.ExpiresAt))})
	}
	return encode(b)
}

// Delivery is what became of one event at one endpoint, with its last tries, the newest first.
type Delivery struct {
	Event              id.ID
	Type, State, Error string
	Attempts, Resends  int
	DueAt              time.Time
	CreatedAt, EndedAt time.Time
	Tries              []Try
}

// Try is one request to an endpoint, and its answer.
type Try struct {
	ID            id.ID
	Attempt       int
	URL           string
	Status        int // 0: no answer
	Answer, Error string
	Duration      time.Duration
	At            time.Time
}

// TryBody is the form in which a try leaves the house.
type TryBody struct {
	_          struct{} `additionalProperties:"true"`
	ID         string   `json:"id"`
	Attempt    int      `json:"attempt" doc:"From 1; from 1 again when it is sent again by hand"`
	At         string   `json:"at" format:"date-time"`
	URL        string   `json:"url"`
	Status     *int     `json:"status" doc:"Of the answer; null: none came"`
	Answer     *string  `json:"answer" doc:"Its beginning"`
	Error      *string  `json:"error"`
	DurationMS int64    `json:"duration_ms"`
}

// DeliveryBody is the form in which a delivery leaves the house.
type DeliveryBody struct {
	_         struct{}  `additionalProperties:"true"`
	Object    string    `json:"object" enum:"webhook_delivery"`
	Event     string    `json:"event"`
	Type      string    `json:"type" doc:"Of the event"`
	State     string    `json:"state" enum:"waiting,delivered,abandoned" doc:"abandoned: it is not tried again by itself"`
	Attempts  int       `json:"attempts"`
	Resends   int       `json:"resends" doc:"How often it was sent again by hand"`
	NextAt    *string   `json:"next_at" format:"date-time" doc:"When it is tried next, while it waits and the endpoint is enabled"`
	Error     *string   `json:"error" doc:"Of the last try"`
	CreatedAt string    `json:"created_at" format:"date-time"`
	EndedAt   *string   `json:"ended_at" format:"date-time"`
	Tries     []TryBody `json:"tries" nullable:"false" doc:"The last ones, the newest first"`
}

// JSON renders the delivery.
func (d Delivery) JSON() []byte {
	b := DeliveryBody{Object: "webhook_delivery", Event: d.Event.Text(id.Event), Type: d.Type, State: d.State, Attempts: d.Attempts,
		Resends: d.Resends, Error: orNull(d.Error), CreatedAt: Time(d.CreatedAt), EndedAt: orNull(Time(d.EndedAt)), Tries: make([]TryBody, 0, len(d.Tries))}
	if d.EndedAt.IsZero() {
		b.NextAt = orNull(Time(d.DueAt))
	}
	for _, t := range d.Tries {
		body := TryBody{ID: t.ID.Text(id.Attempt), Attempt: t.Attempt, At: Time(t.At), URL: t.URL, Answer: orNull(t.Answer), Error: orNull(t.Error),
			DurationMS: t.Duration.Milliseconds()}
		if t.Status != 0 {
			body.Status = &t.Status
		}
		b.Tries = append(b.Tries, body)
	}
	return encode(b)
}
