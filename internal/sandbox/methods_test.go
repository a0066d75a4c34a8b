package sandbox

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// methodTests is one end-to-end test per payment method, over real HTTP.
var methodTests = map[string]func(*fixture){
	"pm_ok": func(f *fixture) {
		c := f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_ok")), 200).charge(f.t)
		m := f.moved(1)[0]
		if c.Status != StatusSucceeded || c.Reference != "order-1" || c.Amount != 1250 || c.Currency != "USD" {
			f.t.Errorf("answer: %+v", c)
		}
		if m.Reference != "order-1" || m.IdempotencyKey != "k1" || m.Kind != KindCharge || m.Amount != 1250 || m.Currency != "USD" {
			f.t.Errorf("movement: %+v", m)
		}
	},
	"pm_declined_<reason>": func(f *fixture) {
		for range 2 {
			c := f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_declined_insufficient_funds")), 402).charge(f.t)
			if c.Status != StatusDeclined || c.Reason != "insufficient_funds" {
				f.t.Errorf("answer: %+v", c)
			}
		}
		f.moved(0)
	},
	"pm_timeout_executed": func(f *fixture) {
		f.lostOnPurpose("k1", bodyOf("order-1", "pm_timeout_executed"))
		f.moved(1)
		f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_timeout_executed")), 200)
		f.moved(1)
	},
	"pm_timeout_not_executed": func(f *fixture) {
		f.lostOnPurpose("k1", bodyOf("order-1", "pm_timeout_not_executed"))
		f.moved(0)
		f.want(f.get("/charges?idempotency_key=k1"), 404)
		f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_timeout_not_executed")), 200)
		f.moved(1)
	},
	"pm_executes_after_<n>s": func(f *fixture) {
		body := bodyOf("order-1", "pm_executes_after_30s")
		f.leftAtTheClock("k1", body)
		f.moved(0)
		f.want(f.get("/charges?idempotency_key=k1"), 404)
		f.wantCode(f.post(f.ctx, "k1", body), 409, "in_flight")
		f.ok(f.Advance(f.ctx, 30*time.Second))
		f.movedWithin(1)
		f.want(f.post(f.ctx, "k1", body), 200)
		f.moved(1)
	},
	"pm_arrives_after_<n>s": func(f *fixture) {
		f.ok(f.SetContract(f.ctx, neither()))
		body := bodyOf("order-1", "pm_arrives_after_60s")
		f.leftAtTheClock("k1", body)
		f.want(f.post(f.ctx, "k1", body), 200) // overtakes the first one
		f.moved(1)
		f.ok(f.Advance(f.ctx, time.Minute))
		f.movedWithin(2)
	},
	"pm_slow_<ms>": func(f *fixture) {
		begun := time.Now()
		f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_slow_30")), 200)
		if took := time.Since(begun); took < 30*time.Millisecond {
			f.t.Errorf("answered after %v", took)
		}
		f.moved(1)
	},
	"pm_processing_<ms>": func(f *fixture) {
		c := f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_processing_60000")), 200).charge(f.t)
		f.moved(0)
		if c.Status != StatusProcessing {
			f.t.Errorf("answer: %+v", c)
		}
		f.ok(f.Advance(f.ctx, time.Minute))
		f.movedWithin(1)
		if now := f.want(f.get("/charges/"+c.ID), 200).charge(f.t); now.Status != StatusSucceeded {
			f.t.Errorf("after a minute: %+v", now)
		}
	},
	"pm_reset_executed": func(f *fixture) {
		f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_reset_executed")), 0)
		f.moved(1)
		f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_reset_executed")), 200)
		f.moved(1)
	},
	"pm_reset_not_executed": func(f *fixture) {
		f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_reset_not_executed")), 0)
		f.moved(0)
		f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_reset_not_executed")), 200)
		f.moved(1)
	},
	"pm_500_executed": func(f *fixture) {
		for range 2 { // stored and replayed
			f.wantCode(f.post(f.ctx, "k1", bodyOf("order-1", "pm_500_executed")), 500, "internal")
			f.moved(1)
		}
		f.want(f.get("/charges?idempotency_key=k1"), 200)
	},
	"pm_500_not_executed": func(f *fixture) {
		for range 2 {
			f.wantCode(f.post(f.ctx, "k1", bodyOf("order-1", "pm_500_not_executed")), 500, "internal")
		}
		f.moved(0)
		f.want(f.get("/charges?idempotency_key=k1"), 404)
	},
	"pm_502_executed":           func(f *fixture) { f.onceThenGood("pm_502_executed", 502, "<html>", 1) },
	"pm_502_not_executed":       func(f *fixture) { f.onceThenGood("pm_502_not_executed", 502, "<html>", 0) },
	"pm_broken_json_executed":   func(f *fixture) { f.onceThenGood("pm_broken_json_executed", 200, `{"id":"ch_`, 1) },
	"pm_200_error_executed":     func(f *fixture) { f.onceThenGood("pm_200_error_executed", 200, `"error"`, 1) },
	"pm_200_error_not_executed": func(f *fixture) { f.onceThenGood("pm_200_error_not_executed", 200, `"error"`, 0) },
	"pm_409_in_flight":          func(f *fixture) { f.onceThenGood("pm_409_in_flight", 409, "in_flight", 1) },
	"pm_<status>_once": func(f *fixture) {
		f.onceThenGood("pm_401_once", 401, "unauthorized", 0)
	},
	"pm_wrong_amount": func(f *fixture) {
		c := f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_wrong_amount")), 200).charge(f.t)
		if m := f.moved(1)[0]; c.Amount != 1251 || m.Amount != 1251 {
			f.t.Errorf("answer %+v, movement %+v", c, m)
		}
	},
	"pm_wrong_currency": func(f *fixture) {
		c := f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_wrong_currency")), 200).charge(f.t)
		if m := f.moved(1)[0]; c.Currency != "EUR" || m.Currency != "EUR" {
			f.t.Errorf("answer %+v, movement %+v", c, m)
		}
	},
	"pm_hold": func(f *fixture) {
		c := f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_hold")), 200).charge(f.t)
		if c.Status != StatusHeld || c.CapturedAmount != 0 || c.ExpiresAt == nil || c.Acts == nil {
			f.t.Errorf("answer: %+v", c)
		}
		f.moved(0)
	},
	"pm_3ds": func(f *fixture) {
		c := f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_3ds")), 200).charge(f.t)
		if c.Status != StatusActionRequired || c.RedirectURL != f.Base+"/challenge/"+c.ID {
			f.t.Errorf("answer: %+v", c)
		}
		f.moved(0)
		f.want(f.form("/challenge/"+c.ID, "confirm"), 200)
		f.moved(1)
	},
	"pm_forget_key": func(f *fixture) {
		for n := 1; n <= 2; n++ {
			f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_forget_key")), 200)
			f.moved(n)
		}
		f.want(f.post(f.ctx, "k1", bodyOf("order-1", "pm_forget_key")), 200)
		f.moved(2)
	},
	"pm_lost_webhook": func(f *fixture) {
		h := hookIn(f, receive(f.t), nil)
		c := h.want(h.post(h.ctx, "k1", bodyOf("order-1", "pm_lost_webhook")), 200).charge(f.t)
		_, err := h.RefundByHand(h.ctx, c.ID, 50)
		h.ok(err)
		h.want(h.post(h.ctx, "k2", bodyOf("order-2", "pm_ok")), 200)
		if d := h.next(); d.told(f.t).Data["reference"] != "order-2" {
			f.t.Errorf("came %s", d.body)
		}
		lost := h.messages(MessageDropped, 2)
		if got := types(lost); got != "charge.succeeded, refund.succeeded, charge.succeeded" || len(lost[0].Tries) != 0 {
			f.t.Errorf("messages: %+v", lost)
		}
		h.sends(lost[0], 200)
		h.messages(MessageDelivered, 2)
	},
	"pm_double_webhook": func(f *fixture) {
		h := hookIn(f, receive(f.t), nil)
		h.want(h.post(h.ctx, "k1", bodyOf("order-1", "pm_double_webhook")), 200)
		if one, two := h.next(), h.next(); one.id != two.id || one.body != two.body {
			f.t.Errorf("came %+v and %+v", one, two)
		}
		h.nothingCame()
	},
	"pm_webhook_before_reply": func(f *fixture) {
		h := hookIn(f, receive(f.t), func(w *Webhooks) { w.DelayMS, w.Reorder = 60_000, true })
		release := h.keeps(f.t, "")
		answers := h.async(h.ctx, "k1", bodyOf("order-1", "pm_webhook_before_reply"))
		h.next()
		h.want(h.get("/charges?reference=order-1"), 200) // the receiver can ask
		select {
		case g := <-answers:
			f.t.Errorf("answered before the message was: %v", g)
		default:
		}
		release()
		h.want(h.await(answers), 200)
		h.messages(MessageDelivered, 1)
		h.want(h.post(h.ctx, "k1", bodyOf("order-1", "pm_webhook_before_reply")), 200) // nothing new to tell
		h.messages(MessageDelivered, 1)
	},
}

// onceThenGood meets the method's bad answer first and the charge's own then.
func (f *fixture) onceThenGood(method string, status int, text string, moved int) {
	f.t.Helper()
	if g := f.want(f.post(f.ctx, "k1", bodyOf("order-1", method)), status); !strings.Contains(g.body, text) {
		f.t.Errorf("got %v; want %s in it", g, text)
	}
	f.moved(moved)
	if c := f.want(f.post(f.ctx, "k1", bodyOf("order-1", method)), 200).charge(f.t); c.Status != StatusSucceeded {
		f.t.Errorf("the repeat: %+v", c)
	}
	f.moved(1)
}

func TestPaymentMethods(t *testing.T) {
	for _, row := range faultList {
		if !row.method {
			continue
		}
		name := "pm_" + row.name
		t.Run(name, func(t *testing.T) {
			test := methodTests[name]
			if test == nil {
				t.Fatal("a payment method without a test")
			}
			test(start(t))
		})
	}
}

func TestEveryFrontAnswer(t *testing.T) {
	f := start(t)
	for status := range onceReplies {
		key := "k" + status
		if g := f.post(f.ctx, key, bodyOf(key, "pm_"+status+"_once")); g.err != nil || status != strconv.Itoa(g.status) {
			t.Errorf("pm_%s_once: %v", status, g)
		}
	}
	f.moved(0)
}

func TestChainsPlayOneElementPerCall(t *testing.T) {
	f := start(t)
	body := bodyOf("order-1", "pm_timeout_executed|pm_401_once")
	f.lostOnPurpose("k1", body)
	f.wantCode(f.post(f.ctx, "k1", body), 401, "unauthorized")
	f.want(f.post(f.ctx, "k1", body), 200)
	f.moved(1)
}
