package sandbox_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/money"

	sandboxserver "github.com/hapaxpay/hapax/internal/sandbox"
)

// liveAccount is an adapter at a running sandbox, with the words in which tests speak of it.
type liveAccount struct {
	*live
	acquirer.Adapter
}

func liveWith(t *testing.T, terms string, change func(*sandboxserver.Contract)) liveAccount {
	t.Helper()
	l := startLive(t, terms, change)
	a, err := l.adapter()
	if err != nil {
		t.Fatal(err)
	}
	return liveAccount{l, a}
}

func asIs(*sandboxserver.Contract) {}

// do sends one call and holds that one request arrived.
func (l liveAccount) do(r acquirer.Request) acquirer.Reply {
	l.t.Helper()
	p, err := l.Prepare(r)
	if err != nil {
		l.t.Fatal(err)
	}
	before := l.received()
	reply := l.Send(l.ctx, p, permit())
	if n := l.received() - before; n != 1 {
		l.t.Errorf("one %s reached the sandbox as %d requests", r.Action, n)
	}
	return reply
}

func (l liveAccount) ask(action acquirer.Action, key, object, id string) acquirer.Reply {
	l.t.Helper()
	return l.Lookup(l.ctx, acquirer.Query{Action: action, Key: key, Object: object, Reference: id})
}

func (l liveAccount) charge(key, method string, hold bool) acquirer.Reply {
	l.t.Helper()
	return l.do(acquirer.Request{Action: acquirer.ActionCharge, Key: key, Amount: kwd, PaymentMethod: method, Hold: hold})
}

func (l liveAccount) page(key string, hold bool) acquirer.Reply {
	l.t.Helper()
	return l.do(acquirer.Request{Action: session, Key: key, Amount: kwd, ReturnURL: "https://shop.example/back?order=1&x=2", Hold: hold})
}

// upon does something upon a charge or page; no minor units: the call names no amount.
func (l liveAccount) upon(action acquirer.Action, key, object string, minor int64) acquirer.Reply {
	l.t.Helper()
	r := acquirer.Request{Action: action, Key: key, Object: object}
	if minor > 0 {
		r.Amount = money.Must(minor, "KWD")
	}
	return l.do(r)
}

// says compares a reply with words: outcome and class, then what stands beside it.
func (l liveAccount) says(what string, r acquirer.Reply, want string) {
	l.t.Helper()
	got := fmt.Sprint(r.Outcome, " ", r.Class)
	if r.Outcome == acquirer.OutcomeDeclined {
		got += " " + r.Failure
	}
	for _, more := range r.Also {
		got += fmt.Sprint("; ", more.About, " ", more.Outcome, " ", more.Amount.Minor())
		if more.Final {
			got += " final"
		}
		if more.About != acquirer.ActionCharge && (more.Object != cmp.Or(r.Object, r.Reference) || more.At.IsZero()) {
			l.t.Errorf("%s: beside %s stands %+v", what, r.Reference, more)
		}
	}
	if got != want {
		l.t.Errorf("%s: %s, want %s", what, got, want)
	}
}

func (l liveAccount) must(_ any, err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func TestLiveHoldCaptureRefund(t *testing.T) {
	l := liveWith(t, `{}`, asIs)
	held := l.charge("k-hold", "pm_ok", true)
	l.says("hold", held, "held held")
	if life := time.Until(held.ExpiresAt); held.Amount != kwd || life < 6*24*time.Hour || life > 8*24*time.Hour {
		t.Errorf("the hold: %+v", held)
	}
	first := l.upon(capture, "k-capture-1", held.Reference, 600)
	l.says("first capture", first, "succeeded act_succeeded")
	if first.Object != held.Reference || first.OurReference != "k-capture-1" || first.Final || first.Amount != money.Must(600, "KWD") {
		t.Errorf("first capture: %+v", first)
	}
	l.says("its repeat", l.upon(capture, "k-capture-1", held.Reference, 600), "succeeded act_succeeded")
	l.says("lookup of the capture", l.ask(capture, "k-capture-1", held.Reference, ""), "succeeded found_act_succeeded")
	l.says("lookup by its id", l.ask(capture, "k-capture-1", held.Reference, first.Reference), "succeeded read_act_succeeded")
	l.says("lookup of a capture that was not sent", l.ask(capture, "k-capture-2", held.Reference, ""), "not_found not_found")
	l.says("partly captured", l.ask("", "k-hold", "", ""), "held found_held; capture succeeded 600")
	l.says("too much", l.upon(capture, "k-capture-3", held.Reference, 18001), "declined exceeds_remaining exceeds_remaining")
	l.says("reverse of what is captured", l.upon(reverse, "k-reverse", held.Reference, 0), "declined already_captured already_captured")
	last := l.do(acquirer.Request{Action: capture, Key: "k-capture-2", Object: held.Reference, Amount: money.Must(1000, "KWD"), Final: true})
	l.says("last capture", last, "succeeded act_succeeded")
	l.says("after it", l.upon(capture, "k-capture-4", held.Reference, 1), "declined already_captured already_captured")
	if !last.Final {
		t.Errorf("last capture: %+v", last)
	}
	back := l.upon(refund, "k-refund-1", held.Reference, 500)
	l.says("refund", back, "succeeded act_succeeded")
	l.says("refund of too much", l.upon(refund, "k-refund-2", held.Reference, 1101), "declined exceeds_remaining exceeds_remaining")
	l.must(l.control.RefundByHand(l.ctx, held.Reference, 100))
	l.must(l.control.FailRefund(l.ctx, back.Reference, "account_closed"))
	failed := l.ask(refund, "k-refund-1", held.Reference, "")
	l.says("the refund that failed at the bank", failed, "declined found_act_failed failed_at_bank")
	if failed.Code != "account_closed" || failed.Reference != back.Reference {
		t.Errorf("the refund that failed: %+v", failed)
	}
	l.says("all of it", l.ask("", "k-hold", "", held.Reference),
		"held read_held; capture succeeded 600; capture succeeded 1000 final; refund declined 500; refund succeeded 100")
	l.listed(held.Reference, 1500)
}

// listed holds that the list of movements is the register, less what moved no money, and nets to the sum.
func (l liveAccount) listed(charge string, net int64) {
	l.t.Helper()
	found, err := l.Movements(l.ctx, time.Now().Add(-time.Hour), time.Now().Add(24*365*time.Hour))
	if err != nil {
		l.t.Fatal(err)
	}
	register, err := l.control.Register(l.ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	var want []acquirer.Movement
	for _, m := range register {
		if !m.Held {
			want = append(want, acquirer.Movement{Reference: m.Object, Object: m.Charge, Undoes: m.Of, OurReference: m.Reference,
				Kind: acquirer.MovementKind(m.Kind), Amount: money.Must(m.Amount, m.Currency), At: m.At})
		}
	}
	if diff := gocmp.Diff(want, found, gocmp.Comparer(money.Amount.Equal)); diff != "" {
		l.t.Error(diff)
	}
	sum, signs := int64(0), map[acquirer.MovementKind]int64{acquirer.MovementCharge: 1, acquirer.MovementCapture: 1,
		acquirer.MovementRefund: -1, acquirer.MovementChargeback: -1}
	for _, m := range found {
		switch {
		case m.Object != charge:
		case m.Kind == acquirer.MovementReverse && m.Undoes != charge: // of a refund or chargeback
			sum += m.Amount.Minor()
		case m.Kind == acquirer.MovementReverse:
			sum -= m.Amount.Minor()
		default:
			sum += signs[m.Kind] * m.Amount.Minor()
		}
	}
	if sum != net {
		l.t.Errorf("the movements of %s come to %d, want %d", charge, sum, net)
	}
}

func TestLiveReversals(t *testing.T) {
	l := liveWith(t, `{}`, asIs)
	held := l.charge("k-hold", "pm_hold", false)
	l.says("release", l.upon(reverse, "k-release", held.Reference, 0), "succeeded act_succeeded")
	l.says("released", l.ask("", "k-hold", "", ""), "closed found_charge_over")
	l.says("lookup of the release", l.ask(reverse, "k-release", held.Reference, ""), "succeeded found_act_succeeded")
	l.says("release of what is released", l.upon(reverse, "k-release-2", held.Reference, 0), "declined nothing_to_reverse nothing_to_reverse")
	l.says("capture of what is released", l.upon(capture, "k-late", held.Reference, 1), "declined not_capturable declined")
	l.listed(held.Reference, 0)

	sale := l.charge("k-sale", "pm_ok", false)
	l.says("the same day", l.upon(reverse, "k-undo", sale.Reference, 0), "succeeded act_succeeded")
	l.says("undone", l.ask("", "k-sale", "", ""), "succeeded found_succeeded; reverse succeeded 18600")
	l.says("refund of what is undone", l.upon(refund, "k-refund", sale.Reference, 1), "declined not_refundable declined")
	l.listed(sale.Reference, 0)

	old, lapsing := l.charge("k-old", "pm_ok", false), l.charge("k-lapsing", "pm_ok", true)
	l.must(nil, l.control.Advance(l.ctx, 8*24*time.Hour))
	l.says("too late", l.upon(reverse, "k-undo-old", old.Reference, 0), "declined too_late too_late")
	l.says("lapsed", l.ask("", "k-lapsing", "", lapsing.Reference), "closed read_charge_over")
	l.says("an unknown charge", l.upon(reverse, "k-nobody", "ch_nobody", 0), "rejected no_such_object")
	l.says("another currency", l.do(acquirer.Request{Action: refund, Key: "k-eur", Object: old.Reference, Amount: money.Must(1, "EUR")}),
		"declined wrong_currency declined")
}

func TestLivePayersStep(t *testing.T) {
	l := liveWith(t, `{}`, asIs)
	for key, tt := range map[string]struct {
		answer func(id string)
		want   string
	}{
		"k-confirmed": {func(id string) { l.must(l.control.ConfirmCharge(l.ctx, id)) }, "succeeded found_succeeded"},
		"k-refused":   {func(id string) { l.must(l.control.RefuseCharge(l.ctx, id)) }, "declined found_declined declined"},
		"k-left":      {func(string) {}, "registered found_action_required"},
		"k-closed":    {func(id string) { l.upon(reverse, "k-close-step", id, 0) }, "closed found_charge_over"},
	} {
		step := l.charge(key, "pm_3ds", false)
		l.says("step", step, "registered action_required")
		if !strings.HasPrefix(step.RedirectURL, l.url+"/") || step.ExpiresAt.IsZero() {
			t.Errorf("the payer's step: %+v", step)
		}
		tt.answer(step.Reference)
		l.says(key, l.ask("", key, "", ""), tt.want)
	}
}

func TestLivePages(t *testing.T) {
	l := liveWith(t, `{}`, asIs)
	page := l.page("k-page", false)
	l.says("page", page, "registered registered")
	if page.Session != page.Reference || !strings.HasPrefix(page.RedirectURL, l.url+"/") || page.ExpiresAt.IsZero() {
		t.Errorf("page: %+v", page)
	}
	l.must(l.control.DeclineSession(l.ctx, page.Session))
	l.says("a refused try changes nothing", l.ask(session, "k-page", "", ""), "registered found_registered")
	l.says("whether it is closed", l.ask(closing, "k-close", page.Session, ""), "not_found read_page_open")
	l.must(l.control.PaySession(l.ctx, page.Session))
	paid := l.ask(session, "k-page", "", "")
	l.says("paid", paid, "succeeded found_paid")
	if paid.Session != page.Session || paid.Reference == page.Session || paid.Amount != kwd || paid.OurReference != "k-page" {
		t.Errorf("paid: %+v", paid)
	}
	l.says("refund", l.upon(refund, "k-refund", paid.Reference, 100), "succeeded act_succeeded")
	for _, id := range []string{"", page.Session, paid.Reference} {
		if r := l.ask(session, "k-page", "", id); r.Outcome != acquirer.OutcomeSucceeded || r.Session != page.Session || len(r.Also) != 1 {
			t.Errorf("asked by %q: %+v", id, r)
		}
	}
	l.says("by the charge's own road", l.ask("", "k-page", "", ""), "succeeded found_succeeded; refund succeeded 100")
	l.says("close of a paid page", l.upon(closing, "k-close", page.Session, 0), "declined already_paid declined")
	asked := l.ask(closing, "k-close", page.Session, "")
	if asked.Outcome != acquirer.OutcomeDeclined || len(asked.Also) != 2 || asked.Also[0].Reference != paid.Reference || asked.Also[0].About != acquirer.ActionCharge {
		t.Errorf("whether a paid page is closed: %+v", asked)
	}

	other := l.page("k-other", true)
	l.says("close", l.upon(closing, "k-close-2", other.Session, 0), "succeeded page_closed")
	l.says("close again, by another", l.upon(closing, "k-close-3", other.Session, 0), "succeeded page_closed")
	l.says("closed", l.ask(session, "k-other", "", ""), "closed found_closed")
	l.says("whether it is closed", l.ask(closing, "k-close-2", other.Session, ""), "succeeded read_page_closed")
	l.says("the same, by the page's key", l.ask(closing, "k-other", "", ""), "succeeded found_page_closed")
	l.says("close of nobody's page", l.upon(closing, "k-close-4", "cs_nobody", 0), "rejected no_such_object")

	third, fourth := l.page("k-third", true), l.page("k-fourth", false)
	l.must(l.control.PaySession(l.ctx, third.Session))
	l.says("held by a page", l.ask(session, "k-third", "", ""), "held found_paid_held")
	l.must(nil, l.control.Advance(l.ctx, 2*time.Hour))
	l.says("lapsed", l.ask(session, "k-fourth", "", ""), "closed found_expired")
	l.says("close of a lapsed page", l.upon(closing, "k-close-5", fourth.Session, 0), "succeeded page_expired")
}

// TestLivePageWithItsOwnEnd: the page takes no money after the time that was asked for.
func TestLivePageWithItsOwnEnd(t *testing.T) {
	l := liveWith(t, `{"page_by_address":true}`, func(c *sandboxserver.Contract) { c.PageByAddress = true })
	until := time.Now().Add(10 * time.Minute)
	page := l.do(acquirer.Request{Action: session, Key: "k-page", Amount: kwd, ReturnURL: "http://127.0.0.1/", ExpiresAt: until})
	if !page.ExpiresAt.Equal(until) || page.RedirectURL == "" {
		t.Errorf("%+v, want an end at %v", page, until)
	}
	if again := l.ask(session, "k-page", "", ""); again.Outcome != acquirer.OutcomeRegistered || again.RedirectURL != "" {
		t.Errorf("a lookup tells the address: %+v", again)
	}
}

func TestLiveByHandAndByMistake(t *testing.T) {
	l := liveWith(t, `{}`, asIs)
	held := l.charge("k-hold", "pm_ok", true)
	l.must(l.control.CaptureByHand(l.ctx, held.Reference, 18600))
	l.says("captured by hand", l.ask("", "k-hold", "", ""), "held found_held; capture succeeded 18600 final")
	won, err := l.control.OpenChargeback(l.ctx, held.Reference, 600)
	l.must(nil, err)
	l.must(l.control.WinChargeback(l.ctx, won.ID))
	lost, err := l.control.OpenChargeback(l.ctx, held.Reference, 1000)
	l.must(nil, err)
	l.must(l.control.LoseChargeback(l.ctx, lost.ID))
	l.must(l.control.OpenChargeback(l.ctx, held.Reference, 2000))
	l.must(l.control.ChargeByMistake(l.ctx, sandboxserver.HandCharge{Reference: "k-hold", Amount: 5, Currency: "KWD"}))
	r := l.ask("", "k-hold", "", "")
	codes := ""
	for _, more := range r.Also {
		codes += fmt.Sprint(more.About, " ", more.Code, more.OurReference, ", ")
	}
	if want := "capture , chargeback won, chargeback lost, chargeback opened, charge k-hold, "; codes != want || r.Class != "found_several_held" {
		t.Errorf("%s: %s, want %s", r.Class, codes, want)
	}
	l.listed(held.Reference, 18600-1000-2000)
}

// TestLiveFaultsOfActs: an act whose answer is lost, or lies, is executed once under its key, and a lookup tells it.
func TestLiveFaultsOfActs(t *testing.T) {
	for _, tt := range []struct{ fault, first, lookup, again, after string }{
		{"reset_executed", "unknown no_answer", "succeeded found_act_succeeded", "succeeded act_succeeded", "succeeded found_act_succeeded"},
		{"reset_not_executed", "unknown no_answer", "not_found not_found", "succeeded act_succeeded", "succeeded found_act_succeeded"},
		{"500_executed", "unknown server_error", "succeeded found_act_succeeded", "unknown server_error", "succeeded found_act_succeeded"},
		{"502_executed", "unknown server_error", "succeeded found_act_succeeded", "succeeded act_succeeded", "succeeded found_act_succeeded"},
		{"broken_json_executed", "unknown unreadable", "succeeded found_act_succeeded", "succeeded act_succeeded", "succeeded found_act_succeeded"},
		{"200_error_executed", "unknown unlisted_2xx", "succeeded found_act_succeeded", "succeeded act_succeeded", "succeeded found_act_succeeded"},
		{"401_once", "rejected unauthorized", "not_found not_found", "succeeded act_succeeded", "succeeded found_act_succeeded"},
		{"404_once", "unknown unlisted_4xx", "not_found not_found", "succeeded act_succeeded", "succeeded found_act_succeeded"},
		{"409_in_flight", "unknown in_flight", "succeeded found_act_succeeded", "succeeded act_succeeded", "succeeded found_act_succeeded"},
		{"429_once", "unknown rate_limited", "not_found not_found", "succeeded act_succeeded", "succeeded found_act_succeeded"},
		{"503_once", "unknown server_error", "not_found not_found", "succeeded act_succeeded", "succeeded found_act_succeeded"},
		{"refused_made_up", "unknown unlisted_4xx", "not_found not_found", "unknown unlisted_4xx", "not_found not_found"},
		{"refused_exceeds_remaining_executed", "declined exceeds_remaining exceeds_remaining", "succeeded found_act_succeeded",
			"succeeded act_succeeded", "succeeded found_act_succeeded"},
		{"failed_account_closed", "declined act_failed failed_at_bank", "declined found_act_failed failed_at_bank",
			"declined act_failed failed_at_bank", "declined found_act_failed failed_at_bank"},
		{"processing_3600000", "pending act_processing", "pending found_act_processing", "pending act_processing", "pending found_act_processing"},
	} {
		t.Run(tt.fault, func(t *testing.T) {
			l := liveWith(t, `{}`, asIs)
			sale := l.charge("k-sale", "pm_ok", false)
			l.must(nil, l.control.SetFaults(l.ctx, 0, sandboxserver.Rule{Fault: tt.fault, Call: "refund", Times: 1}))
			ask := func() acquirer.Reply { return l.ask(refund, "k-refund", sale.Reference, "") }
			l.says("refund", l.upon(refund, "k-refund", sale.Reference, 100), tt.first)
			l.says("lookup", ask(), tt.lookup)
			l.says("repeat", l.upon(refund, "k-refund", sale.Reference, 100), tt.again)
			l.says("last lookup", ask(), tt.after)
			if moved := l.moved("k-refund"); moved > 1 || (moved == 1) != strings.HasPrefix(tt.after, "succeeded") {
				t.Errorf("%d movements", moved)
			}
		})
	}
}

// TestLiveTermsOfActs plays contracts that are declared and set alike.
func TestLiveTermsOfActs(t *testing.T) {
	t.Run("no lookup of acts", func(t *testing.T) {
		none := `{"lookup_by_key":false,"lookup_by_reference":false,"not_found_final":false}`
		l := liveWith(t, `{"refund":`+none+`,"capture":`+none+`,"reverse":`+none+`}`, func(c *sandboxserver.Contract) { c.ActsLookup = false })
		sale := l.charge("k-sale", "pm_ok", false)
		l.says("refund", l.upon(refund, "k-refund", sale.Reference, 100), "succeeded act_succeeded")
		l.says("asked about", l.ask(refund, "k-refund", sale.Reference, ""), "unknown lookup_not_offered")
		l.says("told with its charge", l.ask("", "k-sale", "", ""), "succeeded found_succeeded; refund succeeded 100")
		undeclared, err := open(`{"url":"`+l.url+`"}`, l.doer)
		l.must(nil, err)
		l.says("undeclared", undeclared.Lookup(l.ctx, acquirer.Query{Action: refund, Key: "k-refund"}), "unknown unlisted_4xx")
	})
	t.Run("unique references", func(t *testing.T) {
		l := liveWith(t, `{"identity":"reference"}`, func(c *sandboxserver.Contract) { c.KeysHonoured, c.ReferenceUnique = false, true })
		sale := l.charge("k-sale", "pm_ok", false)
		l.says("refund", l.upon(refund, "k-refund", sale.Reference, 100), "succeeded act_succeeded")
		l.says("its repeat", l.upon(refund, "k-refund", sale.Reference, 100), "duplicate duplicate_reference")
		l.says("page", l.page("k-page", false), "registered registered")
		l.says("its repeat", l.page("k-page", false), "duplicate duplicate_reference")
	})
	t.Run("neither", func(t *testing.T) {
		l := liveWith(t, `{"refund":{"identity":"none"}}`, func(c *sandboxserver.Contract) { c.RefundKeys = false })
		sale := l.charge("k-sale", "pm_ok", false)
		l.upon(refund, "k-refund", sale.Reference, 100)
		l.upon(refund, "k-refund", sale.Reference, 100) // which the declared terms forbid
		l.says("twice", l.ask(refund, "k-refund", "", ""), "succeeded found_several_acts; refund succeeded 100")
	})
	t.Run("present state to a repeat", func(t *testing.T) {
		l := liveWith(t, `{}`, func(c *sandboxserver.Contract) { c.RepeatLater = sandboxserver.RepeatCurrent })
		held := l.charge("k-hold", "pm_ok", true)
		l.says("release", l.upon(reverse, "k-release", held.Reference, 0), "succeeded act_succeeded")
		l.says("repeat of the hold", l.charge("k-hold", "pm_ok", true), "closed charge_over")
		page := l.page("k-page", false)
		l.must(l.control.PaySession(l.ctx, page.Session))
		l.says("repeat of the page", l.page("k-page", false), "succeeded paid")
	})
	t.Run("whole refunds, one capture", func(t *testing.T) {
		l := liveWith(t, `{"partial_refunds":false,"several_captures":false}`, func(c *sandboxserver.Contract) {
			c.PartialRefunds, c.SeveralCaptures = false, false
		})
		held := l.charge("k-hold", "pm_ok", true)
		if r := l.upon(capture, "k-capture", held.Reference, 600); r.Outcome != acquirer.OutcomeSucceeded || !r.Final {
			t.Errorf("the one capture: %+v", r)
		}
		l.says("a part", l.upon(refund, "k-part", held.Reference, 1), "declined partial_not_allowed declined")
		l.says("the whole", l.upon(refund, "k-whole", held.Reference, 600), "succeeded act_succeeded")
	})
}

// TestLiveKeyReusedByAct: a key that was used for one call is used.
func TestLiveKeyReusedByAct(t *testing.T) {
	l := liveWith(t, `{}`, asIs)
	sale, other := l.charge("k-sale", "pm_ok", false), l.charge("k-other", "pm_ok", false)
	l.says("refund", l.upon(refund, "k-refund", sale.Reference, 100), "succeeded act_succeeded")
	l.says("another amount", l.upon(refund, "k-refund", sale.Reference, 101), "key_reused key_reused")
	l.says("another charge", l.upon(refund, "k-refund", other.Reference, 100), "key_reused key_reused")
}
