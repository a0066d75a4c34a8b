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

func TestSettingsDeclareTheContract(t *testing.T) {
	for _, tt := range []struct {
		name, contract string
		change         func(*acquirer.Contract)
	}{
		{"default", `{}`, func(*acquirer.Contract) {}},
		{"unique reference", `{"identity":"reference","key_window":"720h"}`, func(c *acquirer.Contract) {
			c.Identity, c.KeyWindow = acquirer.IdentityReference, 720*time.Hour
		}},
		{"neither, no lookup", `{"identity":"none","lookup_by_key":false,"lookup_by_reference":false,"not_found_final":false}`,
			func(c *acquirer.Contract) {
				c.Identity, c.LookupByKey, c.LookupByReference, c.NotFoundFinal = acquirer.IdentityNone, false, false, false
			}},
		{"everything else", `{"remembers_refusals":false,"before_execution":["malformed"],"max_flight":"1m30s","max_processing":"0s",
			"lookup_lag":"50ms","lists_movements":false,"parallel":3,"repeat_budget":2}`, func(c *acquirer.Contract) {
			c.RemembersRefusals, c.BeforeExecution, c.MaxFlight, c.MaxProcessing = false, []string{"malformed"}, 90*time.Second, 0
			c.LookupLag, c.ListsMovements, c.Parallel, c.RepeatBudget = 50*time.Millisecond, false, 3, 2
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

// TestLookupAsksAsTheContractAllows reads the question.
func TestLookupAsksAsTheContractAllows(t *testing.T) {
	const onlyKey, onlyReference, none = `{"lookup_by_reference":false}`, `{"lookup_by_key":false}`,
		`{"lookup_by_key":false,"lookup_by_reference":false,"not_found_final":false}`
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
	} {
		a, script := scripted(t, `{"url":"http://127.0.0.1:9","contract":`+tt.contract+`}`, wire.Result{})
		a.Lookup(t.Context(), tt.query)
		got := ""
		for _, call := range script.Calls() {
			got += call.Path + "?" + call.Query.Encode()
		}
		if got != tt.want {
			t.Errorf("%s, %+v: asks %q, want %q", tt.contract, tt.query, got, tt.want)
		}
	}
}
