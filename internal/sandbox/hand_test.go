package sandbox

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestActsByHandHaveNoReference(t *testing.T) {
	l := lifeOf(start(t), "hold 100")
	capture, err := l.CaptureByHand(l.ctx, l.charge.ID, 60)
	l.ok(err)
	rest, err := l.CaptureByHand(l.ctx, l.charge.ID, 0)
	l.ok(err)
	part, err := l.RefundByHand(l.ctx, l.charge.ID, 30)
	l.ok(err)
	all, err := l.RefundByHand(l.ctx, l.charge.ID, 0)
	l.ok(err)
	for i, want := range []struct {
		act    Act
		amount int64
	}{{capture, 60}, {rest, 40}, {part, 30}, {all, 70}} {
		if want.act.Reference != "" || want.act.Amount != want.amount || want.act.Status != StatusSucceeded {
			t.Errorf("act %d: %+v", i, want.act)
		}
	}
	for _, m := range l.register() {
		if m.Reference != "" || m.IdempotencyKey != "" || m.ChargeReference != "order-1" {
			t.Errorf("movement: %+v", m)
		}
	}
	if got := told(l.register()); got != "capture 60, capture 40, refund 30, refund 70" || !rest.Final || capture.Final {
		t.Errorf("moved %q", got)
	}
	released := lifeOf(start(t), "hold 100")
	if act, err := released.ReverseByHand(released.ctx, released.charge.ID); err != nil || act.Kind != KindReverse || released.now().Status != StatusReversed {
		t.Errorf("released: %+v, %v", act, err)
	}
}

// What the desk may not do is refused as to a merchant, and nothing moves.
func TestActsByHandAreRefused(t *testing.T) {
	l := lifeOf(start(t), "sale 100")
	for want, act := range map[string]func() (Act, error){
		"not_capturable":    func() (Act, error) { return l.CaptureByHand(l.ctx, l.charge.ID, 0) },
		"exceeds_remaining": func() (Act, error) { return l.RefundByHand(l.ctx, l.charge.ID, 101) },
		"not_found":         func() (Act, error) { return l.ReverseByHand(l.ctx, "ch_unknown") },
		"status 404":        func() (Act, error) { return l.FailRefund(l.ctx, "rf_unknown", "code") },
		"exceeds":           func() (Act, error) { return l.OpenChargeback(l.ctx, l.charge.ID, 101) },
		"nothing such":      func() (Act, error) { return l.WinChargeback(l.ctx, "cb_unknown") },
		"invalid_value":     func() (Act, error) { return l.RefundByHand(l.ctx, l.charge.ID, -1) },
	} {
		if act, err := act(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", want, act, err)
		}
	}
	l.plays("refund 10")
	if act, err := l.WinChargeback(l.ctx, l.refund); err == nil {
		t.Errorf("a refund was won: %+v", act)
	}
	if got := told(l.register()); got != "charge 100, refund 10" {
		t.Errorf("moved %q", got)
	}
}

func TestAChargeByMistake(t *testing.T) {
	f := start(t)
	f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_ok")), 200)
	made, err := f.ChargeByMistake(f.ctx, HandCharge{Reference: "order-1", Amount: 1250, Currency: "USD", IdempotencyKey: "k1"})
	f.ok(err)
	if _, err := f.ChargeByMistake(f.ctx, HandCharge{Reference: "order-2", Amount: 5, Currency: "USD"}); err != nil {
		t.Error(err)
	}
	for _, path := range []string{"/charges?reference=order-1", "/charges?idempotency_key=k1"} {
		if g := f.want(f.get(path), 200); strings.Count(g.body, `"id":"ch_`) != 2 || !strings.Contains(g.body, made.ID) {
			t.Errorf("%s: %s", path, g.body)
		}
	}
	f.moved(3)
	if taken := Net(f.register())["order-1"]; taken.Net["USD"] != 2500 || taken.Charges != 2 {
		t.Errorf("taken %+v", taken)
	}
	for _, bad := range []HandCharge{{}, {Reference: "r", Amount: 0, Currency: "USD"}, {Reference: "r", Amount: 1, Currency: "XXX"},
		{Reference: "a b", Amount: 1, Currency: "USD"}, {Reference: "r", Amount: 1, Currency: "USD", IdempotencyKey: "a b"}} {
		if c, err := f.ChargeByMistake(f.ctx, bad); err == nil {
			t.Errorf("accepted %+v: %+v", bad, c)
		}
	}
	all, err := f.Charges(f.ctx, "")
	f.ok(err)
	mine, err := f.Charges(f.ctx, "order-1")
	f.ok(err)
	if len(all) != 3 || len(mine) != 2 || mine[1].ID != made.ID {
		t.Errorf("all %+v, mine %+v", all, mine)
	}
	f.moved(3)
}

func TestARefundThatFailsAtTheBank(t *testing.T) {
	l := lifeOf(start(t), "sale 100")
	l.ok(l.SetFaults(l.ctx, 0, Rule{Call: KindRefund, Fault: "processing_60000", Times: 1}))
	l.plays("refund 60")
	slow := l.refund
	l.plays("refund 40")
	act, err := l.FailRefund(l.ctx, slow, "account_closed") // it moved nothing yet
	l.ok(err)
	if got := told(l.register()); got != "charge 100, refund 40" || act.Status != StatusFailed || act.Code != "account_closed" {
		t.Errorf("failed: %+v, moved %q", act, got)
	}
	_, err = l.FailRefund(l.ctx, l.refund, "account_closed")
	l.ok(err)
	for _, id := range []string{slow, l.refund} {
		if _, err := l.FailRefund(l.ctx, id, "again"); err == nil || !strings.Contains(err.Error(), "already_decided") {
			t.Errorf("failed twice: %v", err)
		}
	}
	l.ok(l.Advance(l.ctx, maxDelay)) // the slow one's time comes, and changes nothing
	l.settled()
	c := l.now()
	if got := told(l.register()); got != "charge 100, refund 40, reverse 40" || c.RefundedAmount != 0 {
		t.Errorf("moved %q, %+v", got, c)
	}
	l.plays("refund 100") // all of it is there again
}

func TestThePayerWithoutABrowser(t *testing.T) {
	f := start(t)
	s := f.opened("")
	tried, err := f.DeclineSession(f.ctx, s.ID)
	f.ok(err)
	paid, err := f.PaySession(f.ctx, s.ID)
	f.ok(err)
	if tried.Status != StatusOpen || tried.Tries != 1 || paid.Status != StatusPaid || paid.Charge == nil {
		t.Errorf("tried %+v, paid %+v", tried, paid)
	}
	for _, again := range []func() (Session, error){
		func() (Session, error) { return f.PaySession(f.ctx, s.ID) }, func() (Session, error) { return f.DeclineSession(f.ctx, s.ID) },
		func() (Session, error) { return f.ExpireSession(f.ctx, s.ID) },
	} {
		if now, err := again(); err == nil || !strings.Contains(err.Error(), "already_decided") {
			t.Errorf("a paid page: %+v, %v", now, err)
		}
	}
	f.moved(1)
	other := decoded[Session](t, f.want(f.postTo(f.ctx, "/sessions", "k-2", sessionBody("order-2", "")), 200))
	for range 2 {
		if now, err := f.ExpireSession(f.ctx, other.ID); err != nil || now.Status != StatusExpired {
			t.Errorf("expired: %+v, %v", now, err)
		}
	}
	if _, err := f.PaySession(f.ctx, other.ID); err == nil {
		t.Error("a page that lapsed was paid")
	}
	if _, err := f.PaySession(f.ctx, "cs_unknown"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("an unknown page: %v", err)
	}
	mine, err := f.Sessions(f.ctx, "order-2")
	f.ok(err)
	all, err := f.Sessions(f.ctx, "")
	f.ok(err)
	if len(mine) != 1 || mine[0].ID != other.ID || len(all) != 2 {
		t.Errorf("mine %+v, all %+v", mine, all)
	}
	f.moved(1)
}

func TestCallsByHandAreStrict(t *testing.T) {
	l := lifeOf(start(t), "sale 100, refund 10, chargeback 10")
	s := l.opened("")
	for _, tc := range []struct {
		path, body string
		status     int
	}{
		{"/control/charges", ``, 400}, {"/control/charges", `{"x":1}`, 400},
		{"/control/charges/" + l.charge.ID + "/refund", `{"x":1}`, 400}, {"/control/charges/" + l.charge.ID + "/refund", `{"amount":"1"}`, 400},
		{"/control/charges/" + l.charge.ID + "/close", `{}`, 404}, {"/control/refunds/" + l.refund + "/fail", `{}`, 422},
		{"/control/refunds/" + l.refund + "/fail", `{"code":"a b"}`, 422}, {"/control/refunds/" + l.chargeback + "/fail", `{"code":"c"}`, 404},
		{"/control/chargebacks", `{"charge":"ch_unknown"}`, 404}, {"/control/chargebacks/" + l.chargeback + "/drawn", ``, 404},
		{"/control/sessions/" + s.ID + "/close", ``, 404},
	} {
		request, err := http.NewRequestWithContext(l.ctx, http.MethodPost, l.Base+tc.path, strings.NewReader(tc.body))
		l.ok(err)
		if g := l.do(request); g.status != tc.status {
			t.Errorf("%s %s: %v, want %d", tc.path, tc.body, g, tc.status)
		}
	}
	if got := told(l.register()); got != "charge 100, refund 10, chargeback 10" {
		t.Errorf("moved %q", got)
	}
}

// The desk and the merchant see each other too.
func TestHandAgainstMerchant(t *testing.T) {
	l := lifeOf(start(t), "sale 100")
	begin := make(chan struct{})
	var answers []<-chan got
	for i := range 10 {
		answers = append(answers, beside(func() got { <-begin; return l.actOn(l.charge.ID, KindRefund, i, 60) }),
			beside(func() got {
				<-begin
				act, err := l.RefundByHand(l.ctx, l.charge.ID, 60)
				return got{status: map[bool]int{true: 200, false: 422}[err == nil], body: fmt.Sprint(act)}
			}))
	}
	close(begin)
	good := 0
	for _, a := range answers {
		if g := l.await(a); g.status == 200 {
			good++
		}
	}
	if good != 1 || told(l.register()) != "charge 100, refund 60" {
		t.Errorf("%d good answers, moved %q", good, told(l.register()))
	}
}

func TestRegisterPageNamesReleases(t *testing.T) {
	l := lifeOf(start(t), "hold 100, reverse")
	l.shows(l.get("/"), "reverse of a hold, no money", "1 movement in all")
}
