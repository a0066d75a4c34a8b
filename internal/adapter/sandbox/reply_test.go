package sandbox_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/acquirertest"
	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/money"
)

// result is a complete answer of the acquirer.
func result(status int, body string) wire.Result {
	return wire.Result{Sent: wire.PartlyOrFullySent, BytesWritten: 1, Status: status, Body: []byte(body), Complete: true,
		Header: http.Header{"Content-Type": {"application/json; charset=utf-8"}}, Phase: wire.PhaseDone}
}

func scripted(t *testing.T, settings string, results ...wire.Result) (acquirer.Adapter, *acquirertest.Script) {
	t.Helper()
	next := 0
	script := &acquirertest.Script{Answer: func(wire.Call) wire.Result {
		next++
		return results[min(next, len(results))-1]
	}}
	a, err := open(settings, script)
	if err != nil {
		t.Fatal(err)
	}
	return a, script
}

func send(t *testing.T, status int, body string) acquirer.Reply {
	t.Helper()
	a, _ := scripted(t, anyURL, result(status, body))
	p, err := a.Prepare(sampleCharge(sampleKey))
	if err != nil {
		t.Fatal(err)
	}
	return a.Send(t.Context(), p, permit())
}

func lookup(t *testing.T, q acquirer.Query, status int, body string) acquirer.Reply {
	t.Helper()
	a, _ := scripted(t, anyURL, result(status, body))
	return a.Lookup(t.Context(), q)
}

func replaced(old, new string) string {
	return strings.Replace(chargeJSON("succeeded", ""), old, new, 1)
}

// many are charges that took money, by the numbers of their ids.
func many(first, last int) (charges []string) {
	for n := first; n <= last; n++ {
		charges = append(charges, replaced("ch_1", fmt.Sprint("ch_", n)))
	}
	return charges
}

// also is further money under the same reference.
func also(ids ...string) (replies []acquirer.Reply) {
	for _, id := range ids {
		replies = append(replies, acquirer.Reply{Outcome: acquirer.OutcomeSucceeded, Class: "found_succeeded", About: acquirer.ActionCharge, Reference: id,
			OurReference: sampleKey, Amount: money.Must(18600, "KWD"), Answered: true})
	}
	return replies
}

// TestFieldsOfAReply reads what goes with an outcome.
func TestFieldsOfAReply(t *testing.T) {
	kwd := money.Must(18600, "KWD")
	for _, tt := range []struct {
		name string
		got  acquirer.Reply
		want acquirer.Reply
	}{
		{"succeeded", send(t, 200, chargeJSON("succeeded", "")),
			acquirer.Reply{Outcome: acquirer.OutcomeSucceeded, Class: "succeeded", Reference: "ch_1", OurReference: sampleKey, Amount: kwd}},
		{"another amount", send(t, 200, replaced("18600", "18601")),
			acquirer.Reply{Outcome: acquirer.OutcomeSucceeded, Class: "succeeded", Reference: "ch_1", OurReference: sampleKey,
				Amount: money.Must(18601, "KWD")}},
		{"another currency", send(t, 200, replaced("KWD", "EUR")),
			acquirer.Reply{Outcome: acquirer.OutcomeSucceeded, Class: "succeeded", Reference: "ch_1", OurReference: sampleKey,
				Amount: money.Must(18600, "EUR")}},
		{"money under another reference", send(t, 200, replaced(sampleKey, "other")),
			acquirer.Reply{Outcome: acquirer.OutcomeSucceeded, Class: "succeeded", Reference: "ch_1", OurReference: "other", Amount: kwd}},
		{"processing", send(t, 200, chargeJSON("processing", "")),
			acquirer.Reply{Outcome: acquirer.OutcomePending, Class: "processing", Reference: "ch_1", OurReference: sampleKey}},
		{"processing of another", send(t, 200, strings.Replace(chargeJSON("processing", ""), sampleKey, "other", 1)),
			acquirer.Reply{Class: "other_reference"}},
		{"declined", send(t, 402, chargeJSON("declined", `,"reason":"insufficient_funds"`)),
			acquirer.Reply{Outcome: acquirer.OutcomeDeclined, Class: "declined", Reference: "ch_1", OurReference: sampleKey,
				Code: "insufficient_funds", Failure: "insufficient_funds", Message: acquirer.FailureCodes["insufficient_funds"]}},
		{"declined for a reason of its own", send(t, 402, chargeJSON("declined", `,"reason":"rejected"`)),
			acquirer.Reply{Outcome: acquirer.OutcomeDeclined, Class: "declined", Reference: "ch_1", OurReference: sampleKey,
				Code: "rejected", Failure: "declined", Message: acquirer.FailureCodes["declined"]}},
		{"declined for a reason that cannot be stored", send(t, 402, chargeJSON("declined", `,"reason":"a\nb"`)),
			acquirer.Reply{Outcome: acquirer.OutcomeDeclined, Class: "declined", Reference: "ch_1", OurReference: sampleKey,
				Failure: "declined", Message: acquirer.FailureCodes["declined"]}},
		{"a decline of another", send(t, 402, strings.Replace(chargeJSON("declined", ""), sampleKey, "other", 1)),
			acquirer.Reply{Class: "other_reference"}},
		{"rejected", send(t, 401, errorJSON("unauthorized")),
			acquirer.Reply{Outcome: acquirer.OutcomeRejected, Class: "unauthorized", Code: "unauthorized", Failure: "rejected",
				Message: acquirer.FailureCodes["rejected"]}},
		{"a lookup that is refused", lookup(t, acquirer.Query{Key: sampleKey}, 401, errorJSON("unauthorized")),
			acquirer.Reply{Class: "unlisted_4xx"}},
		{"found twice", lookup(t, acquirer.Query{Key: sampleKey}, 200,
			listJSON(chargeJSON("succeeded", ""), replaced("ch_1", "ch_2"))),
			acquirer.Reply{Outcome: acquirer.OutcomeSucceeded, Class: "found_several_succeeded", Reference: "ch_1",
				OurReference: sampleKey, Amount: kwd, Also: also("ch_2")}},
		{"found often, among others", lookup(t, acquirer.Query{Key: sampleKey}, 200, listJSON(append([]string{
			chargeJSON("declined", ""), chargeJSON("succeeded", ""), chargeJSON("processing", ""), chargeJSON("succeeded", "")}, many(2, 9)...)...)),
			acquirer.Reply{Outcome: acquirer.OutcomeSucceeded, Class: "found_several_succeeded", Reference: "ch_1",
				OurReference: sampleKey, Amount: kwd, Also: also("ch_2", "ch_3", "ch_4", "ch_5", "ch_6", "ch_7", "ch_8", "ch_9")}},
		{"found more often than can be told", lookup(t, acquirer.Query{Key: sampleKey}, 200, listJSON(many(1, 10)...)),
			acquirer.Reply{Class: "found_too_many"}},
		{"found twice, one for another", lookup(t, acquirer.Query{Key: sampleKey}, 200,
			listJSON(chargeJSON("succeeded", ""), strings.Replace(replaced("ch_1", "ch_2"), sampleKey, "other", 1))),
			acquirer.Reply{Class: "other_reference"}},
		{"found, but another", lookup(t, acquirer.Query{Key: sampleKey}, 200, listJSON(replaced(sampleKey, "other"))),
			acquirer.Reply{Class: "other_reference"}},
		{"found nothing, in a list", lookup(t, acquirer.Query{Key: sampleKey}, 200, listJSON()), acquirer.Reply{Class: "unreadable"}},
		{"a call that does not exist", lookup(t, acquirer.Query{Key: sampleKey}, 404, errorJSON("no_such_call")),
			acquirer.Reply{Class: "unlisted_4xx"}},
		{"its own id is gone", lookup(t, acquirer.Query{Key: sampleKey, Reference: "ch_1"}, 404, errorJSON("not_found")),
			acquirer.Reply{Class: "id_not_found"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.Answered, tt.want.BytesWritten = true, 1
			tt.want.RawHash = tt.got.RawHash // the kit holds the hash
			for i := range tt.want.Also {
				tt.want.Also[i].RawHash = tt.got.RawHash // the same bytes say it
			}
			if diff := cmp.Diff(tt.want, tt.got, cmp.Comparer(money.Amount.Equal)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestUnreadableAnswersProveNothing damages one thing of a success at a time.
func TestUnreadableAnswersProveNothing(t *testing.T) {
	long := strings.Repeat("x", acquirer.MaxCode+1)
	bodies := map[string]string{
		"amount as text":      replaced("18600", `"18600"`),
		"amount with a point": replaced("18600", "18600.0"),
		"amount with an exp":  replaced("18600", "186e2"),
		"amount zero":         replaced("18600", "0"),
		"amount below zero":   replaced("18600", "-18600"),
		"amount over 64 bits": replaced("18600", "9223372036854775808"),
		"unknown currency":    replaced("KWD", "XXX"),
		"no currency":         replaced(`"currency":"KWD",`, ""),
		"long id":             replaced("ch_1", long),
		"unprintable id":      replaced("ch_1", `ch\u0000`),
		"wide id":             replaced("ch_1", "ch_é"),
		"long reference":      replaced(sampleKey, long),
		"no id":               replaced(`"id":"ch_1",`, ""),
		"null id":             replaced(`"ch_1"`, "null"),
		"two statuses":        replaced(`"status"`, `"status":"declined","status"`),
		"status in capitals":  replaced(`"status"`, `"Status"`),
		"not UTF-8":           replaced("ch_1", "ch_\xff"),
		"an error too":        replaced(`"status"`, `"error":{"code":"internal"},"status"`),
		"two objects":         chargeJSON("succeeded", "") + "{}",
	}
	for what, body := range bodies {
		if r := send(t, 200, body); r.Outcome != acquirer.OutcomeUnknown || r.Class != "unreadable" || !r.Amount.IsZero() {
			t.Errorf("%s: %+v", what, r)
		}
		if r := lookup(t, acquirer.Query{Key: sampleKey}, 200, listJSON(chargeJSON("succeeded", ""), body)); r.Outcome != acquirer.OutcomeUnknown {
			t.Errorf("%s in a list: %+v", what, r)
		}
	}
}

func TestCase052_AmountsKeepTheirDigits(t *testing.T) {
	for _, digits := range []string{"9007199254740993", "2932809024865746956", "9223372036854775807"} {
		r := send(t, 200, replaced("18600", digits))
		if fmt.Sprint(r.Amount.Minor()) != digits {
			t.Errorf("the acquirer says %s, we read %v", digits, r.Amount)
		}
		a, _ := scripted(t, anyURL, result(200, `{"movements":[{"id":"mv_1","charge":"ch_`+digits+`","reference":"`+sampleKey+
			`","kind":"charge","amount":`+digits+`,"currency":"USD","at":"2026-01-02T03:04:05Z"}]}`))
		found, err := a.Movements(t.Context(), time.Unix(0, 0), time.Unix(1, 0))
		if err != nil || len(found) != 1 || fmt.Sprint(found[0].Amount.Minor()) != digits || found[0].Reference != "ch_"+digits {
			t.Errorf("movement of %s: %+v, %v", digits, found, err)
		}
	}
	c := sampleCharge(sampleKey)
	c.Amount = money.Must(9007199254740993, "USD")
	a, _ := scripted(t, anyURL, wire.Result{})
	if p, err := a.Prepare(c); err != nil || !strings.Contains(string(p.Body), `"amount":9007199254740993,`) {
		t.Errorf("prepared %s, %v", p.Body, err)
	}
}

func TestCase054_LowerCaseFromTheAcquirerIsTheSameCurrency(t *testing.T) {
	for _, theirs := range []string{"kwd", "Kwd", " KWD ", "KWD"} {
		if r := send(t, 200, replaced("KWD", theirs)); r.Outcome != acquirer.OutcomeSucceeded || r.Amount != money.Must(18600, "KWD") {
			t.Errorf("%q: %+v", theirs, r)
		}
	}
	for _, theirs := range []string{"KW", "KWD\u200b", "XXX", "", "DEM", "USDT"} {
		if r := send(t, 200, replaced("KWD", theirs)); r.Outcome != acquirer.OutcomeUnknown {
			t.Errorf("%q: %+v", theirs, r)
		}
	}
}

// TestMovementsInParts: an answer that is too long is asked for in halves that meet and do not overlap.
func TestMovementsInParts(t *testing.T) {
	from, to := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), time.Date(2026, 1, 2, 0, 0, 4, 0, time.UTC)
	line := func(at string) string {
		return `{"movements":[{"id":"mv","charge":"ch","reference":"k","kind":"charge","amount":1,"currency":"USD","at":"` + at + `"}]}`
	}
	tooLong := wire.Result{Sent: wire.PartlyOrFullySent, BytesWritten: 1, Status: 200, Phase: wire.PhaseBody, Err: wire.ErrResponseTooLarge}
	a, script := scripted(t, anyURL, tooLong, result(200, line("2026-01-02T00:00:01Z")), tooLong,
		result(200, line("2026-01-02T00:00:02Z")), result(200, line("2026-01-02T00:00:03Z")))
	found, err := a.Movements(t.Context(), from, to)
	if err != nil {
		t.Fatal(err)
	}
	var seconds, asked []string
	for _, m := range found {
		seconds = append(seconds, m.At.Format("5"))
	}
	for _, call := range script.Calls() {
		asked = append(asked, call.Query.Get("from")[17:19]+"-"+call.Query.Get("to")[17:19])
	}
	if diff := cmp.Diff([]string{"1", "2", "3"}, seconds); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"00-04", "00-02", "02-04", "02-03", "03-04"}, asked); diff != "" {
		t.Error(diff)
	}
	if a, _ := scripted(t, anyURL, tooLong); a != nil {
		if found, err := a.Movements(t.Context(), from, to); err == nil || found != nil {
			t.Errorf("always too long: %v, %v", found, err)
		}
	}
}
