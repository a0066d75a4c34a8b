package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/outbox"
	"github.com/hapaxpay/hapax/internal/outbox/webhook"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/rig"
)

const endpointsPath = "/v1/webhook_endpoints"

// Twenty at once with one key make one endpoint with one secret, and are all told the same.
func TestTwentyCreatesWithOneKey(t *testing.T) {
	s := open(t)
	hook := newReceiver(t)
	var all sync.WaitGroup
	answers := make([]rig.Response, 20)
	for n := range answers {
		all.Go(func() {
			for { // 409: the first one is still at work
				res, err := s.replica.Do(t.Context(), s.merchant, http.MethodPost, endpointsPath, "one", []byte(`{"url":"`+hook.URL+`"}`))
				if err != nil {
					t.Error(err)
				}
				if answers[n] = res; res.Status != 409 || err != nil {
					return
				}
			}
		})
	}
	all.Wait()
	for _, a := range answers {
		if a.Status != 201 || string(a.Body) != string(answers[0].Body) {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	for _, table := range []string{"webhook_endpoint", "webhook_secret", "endpoint_command", "event"} {
		if n := s.Count("SELECT count(*) FROM " + table); n != 1 {
			t.Errorf("%d rows in %s", n, table)
		}
	}
	s.call(422, http.MethodPost, endpointsPath, "one", `{"url":"`+hook.URL+`/other"}`)
}

// Long after the operation was purged, a repeat is answered from what the command did, and other parameters are refused (K8).
func TestLateRepeatsOfEndpointCommands(t *testing.T) {
	s := open(t)
	hook := newReceiver(t)
	path := s.endpoint(hook.URL, `,"description":"old"`)
	s.pay("order-1")
	s.pass()
	event := hook.take()[1].id()
	since := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	commands := []struct{ path, body, other string }{
		{"", fmt.Sprintf(`{"url":%q}`, hook.URL+"/2"), fmt.Sprintf(`{"url":%q}`, hook.URL+"/3")},
		{path, `{"description":"new"}`, `{"description":"newer"}`},
		{path + "/disable", "", ""},
		{path + "/enable", "", ""},
		{path + "/rotate_secret", `{"overlap_seconds":60}`, `{"overlap_seconds":61}`},
		{path + "/test", "", ""},
		{path + "/resend", fmt.Sprintf(`{"event":%q}`, event), `{"event":"evt_01hapax0000000000000000000"}`},
		{path + "/resend_failed", fmt.Sprintf(`{"since":%q}`, since), fmt.Sprintf(`{"since":%q}`, time.Now().UTC().Format(time.RFC3339))},
	}
	first := map[int]object{}
	for n, c := range commands {
		status := 200
		if c.path == "" {
			status = 201
		}
		first[n] = s.call(status, http.MethodPost, endpointsPath+c.path, fmt.Sprint("late-", n), c.body)
	}
	rows := s.Count("SELECT count(*) FROM event")
	s.Later(31 * 24 * time.Hour)
	s.replica.Sweep.Pass(t.Context())
	if n := s.Count("SELECT count(*) FROM operation"); n != 0 {
		t.Fatalf("%d operations are left", n)
	}
	for n, c := range commands {
		res, err := s.replica.Do(t.Context(), s.merchant, http.MethodPost, endpointsPath+c.path, fmt.Sprint("late-", n), []byte(c.body))
		if err != nil || res.Header.Get("Idempotency-Replayed") != "true" || res.Member("object") != first[n].text("object") {
			t.Errorf("%s: %d %s, %v", c.path, res.Status, res.Body, err)
		}
		if first[n].text("object") == "webhook_send" && (res.Member("event") != first[n].text("event") || res.Member("deliveries") != fmt.Sprint(first[n]["deliveries"])) {
			t.Errorf("%s: %s, was %v", c.path, res.Body, first[n])
		}
		if c.other != "" && !strings.Contains(c.other, "evt_") {
			s.call(422, http.MethodPost, endpointsPath+c.path, fmt.Sprint("late-", n), c.other)
		}
	}
	if n := s.Count("SELECT count(*) FROM event"); n != rows {
		t.Errorf("late repeats wrote %d events", n-rows)
	}
	s.Verify()
}

// Sent again, by hand, an event has the id and the bytes that it had.
func TestResendGivesTheSameBytes(t *testing.T) {
	s := open(t)
	hook := newReceiver(t)
	path := s.endpoint(hook.URL, `,"types":["payment.paid"]`)
	s.pay("order-1")
	s.pass()
	first := hook.take()[0]
	told := s.post(200, path+"/resend", fmt.Sprintf(`{"event":%q}`, first.id()))
	if told.text("event") != first.id() || told["deliveries"] != 1.0 {
		t.Errorf("%v", told)
	}
	s.pass()
	again := hook.take()
	if len(again) != 1 || again[0].id() != first.id() || again[0].body != first.body {
		t.Fatalf("%+v", again)
	}
	d := s.deliveries(path, "?event="+first.id())
	if len(d) != 1 || d[0]["resends"] != 1.0 || len(d[0].tries()) != 2 || d[0].text("state") != "delivered" {
		t.Errorf("%v", d)
	}
	// An event that the endpoint does not want is sent when a person asks for it.
	created := s.get("/v1/events?type=webhook_endpoint.created")["data"].([]any)[0].(map[string]any)["id"].(string)
	s.post(200, path+"/resend", fmt.Sprintf(`{"event":%q}`, created))
	s.pass()
	if all := hook.take(); len(all) != 1 || all[0].id() != created {
		t.Errorf("%+v", all)
	}
	// I-15: nothing of another merchant is found, moved or shown.
	mine := *s
	s.merchant = s.AddMerchant(nil)
	for _, c := range []string{path, path + "/disable", path + "/enable", path + "/rotate_secret", path + "/test"} {
		s.post(404, c, "{}")
	}
	s.post(404, path+"/resend", fmt.Sprintf(`{"event":%q}`, first.id()))
	s.post(404, path+"/resend_failed", `{"since":"2030-01-01T00:00:00Z"}`)
	for _, p := range []string{endpointsPath + path, endpointsPath + path + "/secret", endpointsPath + path + "/deliveries", "/v1/events/" + first.id()} {
		s.call(404, http.MethodGet, p, "", "")
	}
	strange := s.endpoint(hook.URL+"/strange", "")
	s.post(404, strange+"/resend", fmt.Sprintf(`{"event":%q}`, first.id()))
	if n := len(s.get(endpointsPath)["data"].([]any)); n != 1 {
		t.Errorf("a stranger sees %d endpoints", n)
	}
	if n := len(mine.get(endpointsPath)["data"].([]any)); n != 1 {
		t.Errorf("%d endpoints", n)
	}
}

// What waits for an endpoint that is disabled rests and goes on; what happened meanwhile is sent when somebody asks for it.
func TestDisabledEndpointsRest(t *testing.T) {
	s := open(t)
	hook, other := newReceiver(t), newReceiver(t)
	hook.answers(500)
	path := s.endpoint(hook.URL, `,"types":["payment.paid"]`)
	s.endpoint(other.URL, "")
	began := time.Now()
	s.pay("order-1")
	s.pass()
	waiting := hook.take()[0].id()
	d := s.post(200, path+"/disable", "")
	if d["enabled"] != false || d.text("disabled_reason") != "requested" {
		t.Errorf("%v", d)
	}
	s.post(200, path+"/disable", "") // once more is no second event
	s.post(409, path+"/test", "")
	s.Later(4 * 24 * time.Hour)
	s.pay("order-2")
	s.pass()
	if n := len(hook.take()); n != 0 {
		t.Fatalf("%d webhooks while it is disabled", n)
	}
	told := map[string]int{}
	for _, g := range other.take() {
		for _, typ := range payment.EventTypes {
			if strings.Contains(g.body, `"type":"`+string(typ)+`"`) {
				told[string(typ)]++
			}
		}
	}
	if told["webhook_endpoint.disabled"] != 1 || told["payment.paid"] != 2 {
		t.Errorf("the other endpoint heard %v", told)
	}
	hook.answers(0)
	if e := s.post(200, path+"/enable", ""); e["enabled"] != true || e["disabled_reason"] != nil || e["failing_since"] != nil {
		t.Errorf("%v", e)
	}
	s.pass()
	if all := hook.take(); len(all) != 1 || all[0].id() != waiting {
		t.Fatalf("what rested: %+v", all)
	}
	since := began.Add(-5 * 24 * time.Hour).UTC().Format(time.RFC3339)
	if told := s.post(200, path+"/resend_failed", fmt.Sprintf(`{"since":%q}`, since)); told["deliveries"] != 1.0 || told["more"] != false {
		t.Errorf("%v", told)
	}
	s.pass()
	if all := hook.take(); len(all) != 1 || !strings.Contains(all[0].body, "order-2") {
		t.Errorf("what was missed: %+v", all)
	}
	if told := s.post(200, path+"/resend_failed", fmt.Sprintf(`{"since":%q}`, since)); told["deliveries"] != 0.0 {
		t.Errorf("nothing is left, and yet: %v", told)
	}
	s.post(422, path+"/resend_failed", `{"since":"2020-01-01T00:00:00Z"}`)
	s.post(400, path+"/resend_failed", "")
	s.Verify()
}

// TestCase057_AnEndpointThatAlwaysFails: it backs off for three days, is given up, is disabled in the end, and no other endpoint
// waits for it.
func TestCase057_AnEndpointThatAlwaysFails(t *testing.T) {
	s := open(t)
	poison, good := newReceiver(t), newReceiver(t)
	poison.answers(503)
	path := s.endpoint(poison.URL, `,"types":["payment.paid","webhook_endpoint.test"]`)
	s.endpoint(good.URL, `,"types":["payment.paid","webhook_endpoint.disabled"]`)
	for n := range 10 {
		s.pay(fmt.Sprint("order-", n))
	}
	s.pass()
	if n := len(good.take()); n != 10 {
		t.Fatalf("the good endpoint heard %d events beside the poisoned one", n)
	}
	passed, tries := time.Duration(0), len(poison.take())
	for s.Count("SELECT count(*) FROM delivery WHERE state = 'waiting'") > 0 {
		step := time.Duration(s.Count("SELECT ceil(extract(epoch FROM max(due_at) - now()))::int FROM delivery WHERE state = 'waiting'")) * time.Second
		s.Later(step)
		passed += step
		s.pass()
		tries += len(poison.take())
		if passed > 6*24*time.Hour {
			t.Fatal("it is never given up")
		}
	}
	if passed < 72*time.Hour || tries != 100 {
		t.Errorf("given up after %v and %d tries", passed, tries)
	}
	if d := s.deliveries(path, "?state=abandoned&limit=3"); len(d) != 3 || d[0]["attempts"] != 10.0 || len(d[0].tries()) != 10 {
		t.Errorf("%v", d)
	}
	if n := len(s.deliveries(path, "?state=delivered")); n != 0 {
		t.Errorf("%d were delivered", n)
	}
	s.Later(5*24*time.Hour - passed)
	s.pay("order-10")
	s.pass()
	if e := s.get(endpointsPath + path); e["enabled"] != false || e.text("disabled_reason") != "failing" {
		t.Fatalf("%v", e)
	}
	s.pass()
	if all := good.take(); len(all) != 2 || !strings.Contains(all[1].body, `"webhook_endpoint.disabled"`) {
		t.Errorf("the good endpoint heard %+v", all)
	}
	poison.answers(0)
	s.post(200, path+"/enable", "")
	since := time.Now().Add(-6 * 24 * time.Hour).UTC().Format(time.RFC3339)
	if told := s.post(200, path+"/resend_failed", fmt.Sprintf(`{"since":%q}`, since)); told["deliveries"] != 11.0 {
		t.Errorf("%v", told)
	}
	poison.take()
	s.pass()
	if n := len(poison.take()); n != 11 {
		t.Errorf("%d events came in the end", n)
	}
	s.Verify()
}

// 410 disables at once; what waited rests and goes on.
func TestGone(t *testing.T) {
	s := open(t)
	hook := newReceiver(t)
	path := s.endpoint(hook.URL, `,"types":["payment.paid"]`)
	hook.answers(410)
	s.pay("order-1")
	s.pass()
	if e := s.get(endpointsPath + path); e["enabled"] != false || e.text("disabled_reason") != "gone" {
		t.Fatalf("%v", e)
	}
	s.pay("order-2")
	s.Later(24 * time.Hour)
	s.pass()
	if n := len(hook.take()); n != 1 {
		t.Errorf("%d requests to an endpoint that is gone", n)
	}
	hook.answers(0)
	s.post(200, path+"/enable", "")
	s.pass()
	if n := len(hook.take()); n != 1 {
		t.Errorf("%d webhooks after it was enabled", n)
	}
}

// An endpoint that is disabled after its events were picked gets none of them; they rest.
func TestDisabledBetweenPickAndSend(t *testing.T) {
	s := open(t)
	hook := newReceiver(t)
	path := s.endpoint(hook.URL, "")
	s.During(outbox.PointBeforeSend, func(p *rig.Replica) {
		if n, err := p.Relay.Pass(t.Context()); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}, func() { s.post(200, path+"/disable", "") }, lax)
	if n := len(hook.take()); n != 0 {
		t.Errorf("%d webhooks to a disabled endpoint", n)
	}
	d := s.deliveries(path, "")
	if len(d) != 1 || d[0].text("state") != "waiting" || len(d[0].tries()) != 0 {
		t.Errorf("%v", d)
	}
	s.post(200, path+"/enable", "")
	s.Later(time.Hour)
	s.pass()
	if all := hook.take(); len(all) == 0 || !strings.Contains(all[0].body, "webhook_endpoint.created") {
		t.Errorf("%+v", all)
	}
}

// Tries that could not be made, since the endpoint's secret could not be opened here, use up nothing of the three days.
func TestTriesThatWereNotMadeDoNotCount(t *testing.T) {
	s := open(t)
	owner := func(sql string) {
		t.Helper()
		if _, err := s.Owner.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	hook := newReceiver(t)
	hook.answers(503)
	path := s.endpoint(hook.URL, `,"types":["payment.paid"]`)
	s.pay("order-1")
	owner("ALTER TABLE webhook_secret ADD kept bytea")
	owner("UPDATE webhook_secret SET kept = sealed, sealed = 'unreadable'")
	for range 2 * len(webhook.Schedule) {
		s.pass()
		s.Later(time.Minute)
	}
	if n := len(hook.take()); n != 0 {
		t.Fatalf("%d webhooks without a secret", n)
	}
	owner("UPDATE webhook_secret SET sealed = kept")
	s.pass()
	d := s.deliveries(path, "")
	if n := len(hook.take()); n != 1 || len(d) != 1 || d[0].text("state") != "waiting" || d[0]["attempts"] != 1.0 {
		t.Errorf("%d webhooks, then: %v", n, d)
	}
}

// One success ends a failing time, and a changed address does.
func TestFailingEnds(t *testing.T) {
	s := open(t)
	hook := newReceiver(t)
	path := s.endpoint(hook.URL, `,"types":["payment.paid"]`)
	fail := func(reference string) {
		t.Helper()
		hook.answers(500)
		s.pay(reference)
		s.pass()
		if e := s.get(endpointsPath + path); e.text("failing_since") == "" || e["enabled"] != true {
			t.Errorf("%v", e)
		}
	}
	fail("order-1")
	s.Later(4 * 24 * time.Hour)
	hook.answers(0)
	s.pass()
	if e := s.get(endpointsPath + path); e["failing_since"] != nil {
		t.Errorf("%v", e)
	}
	s.Later(4 * 24 * time.Hour)
	fail("order-2")
	if e := s.post(200, path, fmt.Sprintf(`{"url":%q}`, hook.URL+"/new")); e["failing_since"] != nil || e.text("url") != hook.URL+"/new" {
		t.Errorf("%v", e)
	}
	s.post(200, path, `{"types":[],"description":"all"}`)
	if e := s.get(endpointsPath + path); len(e["types"].([]any)) != 0 || e.text("description") != "all" || e.text("url") != hook.URL+"/new" {
		t.Errorf("%v", e)
	}
	for _, bad := range []string{`{"types":["payment.payed"]}`, `{"url":"https://[::1"}`} {
		s.post(422, path, bad)
	}
	for _, bad := range []string{`{"types":"payment.paid"}`, `{"types":[1]}`, `{"types":[null]}`, `{"types":[["payment.paid"]]}`, `{"secret":"x"}`, `{"url":1}`} {
		s.post(400, path, bad)
	}
}

// The bound holds when many come at once, each with a key of its own.
func TestMostEndpoints(t *testing.T) {
	s := open(t)
	for n := range payment.MaxEndpoints - 1 {
		s.endpoint(fmt.Sprintf("http://127.0.0.1:9/%d", n), "")
	}
	tx, err := s.Owner.Begin(t.Context()) // all of them wait for the lock, past whatever they looked at without it
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tx.Rollback(context.WithoutCancel(t.Context())); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
			t.Error(err)
		}
	}()
	if _, err := tx.Exec(t.Context(), "SELECT FROM feed_head FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	const many = 4
	answers := make(chan rig.Response, many)
	for n := range many {
		go func() {
			res, err := s.replica.Do(t.Context(), s.merchant, http.MethodPost, endpointsPath, fmt.Sprint("at-once-", n), []byte(`{"url":"http://127.0.0.1:9/more"}`))
			if err != nil || res.Status != 201 && res.Member("code") != "limit_reached" {
				t.Errorf("%d %s, %v", res.Status, res.Body, err)
			}
			answers <- res
		}()
	}
	s.DB.WaitBlocked(t, many)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	statuses := map[int]int{}
	for range many {
		statuses[(<-answers).Status]++
	}
	if statuses[201] != 1 || s.Count("SELECT count(*) FROM webhook_endpoint") != payment.MaxEndpoints {
		t.Errorf("%v", statuses)
	}
}

// An endpoint that does not answer keeps no other waiting, while the relay runs as it does in production.
func TestASilentEndpointHoldsUpNobody(t *testing.T) {
	s := open(t)
	silent, good := newReceiver(t), newReceiver(t)
	asked, release := make(chan struct{}, 1), make(chan struct{})
	silent.say(func(http.ResponseWriter, *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-release
	})
	s.endpoint(silent.URL, `,"types":["payment.paid"]`)
	s.endpoint(good.URL, `,"types":["payment.paid"]`)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.replica.Relay.Run(ctx)
	}()
	defer func() {
		close(release)
		stop()
		<-ended
	}()
	s.pay("order-0")
	<-asked
	for n := range 10 {
		s.pay(fmt.Sprint("order-", n+1))
	}
	heard := 0
	dbtest.Eventually(t, func() bool {
		heard += len(good.take())
		return heard == 11
	})
}
