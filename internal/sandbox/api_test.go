package sandbox

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The written contract names every route, every member of the contract and every setting of webhooks.
func TestDescriptionNamesEveryCall(t *testing.T) {
	description, err := os.ReadFile("../../api/sandbox.yaml")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("server.go")
	if err != nil {
		t.Fatal(err)
	}
	routes := regexp.MustCompile(`HandleFunc\("(GET|PUT|POST) (/[^"]*)"`).FindAllStringSubmatch(string(source), -1)
	if len(routes) < 10 {
		t.Fatalf("found only %d routes", len(routes))
	}
	for _, route := range routes {
		method, path := strings.ToLower(route[1]), strings.TrimSuffix(route[2], "{$}")
		_, section, found := strings.Cut(string(description), "\n  "+path+":\n")
		if next := regexp.MustCompile(`\n {0,2}\S`).FindStringIndex(section); next != nil {
			section = section[:next[0]]
		}
		if !found || !strings.Contains("\n"+section, "\n    "+method+":\n") {
			t.Errorf("api/sandbox.yaml does not describe %s %s", route[1], path)
		}
	}
	for _, file := range []string{"../../api/sandbox.yaml", "../../docs/sandbox.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, member := range append(membersOf(t, DefaultContract()), membersOf(t, WebhooksTo("url", "secret"))...) {
			if !strings.Contains(string(text), member) {
				t.Errorf("%s does not name %s", file, member)
			}
		}
	}
}

func membersOf(t *testing.T, value any) []string {
	t.Helper()
	members, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var names map[string]any
	if err := json.Unmarshal(members, &names); err != nil {
		t.Fatal(err)
	}
	return slices.Collect(maps.Keys(names))
}
