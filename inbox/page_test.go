package inbox_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/hapaxpay/hapax/inbox"
)

var block = regexp.MustCompile("(?ms)^```(go|sql)\n(.*?)^```")

// TestConsumersPage: docs/consumers.md shows the tables as they are, SQL that runs, and Go that stands in the examples.
func TestConsumersPage(t *testing.T) {
	page, err := os.ReadFile("../docs/consumers.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), inbox.Schema) {
		t.Error("the page shows other tables")
	}
	w := newWorld(t)
	ran := 0
	for _, m := range block.FindAllStringSubmatch(string(page), -1) {
		switch {
		case m[1] == "sql":
			w.exec(m[2])
			ran++
		case !strings.Contains(flat(string(example)), flat(m[2])):
			t.Errorf("the examples do not hold\n%s", m[2])
		}
	}
	if ran < 3 {
		t.Errorf("%d blocks of SQL ran", ran)
	}
	w.want("evt_1", 1, 1)
}

// flat is text without the indent of its lines.
func flat(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}
