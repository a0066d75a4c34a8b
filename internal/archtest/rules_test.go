package archtest

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strings"
	"testing"
	"testing/fstest"
)

// tree makes a tree of "path": "source".
func tree(t *testing.T, files map[string]string) *Tree {
	t.Helper()
	root := fstest.MapFS{}
	for name, src := range files {
		root[name] = &fstest.MapFile{Data: []byte(src)}
	}
	loaded, err := Load(root, nil)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

func importing(pkg, imported string) string {
	return "package " + pkg + "\nimport _ \"" + imported + "\"\n"
}

// Every import rule catches an import that breaks it.
func TestImportRulesCatch(t *testing.T) {
	for rule, bad := range map[string]struct{ file, imported string }{
		"pure":                    {"internal/evidence/a.go", "net/http"},
		"pure settlement":         {"internal/settlement/mt940/a.go", Module + "/internal/payment"},
		"sandbox":                 {"internal/sandbox/a_test.go", Module + "/acquirer"},
		"engine":                  {"internal/flow/a.go", "github.com/jackc/pgx/v5"},
		"engine knows no payment": {"internal/operation/a.go", Module + "/internal/payment"},
		"store":                   {"internal/store/a.go", "net/http"},
		"adapters":                {"internal/adapter/x/a.go", Module + "/internal/store"},
		"public":                  {"client/a.go", Module + "/internal/id"},
		"port":                    {"acquirer/acquirertest/a.go", Module + "/inbox"},
		"signatures":              {"acquirer/signature/a.go", Module + "/acquirer"},
		"verifier":                {"internal/verify/a.go", Module + "/internal/payment"},
		"shown services":          {"internal/demo/textbook/a.go", Module + "/money"},
		"edges":                   {"internal/timeline/a.go", Module + "/internal/httpapi"},
		"test kit":                {"internal/devdb/a.go", Module + "/internal/dbtest"},
	} {
		broken := tree(t, map[string]string{bad.file: importing("a", bad.imported)})
		clean := tree(t, map[string]string{bad.file: importing("a", "strings")})
		for _, r := range ImportRules {
			if r.Name != rule {
				continue
			}
			if found := r.check(broken); len(found) != 1 {
				t.Errorf("%s: found %q for an import of %s", rule, found, bad.imported)
			}
			if found := r.check(clean); len(found) != 0 {
				t.Errorf("%s: found %q in a clean file", rule, found)
			}
		}
	}
	for _, r := range ImportRules {
		if r.Reason == "" {
			t.Errorf("%s has no reason", r.Name)
		}
	}
}

const comment = "// Package a is a test.\n//\n// Owns a.\n// Never b.\n// Read next: c.\npackage a\n"

// Every rule catches what breaks it, and lets the good neighbour pass.
func TestRulesCatch(t *testing.T) {
	long := strings.Repeat("\n", maxFuncLines)
	for _, tc := range []struct{ rule, file, bad, good string }{
		{"clock", "internal/flow/a.go", "import \"time\"\nvar x = time.Now()", "import \"time\"\nvar x = time.Unix(0, 0)"},
		{"clock", "internal/payment/a.go", "import clock \"time\"\nvar x = clock.Since", "var x = time.Now"},
		{"clock", "internal/operation/a.go", "import \"context\"\nvar x = context.WithTimeout", "import \"context\"\nvar x = context.WithCancel"},
		{"clock", "internal/outbox/a.go", "import \"time\"\nvar x = time.Now()", "import \"time\"\nvar x = time.Second"},
		{"random", "internal/sweep/a.go", "import \"math/rand/v2\"\nvar x = rand.IntN(3)", "import \"math/rand/v2\"\nvar x = rand.New(nil)"},
		{"goroutine", "internal/operation/a.go", "func f() { go f() }", "func f(spawn func(func())) { spawn(nil) }"},
		{"goroutine", "internal/operation/a.go", "import \"sync\"\nvar w sync.WaitGroup", "import \"sync\"\nvar w sync.Mutex"},
		{"sql", "internal/httpapi/a.go", "const q = `\n-- why\nSELECT 1`", "const q = `Select a payment`"},
		{"sql", "internal/console/a.go", "const q = \"UPDATE a SET b = 1\"", "const q = \"UPDATE is a verb\""},
		{"sql", "cmd/hapax/a.go", "const q = \"WITH x AS (SELECT 1) SELECT 2\"", "const q = \"WITH care\""},
		{"size", "a/a.go", "func f() {" + long + "}", "func f() {}" + long},
		{"size", "a/a.sql", strings.Repeat("\n", maxFileLines+1), "SELECT 1"},
		{"size", "a/a_test.go", "func f() {" + long + long + "}", "func f() {" + long + "}"},
		{"tests", "a/a_test.go", "import \"time\"\nfunc f() { time.Sleep(1) }", "import \"time\"\nvar d = time.Second"},
		{"tests", "a/a_test.go", "func f(t T) { t.SkipNow() }", "func f(t T) { t.Skip(\"no browser\") }"},
		{"tests", "a/a_test.go", "func f(t T) { t.Skip() }", "func f(s Scanner) { s.Skip() }"},
		{"floats", "a/a.go", "type x struct { TotalAmount float64 }", "type x struct { Seconds float64 }"},
		{"floats", "a/a.go", "func f(fee, b float32) {}", "func f(feed float32) {}"},
		{"floats", "a/a.go", "var x = float64(p.Amount)", "var x = float64(p.Count)"},
		{"floats", "money/a.go", "func f() { var x float64 }", "func f() { var x int64 }"},
		{"words", "a/a.md", "see /wo" + "rk/x", "see work/x"},
		{"words", "a/a.go", "// https://pypi." + "org/x", "// https://example.com/x"},
		{"cases", "a/a_test.go", "func TestCase001_Double(t T) {}\nfunc TestCase009_Other(t T) {}", "func TestCase001_Double(t T) {}"},
		{"cases", "a/a_test.go", "", "func TestCase001_Double(t T) {}"},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			if found := checkOne(t, tc.rule, tc.file, tc.bad); len(found) != 1 {
				t.Errorf("%s\nfound %q, want one", tc.bad, found)
			}
			if found := checkOne(t, tc.rule, tc.file, tc.good); len(found) != 0 {
				t.Errorf("%s\nfound %q, want none", tc.good, found)
			}
		})
	}
}

func checkOne(t *testing.T, rule, file, src string) []string {
	t.Helper()
	if strings.HasSuffix(file, ".go") {
		src = comment + src
	}
	return check(t, rule, tree(t, map[string]string{
		file: src, casesFile: "| 1 | TestCase001_Double |", "tmp/b.go": "not read",
	}))
}

func check(t *testing.T, name string, tree *Tree) []string {
	t.Helper()
	for _, rule := range Rules {
		if rule.Name == name {
			if rule.Reason == "" {
				t.Errorf("%s has no reason", name)
			}
			return rule.Check(tree)
		}
	}
	t.Fatalf("there is no rule %q", name)
	return nil
}

func TestPackageCommentRule(t *testing.T) {
	for src, want := range map[string]int{comment: 0, "package a": 3, "// Package a.\n//\n// Owns a.\npackage a": 2} {
		if found := check(t, "package comment", tree(t, map[string]string{"a/a.go": src, "a/a_test.go": "package a"})); len(found) != want {
			t.Errorf("%q: found %q, want %d", src, found, want)
		}
	}
}

func TestGeneratedRule(t *testing.T) {
	sum := sha256.Sum256([]byte("m1m2q1conf"))
	good := map[string]string{
		"internal/store/migrations/2.sql": "m2", "internal/store/migrations/1.sql": "m1",
		"internal/store/queries/a.sql": "q1", inputsConf: "conf", inputsFile: hex.EncodeToString(sum[:]) + "\n",
	}
	if found := check(t, "generated", tree(t, good)); len(found) != 0 {
		t.Errorf("found %q", found)
	}
	for _, name := range mapKeys(good) {
		for _, change := range []string{"changed", ""} {
			bad := maps.Clone(good)
			if bad[name] = change; change == "" {
				delete(bad, name)
			}
			want := 1
			if name == inputsConf && change == "" {
				want = 0 // nothing is generated
			}
			if found := check(t, "generated", tree(t, bad)); len(found) != want {
				t.Errorf("%s becomes %q: found %q, want %d", name, change, found, want)
			}
		}
	}
}

func TestGeneratedFilesAreLeftAlone(t *testing.T) {
	src := "// Code generated by x. DO NOT EDIT.\n" + comment + "var amount float64" + strings.Repeat("\n", maxFileLines+1)
	for _, rule := range []string{"floats", "size"} {
		if found := check(t, rule, tree(t, map[string]string{"a/a.go": src})); len(found) != 0 {
			t.Errorf("%s: found %q", rule, found)
		}
	}
}
