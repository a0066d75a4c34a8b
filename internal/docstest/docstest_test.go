// Package docstest keeps the pages of the repository true: what they name exists, and what the code says about itself
// is written from the code.
package docstest

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// page is one Markdown file of the repository.
type page struct{ path, text string }

// skipDirs hold nothing of ours.
var skipDirs = []string{".git", "bin", ".cache", "tmp"}

// pages reads every Markdown file.
func pages(t *testing.T) (all []page) {
	t.Helper()
	files(t, ".md", func(name, text string) { all = append(all, page{name, text}) })
	if len(all) < 10 {
		t.Fatalf("only %d pages were found", len(all))
	}
	return all
}

// files visits every file with the ending, by its path from the root.
func files(t *testing.T, ending string, visit func(name, text string)) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(skipDirs, d.Name()):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ending):
			return nil
		}
		raw, err := os.ReadFile(filepath.Join(root, name))
		visit(name, string(raw))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func exists(name string) bool {
	_, err := os.Stat(filepath.Join(root, name))
	return err == nil
}

var (
	fence   = regexp.MustCompile("(?ms)^\\s*```.*?^\\s*```")
	span    = regexp.MustCompile("`([^`\n]+)`")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	slugged = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// prose is a page without its blocks of code.
func (p page) prose() string { return fence.ReplaceAllString(p.text, "") }

// spans are the pieces of a text that are set as code.
func spans(text string) (all []string) {
	for _, m := range span.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// TestLinks: every link inside the repository leads to a file, and to a heading where it names one.
func TestLinks(t *testing.T) {
	for _, p := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(p.prose(), -1) {
			file, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			target := path.Join(path.Dir(p.path), file)
			if file == "" {
				target = p.path
			}
			if !exists(target) {
				t.Errorf("%s: the link %s leads nowhere", p.path, m[1])
			} else if anchor != "" && !slices.Contains(anchors(read(t, target)), anchor) {
				t.Errorf("%s: the link %s names no heading of %s", p.path, m[1], target)
			}
		}
	}
}

// anchors are the names under which the headings of a page are linked.
func anchors(text string) (all []string) {
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		all = append(all, strings.ReplaceAll(slugged.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}

// folders of the repository with which a path in a page begins.
var folders = regexp.MustCompile(`^(cmd|internal|acquirer|api|docs|money)/[\w./-]+$`)

// TestPaths: every path that a page sets as code exists.
func TestPaths(t *testing.T) {
	for _, p := range pages(t) {
		for _, s := range spans(p.prose()) {
			if folders.MatchString(s) && !exists(s) {
				t.Errorf("%s: there is no %s", p.path, s)
			}
		}
	}
}

var function = regexp.MustCompile(`^\w+\(\)$`)

// TestFunctions: a function that is named beside Go files is declared in one of them.
func TestFunctions(t *testing.T) {
	found := 0
	for _, p := range pages(t) {
		blocks := strings.Split(strings.ReplaceAll(p.prose(), "\n- ", "\n\n- "), "\n\n")
		for _, block := range blocks {
			var source strings.Builder
			for _, s := range spans(block) {
				if strings.HasSuffix(s, ".go") && exists(s) {
					source.WriteString(read(t, s))
				}
			}
			for _, s := range spans(block) {
				if !function.MatchString(s) || source.Len() == 0 {
					continue
				}
				found++
				name := strings.TrimSuffix(s, "()")
				if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + name + `[\[(]`).MatchString(source.String()) {
					t.Errorf("%s: no file that is named beside it declares %s", p.path, s)
				}
			}
		}
	}
	if found == 0 {
		t.Error("no page names a function: this test looks at nothing")
	}
}

var (
	testName = regexp.MustCompile(`\bTest[A-Z]\w+`)
	testFunc = regexp.MustCompile(`(?m)^func (Test[A-Z]\w+)\(`)
)

// TestTests: every test that a page names exists. Names of the form `TestX…` name a group and are left out.
func TestTests(t *testing.T) {
	known := map[string]bool{}
	files(t, "_test.go", func(_, text string) {
		for _, m := range testFunc.FindAllStringSubmatch(text, -1) {
			known[m[1]] = true
		}
	})
	for _, p := range pages(t) {
		for _, s := range spans(p.prose()) {
			if testName.FindString(s) == s && !known[s] {
				t.Errorf("%s: there is no test %s", p.path, s)
			}
		}
	}
}

var packageRow = regexp.MustCompile("(?m)^\\| `([\\w/]+)` \\|")

// TestPackages: ARCHITECTURE.md lists every folder with Go code, and nothing else.
func TestPackages(t *testing.T) {
	var listed, real []string
	for _, m := range packageRow.FindAllStringSubmatch(read(t, "ARCHITECTURE.md"), -1) {
		listed = append(listed, m[1])
	}
	files(t, ".go", func(name, _ string) { real = append(real, path.Dir(name)) })
	slices.Sort(real)
	real = slices.Compact(real)
	for _, dir := range real {
		if !slices.Contains(listed, dir) {
			t.Errorf("ARCHITECTURE.md does not list the package %s", dir)
		}
	}
	for _, dir := range listed {
		if !slices.Contains(real, dir) {
			t.Errorf("ARCHITECTURE.md lists %s, where there is no Go code", dir)
		}
	}
}

var environment = regexp.MustCompile(`\bHAPAX_[A-Z_]+\b`)

// TestEnvironment: every environment variable that a page names is read somewhere.
func TestEnvironment(t *testing.T) {
	var code strings.Builder
	files(t, ".go", func(_, text string) { code.WriteString(text) })
	for _, p := range pages(t) {
		for _, name := range environment.FindAllString(p.text, -1) {
			if !strings.Contains(code.String(), `"`+name+`"`) && !strings.Contains(code.String(), "`"+name+"`") &&
				!strings.Contains(code.String(), name+"=") {
				t.Errorf("%s: nothing reads %s", p.path, name)
			}
		}
	}
}
