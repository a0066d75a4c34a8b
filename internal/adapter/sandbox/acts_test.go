package sandbox_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/money"
)

const (
	session, capture, reverse = acquirer.ActionSession, acquirer.ActionCapture, acquirer.ActionReverse
	refund, closing           = acquirer.ActionRefund, acquirer.ActionClose
)

// actKinds are the acts that are sent, with the id of one.
var actKinds = map[acquirer.Action]string{capture: "cp_1", reverse: "rv_1", refund: "rf_1"}

// TestFieldsOfAnAct reads the answer to a call and to the two questions about it.
func TestFieldsOfAnAct(t *testing.T) {
	for action, id := range actKinds {
		done := acquirer.Reply{Outcome: acquirer.OutcomeSucceeded, Class: "act_succeeded", Reference: id, Object: "ch_1",
			OurReference: sampleKey, Amount: kwd, At: actedAt}
		pending, failed := done, done
		pending.Outcome, pending.Class = acquirer.OutcomePending, "act_processing"
		failed.Outcome, failed.Class, failed.Code, failed.Failure = acquirer.OutcomeDeclined, "act_failed", "too_late", "too_late"
		if action == refund {
			failed.Failure = "failed_at_bank"
		}
		for status, want := range map[string]acquirer.Reply{"succeeded": done, "processing": pending, "failed": failed} {
			more := ""
			if status == "failed" {
				more = `,"code":"too_late"`
			}
			body := actJSON(string(action), id, status, sampleKey, more)
			t.Run(fmt.Sprint(action, " ", status), func(t *testing.T) {
				same(t, sendSample(t, action, 200, body), want)
				want.Class = "found_" + want.Class
				same(t, lookup(t, acquirer.Query{Action: action, Key: sampleKey, Object: "ch_1"}, 200, listJSON(body)), want)
				want.Class = strings.Replace(want.Class, "found_", "read_", 1)
				same(t, lookup(t, acquirer.Query{Action: action, Key: sampleKey, Object: "ch_1", Reference: id}, 200, body), want)
			})
		}
	}
	last := sendSample(t, capture, 200, actJSON("capture", "cp_1", "succeeded", sampleKey, `,"final":true`))
	if !last.Final || last.Outcome != acquirer.OutcomeSucceeded {
		t.Errorf("the last capture: %+v", last)
	}
}

// TestAnswersAboutSomethingElse: an answer must be about our key and our object.
func TestAnswersAboutSomethingElse(t *testing.T) {
	for action, id := range actKinds {
		of := func(status, by string) string { return actJSON(string(action), id, status, by, "") }
		elsewhere := strings.Replace(of("succeeded", sampleKey), "ch_1", "ch_2", 1)
		query := acquirer.Query{Action: action, Key: sampleKey, Object: "ch_1"}
		byID := query
		byID.Reference = id
		other := "refund"
		if action == refund {
			other = "capture"
		}
		another := actJSON(other, id, "succeeded", sampleKey, "")
		for _, tt := range []struct {
			what  string
			got   acquirer.Reply
			class string
		}{
			{"pending, under another reference", sendSample(t, action, 200, of("processing", "other")), "other_reference"},
			{"failed, under another reference", sendSample(t, action, 200, of("failed", "other")), "other_reference"},
			{"done by hand", sendSample(t, action, 200, of("succeeded", "")), "other_reference"},
			{"upon another charge", sendSample(t, action, 200, elsewhere), "other_object"},
			{"an act of another kind", sendSample(t, action, 200, another), "unreadable"},
			{"found under another reference", lookup(t, query, 200, listJSON(of("succeeded", "other"))), "other_reference"},
			{"found upon another charge", lookup(t, query, 200, listJSON(of("succeeded", sampleKey), elsewhere)), "other_object"},
			{"found of another kind", lookup(t, query, 200, listJSON(another)), "unreadable"},
			{"read under another reference", lookup(t, byID, 200, of("succeeded", "other")), "other_reference"},
			{"read upon another charge", lookup(t, byID, 200, elsewhere), "other_object"},
			{"its own id is gone", lookup(t, byID, 404, errorJSON("not_found")), "id_not_found"},
			{"a lookup that is refused", lookup(t, query, 401, errorJSON("unauthorized")), "unlisted_4xx"},
			{"found nothing, in a list", lookup(t, query, 200, listJSON()), "unreadable"},
		} {
			if tt.got.Outcome != acquirer.OutcomeUnknown || tt.got.Class != tt.class || tt.got.Reference != "" {
				t.Errorf("%s, %s: %+v, want class %s", action, tt.what, tt.got, tt.class)
			}
		}
		if r := sendSample(t, action, 200, of("succeeded", "other")); r.Outcome != acquirer.OutcomeSucceeded || r.OurReference != "other" {
			t.Errorf("%s: money under another reference is a fact about our call: %+v", action, r)
		}
		byHand := lookup(t, acquirer.Query{Action: action, Reference: id}, 200, of("succeeded", ""))
		if byHand.Outcome != acquirer.OutcomeSucceeded || byHand.OurReference != "" {
			t.Errorf("%s: done by hand, asked by its id alone: %+v", action, byHand)
		}
		if r := lookup(t, query, 404, errorJSON("not_found")); r.Outcome != acquirer.OutcomeNotFound {
			t.Errorf("%s: found nothing: %+v", action, r)
		}
	}
}

// TestActsExecutedTwice: a further act under the key cannot hide.
func TestActsExecutedTwice(t *testing.T) {
	for action, id := range actKinds {
		one := func(n int, status string) string {
			return actJSON(string(action), fmt.Sprint(id, n), status, sampleKey, "")
		}
		query := acquirer.Query{Action: action, Key: sampleKey, Object: "ch_1"}
		r := lookup(t, query, 200, listJSON(one(1, "failed"), one(2, "processing"), one(3, "succeeded"), one(4, "succeeded")))
		if r.Outcome != acquirer.OutcomeSucceeded || r.Class != "found_several_acts" || r.Reference != id+"3" || len(r.Also) != 1 ||
			r.Also[0].Reference != id+"4" || r.Also[0].About != action || r.Also[0].Object != "ch_1" || r.Also[0].Outcome != acquirer.OutcomeSucceeded {
			t.Errorf("%s: %+v", action, r)
		}
		if r := lookup(t, query, 200, listJSON(one(1, "failed"), one(2, "processing"), one(3, "failed"))); r.Outcome != acquirer.OutcomePending || r.Reference != id+"2" {
			t.Errorf("%s: %+v", action, r)
		}
		if r := lookup(t, query, 200, listJSON(one(1, "failed"), one(2, "failed"))); r.Outcome != acquirer.OutcomeDeclined || r.Reference != id+"2" {
			t.Errorf("%s: %+v", action, r)
		}
	}
}

// TestRefusalsOfActs: each documented refusal of a call is final, and one of another call proves nothing.
func TestRefusalsOfActs(t *testing.T) {
	refusals := map[acquirer.Action][]string{
		capture: {"not_capturable", "already_captured", "exceeds_remaining", "wrong_currency", "partial_not_allowed"},
		reverse: {"already_captured", "nothing_to_reverse", "too_late"},
		refund:  {"not_refundable", "exceeds_remaining", "too_late", "wrong_currency", "partial_not_allowed"},
		session: nil, closing: nil, acquirer.ActionCharge: nil,
	}
	failures := map[string]string{"already_captured": "already_captured", "exceeds_remaining": "exceeds_remaining",
		"nothing_to_reverse": "nothing_to_reverse", "too_late": "too_late"}
	all := map[string]bool{"already_paid": true, "made_up": true}
	for _, codes := range refusals {
		for _, code := range codes {
			all[code] = true
		}
	}
	for action, codes := range refusals {
		listed := map[string]bool{}
		for _, code := range codes {
			listed[code] = true
		}
		for code := range all {
			got, want := sendSample(t, action, 422, errorJSON(code)), acquirer.Reply{Class: "unlisted_4xx"}
			if listed[code] {
				want = acquirer.Reply{Outcome: acquirer.OutcomeDeclined, Class: code, Code: code, Failure: "declined"}
				if own, ok := failures[code]; ok {
					want.Failure = own
				}
			}
			same(t, got, want)
		}
	}
	same(t, sendSample(t, closing, 409, errorJSON("already_paid")),
		acquirer.Reply{Outcome: acquirer.OutcomeDeclined, Class: "already_paid", Code: "already_paid", Failure: "declined"})
	for _, action := range []acquirer.Action{capture, reverse, refund, closing} {
		same(t, sendSample(t, action, 404, errorJSON("not_found")),
			acquirer.Reply{Outcome: acquirer.OutcomeRejected, Class: "no_such_object", Code: "not_found", Failure: "rejected"})
	}
}

// TestReversalAnsweredWithACharge: that a charge has its money still proves that the reversal was not done; nothing else
// that is said of a charge says anything of the reversal.
func TestReversalAnsweredWithACharge(t *testing.T) {
	same(t, sendSample(t, reverse, 200, chargeJSON("succeeded", withActs(18600))),
		acquirer.Reply{Outcome: acquirer.OutcomeDeclined, Class: "not_reversed", Reference: "ch_1", Object: "ch_1", Failure: "declined"})
	for _, status := range []string{"held", "reversed", "expired", "processing", "declined"} {
		same(t, sendSample(t, reverse, 200, chargeJSON(status, withActs(0))), acquirer.Reply{Class: "unlisted_2xx"})
	}
	same(t, sendSample(t, reverse, 200, strings.Replace(chargeJSON("succeeded", ""), "ch_1", "ch_2", 1)), acquirer.Reply{Class: "other_object"})
	same(t, sendSample(t, refund, 200, chargeJSON("succeeded", "")), acquirer.Reply{Class: "unreadable"})
}

func TestFieldsOfAClosing(t *testing.T) {
	closed := acquirer.Reply{Outcome: acquirer.OutcomeSucceeded, Class: "page_closed", Reference: "cs_1", Session: "cs_1"}
	expired, paid, open := closed, closed, closed
	expired.Class = "page_expired"
	paid.Outcome, paid.Class, paid.Code, paid.Failure = acquirer.OutcomeDeclined, "page_paid", "already_paid", "declined"
	open.Outcome, open.Class = acquirer.OutcomeNotFound, "page_open"
	charge := acquirer.Reply{About: acquirer.ActionCharge, Outcome: acquirer.OutcomeSucceeded, Class: "read_succeeded", Reference: "ch_1",
		OurReference: sampleKey, Session: "cs_1", Amount: kwd}
	returned := beside(refund, acquirer.OutcomeSucceeded, "refund_succeeded", "rf_1", "")
	paidBody := sessionJSON("paid", chargeJSON("succeeded", withActs(18600, actJSON("refund", "rf_1", "succeeded", "", ""))), "")
	for _, tt := range []struct {
		body       string
		sent, told acquirer.Reply
		also       []acquirer.Reply
	}{
		{sessionJSON("closed", "null", ""), closed, closed, nil},
		{sessionJSON("expired", "null", ""), expired, expired, nil},
		{sessionJSON("open", "null", ""), acquirer.Reply{Class: "page_open"}, open, nil},
		{paidBody, paid, paid, []acquirer.Reply{charge, returned}},
		{sessionJSON("closed", chargeJSON("succeeded", ""), ""), acquirer.Reply{Class: "unlisted_2xx"}, acquirer.Reply{Class: "unlisted_2xx"}, nil},
	} {
		tt.told.Also = tt.also
		same(t, sendSample(t, closing, 200, tt.body), tt.sent)
		for _, how := range []string{"read_", "found_"} {
			want, q, body := tt.told, acquirer.Query{Action: closing, Key: "key-of-the-close", Object: "cs_1"}, tt.body
			if how == "found_" {
				q, body = acquirer.Query{Action: closing, Key: sampleKey}, listJSON(tt.body)
			}
			if want.Outcome != acquirer.OutcomeUnknown {
				want.Class = how + want.Class
			}
			same(t, lookup(t, q, 200, body), want)
		}
	}
	page := sessionJSON("closed", "null", "")
	same(t, sendSample(t, closing, 200, strings.ReplaceAll(page, "cs_1", "cs_2")), acquirer.Reply{Class: "other_object"})
	same(t, lookup(t, acquirer.Query{Action: closing, Object: "cs_2"}, 200, page), acquirer.Reply{Class: "other_object"})
	same(t, lookup(t, acquirer.Query{Action: closing, Key: "other"}, 200, listJSON(page)), acquirer.Reply{Class: "other_reference"})
	same(t, lookup(t, acquirer.Query{Action: closing, Key: sampleKey}, 200, listJSON(page, strings.ReplaceAll(page, "cs_1", "cs_2"))),
		acquirer.Reply{Class: "unlisted_2xx"})
}

// TestBytesOfEachCall reads what is prepared and where it is sent.
func TestBytesOfEachCall(t *testing.T) {
	until := time.Date(2026, 1, 2, 6, 4, 5, 500_000_000, time.FixedZone("", 3*3600))
	const money3 = `{"reference":"` + sampleKey + `","amount":18600,"currency":"KWD"`
	for _, tt := range []struct {
		action     acquirer.Action
		change     func(*acquirer.Request)
		path, body string
	}{
		{"", func(r *acquirer.Request) { r.Hold = true }, "/charges", money3 + `,"payment_method":"pm_ok","capture":false}`},
		{acquirer.ActionCharge, func(*acquirer.Request) {}, "/charges", money3 + `,"payment_method":"pm_ok","capture":true}`},
		{session, func(*acquirer.Request) {}, "/sessions", money3 + `,"return_url":"https://shop.example/back","capture":true}`},
		{session, func(r *acquirer.Request) {
			r.Hold, r.ExpiresAt, r.ReturnURL = true, until, "https://shop.example/?a=1&b=2"
		}, "/sessions",
			money3 + `,"return_url":"https://shop.example/?a=1\u0026b=2","capture":false,"expires_at":"2026-01-02T03:04:05.5Z"}`},
		{capture, func(r *acquirer.Request) { r.Final = true }, "/charges/ch_1/capture", money3 + `,"final":true}`},
		{capture, func(r *acquirer.Request) { r.Object = "a/b?c" }, "/charges/a%2Fb%3Fc/capture", money3 + `,"final":false}`},
		{reverse, func(*acquirer.Request) {}, "/charges/ch_1/reverse", `{"reference":"` + sampleKey + `"}`},
		{refund, func(*acquirer.Request) {}, "/charges/ch_1/refund", money3 + `}`},
		{closing, func(*acquirer.Request) {}, "/sessions/cs_1/close", `{}`},
	} {
		a, script := scripted(t, anyURL, wire.Result{})
		r := sample(tt.action)
		tt.change(&r)
		p, err := a.Prepare(r)
		if err != nil {
			t.Fatal(err)
		}
		a.Send(t.Context(), p, permit())
		calls := script.Calls()
		if string(p.Body) != tt.body || len(calls) != 1 || calls[0].Path != tt.path || calls[0].Header.Get("Idempotency-Key") != sampleKey {
			t.Errorf("%q: %s to %+v, want %s to %s", tt.action, p.Body, calls, tt.body, tt.path)
		}
	}
}

// TestWhatIsNeverSent: what the sandbox or the contract would refuse for ever is an error before anything is stored.
func TestWhatIsNeverSent(t *testing.T) {
	for _, tt := range []struct {
		what, terms string
		action      acquirer.Action
		change      func(*acquirer.Request)
	}{
		{"a hold that is not offered", `{"holds":false}`, acquirer.ActionCharge, func(r *acquirer.Request) { r.Hold = true }},
		{"a held page that is not offered", `{"holds":false}`, session, func(r *acquirer.Request) { r.Hold = true }},
		{"a refund that is not offered", `{"offers":["charge"]}`, refund, func(*acquirer.Request) {}},
		{"a chargeback", `{}`, acquirer.ActionChargeback, func(*acquirer.Request) {}},
		{"no way back", `{}`, session, func(r *acquirer.Request) { r.ReturnURL = "" }},
		{"a way back that is no address", `{}`, session, func(r *acquirer.Request) { r.ReturnURL = "javascript:alert(1)" }},
		{"a way back that is too long", `{}`, session, func(r *acquirer.Request) { r.ReturnURL = "https://shop.example/" + strings.Repeat("x", 2048) }},
		{"a charge that climbs", `{}`, capture, func(r *acquirer.Request) { r.Object = ".." }},
		{"a charge of two lines", `{}`, refund, func(r *acquirer.Request) { r.Object = "ch\r\nX: y" }},
		{"an id that is too long", `{}`, closing, func(r *acquirer.Request) { r.Object = strings.Repeat("x", acquirer.MaxCode+1) }},
		{"no payment method", `{}`, acquirer.ActionCharge, func(r *acquirer.Request) { r.PaymentMethod = "" }},
	} {
		a, script := scripted(t, `{"url":"http://127.0.0.1:9","contract":`+tt.terms+`}`, wire.Result{})
		r := sample(tt.action)
		tt.change(&r)
		if p, err := a.Prepare(r); err == nil || len(script.Calls()) != 0 {
			t.Errorf("%s is prepared: %+v", tt.what, p)
		}
	}
	a, script := scripted(t, anyURL, wire.Result{})
	for _, p := range []acquirer.Prepared{{Action: "gift", Key: "k"}, {Action: acquirer.ActionChargeback, Key: "k", Object: "ch_1"},
		{Action: refund, Key: "k"}, {Action: capture, Key: "k", Object: ".."}} {
		if r := a.Send(t.Context(), p, permit()); r.Outcome != acquirer.OutcomeNotSent || r.Class == "" || len(script.Calls()) != 0 {
			t.Errorf("%+v: %+v", p, r)
		}
	}
}

// TestMovementsOfEveryKind reads the list, from which the release of a mere hold is left out: no money moved.
func TestMovementsOfEveryKind(t *testing.T) {
	line := func(object, kind, by, more string) string {
		return fmt.Sprintf(`{"id":"mv","charge":"ch_1","object":%q,"reference":%q,"idempotency_key":%q,"kind":%q,"amount":5,"currency":"USD",`+
			`"at":"2026-01-02T03:04:06Z"%s}`, object, by, by, kind, more)
	}
	list := func(t *testing.T, lines ...string) ([]acquirer.Movement, error) {
		t.Helper()
		a, _ := scripted(t, anyURL, result(200, `{"movements":[`+strings.Join(lines, ",")+`]}`))
		return a.Movements(t.Context(), time.Unix(0, 0), time.Unix(1, 0))
	}
	moved := func(object string, kind acquirer.MovementKind, by, undoes string) acquirer.Movement {
		return acquirer.Movement{Reference: object, Object: "ch_1", Undoes: undoes, OurReference: by, Kind: kind, Amount: money.Must(5, "USD"), At: actedAt}
	}
	got, err := list(t, line("ch_1", "charge", "k1", ""), line("cp_1", "capture", "", ""), line("rf_1", "refund", "k2", ""),
		line("cb_1", "chargeback", "", ""), line("rv_1", "reverse", "k3", `,"of":"ch_1"`), line("rv_2", "reverse", "", `,"of":"rf_1","held":false`),
		line("rv_3", "reverse", "k4", `,"of":"ch_1","held":true`))
	want := []acquirer.Movement{moved("ch_1", "charge", "k1", ""), moved("cp_1", "capture", "", ""), moved("rf_1", "refund", "k2", ""),
		moved("cb_1", "chargeback", "", ""), moved("rv_1", "reverse", "k3", "ch_1"), moved("rv_2", "reverse", "", "rf_1")}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(money.Amount.Equal)); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{
		line("rv_1", "reverse", "k", ""), line("rf_1", "refund", "k", `,"of":"ch_1"`), line("rf_1", "refund", "k", `,"held":true`),
		line("h_1", "hold", "k", ""), line("", "refund", "k", ""), line("a b", "refund", "k", ""), line("rv_1", "reverse", "k", `,"of":"ch_1","held":1`),
		strings.Replace(line("rf_1", "refund", "k", ""), `"object":"rf_1",`, "", 1), strings.Replace(line("rf_1", "refund", "k", ""), `"reference":"k",`, "", 1),
	} {
		if found, err := list(t, line("ch_1", "charge", "k", ""), bad); err == nil || found != nil {
			t.Errorf("%s: %+v", bad, found)
		}
	}
}
