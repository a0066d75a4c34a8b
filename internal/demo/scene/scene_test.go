package scene

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hapaxpay/hapax/internal/sandbox"
)

// TestDemo plays everything once and holds the promise, the two incidents, and the table in docs/demo.md against it.
func TestDemo(t *testing.T) {
	r, err := Run(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := r.Print(&text); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", &text)
	if !r.OK {
		t.Error("Hapax broke its promise")
	}
	var played []string
	documented := documentedTable(t)
	for _, s := range r.Scenarios {
		played = append(played, s.Name)
		if !s.Hapax.good() || s.Hapax.Movements > 1 || s.Hapax.Untruths != 0 || len(s.Hapax.Verify) != 0 {
			t.Errorf("%s: Hapax made %d movements, told %d untruths, and left broken: %v", s.Name, s.Hapax.Movements, s.Hapax.Untruths, s.Hapax.Verify)
		}
		if s.Hapax.FinalStatus == "pending" || s.Hapax.FinalStatus == "unknown" && !s.Hapax.InReview {
			t.Errorf("%s: Hapax leaves the payment %s, and nobody is asked to decide", s.Name, s.Hapax.FinalStatus)
		}
		want := documented[s.Name]
		if got := [2]string{s.Textbook.cell(), s.Hapax.cell()}; got != [2]string{want.textbook, want.hapax} {
			t.Errorf("%s: textbook and hapax came to %q, docs/demo.md says %q", s.Name, got, want)
		}
		// On a slow machine a time-out of its own may make naive worse than its row, never better.
		if forced := strings.HasPrefix(s.Name, "hosted_"); forced && s.Naive.cell() != want.naive {
			t.Errorf("%s: naive came to %q, docs/demo.md says %q", s.Name, s.Naive.cell(), want.naive)
		} else if strings.HasPrefix(want.naive, severalTimes) && s.Naive.Movements < 2 {
			t.Errorf("%s: naive moved money %d times, docs/demo.md says %s", s.Name, s.Naive.Movements, want.naive)
		}
	}
	if diff := cmp.Diff(Names(), played); diff != "" {
		t.Errorf("scenarios (-want +got):\n%s", diff)
	}
	for _, name := range []string{"incident_1", "incident_2"} {
		if documented[name].naive != severalTimes {
			t.Errorf("docs/demo.md does not say that naive fails in %s", name)
		}
	}
	wantShape(t, r)
}

// severalTimes is the worst that a service can come to.
const severalTimes = "more than once"

// cell is short without figures, as docs/demo.md has it.
func (o Outcome) cell() string {
	words := []string{severalTimes}
	switch o.Movements {
	case 0:
		words[0] = "never"
	case 1:
		words[0] = "once"
	}
	if o.Asked > 1 {
		words = append(words, "asked twice")
	}
	if o.bookedTwice() {
		words = append(words, "booked twice")
	}
	if o.notBooked() {
		words = append(words, "not booked")
	}
	if o.Untruths > 0 {
		words = append(words, "client misled")
	}
	if o.InReview {
		words = append(words, "a person decides")
	}
	return strings.Join(words, ", ")
}

// wantShape holds the members that API.md, Command output, names.
func wantShape(t *testing.T, r Report) {
	t.Helper()
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		OK        *bool `json:"ok"`
		Scenarios []struct {
			Name  *string `json:"name"`
			Naive struct {
				Movements *int `json:"movements"`
				Gross     *int `json:"movements_gross"`
				Receipts  *int `json:"receipts"`
				Asked     *int `json:"asked"`
			} `json:"naive"`
			Hapax struct {
				FinalStatus *string `json:"final_status"`
				InReview    *bool   `json:"in_review"`
			} `json:"hapax"`
		} `json:"scenarios"`
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	for _, s := range got.Scenarios {
		if s.Name == nil || s.Naive.Movements == nil || s.Naive.Gross == nil || s.Naive.Receipts == nil || s.Naive.Asked == nil || s.Hapax.FinalStatus == nil || s.Hapax.InReview == nil {
			t.Errorf("a member is missing in %+v", s)
		}
	}
	if got.OK == nil || len(got.Scenarios) == 0 {
		t.Errorf("no verdict or no scenarios in %s", raw)
	}
}

// row is one line of the table in docs/demo.md.
type row struct{ naive, textbook, hapax string }

var tableRow = regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\| ([^|]+) \\| ([^|]+) \\| ([^|]+) \\|$")

func documentedTable(t *testing.T) map[string]row {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "demo.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]row{}
	for _, m := range tableRow.FindAllStringSubmatch(string(page), -1) {
		found[m[1]] = row{m[2], m[3], m[4]}
		if strings.Count(string(page), "`"+m[1]+"`") < 2 {
			t.Errorf("docs/demo.md has no paragraph about %s", m[1])
		}
	}
	return found
}

func TestOneScenarioAlone(t *testing.T) {
	if _, err := Run(t.Context(), Options{Only: "no such"}); err == nil {
		t.Error("a scenario that does not exist was played")
	}
}

func TestUntruths(t *testing.T) {
	paid, refused := answer{key: key1, says: saysPaid}, answer{key: key1, says: saysRefused}
	for _, c := range []struct {
		name  string
		told  []answer
		net   int
		moved map[string]int
		want  int
	}{
		{"paid, and it moved", []answer{paid}, 1, map[string]int{key1: 1}, 0},
		{"paid, and nothing moved", []answer{paid, paid}, 0, nil, 1},
		{"refused, and nothing moved", []answer{refused}, 0, nil, 0},
		{"refused, and it moved", []answer{refused, refused}, 1, map[string]int{key1: 1}, 1},
		{"refused, and another key's money moved", []answer{refused}, 1, map[string]int{key2: 1}, 0},
		{"refused, it moved, and the conflict was told", []answer{refused, {key: key2, says: saysConflict}}, 1, map[string]int{key1: 1}, 0},
		{"refused, and it was given back", []answer{refused}, 0, map[string]int{key1: 0}, 0},
		{"not known", []answer{{key: key1, says: saysOpen}}, 1, map[string]int{key1: 1}, 0},
	} {
		if got := untruths(c.told, c.net, c.moved); got != c.want {
			t.Errorf("%s: %d untruths, want %d", c.name, got, c.want)
		}
	}
}

func TestVerdictCanFail(t *testing.T) {
	for _, bad := range []Outcome{{Movements: 2}, {Movements: 1, MovementsGross: 1, Receipts: 1, Untruths: 1},
		{Movements: 1, MovementsGross: 1, Receipts: 1, Verify: []string{"I-1"}},
		{Movements: 1, MovementsGross: 1, Receipts: 1, Asked: 2}, {Movements: 1, MovementsGross: 1, Receipts: 2}, {Movements: 1, MovementsGross: 1}} {
		c := &collector{results: map[string]*Result{}}
		c.add("incident_1", "", Hapax, bad)
		c.add("incident_1", "", Naive, Outcome{Movements: 1})
		r := c.report(Names())
		if r.OK {
			t.Errorf("%+v is found good", bad)
		}
		var text bytes.Buffer
		if err := r.Print(&text); err != nil || !strings.Contains(text.String(), "BROKE") {
			t.Errorf("printed without a word about it (%v):\n%s", err, &text)
		}
	}
}

func TestReadingAnswers(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   word
	}{
		{200, `{"status":"paid"}`, saysPaid},
		{200, `{"status":"already_paid"}`, saysPaid},
		{201, `{"status":"PAID"}`, saysPaid},
		{402, `{"status":"DECLINED"}`, saysRefused},
		{422, `{"status":"FAILED"}`, saysRefused},
		{422, `{"code":"idempotency_key_reuse"}`, saysNotTaken},
		{202, `{"status":"UNKNOWN"}`, saysOpen},
		{409, `{"code":"payment_in_progress"}`, saysOpen},
		{409, `{"status":409,"code":"operation_in_progress"}`, saysOpen},
		{409, `{"status":409,"code":"already_paid"}`, saysPaid},
		{409, `{"status":409,"code":"payment_conflict"}`, saysConflict},
		{402, `{"status":"declined","conflict":true}`, saysConflict},
		{503, `{"status":503,"code":"sends_on_hold"}`, saysOpen},
		{500, `{"error":"payment failed"}`, saysError},
		{400, `not JSON`, saysNotTaken},
	} {
		if got := read(key1, c.status, []byte(c.body)); got.says != c.want {
			t.Errorf("%d %s reads as %q, want %q", c.status, c.body, got.says, c.want)
		}
	}
}

func TestCountTakesOffWhatWasGivenBack(t *testing.T) {
	net, gross, byKey := count([]sandbox.Movement{{Kind: "charge", IdempotencyKey: "a"}, {Kind: "charge", IdempotencyKey: "b"}, {Kind: "refund", IdempotencyKey: "b"},
		{Kind: "reverse", IdempotencyKey: "c", Held: true}})
	if net != 1 || gross != 2 || byKey["a"] != 1 || byKey["b"] != 0 {
		t.Errorf("net %d, gross %d, by key %v; want 1, 2, a:1 b:0", net, gross, byKey)
	}
}

func TestARepeatWithTheSameKeyIsTheSameOrder(t *testing.T) {
	wire := []sandbox.WireEntry{
		{Method: "POST", Path: "/charges/a/reverse", IdempotencyKey: "k"}, {Method: "POST", Path: "/charges/a/reverse", IdempotencyKey: "k"},
		{Method: "POST", Path: "/charges/a/reverse"}, {Method: "POST", Path: "/charges/a/reverse"},
		{Method: "GET", Path: "/charges/a/reverse", IdempotencyKey: "l"}, {Method: "POST", Path: "/sessions", IdempotencyKey: "m"},
	}
	if got := asked(wire, reversing); got != 3 {
		t.Errorf("%d orders are counted, want 3: one with a key, two without", got)
	}
}

func TestNamesAreDifferent(t *testing.T) {
	names := Names()
	slices.Sort(names)
	if len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Error(fmt.Sprint("a name is there twice: ", names))
	}
}
