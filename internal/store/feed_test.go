package store_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/store"
)

// feeder writes events of intents as a record would, and reads the feed of the shop's merchant.
type feeder struct {
	*shop
	intents  []id.ID
	versions map[id.ID]int64
	written  map[string]bool
}

func newFeeder(t *testing.T, intents int) *feeder {
	f := &feeder{shop: newShop(t), versions: map[id.ID]int64{}, written: map[string]bool{}}
	for n := range intents {
		st := f.start(fmt.Sprintf("order-%d", n))
		f.owner("UPDATE payment_intent SET customer = $1 WHERE id = $2", fmt.Sprintf("c-%d", n%2), st.intent.ID.String())
		f.intents = append(f.intents, st.intent.ID)
	}
	return f
}

// writer is a transaction, or a connection by itself.
type writer interface {
	Exec(sql string, args ...any)
}

type inTx struct {
	f  *feeder
	tx pgx.Tx
}

func (w inTx) Exec(sql string, args ...any) {
	w.f.t.Helper()
	if _, err := w.tx.Exec(w.f.t.Context(), sql, args...); err != nil {
		w.f.t.Fatal(err)
	}
}

type alone struct{ f *feeder }

func (w alone) Exec(sql string, args ...any) { w.f.owner(sql, args...) }

// write adds one event of the n-th intent; its bytes have blanks that a decoder would lose.
func (f *feeder) write(w writer, n int, typ payment.EventType) string {
	f.t.Helper()
	intent := f.intents[n]
	f.versions[intent]++
	event := newID()
	body := fmt.Sprintf(`{"id": %q,  "n": 1.0}`, event.Text(id.Event))
	w.Exec(`WITH e AS (INSERT INTO event (merchant_id, intent_id, version, id, event_key, type, payload) VALUES ($1, $2, $3, $4, $5, $6, $7)
RETURNING merchant_id, intent_id, version, id) INSERT INTO outbox (merchant_id, subject_id, version, event_id) SELECT merchant_id, intent_id, version, id FROM e`,
		f.merchant.String(), intent.String(), f.versions[intent], event.String(), "key "+event.String(), string(typ), []byte(body))
	f.written[body] = true
	return body
}

func (f *feeder) number() {
	f.t.Helper()
	for busy := true; busy; {
		var err error
		if _, busy, err = f.s.NumberEvents(f.t.Context()); err != nil {
			f.t.Fatal(err)
		}
	}
}

// drain reads from a position until nothing more is there.
func (f *feeder) drain(filter store.FeedFilter, after int64, limit int) (events []string, next int64) {
	f.t.Helper()
	for more := true; more; {
		page, err := f.s.Feed(f.t.Context(), f.merchant, filter, after, limit)
		if err != nil || len(page.Events) > limit || page.More && len(page.Events) < limit {
			f.t.Fatalf("%+v, %v", page, err)
		}
		for _, e := range page.Events {
			events = append(events, string(e))
		}
		after, more = page.Next, page.More
	}
	return events, after
}

// A transaction holds an event while later ones are numbered and read: whoever goes on from where it had read finds it.
func TestTheFeedLosesNothing(t *testing.T) {
	f := newFeeder(t, 4)
	var seen []string
	read := func(after int64, filter store.FeedFilter) int64 {
		t.Helper()
		f.number()
		events, next := f.drain(filter, after, 2)
		seen = append(seen, events...)
		return next
	}
	at := read(0, store.FeedFilter{}) // before there is any event, and any head
	conn, err := pgx.Connect(t.Context(), f.db.Owner())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	held := f.write(inTx{f, tx}, 0, payment.EventPaid)
	for n := range 5 {
		f.write(alone{f}, 1+n%3, payment.EventPaid)
	}
	at = read(at, store.FeedFilter{})
	if len(seen) != 5 || slices.Contains(seen, held) {
		t.Fatalf("%d events were read while one was not committed", len(seen))
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.write(alone{f}, 2, payment.EventReview)
	at = read(at, store.FeedFilter{})
	if len(seen) != 7 || !slices.Contains(seen, held) {
		t.Fatalf("%d events were read, the late one: %v", len(seen), slices.Contains(seen, held))
	}
	// A poller with a filter goes on behind what did not pass it, and behind the end.
	narrow := store.FeedFilter{Type: string(payment.EventReview)}
	only, next := f.drain(narrow, 0, 1)
	if len(only) != 1 || next != at {
		t.Errorf("filtered: %v, next %d of %d", only, next, at)
	}
	f.write(alone{f}, 3, payment.EventReview)
	f.number()
	if only, _ = f.drain(narrow, next, 1); len(only) != 1 {
		t.Errorf("behind the end: %v", only)
	}
	at = read(at, store.FeedFilter{})
	for _, body := range seen {
		if !f.written[body] {
			t.Errorf("not the bytes that were stored: %s", body)
		}
		delete(f.written, body)
	}
	if len(f.written) != 0 {
		t.Errorf("not read, or read twice: %v", f.written)
	}
	if page, err := f.s.Feed(t.Context(), f.merchant, store.FeedFilter{}, at+5, 1); err != nil || page.Head != at {
		t.Errorf("beyond the end: %+v, %v", page, err)
	}
}

func TestFilteredFeed(t *testing.T) {
	f := newFeeder(t, 3) // customers c-0, c-1, c-0
	for n := range 12 {
		f.write(alone{f}, n%3, []payment.EventType{payment.EventPaid, payment.EventReview}[n%2])
	}
	f.number()
	for name, row := range map[string]struct {
		filter store.FeedFilter
		want   int
	}{
		"all":                         {store.FeedFilter{}, 12},
		"type":                        {store.FeedFilter{Type: "payment.paid"}, 6},
		"intent":                      {store.FeedFilter{Intent: f.intents[0]}, 4},
		"customer":                    {store.FeedFilter{Customer: "c-0"}, 8},
		"customer and type":           {store.FeedFilter{Customer: "c-0", Type: "payment.paid"}, 4},
		"intent and type":             {store.FeedFilter{Intent: f.intents[0], Type: "payment.in_review"}, 2},
		"intent and its customer":     {store.FeedFilter{Intent: f.intents[0], Customer: "c-0"}, 4},
		"intent and another customer": {store.FeedFilter{Intent: f.intents[0], Customer: "c-1"}, 0},
		"a type that never happened":  {store.FeedFilter{Type: "payment.failed"}, 0},
	} {
		for _, limit := range []int{1, 3, 100} {
			events, next := f.drain(row.filter, 0, limit)
			if len(events) != row.want || next != 12 {
				t.Errorf("%s, pages of %d: %d events, next %d", name, limit, len(events), next)
			}
		}
		// I-15: another merchant's feed is empty, whatever it is asked for.
		if page, err := f.s.Feed(t.Context(), newID(), row.filter, 0, 10); err != nil || len(page.Events) != 0 || page.Next != 0 {
			t.Errorf("%s: another merchant reads %+v, %v", name, page, err)
		}
	}
}
