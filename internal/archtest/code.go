package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Rule is one check of the whole tree. It returns the places that break it.
type Rule struct {
	Name   string
	Reason string
	Check  func(*Tree) []string
}

// Limits on sizes, in lines.
const (
	maxFileLines = 600
	maxFuncLines = 70
	maxTestLines = 120
)

// noClock: the engine and what decides read no clock and start no timer.
func noClock(dirs []string) func(*Tree) []string {
	return func(t *Tree) (found []string) {
		t.code(func(f *File) {
			if !under(f.Dir(), dirs) || under(f.Dir(), sinks) {
				return
			}
			report := func(n ast.Node, what string) { found = append(found, f.where(n)+": "+what) }
			f.calls("time", []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "NewTimer", "NewTicker", "Tick"}, report)
			f.calls("context", []string{"WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause"}, report)
		})
		return found
	}
}

// topLevelRand are the functions of math/rand that use the global source.
var topLevelRand = []string{
	"Int", "Intn", "IntN", "Int31", "Int31n", "Int32", "Int32N", "Int63", "Int63n", "Int64", "Int64N", "Uint32", "Uint32N", "Uint64", "Uint64N",
	"UintN", "Uint", "N", "Float32", "Float64", "ExpFloat64", "NormFloat64", "Perm", "Shuffle", "Read", "Seed",
}

func noGlobalRandom(t *Tree) (found []string) {
	t.code(func(f *File) {
		if !under(f.Dir(), join(engine, pure)) || under(f.Dir(), sinks) {
			return
		}
		report := func(n ast.Node, what string) { found = append(found, f.where(n)+": "+what) }
		f.calls("math/rand", topLevelRand, report)
		f.calls("math/rand/v2", topLevelRand, report)
	})
	return found
}

func noGoroutine(t *Tree) (found []string) {
	t.code(func(f *File) {
		if !under(f.Dir(), join(engine, pure)) || under(f.Dir(), sinks) {
			return
		}
		ast.Inspect(f.Go, func(n ast.Node) bool {
			if _, ok := n.(*ast.GoStmt); ok {
				found = append(found, f.where(n)+": a go statement")
			}
			return true
		})
		f.calls("sync", []string{"WaitGroup"}, func(n ast.Node, what string) { found = append(found, f.where(n)+": "+what) })
	})
	return found
}

// sqlDirs may hold SQL text.
var sqlDirs = map[string]string{
	"internal/bench":         "the script of pgbench, which Hapax is measured against",
	"internal/store":         "all SQL of the service",
	"internal/verify":        "the invariants as questions, independent of the store's code",
	"internal/timeline":      "reads the story of an intent",
	"internal/doctor":        "asks the server about itself",
	"internal/sqllint":       "asks the catalogue",
	"internal/devdb":         "runs a server of its own: roles, restore, ageing",
	"internal/dbtest":        "makes and drops databases",
	"internal/rig":           "arranges merchants for tests and reads the rows as a witness",
	"internal/demo/naive":    "a service of its own that Hapax is shown against",
	"internal/demo/textbook": "a service of its own that Hapax is shown against",
	"internal/demo/scene":    "arranges and reads the databases of the services it shows",
	"inbox":                  "writes one row in its user's own transaction",
}

var sqlText = regexp.MustCompile(`^\s*(--[^\n]*\n\s*)*(SELECT\s|INSERT\s+INTO\s|UPDATE\s+\S+\s+(AS\s+\w+\s+)?SET\s|DELETE\s+FROM\s|WITH\s+(RECURSIVE\s+)?\w+\s+AS\s|` +
	`(CREATE|ALTER|DROP)\s+(UNIQUE\s+)?(TABLE|INDEX|ROLE|DATABASE|FUNCTION|VIEW|SCHEMA)\s|GRANT\s|REVOKE\s|TRUNCATE\s|LISTEN\s|NOTIFY\s|SHOW\s+\w|SET\s+(LOCAL|SESSION)\s|LOCK\s+TABLE\s)`)

func sqlOnlyInStore(t *Tree) (found []string) {
	allowed := mapKeys(sqlDirs)
	t.code(func(f *File) {
		if under(f.Dir(), allowed) {
			return
		}
		ast.Inspect(f.Go, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil && sqlText.MatchString(text) {
					found = append(found, f.where(n)+": SQL text outside the store")
				}
			}
			return true
		})
	})
	return found
}

func mapKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func sizes(t *Tree) (found []string) {
	for _, f := range t.Files {
		counted := strings.HasSuffix(f.Path, ".go") || strings.HasSuffix(f.Path, ".sql")
		if n := strings.Count(f.Src, "\n"); counted && !f.Generated() && n > maxFileLines {
			found = append(found, fmt.Sprintf("%s: %d lines, more than %d", f.Path, n, maxFileLines))
		}
	}
	t.goFiles(func(f *File) {
		limit := maxFuncLines
		if f.Test() {
			limit = maxTestLines
		}
		for _, decl := range f.Go.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && f.lines(fn) > limit {
				found = append(found, fmt.Sprintf("%s: %s has %d lines, more than %d", f.where(fn), fn.Name.Name, f.lines(fn), limit))
			}
		}
	})
	return found
}

// packageComments wants each package's comment to say what it owns, what it
// never does, and what to read next.
func packageComments(t *Tree) (found []string) {
	docs := map[string]string{}
	t.code(func(f *File) {
		docs[f.Dir()] += f.Go.Doc.Text()
	})
	for dir, doc := range docs {
		for _, part := range []string{"\nOwns ", "\nNever ", "\nRead next"} {
			if !strings.Contains(doc, part) {
				found = append(found, fmt.Sprintf("%s: the package comment has no line that begins with %q", dir, strings.TrimSpace(part)))
			}
		}
	}
	slices.Sort(found)
	return found
}

// tests: no sleeping, no silent skip.
func tests(t *Tree) (found []string) {
	t.goFiles(func(f *File) {
		if !f.Test() {
			return
		}
		f.calls("time", []string{"Sleep"}, func(n ast.Node, what string) {
			found = append(found, f.where(n)+": "+what+" in a test: wait for a signal or a condition")
		})
		ast.Inspect(f.Go, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if ok && (sel.Sel.Name == "SkipNow" || (sel.Sel.Name == "Skip" || sel.Sel.Name == "Skipf") && isTestingName(sel.X) && len(call.Args) == 0) {
				found = append(found, f.where(n)+": a skip without a reason")
			}
			return true
		})
	})
	return found
}

func isTestingName(x ast.Expr) bool {
	id, ok := x.(*ast.Ident)
	return ok && slices.Contains([]string{"t", "b", "f", "tb"}, id.Name)
}

var moneyName = regexp.MustCompile(`(?i)(amount|fee$|fees$|balance|price|captured|refunded|minorunits)`)

// floats: no floating point for money, and none at all where amounts are added.
func floats(t *Tree) (found []string) {
	t.goFiles(func(f *File) {
		banned := under(f.Dir(), []string{"money", "internal/payment", "internal/ledger", "internal/settlement"}) && !f.Test()
		report := func(n ast.Node, what string) { found = append(found, f.where(n)+": "+what) }
		ast.Inspect(f.Go, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Field:
				reportMoneyFloat(n, n.Names, n.Type, report)
			case *ast.ValueSpec:
				reportMoneyFloat(n, n.Names, n.Type, report)
			case *ast.CallExpr:
				if isFloat(n.Fun) && len(n.Args) == 1 && mentionsMoney(n.Args[0]) {
					report(n, "money is converted to a floating point number")
				}
			case *ast.Ident:
				if banned && isFloat(n) {
					report(n, n.Name+" in a package that adds amounts")
				}
			}
			return true
		})
	})
	return found
}

func isFloat(x ast.Expr) bool {
	id, ok := x.(*ast.Ident)
	return ok && (id.Name == "float64" || id.Name == "float32")
}

func reportMoneyFloat(n ast.Node, names []*ast.Ident, typ ast.Expr, report func(ast.Node, string)) {
	for _, name := range names {
		if typ != nil && isFloat(typ) && moneyName.MatchString(name.Name) {
			report(n, name.Name+" is a floating point number")
		}
	}
}

func mentionsMoney(x ast.Expr) (yes bool) {
	ast.Inspect(x, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && moneyName.MatchString(id.Name) {
			yes = true
		}
		return true
	})
	return yes
}
