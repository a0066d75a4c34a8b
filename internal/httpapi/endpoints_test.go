package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/problem"
)

var (
	weID = id.New(noon, [10]byte{5})
	evID = id.New(noon, [10]byte{6})
	at   = "/v1/webhook_endpoints/" + weID.Text(id.Endpoint)
)

// TestEndpointCommands: what a client says of a webhook endpoint comes through as it was meant.
func TestEndpointCommands(t *testing.T) {
	text := func(s string) *string { return &s }
	types := func(all ...payment.EventType) *[]payment.EventType { return &all }
	hour := time.Hour
	for _, row := range []struct {
		kind         operation.Kind
		target, body string
		want         flow.EndpointCommand
	}{
		{operation.CreateEndpoint, "/v1/webhook_endpoints", `{"url":"https://shop.example/"}`, flow.EndpointCommand{URL: text("https://shop.example/")}},
		{operation.CreateEndpoint, "/v1/webhook_endpoints", `{"url":"https://shop.example/","description":"d","types":["payment.paid","dispute.won","payment.paid"]}`,
			flow.EndpointCommand{URL: text("https://shop.example/"), Description: text("d"), Types: types("dispute.won", "payment.paid")}},
		{operation.UpdateEndpoint, at, `{"types":[],"description":""}`, flow.EndpointCommand{Endpoint: weID, Description: text(""), Types: types()}},
		{operation.UpdateEndpoint, at, `{"types":null}`, flow.EndpointCommand{Endpoint: weID}},
		{operation.UpdateEndpoint, at, `{"url":"https://inside.example/"}`, flow.EndpointCommand{Endpoint: weID, URL: text("https://inside.example/"),
			Target: problem.New(problem.InvalidValue, "Webhooks are not sent to this address. it leads inside.").On("url")}},
		{operation.DisableEndpoint, at + "/disable", "", flow.EndpointCommand{Endpoint: weID}},
		{operation.EnableEndpoint, at + "/enable", "{}", flow.EndpointCommand{Endpoint: weID}},
		{operation.RotateSecret, at + "/rotate_secret", "", flow.EndpointCommand{Endpoint: weID}},
		{operation.RotateSecret, at + "/rotate_secret", `{"overlap_seconds":3600}`, flow.EndpointCommand{Endpoint: weID, Overlap: &hour}},
		{operation.TestEndpoint, at + "/test", "", flow.EndpointCommand{Endpoint: weID}},
		{operation.ResendEvent, at + "/resend", fmt.Sprintf(`{"event":%q}`, evID.Text(id.Event)), flow.EndpointCommand{Endpoint: weID, Event: evID}},
		{operation.ResendFailed, at + "/resend_failed", `{"since":"2026-03-01T12:00:00+01:00"}`, flow.EndpointCommand{Endpoint: weID, Since: noon.Add(-time.Hour)}},
	} {
		w := newWorld(t, func(c *Config) {
			c.Target = func(_ context.Context, url string) error {
				if strings.Contains(url, "inside") {
					return errors.New("it leads inside")
				}
				return nil
			}
		})
		a := w.post(row.target, row.body)
		row.want.Kind, row.want.Merchant, row.want.Key, row.want.RequestID = row.kind, merchant, "order-1", w.requestOf(a)
		if row.want.Types != nil && len(*row.want.Types) == 0 {
			*row.want.Types = nil
		}
		if a.status != 201 || !reflect.DeepEqual(w.service.changes, []any{row.want}) {
			t.Errorf("%s %s: %d %s, came through: %+v", row.target, row.body, a.status, a.body, w.service.changes)
		}
	}
}

func TestRefusedEndpointCommands(t *testing.T) {
	for _, row := range []struct {
		target, body, field string
		code                problem.Code
	}{
		{"/v1/webhook_endpoints", ``, "", problem.Malformed},
		{"/v1/webhook_endpoints", `{"description":"d"}`, "url", problem.Malformed},
		{"/v1/webhook_endpoints", `{"url":null}`, "url", problem.Malformed},
		{"/v1/webhook_endpoints", `{"url":"https://shop.example/","secret":"x"}`, "secret", problem.Malformed},
		{"/v1/webhook_endpoints", `{"url":["https://shop.example/"]}`, "url", problem.Malformed},
		{"/v1/webhook_endpoints", `{"url":"https://shop.example/4111111111111111"}`, "url", problem.LooksLikeCardNumber},
		{"/v1/webhook_endpoints", `{"url":"https://shop.example/` + strings.Repeat("x", 2048) + `"}`, "url", problem.InvalidValue},
		{at, `{"description":"` + strings.Repeat("x", 1001) + `"}`, "description", problem.InvalidValue},
		{at, `{"types":["payment.payed"]}`, "types", problem.InvalidValue},
		{at, `{"types":{"payment.paid":1}}`, "types", problem.Malformed},
		{at, `{"types":[true]}`, "types", problem.Malformed},
		{at, `{"types":["payment.paid"`, "types", problem.Malformed},
		{at, `{"types":["a\ud800"]}`, "types", problem.Malformed},
		{at + "/disable", `{"why":"x"}`, "why", problem.Malformed},
		{at + "/rotate_secret", `{"overlap_seconds":-1}`, "overlap_seconds", problem.InvalidValue},
		{at + "/rotate_secret", `{"overlap_seconds":604801}`, "overlap_seconds", problem.InvalidValue},
		{at + "/rotate_secret", `{"overlap_seconds":1.5}`, "overlap_seconds", problem.Malformed},
		{at + "/resend", ``, "event", problem.Malformed},
		{at + "/resend", `{"event":"pi_1"}`, "event", problem.NotFound},
		{at + "/resend_failed", `{}`, "since", problem.Malformed},
		{at + "/resend_failed", `{"since":"yesterday"}`, "since", problem.InvalidValue},
		{"/v1/webhook_endpoints/we_1/test", ``, "id", problem.NotFound},
	} {
		w := newWorld(t, nil)
		w.refused(w.post(row.target, row.body), row.code, row.field)
	}
	for _, target := range []string{at, at + "/disable", at + "/enable", at + "/rotate_secret", at + "/test", at + "/resend", at + "/resend_failed"} {
		w := newWorld(t, nil)
		r := w.request(http.MethodPost, target, "{}")
		r.Header.Del(KeyHeader)
		w.refused(w.do(r), problem.KeyMissing, KeyHeader)
	}
}

func TestLookingAtEndpoints(t *testing.T) {
	w := newWorld(t, nil)
	e := payment.Endpoint{Merchant: merchant, ID: weID, URL: "https://shop.example/?a=1&b=2", Enabled: true, CreatedAt: noon, UpdatedAt: noon}
	d := present.Delivery{Event: evID, Type: "payment.paid", State: "waiting", Attempts: 1, DueAt: noon, CreatedAt: noon, Error: "it answered 500",
		Tries: []present.Try{{ID: evID, Attempt: 1, URL: e.URL, Status: 500, Answer: "<no>", Error: "it answered 500", Duration: 1500 * time.Millisecond, At: noon}}}
	w.service.endpoints, w.service.deliveries, w.service.more = []payment.Endpoint{e}, []present.Delivery{d}, true
	body := string(present.Endpoint(e))
	for path, want := range map[string]string{
		"/v1/webhook_endpoints": `{"data":[` + body + `],"has_more":false,"next_cursor":null}`,
		at:                      body,
		at + "/secret":          `{"object":"webhook_secrets","webhook_endpoint":"` + weID.Text(id.Endpoint) + `","secrets":[{"secret":"whsec_1","created_at":"2026-03-01T12:00:00.000000Z","expires_at":null}]}`,
		at + "/deliveries?limit=1&state=waiting&event=" + evID.Text(id.Event): `{"data":[` + string(d.JSON()) + `],"has_more":true,"next_cursor":"` + evID.Text("cur_") + `"}`,
	} {
		if a := w.get(path); a.status != 200 || a.body != want || a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if q := w.service.asked[len(w.service.asked)-2:]; !strings.Contains(fmt.Sprint(w.service.asked), fmt.Sprint(DeliveryQuery{State: "waiting", Event: evID})) {
		t.Errorf("asked for %v", q)
	}
	if strings.Contains(w.log.String(), "whsec_") {
		t.Error("a secret is in the log")
	}
	for query, field := range map[string]string{"state=": "state", "state=sent": "state", "event=pi_1": "event", "cursor=x": "cursor", "limit=0": "limit", "type=x": "type"} {
		w.refused(w.get(at+"/deliveries?"+query), problem.Malformed, field)
	}
	w.refused(w.get("/v1/webhook_endpoints?limit=1"), problem.Malformed, "limit")
	w.key = w.keys.add(other, 2)
	for _, path := range []string{at, at + "/secret", at + "/deliveries"} {
		w.refused(w.get(path), problem.NotFound, "")
	}
}
