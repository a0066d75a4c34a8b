package metrics_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/metrics"
	"github.com/hapaxpay/hapax/internal/store"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

const page = "../../docs/metrics.md"

func TestThePageIsTheTable(t *testing.T) {
	want := metrics.Markdown()
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/metrics.md is not the table; run go test ./internal/metrics -update:\n%s", diff)
	}
}

// fake is a store whose backlog is all different numbers.
type fake struct{ err error }

func (f fake) Backlog(context.Context) (store.Backlog, error) {
	return store.Backlog{Due: 1, InProgress: 2, Unknown: 3, OpenReviews: 4, OldestDue: 5 * time.Second, OldestUnknown: 6 * time.Second,
		OldestReviewAge: 7 * time.Second, OpenRefunds: 12, OldestRefund: 13 * time.Second, UnknownChanges: 14, OldestUnknownChange: 15 * time.Second,
		OpenCompensations: 16, OldestCompensation: 17 * time.Second, OpenDisputes: 18,
		Unnumbered: 19, OldestUnnumbered: 20 * time.Second,
		Deliveries: []store.SinkBacklog{{Sink: "endpoint", Waiting: 21, Oldest: 22 * time.Second, Failing: 23, Abandoned: 24}},
		Messages:   25, OldestMessage: 26 * time.Second, ParkedMessages: 27, UnreadableMessages: 28, UnknownMails: 29, UnsentMails: 30}, f.err
}

func (fake) Counters() store.Counters {
	return store.Counters{Retries: 8, LedgerHits: 9, CommitUnknown: 10, EpochChanges: 11}
}

// values reads every metric without labels, and those of sinks: counters and gauges by their value, histograms by their sum.
func values(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name, labels := f.GetName(), m.GetLabel()
			if len(labels) > 0 && labels[0].GetName() != "sink" {
				continue
			}
			for _, l := range labels {
				name += "/" + l.GetValue()
			}
			out[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetHistogram().GetSampleSum()
		}
	}
	return out
}

func TestEveryMetricIsInTheTableAndHasAnAlert(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	metrics.New(registry, nil)
	metrics.Watch(registry, fake{}, nil)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	index := map[string]int{}
	for n, f := range families {
		index[f.GetName()] = n
	}
	for _, r := range metrics.Table {
		n, served := index[r.Name]
		delete(index, r.Name)
		if r.Alert == "" || r.Meaning == "" {
			t.Errorf("%s has no meaning or no alert", r.Name)
		}
		if strings.HasPrefix(r.Name, "hapax_http_") { // the door's own
			continue
		}
		if !served {
			t.Errorf("%s is in the table and not served", r.Name)
			continue
		}
		f := families[n]
		if got := strings.ToLower(f.GetType().String()); got != r.Kind {
			t.Errorf("%s is a %s, the table says %s", r.Name, got, r.Kind)
		}
		if (r.Kind == "counter") != strings.HasSuffix(r.Name, "_total") {
			t.Errorf("%s: counters, and only they, end in _total", r.Name)
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		if got := strings.Join(labels, ", "); got != r.Labels {
			t.Errorf("%s has labels %q, the table says %q", r.Name, got, r.Labels)
		}
	}
	for name := range index {
		t.Errorf("%s is served and not in the table", name)
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

func TestTheBacklogIsReadOnScrape(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics.Watch(registry, fake{}, nil)
	want := map[string]float64{"hapax_backlog_readable": 1, "hapax_operations_due": 1, "hapax_operations_in_progress": 2, "hapax_payments_unknown": 3,
		"hapax_refunds_open": 12, "hapax_refunds_open_oldest_seconds": 13, "hapax_changes_unknown": 14, "hapax_changes_unknown_oldest_seconds": 15,
		"hapax_compensations_open": 16, "hapax_compensations_open_oldest_seconds": 17, "hapax_disputes_open": 18,
		"hapax_messages_waiting": 25, "hapax_messages_waiting_oldest_seconds": 26, "hapax_messages_parked": 27, "hapax_messages_unreadable": 28,
		"hapax_reviews_open": 4, "hapax_operations_due_oldest_seconds": 5, "hapax_payments_unknown_oldest_seconds": 6, "hapax_reviews_open_oldest_seconds": 7,
		"hapax_transaction_retries_total": 8, "hapax_ledger_key_hits_total": 9, "hapax_commits_unknown_total": 10, "hapax_database_changes_total": 11,
		"hapax_events_unnumbered": 19, "hapax_events_unnumbered_oldest_seconds": 20, "hapax_mails_unknown": 29, "hapax_mails_not_sent": 30}
	for _, sink := range []string{"kafka", "nats", "mail"} {
		for _, name := range []string{"waiting", "waiting_oldest_seconds", "failing", "abandoned"} {
			want["hapax_deliveries_"+name+"/"+sink] = 0
		}
	}
	want["hapax_deliveries_waiting/endpoint"], want["hapax_deliveries_waiting_oldest_seconds/endpoint"] = 21, 22
	want["hapax_deliveries_failing/endpoint"], want["hapax_deliveries_abandoned/endpoint"] = 23, 24
	if diff := cmp.Diff(want, values(t, registry)); diff != "" {
		t.Error(diff)
	}
}

func TestABacklogThatCannotBeReadIsMissing(t *testing.T) {
	registry := prometheus.NewRegistry()
	var log bytes.Buffer
	metrics.Watch(registry, fake{errors.New("the database is away")}, slog.New(slog.NewTextHandler(&log, nil)))
	got := values(t, registry)
	if v, told := got["hapax_backlog_readable"]; !told || v != 0 {
		t.Error("hapax_backlog_readable is not 0")
	}
	if _, told := got["hapax_payments_unknown"]; told {
		t.Error("a figure is told that was not read")
	}
	if _, told := got["hapax_ledger_key_hits_total"]; !told {
		t.Error("the process's own counters are missing")
	}
	if !strings.Contains(log.String(), "the database is away") {
		t.Errorf("the log says %q", &log)
	}
}

func TestAnAlarmIsCountedAndLogged(t *testing.T) {
	registry := prometheus.NewRegistry()
	var log bytes.Buffer
	w := metrics.New(registry, slog.New(slog.NewTextHandler(&log, nil)))
	x := id.ID{15: 1}
	w.Alarm("unapplied_money", x.String(), x.String(), id.ID{}.String())
	w.Alarm("something new", x.String(), "", "")
	for _, want := range []string{"reason=unapplied_money merchant=" + x.Text(id.Merchant) + " intent=" + x.Text(id.Intent) + "\n", `reason="something new"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, &log)
		}
	}
	want := `# HELP hapax_alarms_total ` + helpOf(t, "hapax_alarms_total") + `
# TYPE hapax_alarms_total counter
hapax_alarms_total{reason="key_used_with_other_parameters"} 0
hapax_alarms_total{reason="other"} 1
hapax_alarms_total{reason="unapplied_money"} 1
hapax_alarms_total{reason="unreadable_message"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "hapax_alarms_total"); err != nil {
		t.Error(err)
	}
}

func helpOf(t *testing.T, name string) string {
	t.Helper()
	for _, r := range metrics.Table {
		if r.Name == name {
			return r.Meaning
		}
	}
	t.Fatalf("%s is not in the table", name)
	return ""
}

func TestSettledIsNeverNegative(t *testing.T) {
	registry := prometheus.NewRegistry()
	w := metrics.New(registry, nil)
	w.Settled(-time.Second)
	w.Settled(3 * time.Second)
	if sum := values(t, registry)["hapax_settled_after_lease_seconds"]; sum != 3 {
		t.Errorf("the sum is %v, want 3", sum)
	}
}

// TestEverythingThatIsCountedHasAMetric reads the engine and the flows: what they count must not end in "other".
func TestEverythingThatIsCountedHasAMetric(t *testing.T) {
	registry := prometheus.NewRegistry()
	w := metrics.New(registry, slog.New(slog.DiscardHandler))
	told := 0
	for method, names := range toldNames(t) {
		for _, name := range names {
			told++
			switch method {
			case "Count":
				w.Count(name)
			case "Alarm":
				if !slices.Contains(metrics.Alarms, name) {
					t.Errorf("the alarm %q has no reason of its own", name)
				}
			}
		}
	}
	if told < 10 {
		t.Errorf("only %d names were found: the search is broken", told)
	}
	if n := values(t, registry)["hapax_uncounted_total"]; n != 0 {
		t.Errorf("%v names are counted that no metric stands for: %v", n, toldNames(t)["Count"])
	}
}

// toldNames finds the first argument of every watch.Count and watch.Alarm in the code.
func toldNames(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, dir := range []string{"../operation", "../flow", "../sweep", "../intake"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) == 0 {
					return true
				}
				method, ok := call.Fun.(*ast.SelectorExpr)
				on, isField := selectorOf(method)
				literal, isText := call.Args[0].(*ast.BasicLit)
				if ok && isField && on == "watch" && isText {
					if name, err := strconv.Unquote(literal.Value); err == nil {
						found[method.Sel.Name] = append(found[method.Sel.Name], name)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

func selectorOf(method *ast.SelectorExpr) (string, bool) {
	if method == nil {
		return "", false
	}
	field, ok := method.X.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	return field.Sel.Name, true
}

func TestRefusedMessagesAreCountedByReason(t *testing.T) {
	registry := prometheus.NewRegistry()
	w := metrics.New(registry, nil)
	w.Refused("too_old")
	w.Refused("a reason that is not listed")
	w.Skew(-7 * time.Second)
	if got := values(t, registry); got["hapax_uncounted_total"] != 1 || got["hapax_messages_skew_seconds"] != 7 {
		t.Errorf("counted %v", got)
	}
	want := "# HELP hapax_messages_refused_total " + helpOf(t, "hapax_messages_refused_total") + "\n# TYPE hapax_messages_refused_total counter\n"
	for _, reason := range []string{"malformed", "mismatch", "missing", "other", "too_new", "too_old"} {
		want += `hapax_messages_refused_total{reason="` + reason + `"} ` + map[bool]string{true: "1", false: "0"}[reason == "too_old"] + "\n"
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "hapax_messages_refused_total"); err != nil {
		t.Error(err)
	}
}
