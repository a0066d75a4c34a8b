package sandbox_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/money"
)

// sendSample sends the sample of an action and gives it one answer.
func sendSample(t *testing.T, action acquirer.Action, status int, body string) acquirer.Reply {
	t.Helper()
	a, _ := scripted(t, anyURL, result(status, body))
	p, err := a.Prepare(sample(action))
	if err != nil {
		t.Fatal(err)
	}
	return a.Send(t.Context(), p, permit())
}

// found asks about a charge by our key and gives a list as the answer.
func found(t *testing.T, charges ...string) acquirer.Reply {
	t.Helper()
	return lookup(t, acquirer.Query{Key: sampleKey}, 200, listJSON(charges...))
}

// same compares a reply with what is wanted; bytes, hash and sentence are held by the kit.
func same(t *testing.T, got, want acquirer.Reply) {
	t.Helper()
	want.Answered, want.BytesWritten, want.RawHash, want.Message = true, 1, got.RawHash, acquirer.FailureCodes[want.Failure]
	for i := range want.Also {
		one := &want.Also[i]
		one.Answered, one.RawHash, one.Message = true, got.RawHash, acquirer.FailureCodes[one.Failure]
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(money.Amount.Equal)); diff != "" {
		t.Error(diff)
	}
}

var (
	kwd     = money.Must(18600, "KWD")
	actedAt = time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)
)

// beside is an act upon ch_1 as it stands beside its charge.
func beside(about acquirer.Action, outcome acquirer.Outcome, class, id, by string) acquirer.Reply {
	return acquirer.Reply{About: about, Outcome: outcome, Class: class, Reference: id, Object: "ch_1", OurReference: by, Amount: kwd, At: actedAt}
}

// TestActsStandBesideTheirCharge: one main reply of the charge, and each act by whoever as a reply of its own.
func TestActsStandBesideTheirCharge(t *testing.T) {
	const ok, pending, declined = acquirer.OutcomeSucceeded, acquirer.OutcomePending, acquirer.OutcomeDeclined
	sale := acquirer.Reply{Outcome: ok, Class: "found_succeeded", Reference: "ch_1", OurReference: sampleKey, Amount: kwd}
	heldFirst := acquirer.Reply{Outcome: acquirer.OutcomeHeld, Class: "found_held", Reference: "ch_1", OurReference: sampleKey, Amount: kwd}
	final := func(r acquirer.Reply) acquirer.Reply { r.Final = true; return r }
	of := func(r acquirer.Reply, code, failure string) acquirer.Reply {
		r.Code, r.Failure = code, failure
		return r
	}
	part := func(r acquirer.Reply, minor int64) acquirer.Reply { r.Amount = money.Must(minor, "KWD"); return r }
	for _, tt := range []struct {
		name   string
		charge string
		main   acquirer.Reply
		also   []acquirer.Reply
	}{
		{"a sale and nothing else", chargeJSON("succeeded", withActs(18600)), sale, nil},
		{"refunds in every state, one by hand", chargeJSON("succeeded", withActs(18600,
			actJSON("refund", "rf_1", "succeeded", "key-1", ""), actJSON("refund", "rf_2", "processing", "", ""),
			actJSON("refund", "rf_3", "failed", "key-3", `,"code":"account_closed"`))), sale, []acquirer.Reply{
			beside("refund", ok, "refund_succeeded", "rf_1", "key-1"), beside("refund", pending, "refund_processing", "rf_2", ""),
			of(beside("refund", declined, "refund_failed", "rf_3", "key-3"), "account_closed", "failed_at_bank")}},
		{"chargebacks", chargeJSON("succeeded", withActs(18600, actJSON("chargeback", "cb_1", "opened", "", ""),
			actJSON("chargeback", "cb_2", "won", "", ""), actJSON("chargeback", "cb_3", "lost", "", ""))), sale, []acquirer.Reply{
			of(beside("chargeback", ok, "chargeback_opened", "cb_1", ""), "opened", ""),
			of(beside("chargeback", ok, "chargeback_won", "cb_2", ""), "won", ""),
			of(beside("chargeback", ok, "chargeback_lost", "cb_3", ""), "lost", "")}},
		{"a sale that was reversed", chargeJSON("reversed", withActs(18600, actJSON("reverse", "rv_1", "succeeded", "key-1", ""))), sale,
			[]acquirer.Reply{beside("reverse", ok, "reverse_succeeded", "rv_1", "key-1")}},
		{"a reversal on its way, and one that failed", chargeJSON("succeeded", withActs(18600,
			actJSON("reverse", "rv_1", "failed", "key-1", `,"code":"do_not_honor"`), actJSON("reverse", "rv_2", "processing", "key-2", ""))), sale,
			[]acquirer.Reply{of(beside("reverse", declined, "reverse_failed", "rv_1", "key-1"), "do_not_honor", "do_not_honor"),
				beside("reverse", pending, "reverse_processing", "rv_2", "key-2")}},
		{"partly captured", chargeJSON("held", withActs(600, strings.Replace(actJSON("capture", "cp_1", "succeeded", "key-1", ""), "18600", "600", 1),
			actJSON("capture", "cp_2", "failed", "key-2", ""), actJSON("capture", "cp_3", "processing", "key-3", `,"final":true`))),
			heldFirst, []acquirer.Reply{part(beside("capture", ok, "capture_succeeded", "cp_1", "key-1"), 600),
				of(beside("capture", declined, "capture_failed", "cp_2", "key-2"), "", "declined"),
				final(beside("capture", pending, "capture_processing", "cp_3", "key-3"))}},
		{"captured whole", chargeJSON("succeeded", withActs(18600, actJSON("capture", "cp_1", "succeeded", "key-1", ""))), heldFirst,
			[]acquirer.Reply{final(beside("capture", ok, "capture_succeeded", "cp_1", "key-1"))}},
		{"captured in parts, the hold is over, and refunded", chargeJSON("succeeded", withActs(37200,
			actJSON("capture", "cp_1", "succeeded", "key-1", ""), actJSON("capture", "cp_2", "succeeded", "", ""),
			actJSON("refund", "rf_1", "succeeded", "key-3", ""))), heldFirst, []acquirer.Reply{
			beside("capture", ok, "capture_succeeded", "cp_1", "key-1"), final(beside("capture", ok, "capture_succeeded", "cp_2", "")),
			beside("refund", ok, "refund_succeeded", "rf_1", "key-3")}},
		{"captured and reversed", chargeJSON("reversed", withActs(18600, actJSON("capture", "cp_1", "succeeded", "key-1", ""),
			actJSON("reverse", "rv_1", "succeeded", "", ""))), heldFirst, []acquirer.Reply{
			final(beside("capture", ok, "capture_succeeded", "cp_1", "key-1")), beside("reverse", ok, "reverse_succeeded", "rv_1", "")}},
		{"a hold that was released", chargeJSON("reversed", withActs(0, actJSON("reverse", "rv_1", "succeeded", "key-1", ""))),
			acquirer.Reply{Outcome: acquirer.OutcomeClosed, Class: "found_charge_over", Reference: "ch_1", OurReference: sampleKey}, nil},
		{"a hold that lapsed", chargeJSON("expired", withActs(0)),
			acquirer.Reply{Outcome: acquirer.OutcomeClosed, Class: "found_charge_over", Reference: "ch_1", OurReference: sampleKey}, nil},
		{"a hold whose release is on its way", chargeJSON("held", withActs(0, actJSON("reverse", "rv_1", "processing", "key-1", ""))), heldFirst, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.main.Also = tt.also
			same(t, found(t, tt.charge), tt.main)
			read := tt.main
			read.Class = strings.Replace(read.Class, "found_", "read_", 1)
			same(t, lookup(t, acquirer.Query{Key: sampleKey, Reference: "ch_1"}, 200, tt.charge), read)
			sent := tt.main // what else there is, a lookup tells
			sent.Class, sent.Also = strings.Replace(sent.Class, "found_", "", 1), nil
			same(t, send(t, 200, tt.charge), sent)
		})
	}
}

func TestFieldsOfHoldsAndSteps(t *testing.T) {
	until := time.Date(2026, 1, 9, 3, 4, 5, 0, time.UTC)
	held := acquirer.Reply{Outcome: acquirer.OutcomeHeld, Class: "held", Reference: "ch_1", OurReference: sampleKey, Amount: kwd, ExpiresAt: until}
	same(t, send(t, 200, chargeJSON("held", withActs(0)+`,"expires_at":"2026-01-09T06:04:05+03:00"`)), held)
	other := held
	other.OurReference = "other" // funds held under another reference are a fact about our call
	same(t, send(t, 200, strings.Replace(chargeJSON("held", `,"expires_at":"2026-01-09T03:04:05Z"`), sampleKey, "other", 1)), other)
	step := acquirer.Reply{Outcome: acquirer.OutcomeRegistered, Class: "action_required", Reference: "ch_1", OurReference: sampleKey,
		RedirectURL: "https://bank.example/1?a=b", ExpiresAt: until}
	body := func(address string) string {
		return chargeJSON("action_required", withActs(0)+`,"expires_at":"2026-01-09T03:04:05Z","redirect_url":`+address)
	}
	same(t, send(t, 200, body(`"https://bank.example/1?a=b"`)), step)
	step.RedirectURL = ""
	for _, bad := range []string{`"javascript:alert(1)"`, `"/challenge/1"`, `"https:///x"`, `"ftp://bank.example/1"`, `"https://bank.example/a b"`,
		`"https://user:word@bank.example/"`, `"https://bank.example/` + strings.Repeat("x", 2048) + `"`, `null`, `7`} {
		same(t, send(t, 200, body(bad)), step)
	}
}

// TestSeveralChargesUnderOneKey: the best is the main reply, further ones with money or a hold stand beside it with their acts.
func TestSeveralChargesUnderOneKey(t *testing.T) {
	second := func(body string) string { return strings.ReplaceAll(body, "ch_1", "ch_2") }
	refunded := second(chargeJSON("succeeded", withActs(18600, actJSON("refund", "rf_2", "succeeded", "", ""))))
	captured := chargeJSON("held", withActs(600, strings.Replace(actJSON("capture", "cp_1", "succeeded", "key-1", ""), "18600", "600", 1)))
	held, sale := chargeJSON("held", withActs(0)), chargeJSON("succeeded", "")
	for _, tt := range []struct {
		name    string
		charges []string
		want    string // outcome, class and ids: first the main reply, then the others
	}{
		{"a hold, then a sale", []string{held, second(sale)}, "succeeded found_several_succeeded ch_2; charge held ch_1"},
		{"a hold of which was captured, then a sale", []string{captured, refunded},
			"held found_several_held ch_1; capture succeeded cp_1; charge succeeded ch_2; refund succeeded rf_2"},
		{"two holds", []string{held, second(held)}, "held found_several_held ch_1; charge held ch_2"},
		{"a step of the payer's, then a hold", []string{chargeJSON("action_required", ""), second(held)}, "held found_held ch_2"},
		{"one is over, the other waits", []string{chargeJSON("expired", ""), second(chargeJSON("action_required", ""))},
			"registered found_action_required ch_2"},
		{"one is over, the other was refused", []string{chargeJSON("expired", ""), second(chargeJSON("declined", ""))}, "closed found_charge_over ch_1"},
		{"two refusals", []string{chargeJSON("declined", ""), second(chargeJSON("declined", ""))}, "declined found_declined ch_2"},
	} {
		r := found(t, tt.charges...)
		got := fmt.Sprint(r.Outcome, " ", r.Class, " ", r.Reference)
		for _, more := range r.Also {
			got += fmt.Sprint("; ", more.About, " ", more.Outcome, " ", more.Reference)
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestChargesThatContradictThemselves prove nothing.
func TestChargesThatContradictThemselves(t *testing.T) {
	refund, capture := actJSON("refund", "rf_1", "succeeded", "", ""), actJSON("capture", "cp_1", "succeeded", "", "")
	for what, body := range map[string]string{
		"a sale that took less than its amount":  chargeJSON("succeeded", withActs(18599)),
		"a hold that took money by nothing":      chargeJSON("held", withActs(1)),
		"captures that are not what was taken":   chargeJSON("held", withActs(1, capture)),
		"a capture of nothing taken":             chargeJSON("held", withActs(0, capture)),
		"lapsed, and took money":                 chargeJSON("expired", withActs(18600)),
		"reversed by nothing":                    chargeJSON("reversed", withActs(18600)),
		"an act upon another charge":             chargeJSON("succeeded", withActs(18600, strings.Replace(refund, "ch_1", "ch_2", 1))),
		"an act in another currency":             chargeJSON("succeeded", withActs(18600, strings.Replace(refund, "KWD", "EUR", 1))),
		"an act that is told twice":              chargeJSON("succeeded", withActs(18600, refund, refund)),
		"an act of an unheard-of kind":           chargeJSON("succeeded", withActs(18600, strings.Replace(refund, `"refund"`, `"gift"`, 1))),
		"an act of an unheard-of status":         chargeJSON("succeeded", withActs(18600, strings.Replace(refund, "succeeded", "begun", 1))),
		"an act without an id":                   chargeJSON("succeeded", withActs(18600, strings.Replace(refund, "rf_1", "", 1))),
		"an act without a time":                  chargeJSON("succeeded", withActs(18600, strings.Replace(refund, "2026-01-02T03:04:06Z", "today", 1))),
		"an act with an amount below zero":       chargeJSON("succeeded", withActs(18600, strings.Replace(refund, "18600", "-1", 1))),
		"acts that are no list":                  chargeJSON("succeeded", `,"acts":{}`),
		"what was taken as text":                 chargeJSON("succeeded", `,"captured_amount":"18600"`),
		"what was taken below zero":              chargeJSON("expired", `,"captured_amount":-1`),
		"an expiry that is no time":              chargeJSON("held", `,"expires_at":"soon"`),
		"a session that cannot be stored":        chargeJSON("succeeded", `,"session":"a b"`),
		"a final that is neither true nor false": chargeJSON("succeeded", withActs(18600, strings.Replace(capture, `"KWD"`, `"KWD","final":1`, 1))),
	} {
		for _, r := range []acquirer.Reply{send(t, 200, body), found(t, chargeJSON("succeeded", ""), strings.ReplaceAll(body, "ch_1", "ch_9")),
			lookup(t, acquirer.Query{Reference: "ch_1"}, 200, body)} {
			if r.Outcome != acquirer.OutcomeUnknown || r.Class != "unreadable" || len(r.Also) != 0 {
				t.Errorf("%s: %+v", what, r)
			}
		}
	}
}

// TestChargesOfAnOlderSandbox have no acts and no sums: read as none.
func TestChargesOfAnOlderSandbox(t *testing.T) {
	for status, want := range map[string]acquirer.Outcome{"succeeded": acquirer.OutcomeSucceeded, "processing": acquirer.OutcomePending,
		"declined": acquirer.OutcomeDeclined, "held": acquirer.OutcomeHeld, "reversed": acquirer.OutcomeClosed} {
		if r := found(t, chargeJSON(status, "")); r.Outcome != want || len(r.Also) != 0 {
			t.Errorf("%s: %+v", status, r)
		}
	}
}

func TestFieldsOfAPage(t *testing.T) {
	const asked = "found_"
	until := time.Date(2026, 1, 2, 4, 4, 5, 0, time.UTC)
	open := acquirer.Reply{Outcome: acquirer.OutcomeRegistered, Class: asked + "registered", Reference: "cs_1", OurReference: sampleKey,
		Session: "cs_1", RedirectURL: "http://127.0.0.1:9/pay/cs_1", ExpiresAt: until}
	closed := acquirer.Reply{Outcome: acquirer.OutcomeClosed, Class: asked + "closed", Reference: "cs_1", OurReference: sampleKey, Session: "cs_1"}
	expired, unaddressed := closed, open
	expired.Class, unaddressed.RedirectURL = asked+"expired", ""
	paid := acquirer.Reply{Outcome: acquirer.OutcomeSucceeded, Class: asked + "paid", Reference: "ch_1", OurReference: sampleKey,
		Session: "cs_1", Amount: kwd}
	refunded, held, over := paid, paid, paid
	refunded.Also = []acquirer.Reply{beside("refund", acquirer.OutcomeSucceeded, "refund_succeeded", "rf_1", "")}
	held.Outcome, held.Class = acquirer.OutcomeHeld, asked+"paid_held"
	over.Outcome, over.Class, over.Amount = acquirer.OutcomeClosed, asked+"paid_over", money.Amount{}
	for _, tt := range []struct {
		name, body string
		want       acquirer.Reply
	}{
		{"open", sessionJSON("open", "null", ""), open},
		{"open, after refused tries", strings.Replace(sessionJSON("open", "null", ""), `"tries":0`, `"tries":3`, 1), open},
		{"open, without its address", strings.Replace(sessionJSON("open", "null", ""), "page_url", "page", 1), unaddressed},
		{"closed", sessionJSON("closed", "null", ""), closed},
		{"expired", sessionJSON("expired", "null", ""), expired},
		{"paid", sessionJSON("paid", chargeJSON("succeeded", withActs(18600)+`,"session":"cs_1"`), ""), paid},
		{"paid and refunded", sessionJSON("paid", chargeJSON("succeeded", withActs(18600, actJSON("refund", "rf_1", "succeeded", "", ""))), ""), refunded},
		{"paid, held", sessionJSON("paid", chargeJSON("held", withActs(0)), ""), held},
		{"paid, and the hold lapsed", sessionJSON("paid", chargeJSON("expired", withActs(0)), ""), over},
		{"paid by nothing", sessionJSON("paid", "null", ""), acquirer.Reply{Class: "unlisted_2xx"}},
		{"paid by a charge that was refused", sessionJSON("paid", chargeJSON("declined", ""), ""), acquirer.Reply{Class: "unlisted_2xx"}},
		{"open, and a charge has money", sessionJSON("open", chargeJSON("succeeded", ""), ""), acquirer.Reply{Class: "unlisted_2xx"}},
		{"closed, and a charge has money", sessionJSON("closed", chargeJSON("succeeded", ""), ""), acquirer.Reply{Class: "unlisted_2xx"}},
		{"paid by the charge of another page", sessionJSON("paid", chargeJSON("succeeded", `,"session":"cs_2"`), ""), acquirer.Reply{Class: "unreadable"}},
		{"paid by a charge of another reference", sessionJSON("paid", strings.Replace(chargeJSON("succeeded", ""), sampleKey, "other", 1), ""),
			acquirer.Reply{Class: "unreadable"}},
		{"a page of another", strings.Replace(sessionJSON("open", "null", ""), sampleKey, "other", 1), acquirer.Reply{Class: "other_reference"}},
		{"no word about a charge", strings.Replace(sessionJSON("open", "null", ""), `,"charge":null`, "", 1), acquirer.Reply{Class: "unreadable"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			same(t, lookup(t, acquirer.Query{Action: acquirer.ActionSession, Key: sampleKey}, 200, listJSON(tt.body)), tt.want)
			read, sent := tt.want, tt.want
			read.Class = strings.Replace(read.Class, asked, "read_", 1)
			same(t, lookup(t, acquirer.Query{Action: acquirer.ActionSession, Key: sampleKey, Reference: "cs_1"}, 200, tt.body), read)
			sent.Class, sent.Also = strings.Replace(sent.Class, asked, "", 1), nil
			same(t, sendSample(t, acquirer.ActionSession, 200, tt.body), sent)
		})
	}
	twice := lookup(t, acquirer.Query{Action: acquirer.ActionSession, Key: sampleKey}, 200, listJSON(sessionJSON("open", "null", ""),
		strings.ReplaceAll(sessionJSON("paid", chargeJSON("succeeded", ""), ""), "cs_1", "cs_2"),
		strings.NewReplacer("cs_1", "cs_3", "ch_1", "ch_3").Replace(sessionJSON("paid", chargeJSON("held", ""), ""))))
	if twice.Class != "found_several_succeeded" || twice.Session != "cs_2" || len(twice.Also) != 1 || twice.Also[0].Session != "cs_3" ||
		twice.Also[0].About != acquirer.ActionCharge || twice.Also[0].Outcome != acquirer.OutcomeHeld {
		t.Errorf("several pages: %+v", twice)
	}
}
