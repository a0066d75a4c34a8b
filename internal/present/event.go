package present

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
)

// EventBody is a CloudEvents 1.0 envelope in JSON, the one form in which an event leaves by any road. Extension attributes:
// subjectversion orders the events of one subject, eventkey is the derived key (PROTOCOL section 10).
type EventBody struct {
	_               struct{}        `additionalProperties:"true"`
	SpecVersion     string          `json:"specversion" enum:"1.0"`
	ID              string          `json:"id" doc:"The same in every delivery: by it a receiver knows a repeat"`
	Source          string          `json:"source"`
	Type            string          `json:"type" doc:"See the catalogue in api/events. New types come: ignore what you do not know"`
	Subject         string          `json:"subject" doc:"The payment intent, or the webhook endpoint, that it tells of"`
	Time            string          `json:"time" format:"date-time"`
	DataContentType string          `json:"datacontenttype"`
	DataSchema      string          `json:"dataschema" doc:"Names the JSON Schema of data, with its version"`
	SubjectVersion  int64           `json:"subjectversion" doc:"Grows by one with each event of the subject, from 1"`
	EventKey        string          `json:"eventkey"`
	Data            json.RawMessage `json:"data" doc:"The payment, refund or endpoint as it was then"`
}

// EventContentType is the media type of an event's bytes.
const EventContentType = "application/cloudevents+json; charset=utf-8"

// The schemas of what an event carries, api/events/.
const (
	schemaPayment  = "urn:hapax:schema:payment:1"
	schemaRefund   = "urn:hapax:schema:refund:1"
	schemaEndpoint = "urn:hapax:schema:webhook_endpoint:1"
)

// Event renders the bytes of an event: its id and a snapshot of the payment. They never change (PROTOCOL V1).
// keptAside says that the review which the event tells of is about money that was taken, but not as asked.
func Event(e payment.Event, i payment.Intent, p payment.Payment, keptAside bool) []byte {
	return event(e, schemaPayment, Payment(i, p, Extra{InReview: e.Type == payment.EventReview, KeptAside: keptAside}))
}

// EventRefund renders the bytes of an event that tells of a refund or compensation: its id and a snapshot of that.
// They never change (PROTOCOL V1).
func EventRefund(e payment.Event, i payment.Intent, p payment.Payment, m payment.Modification) []byte {
	return event(e, schemaRefund, Refund(i, p, m))
}

// EventEndpoint renders the bytes of an event that tells of a webhook endpoint, with a snapshot of it. They never change
// (PROTOCOL V1).
func EventEndpoint(e payment.Event, endpoint []byte) []byte {
	return event(e, schemaEndpoint, endpoint)
}

func event(e payment.Event, schema string, data []byte) []byte {
	subject := e.Intent.Text(id.Intent)
	if e.Intent.IsZero() {
		subject = e.Endpoint.Text(id.Endpoint)
	}
	return encode(EventBody{SpecVersion: "1.0", ID: e.ID.Text(id.Event), Source: "/merchants/" + e.Merchant.Text(id.Merchant),
		Type: string(e.Type), Subject: subject, Time: Time(e.At), DataContentType: "application/json", DataSchema: schema,
		SubjectVersion: e.Version, EventKey: e.Key, Data: data})
}

// Feed renders a page of events, each exactly as its bytes are stored. next is given on every page: whoever reads on from it
// loses nothing.
func Feed(events [][]byte, more bool, next string) []byte {
	var b bytes.Buffer
	b.WriteString(`{"data":[`)
	b.Write(bytes.Join(events, []byte(",")))
	fmt.Fprintf(&b, `],"has_more":%t,"next_cursor":%q}`, more, next)
	return b.Bytes()
}

type decisionView struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Review  string `json:"review"`
	Verdict string `json:"verdict"`
	Person  string `json:"person"`
	Reason  string `json:"reason"`
	At      string `json:"decided_at"`
}

// Decision renders a person's decision about a review.
func Decision(decision, review id.ID, verdict, person, reason string, at time.Time) []byte {
	return encode(decisionView{decision.Text("dec_"), "decision", review.Text(id.Review), verdict, person, reason, Time(at)})
}
