package sandbox

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// life plays a charge's life in one line of words, so that a table shows each
// act and each refusal. A step is "verb", "verb amount" or "verb amount
// currency", and with "!code" behind it is refused with that code.
type life struct {
	*fixture
	charge     Charge
	refund     string // id of the last one
	chargeback string // id of the last one
	calls      int
}

// lifeOf plays the steps, which are separated by commas.
func lifeOf(f *fixture, steps string) *life {
	f.t.Helper()
	l := &life{fixture: f}
	l.plays(steps)
	return l
}

func (l *life) plays(steps string) {
	l.t.Helper()
	for _, step := range strings.Split(steps, ",") {
		l.play(strings.TrimSpace(step))
	}
}

// beginnings are the verbs that make the charge.
var beginnings = map[string]string{"sale": `"pm_ok"`, "hold": `"pm_ok","capture":false`, "decline": `"pm_declined_lost_card"`,
	"challenge": `"pm_3ds"`, "challenge_hold": `"pm_3ds","capture":false`, "later": `"pm_processing_60000"`}

// passing are the verbs that let time pass.
var passing = map[string]time.Duration{"minute": time.Minute, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour}

func (l *life) play(step string) {
	l.t.Helper()
	what, code, _ := strings.Cut(step, "!")
	verb, rest, _ := strings.Cut(what, " ")
	amount, currency, _ := strings.Cut(rest, " ")
	minor, _ := strconv.ParseInt(amount, 10, 64)
	if currency == "" {
		currency = "USD"
	}
	if method, begins := beginnings[verb]; begins {
		l.begin(verb, minor, method)
		return
	}
	if pause, waits := passing[verb]; waits {
		l.ok(l.Advance(l.ctx, pause))
		return
	}
	if !l.byHand(verb, minor, step) {
		l.act(verb, minor, currency, code)
	}
}

func (l *life) begin(verb string, minor int64, method string) {
	l.t.Helper()
	status := 200
	if verb == "decline" {
		status = 402
	}
	body := fmt.Sprintf(`{"reference":"order-1","amount":%d,"currency":"USD","payment_method":%s}`, minor, method)
	l.charge = l.want(l.post(l.ctx, "k-charge", body), status).charge(l.t)
}

// byHand plays what is done without the merchant; false for another verb.
func (l *life) byHand(verb string, minor int64, step string) bool {
	l.t.Helper()
	var err error
	var act Act
	switch verb {
	case "confirm":
		_, err = l.ConfirmCharge(l.ctx, l.charge.ID)
	case "refuse":
		_, err = l.RefuseCharge(l.ctx, l.charge.ID)
	case "fail":
		_, err = l.FailRefund(l.ctx, l.refund, "account_closed")
	case "chargeback":
		act, err = l.OpenChargeback(l.ctx, l.charge.ID, minor)
		l.chargeback = act.ID
	case "won":
		_, err = l.WinChargeback(l.ctx, l.chargeback)
	case "lost":
		_, err = l.LoseChargeback(l.ctx, l.chargeback)
	default:
		return false
	}
	if _, code, refused := strings.Cut(step, "!"); refused != (err != nil) || refused && !strings.Contains(err.Error(), code) {
		l.t.Fatalf("%s: %v", step, err)
	}
	return true
}

func (l *life) act(verb string, minor int64, currency, code string) {
	l.t.Helper()
	l.calls++
	name := fmt.Sprintf("%s-%d", verb, l.calls)
	g := l.postTo(l.ctx, "/charges/"+l.charge.ID+"/"+pathOf(verb), "k-"+name, actBody(verb, name, minor, currency))
	if code != "" {
		l.wantCode(g, 422, code)
		return
	}
	act := decoded[Act](l.t, l.want(g, 200))
	if act.Kind != pathOf(verb) || act.Charge != l.charge.ID || act.Reference != name || act.Currency != "USD" {
		l.t.Fatalf("%s: %+v", verb, act)
	}
	if verb == KindRefund {
		l.refund = act.ID
	}
}

// pathOf is the call of a verb: a final capture is a capture.
func pathOf(verb string) string {
	if verb == "final" {
		return KindCapture
	}
	return verb
}

func actBody(verb, reference string, minor int64, currency string) string {
	switch verb {
	case KindReverse:
		return fmt.Sprintf(`{"reference":%q}`, reference)
	case "final":
		return fmt.Sprintf(`{"reference":%q,"amount":%d,"currency":%q,"final":true}`, reference, minor, currency)
	}
	return fmt.Sprintf(`{"reference":%q,"amount":%d,"currency":%q}`, reference, minor, currency)
}

// now is the charge as it is told now.
func (l *life) now() Charge {
	l.t.Helper()
	return l.want(l.get("/charges/"+l.charge.ID), 200).charge(l.t)
}

// told writes the register down in words.
func told(movements []Movement) string {
	var lines []string
	for _, m := range movements {
		line := m.Kind + " " + strconv.FormatInt(m.Amount, 10)
		if m.Held {
			line += " held"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, ", ")
}

func TestLivesOfCharges(t *testing.T) {
	for _, tc := range []struct {
		steps, status      string
		captured, refunded int64
		net                int64
		moved              string
	}{
		{"sale 100", StatusSucceeded, 100, 0, 100, "charge 100"},
		{"sale 100, refund 40, refund 60, refund 1!exceeds_remaining", StatusSucceeded, 100, 100, 0, "charge 100, refund 40, refund 60"},
		{"sale 100, refund 101!exceeds_remaining, refund 100", StatusSucceeded, 100, 100, 0, "charge 100, refund 100"},
		{"sale 100, refund 10 EUR!wrong_currency", StatusSucceeded, 100, 0, 100, "charge 100"},
		{"sale 100, capture 10!not_capturable", StatusSucceeded, 100, 0, 100, "charge 100"},
		{"sale 100, reverse, refund 1!not_refundable, reverse!nothing_to_reverse", StatusReversed, 100, 0, 0, "charge 100, reverse 100"},
		{"sale 100, refund 40, reverse", StatusReversed, 100, 40, 0, "charge 100, refund 40, reverse 60"},
		{"sale 100, refund 100, reverse!nothing_to_reverse", StatusSucceeded, 100, 100, 0, "charge 100, refund 100"},
		{"sale 100, day, reverse!too_late, refund 100", StatusSucceeded, 100, 100, 0, "charge 100, refund 100"},
		{"hold 100", StatusHeld, 0, 0, 0, ""},
		{"hold 100, refund 1!not_refundable", StatusHeld, 0, 0, 0, ""},
		{"hold 100, capture 100", StatusSucceeded, 100, 0, 100, "capture 100"},
		{"hold 100, capture 101!exceeds_remaining", StatusHeld, 0, 0, 0, ""},
		{"hold 100, capture 10 EUR!wrong_currency", StatusHeld, 0, 0, 0, ""},
		{"hold 100, capture 60, capture 41!exceeds_remaining", StatusHeld, 60, 0, 60, "capture 60"},
		{"hold 100, capture 60, capture 40, capture 1!already_captured", StatusSucceeded, 100, 0, 100, "capture 60, capture 40"},
		{"hold 100, capture 60, refund 30, capture 40", StatusSucceeded, 100, 30, 70, "capture 60, refund 30, capture 40"},
		{"hold 100, capture 60, refund 61!exceeds_remaining", StatusHeld, 60, 0, 60, "capture 60"},
		{"hold 100, final 60, capture 1!already_captured", StatusSucceeded, 60, 0, 60, "capture 60"},
		{"hold 100, final 60, refund 61!exceeds_remaining, refund 60", StatusSucceeded, 60, 60, 0, "capture 60, refund 60"},
		{"hold 100, reverse, capture 1!not_capturable, reverse!nothing_to_reverse, refund 1!not_refundable", StatusReversed, 0, 0, 0, "reverse 100 held"},
		{"hold 100, capture 60, reverse!already_captured", StatusHeld, 60, 0, 60, "capture 60"},
		{"hold 100, final 60, reverse", StatusReversed, 60, 0, 0, "capture 60, reverse 60"},
		{"hold 100, final 60, day, reverse!too_late", StatusSucceeded, 60, 0, 60, "capture 60"},
		{"hold 100, week, capture 1!not_capturable, reverse!nothing_to_reverse, refund 1!not_refundable", StatusExpired, 0, 0, 0, ""},
		{"hold 100, capture 60, week, capture 1!already_captured, refund 60", StatusSucceeded, 60, 60, 0, "capture 60, refund 60"},
		{"decline 100, capture 1!not_capturable, reverse!nothing_to_reverse, refund 1!not_refundable", StatusDeclined, 0, 0, 0, ""},
		{"later 100, capture 1!not_capturable, reverse!nothing_to_reverse, refund 1!not_refundable", StatusProcessing, 0, 0, 0, ""},
		{"challenge 100, capture 1!not_capturable, refund 1!not_refundable", StatusActionRequired, 0, 0, 0, ""},
		{"challenge 100, confirm, refund 10, confirm!already_decided", StatusSucceeded, 100, 10, 90, "charge 100, refund 10"},
		{"challenge 100, refuse, confirm!already_decided, reverse!nothing_to_reverse", StatusDeclined, 0, 0, 0, ""},
		{"challenge 100, reverse, confirm!already_decided", StatusReversed, 0, 0, 0, ""},
		{"challenge 100, day, confirm!already_decided, reverse!nothing_to_reverse", StatusExpired, 0, 0, 0, ""},
		{"challenge_hold 100, confirm, capture 70", StatusHeld, 70, 0, 70, "capture 70"},
		{"challenge_hold 100, confirm, reverse", StatusReversed, 0, 0, 0, "reverse 100 held"},
		{"sale 100, refund 40, fail, fail!already_decided", StatusSucceeded, 100, 0, 100, "charge 100, refund 40, reverse 40"},
		{"sale 100, refund 40, fail, refund 100", StatusSucceeded, 100, 100, 0, "charge 100, refund 40, reverse 40, refund 100"},
		{"sale 100, refund 40, reverse, fail, refund 40", StatusReversed, 100, 40, 0, "charge 100, refund 40, reverse 60, reverse 40, refund 40"},
		{"sale 100, chargeback 100, refund 1!exceeds_remaining, reverse!nothing_to_reverse", StatusSucceeded, 100, 0, 0, "charge 100, chargeback 100"},
		{"sale 100, chargeback 30, refund 71!exceeds_remaining, refund 70", StatusSucceeded, 100, 70, 0, "charge 100, chargeback 30, refund 70"},
		{"sale 100, refund 80, chargeback 21!exceeds_remaining, chargeback 20", StatusSucceeded, 100, 80, 0, "charge 100, refund 80, chargeback 20"},
		{"sale 100, chargeback 100, won, lost!already_decided, refund 100", StatusSucceeded, 100, 100, 0, "charge 100, chargeback 100, reverse 100, refund 100"},
		{"sale 100, chargeback 100, lost, won!already_decided", StatusSucceeded, 100, 0, 0, "charge 100, chargeback 100"},
		{"sale 100, chargeback 40, reverse, won, refund 40", StatusReversed, 100, 40, 0, "charge 100, chargeback 40, reverse 60, reverse 40, refund 40"},
		{"hold 100, chargeback 1!not_refundable", StatusHeld, 0, 0, 0, ""},
	} {
		t.Run(tc.steps, func(t *testing.T) {
			l := lifeOf(start(t), tc.steps)
			c, movements := l.now(), l.register()
			if c.Status != tc.status || c.CapturedAmount != tc.captured || c.RefundedAmount != tc.refunded {
				t.Errorf("the charge: %+v", c)
			}
			if (c.Status == StatusHeld || c.Status == StatusActionRequired) != (c.ExpiresAt != nil) {
				t.Errorf("%s, expires at %v", c.Status, c.ExpiresAt)
			}
			if got := told(movements); got != tc.moved {
				t.Errorf("moved %q, want %q", got, tc.moved)
			}
			taken := Net(movements)["order-1"]
			if taken.Net["USD"] != tc.net || (taken.Charges == 1) != (tc.net > 0) {
				t.Errorf("net %+v, want %d", taken, tc.net)
			}
		})
	}
}

func TestContractsOfActs(t *testing.T) {
	oneCapture := func(c *Contract) { c.SeveralCaptures = false }
	wholeRefunds := func(c *Contract) { c.PartialRefunds = false }
	noReverse := func(c *Contract) { c.ReverseCapturedSeconds = 0 }
	minuteHold := func(c *Contract) { c.HoldSeconds, c.SessionSeconds = 60, 60 }
	for _, tc := range []struct {
		change func(*Contract)
		steps  string
		status string
		moved  string
	}{
		{oneCapture, "hold 100, capture 60, capture 40!already_captured", StatusSucceeded, "capture 60"},
		{wholeRefunds, "sale 100, refund 40!partial_not_allowed, refund 101!exceeds_remaining, refund 100", StatusSucceeded, "charge 100, refund 100"},
		{wholeRefunds, "hold 100, capture 60, refund 40!partial_not_allowed, refund 60", StatusHeld, "capture 60, refund 60"},
		{noReverse, "sale 100, reverse!too_late", StatusSucceeded, "charge 100"},
		{noReverse, "hold 100, reverse", StatusReversed, "reverse 100 held"},
		{minuteHold, "hold 100, minute, capture 100!not_capturable", StatusExpired, ""},
		{minuteHold, "challenge 100, minute, confirm!already_decided", StatusExpired, ""},
	} {
		t.Run(tc.steps, func(t *testing.T) {
			l := lifeOf(under(t, tc.change), tc.steps)
			if c := l.now(); c.Status != tc.status || told(l.register()) != tc.moved {
				t.Errorf("%s, moved %q; want %s, %q", c.Status, told(l.register()), tc.status, tc.moved)
			}
		})
	}
}

// A movement names what moved it, and what it undoes.
func TestMovementsNameTheirObjects(t *testing.T) {
	l := lifeOf(start(t), "hold 100, capture 60, refund 10, fail, chargeback 20, won, final 30, reverse")
	c, movements := l.now(), l.register()
	if len(c.Acts) != 5 || len(movements) != 7 {
		t.Fatalf("acts %+v, movements %+v", c.Acts, movements)
	}
	capture, refund, chargeback, final, reverse := c.Acts[0], c.Acts[1], c.Acts[2], c.Acts[3], c.Acts[4]
	for i, want := range []struct{ object, of, reference string }{
		{capture.ID, "", "capture-1"}, {refund.ID, "", "refund-2"}, {refund.ID, refund.ID, "refund-2"}, {chargeback.ID, "", ""},
		{chargeback.ID, chargeback.ID, ""}, {final.ID, "", "final-3"}, {reverse.ID, c.ID, "reverse-4"},
	} {
		m := movements[i]
		if m.Object != want.object || m.Of != want.of || m.Reference != want.reference || m.Charge != c.ID || m.ChargeReference != "order-1" {
			t.Errorf("movement %d: %+v, want %+v", i, m, want)
		}
		if key := "k-" + want.reference; want.reference != "" && m.IdempotencyKey != key || want.reference == "" && m.IdempotencyKey != "" {
			t.Errorf("movement %d: key %s", i, m.IdempotencyKey)
		}
	}
	if refund.Status != StatusFailed || refund.Code != "account_closed" || chargeback.Status != StatusWon || !final.Final || capture.Final || reverse.Amount != 90 {
		t.Errorf("acts: %+v", c.Acts)
	}
	for i, prefix := range []string{"cp_", "rf_", "cb_", "cp_", "rv_"} {
		if !strings.HasPrefix(c.Acts[i].ID, prefix) {
			t.Errorf("act %d has id %s", i, c.Acts[i].ID)
		}
	}
}
