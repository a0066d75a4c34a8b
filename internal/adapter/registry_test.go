package adapter

import (
	"context"
	"strings"
	"testing"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/acquirertest"
	"github.com/hapaxpay/hapax/acquirer/wire"
)

const testSettings = `{"url":"http://127.0.0.1:1","contract":{"repeat_budget":2}}`

func TestKnownContractsAreDeclared(t *testing.T) {
	known := Known()
	for i, c := range known {
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
		if i > 0 && known[i-1].Name >= c.Name {
			t.Errorf("%s comes after %s", c.Name, known[i-1].Name)
		}
		settings := []byte(`{"url":"http://127.0.0.1:1"}`)
		a, err := Open(c.Name, settings, []byte(`{"secret":"hush"}`), Options{})
		if err != nil || a.Contract().Name != c.Name {
			t.Errorf("%s cannot be opened: %v", c.Name, err)
		}
	}
}

func TestOpenUsesSettingsAndDoer(t *testing.T) {
	script := &acquirertest.Script{}
	a, err := Open("sandbox", []byte(testSettings), []byte(`{"secret":"hush"}`), Options{Doer: script})
	if err != nil {
		t.Fatal(err)
	}
	a.Lookup(t.Context(), acquirer.Query{Key: "k"})
	calls := script.Calls()
	if a.Contract().MaxSends() != 2 || len(calls) != 1 || calls[0].Header.Get("Authorization") != "Bearer hush" {
		t.Errorf("contract %+v, calls %+v", a.Contract(), calls)
	}
}

func TestOpenMakesItsOwnTransport(t *testing.T) {
	a, err := Open("sandbox", []byte(testSettings), []byte(`{"secret":"hush"}`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	// A real transport refuses this without opening a connection.
	if r := a.Lookup(wire.ForbidNetwork(context.Background()), acquirer.Query{Key: "k"}); r.Class != "in_transaction" {
		t.Errorf("%+v", r)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, tt := range [][3]string{
		{"nobody", testSettings, `{"secret":"hush"}`},
		{"sandbox", `{}`, `{"secret":"hush"}`},
		{"sandbox", `{"url":"ftp://127.0.0.1"}`, `{"secret":"hush"}`},
		{"sandbox", `{"url":"http://user:hush@127.0.0.1"}`, `{"secret":"x"}`},
		{"sandbox", testSettings, `hush`},
	} {
		a, err := Open(tt[0], []byte(tt[1]), []byte(tt[2]), Options{})
		if err == nil || a != nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%v: %v, %v", tt, a, err)
		}
	}
}
