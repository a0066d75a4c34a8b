package sandbox_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/adapter/sandbox"
)

// others changes what the contract says of the calls beside a charge.
func others(c *acquirer.Contract, change func(acquirer.Action, *acquirer.Terms)) {
	for action, terms := range c.Others {
		change(action, &terms)
		c.Others[action] = terms
	}
}

func TestSettingsDeclareTheContract(t *testing.T) {
	for _, tt := range []struct {
		name, contract string
		change         func(*acquirer.Contract)
	}{
		{"default", `{}`, func(*acquirer.Contract) {}},
		{"unique reference", `{"identity":"reference","key_window":"720h"}`, func(c *acquirer.Contract) {
			c.Identity, c.KeyWindow = acquirer.IdentityReference, 720*time.Hour
			others(c, func(a acquirer.Action, terms *acquirer.Terms) {
				if a != acquirer.ActionClose { // closing is safe to repeat by its nature
					terms.Identity, terms.KeyWindow = acquirer.IdentityReference, 720*time.Hour
				}
			})
		}},
		{"neither, no lookup", `{"identity":"none","key_window":"0s","lookup_by_key":false,"lookup_by_reference":false,"not_found_final":false}`,
			func(c *acquirer.Contract) {
				c.Identity, c.KeyWindow, c.LookupByKey, c.LookupByReference, c.NotFoundFinal = acquirer.IdentityNone, 0, false, false, false
				others(c, func(a acquirer.Action, terms *acquirer.Terms) {
					terms.LookupByKey, terms.LookupByReference, terms.NotFoundFinal = false, false, false
					if a != acquirer.ActionClose {
						terms.Identity, terms.KeyWindow = acquirer.IdentityNone, 0
					}
				})
			}},
		{"everything else", `{"remembers_refusals":false,"before_execution":["malformed"],"max_flight":"1m30s","max_processing":"0s",
			"lookup_lag":"50ms","lookup_kept":"48h","lists_movements":false,"parallel":3,"repeat_budget":2,"hold_life":"1h",
			"several_captures":false,"partial_refunds":false,"reverse_captured":"0s","session_life":"5m","page_by_address":true}`,
			func(c *acquirer.Contract) {
				c.RemembersRefusals, c.BeforeExecution, c.MaxFlight, c.MaxProcessing = false, []string{"malformed"}, 90*time.Second, 0
				c.LookupLag, c.LookupKept, c.ListsMovements, c.Parallel, c.RepeatBudget = 50*time.Millisecond, 48*time.Hour, false, 3, 2
				c.HoldLife, c.SeveralCaptures, c.PartialRefunds, c.ReverseCaptured = time.Hour, false, false, 0
				c.SessionLife, c.PageByAddress = 5*time.Minute, true
				others(c, func(_ acquirer.Action, terms *acquirer.Terms) {
					terms.RemembersRefusals, terms.BeforeExecution, terms.MaxProcessing = false, []string{"malformed"}, 0
					terms.LookupLag, terms.LookupKept = 50*time.Millisecond, 48*time.Hour
				})
			}},
		{"sales and pages only", `{"holds":false,"offers":["charge","session"]}`, func(c *acquirer.Contract) {
			c.Holds, c.ReverseCaptured = false, 0
			c.Others = map[acquirer.Action]acquirer.Terms{acquirer.ActionSession: c.Others[acquirer.ActionSession]}
		}},
		{"one call differs", `{"lookup_lag":"1s","refund":{"identity":"none","lookup_by_key":false,"lookup_by_reference":false,
			"not_found_final":false,"max_processing":"72h","before_execution":["not_found","malformed"]},"close":{"identity":"none"}}`,
			func(c *acquirer.Contract) {
				c.LookupLag = time.Second
				others(c, func(a acquirer.Action, terms *acquirer.Terms) {
					terms.LookupLag = time.Second
					switch a {
					case acquirer.ActionClose:
						terms.Identity = acquirer.IdentityNone
					case acquirer.ActionRefund:
						terms.Identity, terms.LookupByKey, terms.LookupByReference, terms.NotFoundFinal = acquirer.IdentityNone, false, false, false
						terms.MaxProcessing, terms.BeforeExecution = 72*time.Hour, []string{"malformed", "not_found"}
					}
				})
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := sandbox.ParseSettings([]byte(`{"url":"http://127.0.0.1:9","contract":` + tt.contract + `}`))
			if err != nil {
				t.Fatal(err)
			}
			want := sandbox.DefaultContract()
			tt.change(&want)
			if tt.contract != `{}` {
				want.Source += ", changed by the account's settings"
			}
			if diff := cmp.Diff(want, s.Contract); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestDefaultTermsOfEveryCall reads what is promised for the calls beside a charge.
func TestDefaultTermsOfEveryCall(t *testing.T) {
	c := sandbox.DefaultContract()
	for _, action := range []acquirer.Action{acquirer.ActionSession, acquirer.ActionCapture, acquirer.ActionReverse,
		acquirer.ActionClose, acquirer.ActionRefund} {
		terms := c.For(action)
		if !c.Offers(action) || !terms.Repeatable() || terms.KeyWindow != 24*time.Hour || !terms.CanLookup() || !terms.NotFoundFinal {
			t.Errorf("%s: %+v", action, terms)
		}
		if upon := action != acquirer.ActionSession; terms.ProvesNotExecuted("not_found") != upon || !terms.ProvesNotExecuted("malformed") {
			t.Errorf("%s: codes answered before execution: %v", action, terms.BeforeExecution)
		}
	}
	if len(c.Others) != 5 || c.ProvesNotExecuted("not_found") || !c.Holds || c.HoldLife != 7*24*time.Hour || !c.SeveralCaptures ||
		!c.PartialRefunds || c.ReverseCaptured != 24*time.Hour || c.SessionLife != time.Hour || c.PageByAddress {
		t.Errorf("%+v", c)
	}
}

// TestContractIsNobodysToChange: what one caller does to the contract that it was given, another does not see.
func TestContractIsNobodysToChange(t *testing.T) {
	a, _ := scripted(t, anyURL, wire.Result{})
	mine := a.Contract()
	mine.BeforeExecution[0] = "spoiled"
	mine.Others[acquirer.ActionRefund].BeforeExecution[0] = "spoiled"
	delete(mine.Others, acquirer.ActionSession)
	if diff := cmp.Diff(sandbox.DefaultContract(), a.Contract()); diff != "" {
		t.Error(diff)
	}
}

func TestSettingsAreRead(t *testing.T) {
	for _, bad := range []string{
		``, `null`, `[]`, `{}`, `{"url":""}`, `{"url":5}`, `{"url":"http://a b"}`, `{"url":"http://a","URL":"http://b"}`,
		`{"url":"http://a","url":"http://b"}`, `{"url":"http://a"}{}`, `{"url":"http://a","more":1}`,
		`{"url":"http://a","contract":null}`, `{"url":"http://a","contract":{"identity":"keys"}}`,
		`{"url":"http://a","contract":{"key_window":86400}}`, `{"url":"http://a","contract":{"key_window":"-1s"}}`,
		`{"url":"http://a","contract":{"key_window":"0s"}}`, `{"url":"http://a","contract":{"key_window":"200000h"}}`,
		`{"url":"http://a","contract":{"lookup_by_key":"true"}}`, `{"url":"http://a","contract":{"lookup_by_key":null}}`,
		`{"url":"http://a","contract":{"lookup_by_key":false,"lookup_by_reference":false}}`, // "not found" is final
		`{"url":"http://a","contract":{"before_execution":["declined"]}}`, `{"url":"http://a","contract":{"before_execution":null}}`,
		`{"url":"http://a","contract":{"before_execution":["malformed","malformed"]}}`,
		`{"url":"http://a","contract":{"repeat_budget":0}}`, `{"url":"http://a","contract":{"repeat_budget":1.0}}`,
		`{"url":"http://a","contract":{"repeat_budget":17}}`, `{"url":"http://a","contract":{"name":"x"}}`,
		`{"url":"http://a","contract":{"offers":["session"]}}`, `{"url":"http://a","contract":{"offers":["charge","charge"]}}`,
		`{"url":"http://a","contract":{"offers":["charge","chargeback"]}}`, `{"url":"http://a","contract":{"offers":null}}`,
		`{"url":"http://a","contract":{"offers":["charge"],"refund":{}}}`, `{"url":"http://a","contract":{"refund":null}}`,
		`{"url":"http://a","contract":{"refund":{"max_flight":"1s"}}}`, `{"url":"http://a","contract":{"refund":{"key_window":"0s"}}}`,
		`{"url":"http://a","contract":{"charge":{}}}`, `{"url":"http://a","contract":{"refund":{"identity":"key","identity":"key"}}}`,
		`{"url":"http://a","contract":{"offers":["charge","refund"],"reverse_captured":"1h"}}`,
		`{"url":"http://a","contract":{"capture":{"lookup_by_key":false,"lookup_by_reference":false}}}`,
	} {
		if s, err := sandbox.ParseSettings([]byte(bad)); err == nil {
			t.Errorf("%s is read as %+v", bad, s)
		}
	}
}

func TestSecretsStayOutOfErrors(t *testing.T) {
	s, err := sandbox.ParseSettings([]byte(anyURL))
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{``, `hush`, `"hush"`, `{}`, `{"secret":""}`, `{"secret":"hush hush"}`, `{"secret":5}`,
		`{"secret":"hush","hush":1}`, `{"secret":"hush","secret":"hush2"}`, `{"secret":"` + strings.Repeat("hush", 1000) + `"}`} {
		a, err := sandbox.New(s, []byte(bad), nil)
		if err == nil || a != nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%.40s: %v, %v", bad, a, err)
		}
	}
}

// TestSignedWebhooksNeedTheirSecret: a rotation that forgets it is refused, where the account says that it wants signatures.
func TestSignedWebhooksNeedTheirSecret(t *testing.T) {
	for settings, good := range map[string]bool{`,"webhooks":"signed"`: false, `,"webhooks":"hint"`: true, ``: true} {
		s, err := sandbox.ParseSettings([]byte(`{"url":"http://127.0.0.1:1"` + settings + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sandbox.New(s, []byte(`{"secret":"s"}`), nil); (err == nil) != good {
			t.Errorf("%s: %v", settings, err)
		}
		if _, err := sandbox.New(s, []byte(signedBy(hookSecret.Text())), nil); err != nil {
			t.Errorf("%s: %v", settings, err)
		}
	}
}

// TestLookupAsksAsTheContractAllows reads the question.
func TestLookupAsksAsTheContractAllows(t *testing.T) {
	const onlyKey, onlyReference, none = `{"lookup_by_reference":false}`, `{"lookup_by_key":false}`,
		`{"lookup_by_key":false,"lookup_by_reference":false,"not_found_final":false}`
	const session, capture, reverse, closing, refund = acquirer.ActionSession, acquirer.ActionCapture, acquirer.ActionReverse,
		acquirer.ActionClose, acquirer.ActionRefund
	for _, tt := range []struct {
		contract string
		query    acquirer.Query
		want     string
	}{
		{`{}`, acquirer.Query{Key: "k"}, "/charges?reference=k"},
		{onlyReference, acquirer.Query{Key: "k"}, "/charges?reference=k"},
		{onlyKey, acquirer.Query{Key: "k"}, "/charges?idempotency_key=k"},
		{onlyKey, acquirer.Query{Key: "k", Reference: "ch/1"}, "/charges/ch%2F1?"},
		{none, acquirer.Query{Key: "k", Reference: "ch_1"}, ""},
		{`{}`, acquirer.Query{}, ""},
		{`{}`, acquirer.Query{Key: "k", Reference: ".."}, ""},
		{`{}`, acquirer.Query{Action: acquirer.ActionCharge, Key: "k"}, "/charges?reference=k"},
		{`{}`, acquirer.Query{Action: acquirer.ActionChargeback, Key: "k", Reference: "cb_1"}, ""},

		{`{}`, acquirer.Query{Action: session, Key: "k"}, "/sessions?reference=k"},
		{onlyKey, acquirer.Query{Action: session, Key: "k"}, "/sessions?idempotency_key=k"},
		{`{}`, acquirer.Query{Action: session, Key: "k", Reference: "cs_1"}, "/sessions/cs_1?"},
		{`{}`, acquirer.Query{Action: session, Key: "k", Reference: "ch_1"}, "/charges/ch_1?"}, // it was paid
		{`{}`, acquirer.Query{Action: capture, Key: "k", Object: "ch_1"}, "/captures?reference=k"},
		{`{}`, acquirer.Query{Action: capture, Key: "k", Object: "ch_1", Reference: "cp_1"}, "/captures/cp_1?"},
		{`{}`, acquirer.Query{Action: capture, Object: "ch_1"}, ""},
		{`{}`, acquirer.Query{Action: reverse, Key: "k", Object: "ch_1"}, "/reversals?reference=k"},
		{onlyKey, acquirer.Query{Action: refund, Key: "k", Object: "ch_1"}, "/refunds?idempotency_key=k"},
		{`{"refund":` + none + `}`, acquirer.Query{Action: refund, Key: "k", Object: "ch_1"}, ""},
		{`{"refund":` + none + `}`, acquirer.Query{Key: "k"}, "/charges?reference=k"},
		{`{"offers":["charge"]}`, acquirer.Query{Action: refund, Key: "k"}, ""},
		{`{}`, acquirer.Query{Action: closing, Key: "k", Object: "cs_1"}, "/sessions/cs_1?"},
		{`{}`, acquirer.Query{Action: closing, Key: "k", Reference: "cs_1"}, "/sessions/cs_1?"},
		{`{}`, acquirer.Query{Action: closing, Key: "k"}, "/sessions?reference=k"},
	} {
		a, script := scripted(t, `{"url":"http://127.0.0.1:9","contract":`+tt.contract+`}`, wire.Result{})
		r := a.Lookup(t.Context(), tt.query)
		got := ""
		for _, call := range script.Calls() {
			got += call.Path + "?" + call.Query.Encode()
		}
		if got != tt.want || r.Outcome != acquirer.OutcomeUnknown || r.Class == "" {
			t.Errorf("%s, %+v: asks %q, want %q; %v %s", tt.contract, tt.query, got, tt.want, r.Outcome, r.Class)
		}
	}
}
