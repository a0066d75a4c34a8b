package sandbox

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// until waits until the messages are as the test wants them.
func (h *hooked) until(enough func([]Message) bool) []Message {
	h.t.Helper()
	for {
		all, changed := h.server.book.listMessages("")
		if enough(all) {
			return all
		}
		select {
		case <-changed:
		case <-h.ctx.Done():
			h.t.Fatalf("the messages stay %+v", all)
		}
	}
}

// tried waits until the first message was sent n times.
func (h *hooked) tried(n int) Message {
	h.t.Helper()
	return h.until(func(all []Message) bool { return len(all) > 0 && len(all[0].Tries) >= n })[0]
}

func typeOf(d delivery, t *testing.T) string { return d.told(t).Type }

// A message is tried with growing pauses and the same bytes, ten times in all.
func TestAMessageIsTriedAgain(t *testing.T) {
	h := hook(t, nil)
	h.answers(with(http.StatusInternalServerError))
	h.want(h.post(h.ctx, "k1", bodyOf("order-1", "pm_ok")), 200)
	first := h.next()
	pauses := []time.Duration{1, 4, 16, 64, 256, 1024, 4096, 16384, 21600}
	for i, pause := range pauses {
		m := h.tried(i + 1)
		last := m.Tries[i]
		if m.State != MessageWaiting || last.Status != 500 || last.Round != i+1 || !m.NextTryAt.Equal(last.At.Add(pause*time.Second)) {
			t.Fatalf("after try %d: %+v", i+1, m)
		}
		h.ok(h.Advance(h.ctx, pause*time.Second))
		d := h.next()
		if d.id != first.id || d.body != first.body || d.signature != signed(t, hookSecret, d) {
			t.Errorf("try %d: %+v, first %+v", i+2, d, first)
		}
	}
	m := h.messages(MessageGivenUp, 1)[0]
	if len(m.Tries) != maxTries || m.NextTryAt != nil {
		t.Errorf("given up: %+v", m)
	}
	h.ok(h.Advance(h.ctx, maxDelay))
	h.answers(nil)
	h.sends(m, 200)
	h.messages(MessageDelivered, 1)
	h.next()
	h.nothingCame()
}

func TestATryThatIsNotTaken(t *testing.T) {
	t.Run("redirect", func(t *testing.T) {
		h := hook(t, nil)
		h.answers(with(http.StatusFound))
		h.want(h.post(h.ctx, "k1", bodyOf("order-1", "pm_ok")), 200)
		h.next()
		if m := h.tried(1); m.Tries[0].Status != 302 || m.State != MessageWaiting {
			t.Errorf("message %+v", m)
		}
		h.nothingCame()
	})
	t.Run("nobody there", func(t *testing.T) {
		h := hook(t, nil)
		h.receiver.Close()
		h.want(h.post(h.ctx, "k1", bodyOf("order-1", "pm_webhook_before_reply")), 200) // answered all the same
		if m := h.tried(1); m.Tries[0].Status != 0 || m.Tries[0].Error == "" || m.State != MessageWaiting {
			t.Errorf("message %+v", m)
		}
	})
	t.Run("no answer in time", func(t *testing.T) {
		f := startWith(t, Config{Dir: t.TempDir(), Secret: testSecret, Now: stopped(), tryLimit: 20 * time.Millisecond})
		h := hookIn(f, receive(t), nil)
		h.keeps(t, "")
		h.want(h.post(h.ctx, "k1", bodyOf("order-1", "pm_ok")), 200)
		if m := h.tried(1); m.Tries[0].Status != 0 || m.State != MessageWaiting {
			t.Errorf("message %+v", m)
		}
	})
}

// Without a fault the messages of one charge keep their order, and those of
// another one do not wait.
func TestMessagesOfOneChargeKeepTheirOrder(t *testing.T) {
	h := hook(t, nil)
	release := h.keeps(t, "charge.held")
	lifeOf(h.fixture, "hold 100, capture 30, final 20")
	h.want(h.post(h.ctx, "k2", bodyOf("order-2", "pm_ok")), 200)
	first := []string{typeOf(h.next(), t), typeOf(h.next(), t)}
	slices.Sort(first)
	if diff := cmp.Diff([]string{"charge.held", "charge.succeeded"}, first); diff != "" {
		t.Fatal(diff)
	}
	h.nothingCame()
	release()
	for _, want := range []string{"capture.succeeded", "capture.succeeded", "charge.succeeded"} {
		if got := typeOf(h.next(), t); got != want {
			t.Errorf("came %s, want %s", got, want)
		}
	}
	h.messages(MessageDelivered, 5)
}

func TestAMessageOvertakesTheOneBefore(t *testing.T) {
	h := hook(t, func(w *Webhooks) { w.Reorder = true })
	release := h.keeps(t, "refund.succeeded")
	l := lifeOf(h.fixture, "sale 100")
	h.want(h.post(h.ctx, "k2", bodyOf("order-2", "pm_ok")), 200) // of another charge: overtakes nothing
	h.ok(h.SetFaults(h.ctx, 0, Rule{Call: KindRefund, Fault: "lost_webhook", Times: 1}))
	l.plays("refund 5") // lost: overtakes nothing
	h.nothingCame()
	l.plays("refund 10")
	if got := typeOf(h.next(), t); got != "refund.succeeded" {
		t.Fatalf("came %s first", got)
	}
	h.nothingCame()
	release()
	if d := h.next(); typeOf(d, t) != "charge.succeeded" || d.told(t).Data["reference"] != "order-1" {
		t.Errorf("came %s then", d.body)
	}
	h.messages(MessageDelivered, 2)
	h.ok(h.Advance(h.ctx, overtakeWithin)) // nothing overtakes the other one
	if d := h.next(); d.told(t).Data["reference"] != "order-2" {
		t.Errorf("came %s at last", d.body)
	}
}

func TestMessagesAreDelayed(t *testing.T) {
	h := hook(t, func(w *Webhooks) { w.DelayMS = 3_600_000 })
	h.want(h.post(h.ctx, "k1", bodyOf("order-1", "pm_ok")), 200)
	if m := h.messages(MessageWaiting, 1)[0]; !m.NextTryAt.Equal(m.CreatedAt.Add(time.Hour)) {
		t.Errorf("message %+v", m)
	}
	h.nothingCame()
	h.ok(h.Advance(h.ctx, time.Hour))
	h.next()
	h.messages(MessageDelivered, 1)
	h.want(h.post(h.ctx, "k2", bodyOf("order-1", "pm_ok")), 200)
	h.sends(h.messages(MessageWaiting, 1)[1], 200) // it does not wait any more, and nobody waits for it
	h.next()
	h.set(nil)
	c := h.want(h.post(h.ctx, "k3", bodyOf("order-1", "pm_ok")), 200).charge(t)
	if d := h.next(); d.told(t).Data["id"] != c.ID {
		t.Errorf("came %+v", d)
	}
	h.messages(MessageDelivered, 3)
	h.ok(h.Advance(h.ctx, time.Hour))
	h.nothingCame()
}

// Twenty requests of one message are there at the same time.
func TestMessagesAreDuplicatedInParallel(t *testing.T) {
	h := hook(t, func(w *Webhooks) { w.Duplicate = 19 })
	release := h.keeps(t, "")
	h.want(h.post(h.ctx, "k1", bodyOf("order-1", "pm_ok")), 200)
	first := h.next()
	for range 19 { // none is answered yet
		if d := h.next(); d.id != first.id || d.body != first.body {
			t.Errorf("came %+v, first %+v", d, first)
		}
	}
	release()
	m := h.tried(20)
	for _, try := range m.Tries {
		if try.Round != 1 || try.Status != 200 {
			t.Errorf("try %+v", try)
		}
	}
	h.nothingCame()
}

func TestMessagesAreDropped(t *testing.T) {
	h := hook(t, func(w *Webhooks) { w.Drop = true })
	h.want(h.post(h.ctx, "k1", bodyOf("order-1", "pm_ok")), 200)
	h.set(func(w *Webhooks) { w.Livemode = true })
	h.want(h.post(h.ctx, "k2", bodyOf("order-1", "pm_ok")), 200) // does not wait for the dropped one
	if live := h.next().told(t).Livemode; live == nil || !*live {
		t.Error("not told as live")
	}
	h.messages(MessageDelivered, 1)
	dropped := h.messages(MessageDropped, 1)[0]
	h.answers(with(http.StatusBadRequest))
	if sent := h.sends(dropped, 400); sent.Body != "said 400" {
		t.Errorf("answered %+v", sent)
	}
	h.messages(MessageDropped, 1)
}

// While it is paused a test plays every order; afterwards only what was not
// taken is sent.
func TestPausedMessagesAreSentByHand(t *testing.T) {
	h := hook(t, paused)
	lifeOf(h.fixture, "sale 100, refund 10, fail")
	h.want(h.post(h.ctx, "k2", bodyOf("order-2", "pm_webhook_before_reply")), 200) // answered while it is paused
	all := h.messages(MessageWaiting, 4)
	h.nothingCame()
	h.answers(func(d delivery) (int, string) {
		if d.id == all[0].ID {
			return 503, "not now"
		}
		return 200, "thanks"
	})
	for _, i := range []int{2, 1, 2, 0} {
		status := 200
		if i == 0 {
			status = 503
		}
		h.sends(all[i], status)
		if d := h.next(); d.id != all[i].ID || d.body != all[i].Body {
			t.Errorf("came %+v, want %+v", d, all[i])
		}
	}
	if sent := h.sends(all[1], 200); sent.Body != "thanks" {
		t.Errorf("answered %+v", sent)
	}
	h.next()
	h.messages(MessageDelivered, 2)
	h.answers(nil)
	h.set(nil)
	rest := []string{h.next().id, h.next().id}
	slices.Sort(rest)
	want := []string{all[0].ID, all[3].ID}
	slices.Sort(want)
	if diff := cmp.Diff(want, rest); diff != "" {
		t.Error(diff)
	}
	if m := h.messages(MessageDelivered, 4)[0]; len(m.Tries) != 2 || m.Tries[0].Round != 0 || m.Tries[1].Round != 1 {
		t.Errorf("message %+v", m)
	}
	h.nothingCame()
}

// Who waits for a message to be sent first does not wait for a pause.
func TestAPauseDoesNotHoldAnAnswer(t *testing.T) {
	h := hook(t, nil)
	release := h.keeps(t, "")
	answers := h.async(h.ctx, "k1", bodyOf("order-1", "pm_webhook_before_reply"))
	h.next()
	h.set(paused)
	h.want(h.await(answers), 200)
	release()
}

func TestSendingByHandIsRefused(t *testing.T) {
	h := hook(t, paused)
	if sent, err := h.SendMessage(h.ctx, "evt_unknown"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("sent %+v, %v", sent, err)
	}
	h.want(h.post(h.ctx, "k1", bodyOf("order-1", "pm_ok")), 200)
	m := h.messages(MessageWaiting, 1)[0]
	h.ok(h.SetWebhooks(h.ctx, Webhooks{}))
	if sent, err := h.SendMessage(h.ctx, m.ID); err == nil || !strings.Contains(err.Error(), "no_receiver") {
		t.Errorf("sent %+v, %v", sent, err)
	}
	for _, path := range []string{"/control/webhooks?at_least=x", "/control/webhooks?wait_ms=600000"} {
		h.wantCode(h.get(path), 400, "malformed")
	}
}

// An act is told before it is answered, too, and the receiver may act upon the
// charge meanwhile.
func TestAnActIsToldBeforeItIsAnswered(t *testing.T) {
	h := hook(t, func(w *Webhooks) { w.DelayMS = 60_000 })
	l := lifeOf(h.fixture, "sale 100") // its message waits, and nobody for it
	h.ok(h.SetFaults(h.ctx, 0, Rule{Call: KindRefund, Fault: "webhook_before_reply", Times: 1}))
	refunded := make(chan error, 1)
	h.answers(func(delivery) (int, string) {
		_, err := h.RefundByHand(h.ctx, l.charge.ID, 10)
		refunded <- err
		h.answers(nil)
		return 200, ""
	})
	l.plays("refund 20")
	select {
	case err := <-refunded:
		h.ok(err)
	default:
		t.Fatal("answered before it was told")
	}
	h.ok(h.Advance(h.ctx, time.Minute))
	h.messages(MessageDelivered, 3)
}

// The secret of the command line signs where none is set, and is not written
// down.
func TestTheSecretOfTheStart(t *testing.T) {
	dir := t.TempDir()
	f := startWith(t, Config{Dir: dir, Secret: testSecret, WebhookSecret: otherSecret})
	h := hookIn(f, receive(t), func(w *Webhooks) { w.Secrets = nil })
	h.want(h.post(h.ctx, "k1", bodyOf("order-1", "pm_ok")), 200)
	if d := h.next(); d.signature != signed(t, otherSecret, d) {
		t.Errorf("signature %s", d.signature)
	}
	h.messages(MessageDelivered, 1)
	for _, name := range []string{"register.jsonl", "webhooks.jsonl"} {
		if strings.Contains(h.file(name), "whsec_") {
			t.Errorf("a secret in %s", name)
		}
	}
}

// After a restart the settings, the messages and their tries are as they were;
// what was not delivered goes on, and what was is not sent again.
func TestMessagesSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	to := receive(t)
	var before []Message
	var first delivery
	t.Run("before", func(t *testing.T) {
		h := hookIn(startStopped(t, dir), to, func(w *Webhooks) { w.Duplicate = 1 })
		h.answers(func(d delivery) (int, string) {
			if d.told(t).Data["reference"] == "order-1" {
				return 500, ""
			}
			return 200, ""
		})
		h.want(h.post(h.ctx, "k1", bodyOf("order-1", "pm_ok")), 200)
		first = h.next()
		h.next()
		h.tried(2)
		h.want(h.post(h.ctx, "k2", bodyOf("order-2", "pm_lost_webhook")), 200)
		h.want(h.post(h.ctx, "k3", bodyOf("order-3", "pm_ok")), 200)
		h.next()
		h.next()
		before = h.until(func(all []Message) bool { return len(all) == 3 && len(all[2].Tries) == 2 })
	})
	appendTo(t, dir+"/webhooks.jsonl", `{"message":"`+before[0].ID+`","at":"20`)
	t.Run("after", func(t *testing.T) {
		h := &hooked{startStopped(t, dir), to}
		h.answers(nil)
		for _, reference := range []string{"order-1", "order-3"} { // one was tried before, one delivered: neither holds the next one up
			h.want(h.post(h.ctx, "again-"+reference, bodyOf(reference, "pm_ok")), 200)
			if d := h.next(); d.told(t).Data["reference"] != reference || h.next().id != d.id {
				t.Errorf("came %+v", d)
			}
		}
		h.ok(h.Advance(h.ctx, firstRetry))
		d := h.next()
		again := h.next()
		if d.body != first.body || d.id != first.id || d.signature != signed(t, hookSecret, d) || again.body != first.body {
			t.Errorf("came %+v and %+v, first %+v", d, again, first)
		}
		after := h.until(func(all []Message) bool { return len(all[0].Tries) == 4 })
		before[0].State, before[0].NextTryAt, before[0].Tries = MessageDelivered, nil, after[0].Tries
		if diff := cmp.Diff(before, after[:3]); diff != "" {
			t.Error(diff)
		}
		h.nothingCame()
	})
}

func TestAMessageSentByHandHoldsNobodyUpAfterARestart(t *testing.T) {
	dir := t.TempDir()
	to := receive(t)
	t.Run("before", func(t *testing.T) {
		h := hookIn(startStopped(t, dir), to, paused)
		h.want(h.post(h.ctx, "k1", bodyOf("order-1", "pm_ok")), 200)
		h.sends(h.messages(MessageWaiting, 1)[0], 200)
		h.next()
	})
	t.Run("after", func(t *testing.T) {
		h := hookIn(startStopped(t, dir), to, nil)
		c := h.want(h.post(h.ctx, "k2", bodyOf("order-1", "pm_ok")), 200).charge(t)
		if d := h.next(); d.told(t).Data["id"] != c.ID {
			t.Errorf("came %+v", d)
		}
		h.messages(MessageDelivered, 2)
	})
}

// A try whose answer the sandbox did not live to see is made again.
func TestATryInTheMiddleOfARestart(t *testing.T) {
	dir := t.TempDir()
	to := receive(t)
	release := to.keeps(t, "")
	var first delivery
	t.Run("before", func(t *testing.T) {
		h := hookIn(startStopped(t, dir), to, nil)
		lifeOf(h.fixture, "sale 100, refund 10")
		first = h.next()
	})
	release()
	t.Run("after", func(t *testing.T) {
		h := &hooked{startStopped(t, dir), to}
		if d := h.next(); d.id != first.id || d.body != first.body {
			t.Errorf("came %+v, first %+v", d, first)
		}
		if got := typeOf(h.next(), t); got != "refund.succeeded" {
			t.Errorf("came %s then", got)
		}
		for _, m := range h.messages(MessageDelivered, 2) {
			if len(m.Tries) != 1 {
				t.Errorf("message %+v", m)
			}
		}
	})
}
