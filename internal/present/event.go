package present

import (
	"encoding/json"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
)

type eventView struct {
	ID        string          `json:"id"`
	Object    string          `json:"object"`
	Type      string          `json:"type"`
	Key       string          `json:"key"`
	Version   int64           `json:"version"`
	CreatedAt string          `json:"created_at"`
	Data      json.RawMessage `json:"data"`
}

// Event renders the bytes of an event: its id and a snapshot of the payment. They never change (PROTOCOL V1).
// keptAside says that the review which the event tells of is about money that was taken, but not as asked.
func Event(e payment.Event, i payment.Intent, p payment.Payment, keptAside bool) []byte {
	return event(e, Payment(i, p, Extra{InReview: e.Type == payment.EventReview, KeptAside: keptAside}))
}

// EventRefund renders the bytes of an event that tells of a refund or compensation: its id and a snapshot of that.
// They never change (PROTOCOL V1).
func EventRefund(e payment.Event, i payment.Intent, p payment.Payment, m payment.Modification) []byte {
	return event(e, Refund(i, p, m))
}

func event(e payment.Event, data []byte) []byte {
	return encode(eventView{ID: e.ID.Text(id.Event), Object: "event", Type: string(e.Type), Key: e.Key, Version: e.Version,
		CreatedAt: Time(e.At), Data: data})
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
