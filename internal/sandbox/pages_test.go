package sandbox

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

const returnURL = "https://shop.example/thanks?order=1"

// sessionBody asks for a page of 12.50 USD; more is further members.
func sessionBody(reference, more string) string {
	return fmt.Sprintf(`{"reference":%q,"amount":1250,"currency":"USD","return_url":%q%s}`, reference, returnURL, more)
}

// opened makes a page under the key "k-page" and the reference "order-1".
func (f *fixture) opened(more string) Session {
	f.t.Helper()
	return decoded[Session](f.t, f.want(f.postTo(f.ctx, "/sessions", "k-page", sessionBody("order-1", more)), 200))
}

func (f *fixture) close(id string) got { return f.postTo(f.ctx, "/sessions/"+id+"/close", "", "{}") }

func (f *fixture) page(id string) Session {
	f.t.Helper()
	return decoded[Session](f.t, f.want(f.get("/sessions/"+id), 200))
}

// shows checks what a payer sees.
func (f *fixture) shows(g got, texts ...string) {
	f.t.Helper()
	f.want(g, 200)
	for _, text := range texts {
		if !strings.Contains(g.body, text) {
			f.t.Errorf("the page lacks %q: %s", text, g.body)
		}
	}
}

func TestPageIsPaid(t *testing.T) {
	f := start(t)
	before := time.Now()
	s := f.opened("")
	if s.Status != StatusOpen || s.Charge != nil || s.Tries != 0 || s.PageURL != f.Base+"/pay/"+s.ID || !strings.HasPrefix(s.ID, "cs_") ||
		s.ExpiresAt.Before(before.Add(time.Hour)) || s.ExpiresAt.After(time.Now().Add(time.Hour)) {
		t.Fatalf("session: %+v", s)
	}
	f.shows(f.get("/pay/"+s.ID), "12.50 USD", "order-1", `value="pay"`, `value="decline"`, `value="leave"`, "Pay", "Decline", "Walk away")
	f.moved(0)
	f.leaves(f.form("/pay/"+s.ID, "leave"))
	f.shows(f.form("/pay/"+s.ID, "decline"), "declined", `value="pay"`)
	f.moved(0)
	f.leaves(f.form("/pay/"+s.ID, "pay"))
	paid := f.page(s.ID)
	if paid.Status != StatusPaid || paid.Tries != 1 || paid.Charge == nil || paid.Charge.Status != StatusSucceeded || paid.Charge.Session != s.ID {
		t.Fatalf("session: %+v", paid)
	}
	m := f.moved(1)[0]
	if m.Object != paid.Charge.ID || m.Reference != "order-1" || m.IdempotencyKey != "k-page" || m.Amount != 1250 {
		t.Errorf("movement: %+v", m)
	}
	for _, choice := range []string{"pay", "decline", "leave"} {
		f.shows(f.form("/pay/"+s.ID, choice), "This page is paid.")
	}
	if again := f.page(s.ID); again.Tries != 1 {
		t.Errorf("a try on a paid page counts: %+v", again)
	}
	f.moved(1)
	f.wantCode(f.close(s.ID), 409, "already_paid")
}

func (f *fixture) leaves(g got) {
	f.t.Helper()
	if f.want(g, 303); g.location != returnURL {
		f.t.Errorf("leads to %q", g.location)
	}
}

// A page runs no script, loads nothing, and shows what the merchant sent as text.
func TestPagesAreInert(t *testing.T) {
	f := start(t)
	session := decoded[Session](t, f.want(f.postTo(f.ctx, "/sessions", "", sessionBody("<script>1</script>", "")), 200))
	c := f.want(f.post(f.ctx, "", bodyOf("<script>1</script>", "pm_3ds")), 200).charge(t)
	for _, path := range []string{"/pay/" + session.ID, "/challenge/" + c.ID} {
		response, err := f.charge.Get(f.Base + path)
		f.ok(err)
		body, err := readAll(response.Body)
		f.ok(err)
		policy := response.Header.Get("Content-Security-Policy")
		if strings.Contains(string(body), "<script") || !strings.Contains(string(body), "&lt;script&gt;") || !strings.HasPrefix(policy, "default-src 'none'") {
			t.Errorf("%s: policy %q: %s", path, policy, body)
		}
	}
	if requests, err := f.Wire(f.ctx, 0); err != nil || len(requests) != 2 {
		t.Errorf("a payer's page is no merchant's call: %+v, %v", requests, err)
	}
}

func TestPageThatHolds(t *testing.T) {
	f := start(t)
	s := f.opened(`,"capture":false`)
	f.leaves(f.form("/pay/"+s.ID, "pay"))
	f.moved(0)
	paid := f.page(s.ID)
	if paid.Status != StatusPaid || paid.Charge.Status != StatusHeld {
		t.Fatalf("session: %+v", paid)
	}
	f.want(f.actOn(paid.Charge.ID, KindCapture, 1, 1250), 200)
	if now := f.page(s.ID); now.Charge.Status != StatusSucceeded || len(now.Charge.Acts) != 1 {
		t.Errorf("session: %+v", now)
	}
	f.moved(1)
}

func TestTwoWhoPayAtOnceMakeOneCharge(t *testing.T) {
	f := start(t)
	s := f.opened("")
	const payers = 20
	begin := make(chan struct{})
	var answers []<-chan got
	for range payers {
		answers = append(answers, beside(func() got {
			<-begin
			return f.form("/pay/"+s.ID, "pay")
		}))
	}
	close(begin)
	led := 0
	for _, a := range answers {
		g := f.await(a)
		switch {
		case g.status == http.StatusSeeOther:
			led++
		case g.status != 200 || !strings.Contains(g.body, "This page is paid."):
			t.Errorf("got %v", g)
		}
	}
	charges, err := f.Charges(f.ctx, "order-1")
	f.ok(err)
	if led != 1 || len(charges) != 1 {
		t.Errorf("%d payers led back, %d charges", led, len(charges))
	}
	f.moved(1)
}

// A page is paid or closed, never both.
func TestPayAgainstClose(t *testing.T) {
	for range 10 {
		f := start(t)
		s := f.opened("")
		begin := make(chan struct{})
		paying := beside(func() got { <-begin; return f.form("/pay/"+s.ID, "pay") })
		closing := beside(func() got { <-begin; return f.close(s.ID) })
		close(begin)
		pay, closed := f.await(paying), f.await(closing)
		now := f.page(s.ID)
		switch {
		case pay.status == 303 && closed.status == 409 && now.Status == StatusPaid:
			f.moved(1)
		case pay.status == 200 && closed.status == 200 && now.Status == StatusClosed:
			f.moved(0)
		default:
			t.Errorf("paid %v, closed %v, now %+v", pay, closed, now)
		}
	}
}

func TestPageIsClosed(t *testing.T) {
	f := start(t)
	s := f.opened("")
	for range 2 {
		if closed := decoded[Session](t, f.want(f.close(s.ID), 200)); closed.Status != StatusClosed {
			t.Errorf("session: %+v", closed)
		}
	}
	f.shows(f.get("/pay/"+s.ID), "The shop closed this page.")
	f.shows(f.form("/pay/"+s.ID, "pay"), "The shop closed this page.")
	f.moved(0)
	f.wantCode(f.close("cs_unknown"), 404, "not_found")
	f.wantCode(f.postTo(f.ctx, "/sessions/"+s.ID+"/close", "", `{"reference":"r"}`), 400, "malformed")
}

func TestPageLapsesByTheClock(t *testing.T) {
	f := under(t, func(c *Contract) { c.SessionSeconds = 60 })
	s := f.opened("")
	longer := decoded[Session](t, f.want(f.postTo(f.ctx, "/sessions", "", sessionBody("order-2",
		`,"expires_at":"`+time.Now().Add(time.Hour).Format(time.RFC3339)+`"`)), 200))
	f.ok(f.Advance(f.ctx, time.Minute))
	if now := f.page(s.ID); now.Status != StatusExpired {
		t.Errorf("session: %+v", now)
	}
	if !strings.Contains(f.file("register.jsonl"), `"status":"expired"`) {
		t.Error("what was seen is not written down")
	}
	f.shows(f.form("/pay/"+s.ID, "pay"), "The time of this page is over.")
	f.moved(0)
	if closed := decoded[Session](t, f.want(f.close(s.ID), 200)); closed.Status != StatusExpired {
		t.Errorf("closed: %+v", closed)
	}
	f.leaves(f.form("/pay/"+longer.ID, "pay"))
	f.moved(1)
	f.ok(f.Advance(f.ctx, time.Hour))
	if now := f.page(longer.ID); now.Status != StatusPaid {
		t.Errorf("a paid page lapsed: %+v", now)
	}
}

func TestPageByAddressOnly(t *testing.T) {
	f := under(t, func(c *Contract) { c.PageByAddress = true })
	s := f.opened("")
	if s.PageURL == "" {
		t.Error("the first answer does not tell the address")
	}
	for _, path := range []string{"/sessions/" + s.ID, "/sessions?reference=order-1", "/sessions?idempotency_key=k-page"} {
		if g := f.want(f.get(path), 200); strings.Contains(g.body, "page_url") {
			t.Errorf("%s: %s", path, g.body)
		}
	}
	f.shows(f.get("/pay/"+s.ID), "12.50 USD")
}

func TestPagesRefuseOtherForms(t *testing.T) {
	f := start(t)
	s := f.opened("")
	c := f.want(f.post(f.ctx, "", bodyOf("order-2", "pm_3ds")), 200).charge(t)
	for path, choice := range map[string]string{"/pay/" + s.ID: "confirm", "/challenge/" + c.ID: "pay"} {
		f.wantCode(f.form(path, choice), 400, "malformed")
		f.wantCode(f.form(path, ""), 400, "malformed")
	}
	for _, path := range []string{"/pay/cs_unknown", "/challenge/ch_unknown"} {
		f.wantCode(f.get(path), 404, "not_found")
	}
	f.wantCode(f.form("/pay/cs_unknown", "pay"), 404, "not_found")
	f.wantCode(f.form("/challenge/ch_unknown", "confirm"), 404, "not_found")
	f.moved(0)
}

func TestConfirmationPage(t *testing.T) {
	for _, tc := range []struct {
		capture string
		choices []string
		status  string
		shown   string
		moved   int
	}{
		{"", []string{"confirm", "confirm", "refuse"}, StatusSucceeded, "The payment is confirmed.", 1},
		{`,"capture":false`, []string{"confirm"}, StatusHeld, "The payment is confirmed.", 0},
		{"", []string{"refuse", "confirm"}, StatusDeclined, "The payment is refused.", 0},
		{"", []string{"leave"}, StatusActionRequired, "still waits", 0},
		{"", []string{"leave", "confirm"}, StatusSucceeded, "The payment is confirmed.", 1},
	} {
		f := start(t)
		body := `{"reference":"order-1","amount":1250,"currency":"USD","payment_method":"pm_3ds"` + tc.capture + `}`
		c := f.want(f.post(f.ctx, "k1", body), 200).charge(t)
		f.shows(f.get(strings.TrimPrefix(c.RedirectURL, f.Base)), "12.50 USD", "order-1", "Confirm", "Refuse", "Walk away")
		for _, choice := range tc.choices {
			f.want(f.form("/challenge/"+c.ID, choice), 200)
		}
		f.shows(f.form("/challenge/"+c.ID, tc.choices[len(tc.choices)-1]), tc.shown)
		now := f.want(f.get("/charges/"+c.ID), 200).charge(t)
		if now.Status != tc.status || (now.RedirectURL != "") != (tc.status == StatusActionRequired) ||
			(now.Reason == reasonNotConfirmed) != (tc.status == StatusDeclined) {
			t.Errorf("%v: %+v", tc.choices, now)
		}
		f.moved(tc.moved)
	}
}

func TestConfirmationPageLapses(t *testing.T) {
	f := start(t)
	c := f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_3ds")), 200).charge(t)
	f.ok(f.Advance(f.ctx, time.Hour))
	f.shows(f.form("/challenge/"+c.ID, "confirm"), "The time of this page is over.")
	f.moved(0)
	if now := f.want(f.get("/charges/"+c.ID), 200).charge(t); now.Status != StatusExpired || now.RedirectURL != "" {
		t.Errorf("the charge: %+v", now)
	}
}

func TestBadSessionsAreRefused(t *testing.T) {
	f := start(t)
	good := sessionBody("order-1", "")
	for _, tc := range []struct {
		old, with string
		status    int
	}{
		{`"order-1"`, `""`, 422}, {`1250`, `0`, 422}, {`1250`, `"1250"`, 400}, {`"USD"`, `"XXX"`, 422}, {`}`, `,"capture":1}`, 400},
		{`}`, `,"expires_at":"2001-01-01T00:00:00Z"}`, 422}, {`}`, `,"expires_at":"tomorrow"}`, 422}, {`}`, `,"expires_at":5}`, 400},
		{`}`, `,"payment_method":"pm_ok"}`, 400}, {returnURL, `javascript:alert(1)`, 422}, {returnURL, `/thanks`, 422},
		{returnURL, `https://` + strings.Repeat("a", maxReturnURL), 422}, {`"return_url"`, `"url"`, 400},
	} {
		if g := f.postTo(f.ctx, "/sessions", "k-page", strings.Replace(good, tc.old, tc.with, 1)); g.status != tc.status {
			t.Errorf("%s: %v, want %d", tc.with, g, tc.status)
		}
	}
	f.opened("") // the key is still free
}
