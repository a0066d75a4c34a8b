package httpapi

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/problem"
)

// TestEvents: filters come through joined, the items are the stored bytes, and every page says where to go on.
func TestEvents(t *testing.T) {
	pi := intentID.Text(id.Intent)
	for _, row := range []struct {
		query string
		want  EventQuery
	}{
		{"", EventQuery{Limit: 20}},
		{"?limit=5&cursor=" + cursorOf(7), EventQuery{Limit: 5, After: 7}},
		{"?type=payment.paid&payment_intent=" + pi + "&customer=c%201", EventQuery{Limit: 20, Type: payment.EventPaid, Intent: intentID, Customer: "c 1"}},
		{"?cursor=" + cursorOf(0), EventQuery{Limit: 20}},
	} {
		w := newWorld(t, nil)
		w.service.events = EventPage{Events: [][]byte{[]byte(`{"id":"evt_1", "n":1.0}`), []byte(`{"id":"evt_2"}`)}, More: true, Next: 9, Head: 12}
		a := w.get("/v1/events" + row.query)
		if a.status != 200 || a.body != `{"data":[{"id":"evt_1", "n":1.0},{"id":"evt_2"}],"has_more":true,"next_cursor":"`+cursorOf(9)+`"}` {
			t.Errorf("%s: %d %s", row.query, a.status, a.body)
		}
		if !reflect.DeepEqual(w.service.asked, []any{merchant, row.want}) {
			t.Errorf("%s: asked for %+v", row.query, w.service.asked)
		}
		w.service.events = EventPage{Next: 12, Head: 12}
		if a := w.get("/v1/events" + row.query); a.body != `{"data":[],"has_more":false,"next_cursor":"`+cursorOf(12)+`"}` || !json.Valid([]byte(a.body)) {
			t.Errorf("%s: an empty page: %s", row.query, a.body)
		}
	}
}

func TestRefusedEvents(t *testing.T) {
	list := "cur_" + merchant.Text("") // the cursor of another list
	for query, field := range map[string]string{
		"type=": "type", "type=payment.payed": "type", "payment_intent=pay_1": "payment_intent", "customer=": "customer",
		"customer=a%00b": "customer", "customer=" + strings.Repeat("x", 256): "customer", "cursor=" + list: "cursor", "cursor=x": "cursor",
		"cursor=": "cursor", "limit=0": "limit", "limit=101": "limit", "status=paid": "status", "type=payment.paid&type=payment.paid": "type",
	} {
		w := newWorld(t, nil)
		a := w.get("/v1/events?" + query)
		if a.status != 400 || a.Code != string(problem.Malformed) || a.Field != field || len(w.service.asked) > 0 {
			t.Errorf("%s: %d %s", query, a.status, a.body)
		}
	}
	w := newWorld(t, nil)
	w.service.events = EventPage{Next: 3, Head: 2}
	w.refused(w.get("/v1/events?cursor="+cursorOf(3)), problem.InvalidValue, "cursor")
}

func TestEventByID(t *testing.T) {
	w := newWorld(t, nil)
	w.service.events.Events = [][]byte{[]byte(`{"id": "evt_1"}`)}
	event := id.New(noon, [10]byte{9})
	if a := w.get("/v1/events/" + event.Text(id.Event)); a.status != 200 || a.body != `{"id": "evt_1"}` || !reflect.DeepEqual(w.service.asked, []any{merchant, event}) {
		t.Errorf("%d %s, asked for %v", a.status, a.body, w.service.asked)
	}
	w.key = w.keys.add(other, 2)
	w.refused(w.get("/v1/events/"+event.Text(id.Event)), problem.NotFound, "")
	w.refused(w.get("/v1/events/pi_1"), problem.NotFound, "id")
}
