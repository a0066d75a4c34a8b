package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/outbox"
	"github.com/hapaxpay/hapax/internal/store"
)

// Events that a sink does not take are listed with the reason, sent again by hand, and given up where nobody has the sink any more.
func TestOutboxIsListedRetriedAndForgotten(t *testing.T) {
	db := installed(t)
	sandbox := startSandbox(t)
	apiKey := shopOf(t, sandbox.address)
	s, err := store.Open(t.Context(), store.Config{URL: db.Service()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.AddEventSinks(t.Context(), []string{outbox.SinkKafka}); err != nil { // some other process had one
		t.Fatal(err)
	}
	server := start(t, "serve", "--listen", "127.0.0.1:0")
	if status, body := pay(t, server.address, apiKey, "k", `{"amount":100,"currency":"KZT","payment_method":"pm_ok"}`); status != 201 {
		t.Fatalf("%d %v", status, body)
	}
	if _, _, err := s.NumberEvents(t.Context()); err != nil { // the server may have done so
		t.Fatal(err)
	}
	list := func(args ...string) object {
		t.Helper()
		return hapax(t, exitGood, append([]string{"outbox", "list"}, args...)...)
	}
	waiting := list()
	rows := waiting.list("deliveries")
	if len(rows) != 1 || rows[0].text("sink") != "kafka" || rows[0].text("type") != "payment.paid" || rows[0]["attempts"] != 0.0 || waiting["events_without_place"] != 0.0 {
		t.Fatalf("%v", waiting)
	}
	event := rows[0].text("event")
	owner := db.OwnerPool(t)
	if _, err := owner.Exec(t.Context(), "UPDATE delivery SET attempts = 3, error = 'no route', due_at = now() + interval '1 hour'"); err != nil {
		t.Fatal(err)
	}
	if n := len(list("--failing", "--sink", "kafka").list("deliveries")); n != 1 {
		t.Errorf("%d are failing", n)
	}
	if out, _ := plain(t, exitGood, "outbox", "list"); !strings.Contains(out, "no route") || !strings.Contains(out, "1 of them failing") {
		t.Errorf("for people:\n%s", out)
	}
	if n := len(list("--sink", id.ID{1}.Text(id.Endpoint)).list("deliveries")) + len(list("--state", "abandoned").list("deliveries")); n != 0 {
		t.Errorf("%d of another sink, or given up", n)
	}
	hapax(t, exitGood, "outbox", "retry", event, "--sink", "kafka")
	due := false
	if err := owner.QueryRow(t.Context(), "SELECT due_at <= now() FROM delivery").Scan(&due); err != nil || !due {
		t.Errorf("not due: %v", err)
	}
	if o := hapax(t, exitGood, "outbox", "forget", "kafka"); o["abandoned"] != 1.0 {
		t.Errorf("%v", o)
	}
	if n := len(list("--state", "abandoned").list("deliveries")); n != 1 {
		t.Errorf("%d were given up", n)
	}
	hapax(t, exitGood, "outbox", "retry", event, "--sink", "kafka")
	if rows := list().list("deliveries"); len(rows) != 1 || rows[0]["resends"] != 1.0 || rows[0]["attempts"] != 0.0 {
		t.Errorf("sent anew: %v", rows)
	}
	refusals := [][]string{{"retry", event, "--sink", "nats"}, {"retry", event, "--sink", "elsewhere"}, {"retry", "evt_1", "--sink", "kafka"},
		{"forget", "nats"}, {"forget", id.ID{1}.Text(id.Endpoint)}, {"list", "--sink", "x"}, {"list", "--state", "delivered"}}
	for _, args := range refusals {
		if told := hapax(t, exitCouldNot, append([]string{"outbox"}, args...)...).text("error"); told == "" || slices.Contains(args, "list") && !strings.Contains(told, "--s") {
			t.Errorf("%v: %q", args, told)
		}
	}
}
