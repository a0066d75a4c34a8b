package httpapi

import (
	"context"
	"encoding/binary"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/problem"
)

// EventQuery asks for a part of the merchant's feed. Members that are set must all hold.
type EventQuery struct {
	Type     payment.EventType
	Intent   id.ID
	Customer string
	After    int64 // position in the feed; 0: from the oldest
	Limit    int
}

// EventPage is a part of the feed, oldest first: the stored bytes of its events.
type EventPage struct {
	Events [][]byte
	More   bool
	Next   int64 // position to go on behind; given on every page, the last and an empty one too
	Head   int64 // highest position that there is
}

var eventFilters = []string{"type", "payment_intent", "customer"}

// cursorOf writes a position of the feed in the form of the other cursors.
func cursorOf(position int64) string {
	var raw id.ID
	raw[0] = feedCursor
	binary.BigEndian.PutUint64(raw[8:], uint64(position))
	return raw.Text(cursorPrefix)
}

// feedCursor marks what is a position: the cursor of another list is none.
const feedCursor = 1

func positionOf(cursor string) (int64, bool) {
	raw, err := id.Parse(cursorPrefix, cursor)
	if err != nil {
		return 0, false
	}
	position := int64(binary.BigEndian.Uint64(raw[8:]))
	return position, position >= 0 && cursorOf(position) == cursor
}

// eventQuery reads filters, which can be joined, and the page.
func eventQuery(raw string) (EventQuery, *problem.Problem) {
	q := EventQuery{Limit: defaultPage}
	values, p := parseQuery(raw, append(slices.Clone(pageParameters), eventFilters...))
	if p != nil {
		return q, p
	}
	for _, name := range eventFilters {
		if v := values.Get(name); values.Has(name) && (v == "" || len(v) > maxFilter || !storable(v)) {
			return q, malformed(name, "It is empty, too long, or not text.")
		}
	}
	q.Type, q.Customer = payment.EventType(values.Get("type")), values.Get("customer")
	if q.Type != "" && !slices.Contains(payment.EventTypes, q.Type) {
		return q, malformed("type", "There is no such type of event.")
	}
	if values.Has("payment_intent") {
		intent, err := id.Parse(id.Intent, values.Get("payment_intent"))
		if err != nil {
			return q, malformed("payment_intent", "It is not the id of an intent.")
		}
		q.Intent = intent
	}
	if values.Has("cursor") {
		after, ok := positionOf(values.Get("cursor"))
		if !ok {
			return q, malformed("cursor", "It is the next_cursor of a page of events.")
		}
		q.After = after
		values.Del("cursor")
	}
	page := Page{Limit: defaultPage}
	p = readPage(values, &page)
	q.Limit = page.Limit
	return q, p
}

func (d *door) events(ctx context.Context, x *exchange) (reply, error) {
	q, p := eventQuery(x.r.URL.RawQuery)
	if p != nil {
		return reply{}, p
	}
	page, err := d.cfg.Service.Events(ctx, x.key.Merchant, q)
	if err != nil {
		return reply{}, err
	}
	if q.After > page.Head {
		// Only a database that was restored has a feed that is shorter than it was. What comes next would get the positions
		// that the cursor says are read.
		return reply{}, problem.New(problem.InvalidValue, "It points beyond the end of the feed: the database was restored from an older state.").
			On("cursor").Advise("Read again from an older cursor, or without one; events that you have seen come with the ids that you know.")
	}
	return reply{status: http.StatusOK, body: present.Feed(page.Events, page.More, cursorOf(page.Next))}, nil
}

func (d *door) event(ctx context.Context, x *exchange) (reply, error) {
	event, err := x.pathID(id.Event)
	if err != nil {
		return reply{}, err
	}
	body, err := d.cfg.Service.Event(ctx, x.key.Merchant, event)
	if err != nil {
		return reply{}, err
	}
	return reply{status: http.StatusOK, body: body}, nil
}

func (d *door) eventSchema() *huma.Schema {
	event := d.contract.schema(present.EventBody{})
	d.contract.Components.Schemas.SchemaFromRef(event.Ref).Properties["data"].Type = huma.TypeObject // bytes have no type
	return event
}

func (d *door) routeEvents() route {
	c := d.contract
	op := d.operation(http.MethodGet, "/v1/events", "list-events", "Read what happened, oldest first")
	op.Description = "A feed that loses nothing: begin without a cursor, and go on from next_cursor, which every page gives, the last and an empty one too. Events of one intent are in order."
	about := map[string]string{"type": "A type of the catalogue", "payment_intent": "Events of this intent", "customer": "Events of this customer's intents"}
	for _, name := range eventFilters {
		op.Parameters = append(op.Parameters, &huma.Param{Name: name, In: "query", Description: about[name] + ". Filters can be joined",
			Schema: &huma.Schema{Type: huma.TypeString}})
	}
	op.Parameters = append(op.Parameters, pageOf("next_cursor of the page before, with the same filters or others")...)
	page := c.list(d.eventSchema())
	page.Properties["data"].Description = "Oldest first, each exactly as it is delivered"
	page.Properties["next_cursor"] = &huma.Schema{Type: huma.TypeString, Description: "Go on from here, also when has_more is false"}
	op.Responses = c.tells(map[int]*huma.Response{200: c.good("A page", page)}, problem.InvalidValue)
	return route{Operation: op, list: true, handle: d.events}
}

func (d *door) routeEvent() route {
	c := d.contract
	op := d.operation(http.MethodGet, "/v1/events/{id}", "get-event", "Look at an event")
	op.Parameters = []*huma.Param{pathID("evt_")}
	op.Responses = c.tells(map[int]*huma.Response{200: c.good("The event", d.eventSchema())}, problem.NotFound)
	return route{Operation: op, handle: d.event}
}
