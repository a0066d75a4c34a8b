package docstest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	glossaryWord = regexp.MustCompile(`(?m)^- \*\*([^*]+)\*\*: \S`)
	bold         = regexp.MustCompile(`\*\*([^*]+)\*\*`)
	protocolWord = regexp.MustCompile(`(?m)^\| ([^|]+) \| [^|]+ \|$`)
)

// section gives the text of a page between a heading and the next one of the same level.
func section(t *testing.T, text, title string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n## "+title+"\n")
	if !found {
		t.Fatalf("there is no section %q", title)
	}
	body, _, _ := strings.Cut(rest, "\n## ")
	return body
}

// TestGlossary: each word has one meaning, and every word of the protocol's own list has one.
func TestGlossary(t *testing.T) {
	text := read(t, "docs/glossary.md")
	var words []string
	for _, m := range glossaryWord.FindAllStringSubmatch(text, -1) {
		if slices.Contains(words, m[1]) {
			t.Errorf("the glossary explains %q twice", m[1])
		}
		words = append(words, m[1])
	}
	if n := len(bold.FindAllString(text, -1)); n != len(words) {
		t.Errorf("%d words are bold, and %d are explained", n, len(words))
	}
	for _, m := range protocolWord.FindAllStringSubmatch(section(t, read(t, "docs/protocol.md"), "1. Words"), -1) {
		for _, word := range strings.Split(m[1], ", ") {
			if word != "word" && word != "---" && !slices.Contains(words, word) {
				t.Errorf("the glossary does not explain %q, which the protocol does", word)
			}
		}
	}
}

const invariants = 19

// TestGuarantees: each invariant of the protocol has its section, with what it means, what enforces it, what shows it
// and how it is checked.
func TestGuarantees(t *testing.T) {
	protocol, text := read(t, "docs/protocol.md"), read(t, "docs/guarantees.md")
	for n := 1; n <= invariants; n++ {
		id := fmt.Sprintf("I-%d", n)
		if !strings.Contains(protocol, "| "+id+" |") {
			t.Errorf("the protocol has no %s", id)
		}
		m := regexp.MustCompile(`(?ms)^### ` + id + `: .*?(\n##|\z)`).FindString(text)
		for _, part := range []string{"- Enforced by: ", "- Shown by: ", "- Checked by: "} {
			if !strings.Contains(m, part) {
				t.Errorf("docs/guarantees.md: %s has no line that begins with %q", id, part)
			}
		}
	}
	if strings.Contains(protocol, fmt.Sprintf("| I-%d |", invariants+1)) {
		t.Error("the protocol has more invariants than this test knows")
	}
}

var (
	cited    = regexp.MustCompile(`PROTOCOL ((?:[A-Z]\d+|I-\d+|section \d+)(?:(?: and |, )(?:[A-Z]\d+|I-\d+|section \d+))*)`)
	ruleName = regexp.MustCompile(`[A-Z]\d+|I-\d+|section \d+`)
)

// TestRules: every rule that a comment cites is in the protocol.
func TestRules(t *testing.T) {
	protocol := read(t, "docs/protocol.md")
	known := func(rule string) bool {
		number, isSection := strings.CutPrefix(rule, "section ")
		switch {
		case isSection:
			return strings.Contains(protocol, "\n## "+number+". ")
		case strings.HasPrefix(rule, "I-"):
			return strings.Contains(protocol, "\n| "+rule+" |")
		}
		return strings.Contains(protocol, "\n- "+rule+" ")
	}
	found := 0
	check := func(name, text string) {
		for _, m := range cited.FindAllStringSubmatch(text, -1) {
			for _, rule := range ruleName.FindAllString(m[1], -1) {
				if found++; !known(rule) {
					t.Errorf("%s cites PROTOCOL %s, which does not exist", name, rule)
				}
			}
		}
	}
	files(t, ".go", check)
	files(t, ".sql", check)
	if found < 50 {
		t.Errorf("only %d citations were found", found)
	}
}

var (
	created    = regexp.MustCompile(`(?m)^CREATE TABLE (?:IF NOT EXISTS )?(\w+) \(`)
	tableTitle = regexp.MustCompile("^((?:`\\w+`(?: \\(append-only\\))?(?:, )?)+):")
)

// TestTables: ARCHITECTURE.md lists every table, and nothing else.
func TestTables(t *testing.T) {
	var real, listed []string
	files(t, ".sql", func(name, text string) {
		if strings.HasPrefix(name, "internal/store/migrations/") {
			for _, m := range created.FindAllStringSubmatch(text, -1) {
				real = append(real, m[1])
			}
		}
	})
	for _, item := range strings.Split(section(t, read(t, "ARCHITECTURE.md"), "The tables"), "\n- ")[1:] {
		listed = append(listed, spans(tableTitle.FindString(item))...)
	}
	slices.Sort(real)
	slices.Sort(listed)
	if !slices.Equal(real, listed) {
		t.Errorf("ARCHITECTURE.md lists\n%v, the migrations make\n%v", listed, real)
	}
}

var metricName = regexp.MustCompile(`\bhapax_(?:[a-z]+_)+(?:total|seconds|open|unknown|due|progress|readable)\b`)

// TestMetricNames: every metric that a page names is in the table of metrics.
func TestMetricNames(t *testing.T) {
	table := read(t, "docs/metrics.md")
	for _, p := range pages(t) {
		for _, name := range append(metricName.FindAllString(p.text, -1), spansWith(p, "hapax_")...) {
			role := name == "hapax_owner" || name == "hapax_service" || name == "hapax_console"
			if !role && !strings.Contains(table, "| `"+name+"` |") {
				t.Errorf("%s: there is no metric %s", p.path, name)
			}
		}
	}
}

func spansWith(p page, prefix string) (found []string) {
	for _, s := range spans(p.prose()) {
		if strings.HasPrefix(s, prefix) {
			found = append(found, s)
		}
	}
	return found
}
