package sandbox

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// members reads a JSON object.
func members(t *testing.T, text string) map[string]any {
	t.Helper()
	var found map[string]any
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return found
}

// pathsOf are the questions about objects; a chargeback has none.
var pathsOf = map[string]string{KindCharge: "/charges/", KindCapture: "/captures/", KindReverse: "/reversals/", KindRefund: "/refunds/", callSession: "/sessions/"}

// isToldNow checks that a message tells what a question tells now.
func (h *hooked) isToldNow(m Message, reference string) {
	h.t.Helper()
	body := members(h.t, m.Body)
	data, ok := body["data"].(map[string]any)
	if !ok || body["id"] != m.ID || body["type"] != m.Type || body["livemode"] != false || body["created_at"] != m.CreatedAt.Format(time.RFC3339Nano) {
		h.t.Errorf("the body of %+v", m)
	}
	if data["object"] != m.Object || data["charge_reference"] != reference || data["id"] != m.ObjectID || m.ChargeReference != reference {
		h.t.Errorf("%s is about %+v", m.Type, data)
	}
	if m.Type != m.Object+"."+data["status"].(string) {
		h.t.Errorf("%s tells %v", m.Type, data["status"])
	}
	if pathsOf[m.Object] == "" {
		return
	}
	now := members(h.t, h.want(h.get(pathsOf[m.Object]+m.ObjectID), 200).body)
	delete(now, "acts")
	delete(data, "object")
	delete(data, "charge_reference")
	if _, told := data["capture"].(bool); told != (m.Object == KindCharge) {
		h.t.Errorf("%s tells capture: %v", m.Type, data["capture"])
	}
	delete(data, "capture")
	if diff := cmp.Diff(now, data); diff != "" {
		h.t.Errorf("%s: %s", m.Type, diff)
	}
}

// A life told step by step: the types, and each body as a question tells it at
// that moment.
func TestLivesAreTold(t *testing.T) {
	for steps, want := range map[string]string{
		"sale 100": "charge.succeeded", "hold 100": "charge.held", "decline 100": "charge.declined", "later 100": "charge.processing",
		"challenge 100, confirm":                                                 "charge.action_required, charge.succeeded",
		"challenge_hold 100, confirm":                                            "charge.action_required, charge.held",
		"challenge 100, refuse":                                                  "charge.action_required, charge.declined",
		"challenge 100, reverse":                                                 "charge.action_required, reverse.succeeded, charge.reversed",
		"hold 100, capture 60, capture 40":                                       "charge.held, capture.succeeded, capture.succeeded, charge.succeeded",
		"hold 100, final 60":                                                     "charge.held, capture.succeeded, charge.succeeded",
		"hold 100, reverse":                                                      "charge.held, reverse.succeeded, charge.reversed",
		"sale 100, refund 40, fail, refund 101!exceeds_remaining":                "charge.succeeded, refund.succeeded, refund.failed",
		"sale 100, refund 40, reverse":                                           "charge.succeeded, refund.succeeded, reverse.succeeded, charge.reversed",
		"sale 100, chargeback 100, won":                                          "charge.succeeded, chargeback.opened, chargeback.won",
		"sale 100, chargeback 30, lost, chargeback 71!exceeds":                   "charge.succeeded, chargeback.opened, chargeback.lost",
		"hold 100, capture 101!exceeds_remaining, capture 10 EUR!wrong_currency": "charge.held",
	} {
		t.Run(steps, func(t *testing.T) {
			h := hook(t, paused)
			l, seen := &life{fixture: h.fixture}, 0
			for _, step := range strings.Split(steps, ", ") {
				l.play(step)
				all := h.messages(MessageWaiting, len(h.listed()))
				for _, m := range all[seen:] {
					h.isToldNow(m, "order-1")
				}
				seen = len(all)
			}
			if got := types(h.listed()); got != want {
				t.Errorf("told %s, want %s", got, want)
			}
			h.nothingCame()
		})
	}
}

func (h *hooked) listed() []Message {
	h.t.Helper()
	all, err := h.Messages(h.ctx, "")
	h.ok(err)
	return all
}

// What nobody asked for is told too, and so is what comes by time alone.
func TestWhatNobodyAskedForIsTold(t *testing.T) {
	h := hook(t, paused)
	made, err := h.ChargeByMistake(h.ctx, HandCharge{Reference: "order-1", Amount: 100, Currency: "USD"})
	h.ok(err)
	h.isToldNow(h.listed()[0], "order-1")
	_, err = h.RefundByHand(h.ctx, made.ID, 10)
	h.ok(err)
	all := h.listed()
	if got := types(all); got != "charge.succeeded, refund.succeeded" {
		t.Fatalf("told %s", got)
	}
	h.isToldNow(all[1], "order-1")
	if data := members(t, all[1].Body)["data"].(map[string]any); data["reference"] != "" {
		t.Errorf("by hand: %+v", data)
	}
	h.want(h.post(h.ctx, "k2", bodyOf("order-2", "pm_processing_60000")), 200)
	h.ok(h.Advance(h.ctx, time.Minute))
	all = h.messages(MessageWaiting, 4)
	if got := types(all[2:]); got != "charge.processing, charge.succeeded" {
		t.Errorf("told %s", got)
	}
	h.isToldNow(all[3], "order-2")
}

func TestActsThatFailAreTold(t *testing.T) {
	h := hook(t, paused)
	l := lifeOf(h.fixture, "sale 100")
	h.ok(h.SetFaults(h.ctx, 0, Rule{Call: KindRefund, Fault: "failed_closed", Times: 1}, Rule{Call: KindRefund, Fault: "processing_60000", Skip: 1, Times: 1},
		Rule{Call: KindRefund, Fault: "refused_no_way", Skip: 2}))
	l.plays("refund 10, refund 20, refund 30!no_way")
	if got := types(h.listed()); got != "charge.succeeded, refund.failed" {
		t.Errorf("told %s", got)
	}
	h.ok(h.Advance(h.ctx, time.Minute))
	all := h.messages(MessageWaiting, 3)
	if all[2].Type != "refund.succeeded" || all[2].ObjectID == all[1].ObjectID {
		t.Errorf("told %s", types(all))
	}
	h.isToldNow(all[1], "order-1")
	h.isToldNow(all[2], "order-1")
}

func TestPagesAreTold(t *testing.T) {
	h := hook(t, paused)
	page := func(key, reference string) Session {
		return decoded[Session](t, h.want(h.postTo(h.ctx, "/sessions", key, sessionBody(reference, "")), 200))
	}
	paid, closed, lapsed := page("k1", "order-1"), page("k2", "order-2"), page("k3", "order-3")
	h.shows(h.form("/pay/"+paid.ID, "decline"), "declined")
	h.leaves(h.form("/pay/"+paid.ID, "pay"))
	for range 2 { // closing again changes nothing
		h.want(h.close(closed.ID), 200)
	}
	all := h.messages(MessageWaiting, 2)
	if got := types(all); got != "charge.succeeded, session.closed" {
		t.Fatalf("told %s", got)
	}
	h.isToldNow(all[0], "order-1")
	h.isToldNow(all[1], "order-2")
	if data := members(t, all[0].Body)["data"].(map[string]any); data["session"] != paid.ID {
		t.Errorf("the page's charge: %+v", data)
	}
	terms := DefaultContract()
	terms.PageByAddress = true
	h.ok(h.SetContract(h.ctx, terms))
	h.ok(h.Advance(h.ctx, time.Hour)) // nobody looks
	all = h.messages(MessageWaiting, 3)
	if all[2].Type != "session.expired" || all[2].ObjectID != lapsed.ID || strings.Contains(all[2].Body, "page_url") {
		t.Errorf("told %+v", all[2])
	}
	h.isToldNow(all[2], "order-3")
}

// Time ends a hold and a confirmation, and it is told without anybody asking,
// also of a charge that was made when nobody was told.
func TestLapsesAreTold(t *testing.T) {
	f := startStopped(t, t.TempDir())
	lifeOf(f, "hold 100")
	h := hookIn(f, receive(t), paused)
	h.ok(h.Advance(h.ctx, 7*24*time.Hour))
	all := h.messages(MessageWaiting, 1)
	h.isToldNow(all[0], "order-1")
	h.want(h.post(h.ctx, "k2", bodyOf("order-2", "pm_3ds")), 200)
	h.ok(h.Advance(h.ctx, time.Hour))
	all = h.messages(MessageWaiting, 3)
	h.isToldNow(all[2], "order-2")
	if got := types(all); got != "charge.expired, charge.action_required, charge.expired" {
		t.Errorf("told %s", got)
	}
}

// A hold waits for an act in processing, and lapses when that is over.
func TestAHoldThatWaitsForAnActLapsesAfterIt(t *testing.T) {
	h := hook(t, paused)
	terms := DefaultContract()
	terms.HoldSeconds = 60
	h.ok(h.SetContract(h.ctx, terms))
	l := lifeOf(h.fixture, "hold 100")
	h.ok(h.SetFaults(h.ctx, 0, Rule{Call: KindCapture, Fault: "processing_120000"}))
	l.plays("capture 60, minute")
	if c := l.now(); c.Status != StatusHeld {
		t.Errorf("the charge: %+v", c)
	}
	l.plays("minute")
	all := h.messages(MessageWaiting, 3)
	if got := types(all); got != "charge.held, capture.succeeded, charge.succeeded" {
		t.Errorf("told %s", got)
	}
	h.isToldNow(all[2], "order-1")
}

// A message and what it tells are one line of the register.
func TestMessagesAreInTheLineOfWhatTheyTell(t *testing.T) {
	h := hook(t, paused)
	l := lifeOf(h.fixture, "hold 100")
	lines := func() []string { return strings.Split(strings.TrimSpace(h.file("register.jsonl")), "\n") }
	before := len(lines())
	l.plays("final 60")
	after := lines()
	if len(after) != before+1 || strings.Count(after[before], `"id":"evt_`) != 2 || !strings.Contains(after[before], `"movement"`) {
		t.Errorf("the lines: %s", after[before:])
	}
}

// Rules meet the messages of one call; what a page is told of, its charge is.
func TestRulesForMessages(t *testing.T) {
	h := hook(t, paused)
	h.ok(h.SetFaults(h.ctx, 0, Rule{Call: KindRefund, Fault: "lost_webhook"}, Rule{Call: callSession, Fault: "lost_webhook", Times: 1}))
	l := lifeOf(h.fixture, "sale 100")
	l.plays("refund 10, fail")
	page := decoded[Session](t, h.want(h.postTo(h.ctx, "/sessions", "k-page", sessionBody("order-2", "")), 200))
	h.leaves(h.form("/pay/"+page.ID, "pay"))
	other := decoded[Session](t, h.want(h.postTo(h.ctx, "/sessions", "k-other", sessionBody("order-3", "")), 200))
	h.leaves(h.form("/pay/"+other.ID, "pay"))
	var got []string
	for _, m := range h.listed() {
		got = append(got, m.Type+" "+m.State)
	}
	want := []string{"charge.succeeded waiting", "refund.succeeded dropped", "refund.failed dropped", "charge.succeeded dropped", "charge.succeeded waiting"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, rule := range []Rule{{Call: callClose, Fault: "lost_webhook"}, {Call: callSession, Fault: "webhook_before_reply"}} {
		if err := h.SetFaults(h.ctx, 0, rule); err == nil {
			t.Errorf("accepted %+v", rule)
		}
	}
}
