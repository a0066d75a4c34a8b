package webhook_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer/signature"
	"github.com/hapaxpay/hapax/internal/outbox/webhook"
	"github.com/hapaxpay/hapax/internal/present"
)

// verified demands that a webhook verifies, or does not, with a secret alone.
func verified(t *testing.T, what string, g got, secret signature.Secret, want bool) {
	t.Helper()
	_, err := signature.VerifyStandard(g.header, []byte(g.body), []signature.Secret{secret}, g.at, 0)
	if (err == nil) != want {
		t.Errorf("%s: %v", what, err)
	}
}

// What is sent is the event as it is stored, signed by each secret that is good, and by no other.
func TestWebhooksAreSignedWhileSecretsRotate(t *testing.T) {
	s := open(t)
	hook := newReceiver(t)
	path := s.endpoint(hook.URL+"/hook?shop=1", `,"types":["payment.paid","webhook_endpoint.test"]`)
	s.pay("order-1")
	s.pass()
	all := hook.take()
	if len(all) != 1 {
		t.Fatalf("%d webhooks", len(all))
	}
	first := all[0]
	event := s.get("/v1/events?type=payment.paid")["data"].([]any)[0].(map[string]any)
	raw, err := s.replica.Do(t.Context(), s.merchant, http.MethodGet, "/v1/events/"+first.id(), "", nil)
	if err != nil || string(raw.Body) != first.body || event["id"] != first.id() {
		t.Errorf("sent %s, the event is %s, %v", first.body, raw.Body, err)
	}
	if first.header.Get("Content-Type") != present.EventContentType || first.header.Get("Cookie") != "" || first.header.Get("Authorization") != "" {
		t.Errorf("headers: %v", first.header)
	}
	old := s.secrets(path)
	if len(old) != 1 {
		t.Fatalf("%d secrets", len(old))
	}
	verified(t, "the first secret", first, old[0], true)

	s.post(200, path+"/rotate_secret", "")
	both := s.secrets(path)
	if len(both) != 2 || both[1].Text() != old[0].Text() || both[0].Text() == old[0].Text() {
		t.Fatalf("%d secrets", len(both))
	}
	s.post(200, path+"/test", "")
	s.pass()
	during := hook.take()[0]
	verified(t, "during the overlap, the old one", during, both[1], true)
	verified(t, "during the overlap, the new one", during, both[0], true)
	verified(t, "a secret from before signed no later one", first, both[0], false)

	s.Later(24*time.Hour + time.Second)
	s.post(200, path+"/test", "")
	s.pass()
	after := hook.take()[0]
	verified(t, "after the overlap, the old one", after, both[1], false)
	verified(t, "after the overlap, the new one", after, both[0], true)

	s.post(200, path+"/rotate_secret", `{"overlap_seconds":0}`)
	s.post(200, path+"/test", "")
	s.pass()
	last := hook.take()[0]
	verified(t, "a secret that was ended at once", last, both[0], false)
	now := s.secrets(path)
	verified(t, "its successor", last, now[0], true)
	for n := range 3 {
		s.post(200, path+"/rotate_secret", fmt.Sprintf(`{"overlap_seconds":%d}`, 3600*(n+1)))
	}
	s.post(422, path+"/rotate_secret", "")
	s.post(422, path+"/rotate_secret", `{"overlap_seconds":604801}`)
	if n := len(s.secrets(path)); n != 4 {
		t.Errorf("%d secrets", n)
	}
	s.post(200, path+"/rotate_secret", `{"overlap_seconds":0}`)
	if n := len(s.secrets(path)); n != 1 {
		t.Errorf("%d secrets", n)
	}
	for _, secret := range append(both, now...) {
		for _, table := range []string{"operation", "event", "endpoint_command", "history", "webhook_endpoint", "webhook_secret"} {
			if n := s.Count("SELECT count(*) FROM "+table+" x WHERE x::text LIKE '%' || $1 || '%'", strings.TrimPrefix(secret.Text(), "whsec_")); n != 0 {
				t.Errorf("%s holds a secret", table)
			}
		}
	}
	s.Verify()
}

// A redirect, an answer without end, and silence are failures like any other, and say so in the log of deliveries.
func TestAnswersThatAreNone(t *testing.T) {
	elsewhere := newReceiver(t)
	for name, row := range map[string]struct {
		say    func(http.ResponseWriter, *http.Request)
		status any
		why    string
	}{
		"redirect of the method": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) }, 302.0, "redirects are not followed"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}, 307.0, "redirects are not followed"},
		"error": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			fmt.Fprint(w, strings.Repeat("\u00e9", 4000))
		}, 500.0, "it answered 500"},
		"cut": {func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			hook := newReceiver(t)
			hook.say(row.say)
			path := s.endpoint(hook.URL, "")
			s.pass()
			if n := len(hook.take()); n != 1 || len(elsewhere.take()) != 0 {
				t.Fatalf("%d requests", n)
			}
			d := s.deliveries(path, "")[0]
			if d.text("state") != "waiting" || !strings.Contains(d.text("error"), row.why) || d.text("next_at") == "" {
				t.Errorf("%v", d)
			}
			try := d.tries()[0]
			answer := try.text("answer")
			if try["status"] != row.status || try.text("url") != hook.URL || len(answer) > 2048+3 || !strings.Contains(try.text("error"), row.why) || try.text("error") == "" {
				t.Errorf("%v", try)
			}
			hook.say(nil)
			s.Later(webhook.Schedule[0] * 5 / 4)
			s.pass()
			d = s.deliveries(path, "")[0]
			if d.text("state") != "delivered" || d["error"] != nil || d["attempts"] != 2.0 || len(d.tries()) != 2 || d.tries()[0]["status"] != 200.0 {
				t.Errorf("%v", d)
			}
		})
	}
}

// A name that was public when the endpoint was made, and leads inside when the try is made, gets nothing; nor does what is
// inside from the start.
func TestPrivateTargetsAreRefused(t *testing.T) {
	hook := newReceiver(t)
	port := hook.URL[strings.LastIndexByte(hook.URL, ':'):]
	dns := &names{to: map[string]string{"inside.example": "10.1.2.3", "mapped.example": "::ffff:127.0.0.1", "shop.example": "93.184.216.34"}}
	s := open(t, resolving(dns))
	for _, url := range []string{"https://inside.example/", "https://mapped.example/", "https://127.0.0.1" + port, "https://[::1]/", "https://169.254.169.254/latest",
		"https://2130706433/", "https://localhost" + port, "http://shop.example/", "https://user:pass@shop.example/"} {
		p := s.post(422, "", fmt.Sprintf(`{"url":%q}`, url))
		if p.text("code") != "invalid_value" || p.text("field") != "url" || strings.Contains(fmt.Sprint(p), url) || strings.Contains(fmt.Sprint(p), "10.1.2.3") {
			t.Errorf("%s: %v", url, p)
		}
	}
	path := s.endpoint("https://shop.example"+port+"/hook", "")
	s.post(422, path, `{"url":"https://inside.example/"}`)
	dns.lead("shop.example", "127.0.0.1")
	s.pass()
	if n := len(hook.take()); n != 0 {
		t.Fatalf("%d requests came inside", n)
	}
	d := s.deliveries(path, "")[0]
	if try := d.tries()[0]; try["status"] != nil || !strings.Contains(try.text("error"), "not public") {
		t.Errorf("%v", d)
	}
	if s.Count("SELECT count(*) FROM webhook_endpoint WHERE failing_since IS NOT NULL") != 1 {
		t.Error("an endpoint that leads inside does not count as failing")
	}
	// What was refused is not stored: the key is free, and what comes later is judged anew.
	dns.lead("inside.example", "93.184.216.35")
	s.call(201, http.MethodPost, "/v1/webhook_endpoints", "key-1", `{"url":"https://inside.example/"}`)
	// A repeat is answered from what is stored, wherever the name leads by then.
	dns.lead("inside.example", "10.1.2.3")
	s.call(201, http.MethodPost, "/v1/webhook_endpoints", "key-1", `{"url":"https://inside.example/"}`)
}
