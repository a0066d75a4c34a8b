package sandbox

import (
	"encoding/json"
	"fmt"
	"time"
)

// What a fault does to the messages about one object.
const (
	newsLost   = "lost"   // never sent by themselves
	newsDouble = "double" // each try once more, in parallel
)

// messageLine is a message in the register file, in the line of what it tells:
// either both are on disk or none. Its body never changes.
type messageLine struct {
	ID        string    `json:"id"`
	Type      string    `json:"type"`
	CreatedAt time.Time `json:"created_at"`
	// ChargeReference is the reference of the charge or page that it is about.
	ChargeReference string `json:"charge_reference"`
	// Object names the object by its kind, ObjectID by its id.
	Object   string `json:"object"`
	ObjectID string `json:"object_id"`
	Body     string `json:"body"`

	DelayMS int64 `json:"delay_ms,omitempty"`
	Copies  int   `json:"copies,omitempty"` // so many more times in each try
	Reorder bool  `json:"reorder,omitempty"`
	Dropped bool  `json:"dropped,omitempty"`
	First   bool  `json:"first,omitempty"` // before the answer to the call: it waits for no other
}

// newsBody is what a receiver gets.
type newsBody struct {
	ID        string    `json:"id"`
	Type      string    `json:"type"`
	CreatedAt time.Time `json:"created_at"`
	Livemode  bool      `json:"livemode"`
	Data      any       `json:"data"`
}

// about begins the data of every message.
type about struct {
	Object          string `json:"object"`
	ChargeReference string `json:"charge_reference"`
}

type actNews struct {
	about
	Act
}

type sessionNews struct {
	about
	Session
}

// chargeNews is a charge without its acts, which have messages of their own.
// Capture says what they would have told: whether its money was to be taken at
// once, or funds held first.
type chargeNews struct {
	about
	ChargeCore
	Capture        bool   `json:"capture"`
	RedirectURL    string `json:"redirect_url,omitempty"`
	CapturedAmount int64  `json:"captured_amount"`
	RefundedAmount int64  `json:"refunded_amount"`
}

// news makes the messages about what the entry changes: none without a
// receiver. What moved is told first, then what it makes of its charge.
func (b *book) news(e entry) ([]messageLine, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var told []messageLine
	if b.webhooks.URL == "" {
		return nil, nil
	}
	for _, tell := range []func(entry) (string, about, string, any, string){b.tellAct, b.tellCharge, b.tellSession} {
		status, what, id, data, fault := tell(e)
		if status == "" {
			continue
		}
		m := messageLine{ID: newID("evt_"), Type: what.Object + "." + status, CreatedAt: b.clock.now(), ChargeReference: what.ChargeReference,
			Object: what.Object, ObjectID: id, First: e.newsFirst}
		body, err := json.Marshal(newsBody{ID: m.ID, Type: m.Type, CreatedAt: m.CreatedAt, Livemode: b.webhooks.Livemode, Data: data})
		if err != nil {
			return nil, fmt.Errorf("sandbox: a message: %w", err)
		}
		m.Body = string(body)
		m.treat(b.webhooks, fault)
		told = append(told, m)
	}
	return told, nil
}

// treat notes what happens to the message, so that later settings change
// nothing about it.
func (m *messageLine) treat(w Webhooks, fault string) {
	m.Dropped = w.Drop || fault == newsLost
	m.Copies = w.Duplicate
	if fault == newsDouble {
		m.Copies++
	}
	if !m.First {
		m.DelayMS, m.Reorder = w.DelayMS, w.Reorder
	}
}

// tellAct tells an act that has come to a result, or a chargeback that was
// opened. An act in processing is not told.
func (b *book) tellAct(e entry) (status string, what about, id string, data any, fault string) {
	if e.Act == nil || e.Act.Status == StatusProcessing {
		return "", what, "", nil, ""
	}
	if known := b.acts.byID[e.Act.ID]; known != nil && known.Status == e.Act.Status {
		return "", what, "", nil, ""
	}
	what = about{Object: e.Act.Kind}
	if c := b.charges.byID[e.Act.Charge]; c != nil {
		what.ChargeReference, fault = c.Reference, c.News
	}
	return e.Act.Status, what, e.Act.ID, actNews{what, e.Act.Act}, second(fault, e.Act.News)
}

// tellCharge tells a charge that is new or has another status.
func (b *book) tellCharge(e entry) (status string, what about, id string, data any, fault string) {
	if e.Charge == nil {
		return "", what, "", nil, ""
	}
	line, sums := *e.Charge, sums{}
	if known := b.charges.byID[line.ID]; known != nil {
		if known.Status == line.Status {
			return "", what, "", nil, ""
		}
		sums = known.sums
	}
	if e.Movement != nil {
		sums.add(*e.Movement)
	}
	what = about{Object: KindCharge, ChargeReference: line.Reference}
	c := b.tellLine(line, sums)
	return line.Status, what, line.ID, chargeNews{what, c.ChargeCore, !line.Hold, c.RedirectURL, c.CapturedAmount, c.RefundedAmount}, line.News
}

// tellSession tells that a page ended without money. That it was opened the
// merchant knows; that it was paid, its charge tells.
func (b *book) tellSession(e entry) (status string, what about, id string, data any, fault string) {
	if e.Session == nil || e.Session.Status != StatusClosed && e.Session.Status != StatusExpired {
		return "", what, "", nil, ""
	}
	what = about{Object: callSession, ChargeReference: e.Session.Reference}
	told := b.viewSession(*e.Session)
	if b.contract.PageByAddress {
		told.PageURL = ""
	}
	return e.Session.Status, what, e.Session.ID, sessionNews{what, told}, e.Session.News
}
