package payment_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hapaxpay/hapax/internal/payment"
)

var update = flag.Bool("update", false, "write the state pictures anew")

// protocolTable is the table of PROTOCOL section 4, copied by hand.
var protocolTable = []payment.Transition{
	{From: "pending", By: "session open, with address", To: "registered"},
	{From: "unknown", By: "session open, with address", To: "registered"},
	{From: "pending", By: "funds held", To: "authorized"},
	{From: "unknown", By: "funds held", To: "authorized"},
	{From: "pending", By: "money taken", To: "paid"},
	{From: "unknown", By: "money taken", To: "paid"},
	{From: "pending", By: "refused, final", To: "declined"},
	{From: "unknown", By: "refused, final", To: "declined"},
	{From: "pending", By: "proven not executed", To: "failed"},
	{From: "unknown", By: "proven not executed", To: "failed"},
	{From: "pending", By: "session closed unpaid", To: "canceled"},
	{From: "unknown", By: "session closed unpaid", To: "canceled"},

	{From: "pending", By: "no proof", To: "unknown"},

	{From: "registered", By: "funds held", To: "authorized"},
	{From: "registered", By: "money taken", To: "paid"},
	{From: "registered", By: "session closed unpaid", To: "canceled"},
	{From: "registered", By: "acquirer's final error", To: "failed"},

	{From: "pending", By: "cancel claimed", To: "canceling"},
	{From: "registered", By: "cancel claimed", To: "canceling"},
	{From: "unknown", By: "cancel claimed", To: "canceling"},
	{From: "authorized", By: "cancel claimed", To: "canceling"},

	{From: "authorized", By: "last capture, or release of the rest after a capture", To: "paid"},
	{From: "authorized", By: "hold released uncaptured", To: "canceled"},

	{From: "canceling", By: "reversal proven, or session confirmed closed", To: "canceled"},
	// "the state that a fresh lookup proves"
	{From: "canceling", By: "reversal finally refused, hold stands", To: "authorized"},
	{From: "canceling", By: "reversal finally refused, money taken", To: "paid"},
	{From: "canceling", By: "reversal finally refused, session open", To: "registered"},
}

func TestTableIsTheProtocols(t *testing.T) {
	for _, want := range protocolTable {
		if !slices.Contains(payment.Table, want) {
			t.Errorf("missing: %+v", want)
		}
	}
	for _, have := range payment.Table {
		if !slices.Contains(protocolTable, have) {
			t.Errorf("not in the protocol: %+v", have)
		}
	}
	if len(payment.Table) != len(protocolTable) {
		t.Errorf("%d rows, want %d", len(payment.Table), len(protocolTable))
	}
}

func causes() []payment.Cause {
	var all []payment.Cause
	for _, row := range payment.Table {
		if !slices.Contains(all, row.By) {
			all = append(all, row.By)
		}
	}
	return append(all, "a cause that does not exist")
}

// Nothing leaves a final state, each cause leads to one state, and a cause without a row moves nothing.
func TestNextFollowsTheTable(t *testing.T) {
	final := map[payment.Status]bool{"paid": true, "declined": true, "failed": true, "canceled": true}
	for _, from := range payment.Statuses {
		if from.Final() != final[from] || from.Open() == final[from] || from.Refusal() != (final[from] && from != "paid") {
			t.Errorf("%s: final %v, open %v, refusal %v", from, from.Final(), from.Open(), from.Refusal())
		}
		for _, by := range causes() {
			var to []payment.Status
			for _, row := range protocolTable {
				if row.From == from && row.By == by {
					to = append(to, row.To)
				}
			}
			got, moved := from.Next(by)
			switch {
			case len(to) > 1:
				t.Errorf("%s by %q leads to %q", from, by, to)
			case len(to) == 0 && (moved || got != from):
				t.Errorf("%s by %q leads to %s, want nowhere", from, by, got)
			case len(to) == 1 && (!moved || got != to[0]):
				t.Errorf("%s by %q leads to %s, want %s", from, by, got, to[0])
			case moved && from.Final():
				t.Errorf("%s is final, but %q leaves it", from, by)
			}
		}
	}
}

// Every state can be reached, and from every open state a final one.
func TestEveryStateEnds(t *testing.T) {
	for _, from := range payment.Statuses {
		reached := map[payment.Status]bool{from: true}
		for range payment.Statuses {
			for _, row := range payment.Table {
				reached[row.To] = reached[row.To] || reached[row.From]
			}
		}
		ends := slices.ContainsFunc(payment.Statuses, func(s payment.Status) bool { return reached[s] && s.Final() })
		if !ends {
			t.Errorf("%s never ends", from)
		}
		for _, to := range payment.Statuses {
			if from == payment.Pending && !reached[to] {
				t.Errorf("%s is never reached", to)
			}
		}
	}
}

func quoted(states []payment.Status) string {
	var words []string
	for _, s := range states {
		words = append(words, "'"+string(s)+"'")
	}
	return strings.Join(words, ", ")
}

// The CHECKs of the schema list the same states as the table (P3), and the same refusals free the intent (P1).
func TestSchemaHasTheSameStates(t *testing.T) {
	sql, err := os.ReadFile("../store/migrations/0001_core.sql")
	if err != nil {
		t.Fatal(err)
	}
	flat := regexp.MustCompile(`\s+`).ReplaceAllString(string(sql), " ")
	refused := slices.DeleteFunc(slices.Clone(payment.Statuses), func(s payment.Status) bool { return !s.Refusal() })
	for _, want := range []string{
		"CONSTRAINT payment_status CHECK (status IN (" + quoted(payment.Statuses) + "))",
		"CONSTRAINT payment_refused CHECK ((refused_at IS NOT NULL) = (status IN (" + quoted(refused) + ")))",
		"ON payment (merchant_id, intent_id) WHERE refused_at IS NULL",
	} {
		if !strings.Contains(flat, want) {
			t.Errorf("the schema does not say: %s", want)
		}
	}
}

// picture is the state diagram of the table, in Mermaid.
func picture() string {
	var b strings.Builder
	b.WriteString("%% Written by the tests of internal/payment from its table: go test ./internal/payment -run Picture -update\n")
	b.WriteString("stateDiagram-v2\n    [*] --> pending\n")
	for _, row := range payment.Table {
		fmt.Fprintf(&b, "    %s --> %s: %s\n", row.From, row.To, row.By)
	}
	for _, s := range payment.Statuses {
		if s.Final() {
			fmt.Fprintf(&b, "    %s --> [*]\n", s)
		}
	}
	return b.String()
}

const pictureFile = "../../docs/states/payment.mmd"

func TestPictureIsTheTables(t *testing.T) {
	want := picture()
	if *update {
		if err := os.WriteFile(pictureFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(pictureFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != want {
		t.Errorf("%s is not what the table says; write it anew with -update", pictureFile)
	}
}
