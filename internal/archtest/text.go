package archtest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// forbiddenText may not appear in the repository: places of the machine that
// built it, and hosts of package registries, which a clone must not depend on.
// The words are put together here, so that this file does not hold them.
var forbiddenText = []string{
	"/wo" + "rk/", "/ro" + "ot/", "proxy.golang" + ".org", "sum.golang" + ".org", "registry.npm" + "js", "registry.yarn" + "pkg",
	"pypi." + "org", "pythonhosted" + ".org", "repo1.maven" + ".org", "repo.maven.apache" + ".org", "deb.debian" + ".org", "crates" + ".io",
}

func words(t *Tree) (found []string) {
	for _, f := range t.Files {
		for i, line := range strings.Split(f.Src, "\n") {
			for _, word := range forbiddenText {
				if strings.Contains(line, word) {
					found = append(found, fmt.Sprintf("%s:%d: holds %q", f.Path, i+1, word))
				}
			}
		}
	}
	return found
}

// inputsFile holds the hash of what the generated code was made from: the
// migrations, the queries and sqlc.yaml, one after another, each folder sorted
// by name. internal/store/gen.sh writes it.
const (
	inputsFile = "internal/store/dbgen/INPUTS.sha256"
	inputsConf = "internal/store/sqlc.yaml"
)

var inputDirs = []string{"internal/store/migrations", "internal/store/queries"}

// staleInputs finds generated code whose inputs changed since.
func staleInputs(t *Tree) []string {
	conf, want := t.find(inputsConf), t.find(inputsFile)
	if conf == nil {
		return nil
	}
	if want == nil {
		return []string{inputsFile + ": missing beside " + inputsConf + "; run `make generate`"}
	}
	hash := sha256.New()
	for _, dir := range inputDirs {
		var files []*File
		for _, f := range t.Files {
			if f.Dir() == dir && path.Ext(f.Path) == ".sql" {
				files = append(files, f)
			}
		}
		slices.SortFunc(files, func(a, b *File) int { return strings.Compare(a.Path, b.Path) })
		for _, f := range files {
			hash.Write([]byte(f.Src)) // a hash never fails
		}
	}
	hash.Write([]byte(conf.Src))
	if hex.EncodeToString(hash.Sum(nil)) != strings.TrimSpace(want.Src) {
		return []string{inputsFile + ": migrations, queries or sqlc.yaml changed after code was generated; run `make generate`"}
	}
	return nil
}

func (t *Tree) find(name string) *File {
	for _, f := range t.Files {
		if f.Path == name {
			return f
		}
	}
	return nil
}

// casesFile lists each case with the tests that play it.
const casesFile = "docs/cases.md"

var (
	caseTest   = regexp.MustCompile(`(?m)^func (TestCase\d{3}_\w+)\(`)
	listedCase = regexp.MustCompile(`\bTestCase\d{3}_\w+`)
)

// cases wants every test of a case in the list, and every test in the list to exist.
func cases(t *Tree) (found []string) {
	list := t.find(casesFile)
	if list == nil {
		return nil
	}
	exist := map[string]string{}
	for _, f := range t.Files {
		if f.Test() {
			for _, m := range caseTest.FindAllStringSubmatch(f.Src, -1) {
				exist[m[1]] = f.Path
			}
		}
	}
	listed := listedCase.FindAllString(list.Src, -1)
	for name, where := range exist {
		if !slices.Contains(listed, name) {
			found = append(found, fmt.Sprintf("%s: %s is not in %s", where, name, casesFile))
		}
	}
	for _, name := range listed {
		if exist[name] == "" {
			found = append(found, fmt.Sprintf("%s: there is no test %s", casesFile, name))
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
