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

// inputsFile lists the hashes of what the generated code was made from, as
// `sha256sum` prints them; `make generate` writes it.
const inputsFile = "internal/store/dbgen/INPUTS.sha256"

// staleInputs finds inputs of the generated code that changed since.
func staleInputs(t *Tree) (found []string) {
	list := t.find(inputsFile)
	if list == nil {
		if slices.ContainsFunc(t.Names, func(name string) bool { return path.Dir(name) == path.Dir(inputsFile) }) {
			return []string{inputsFile + ": missing beside generated code; run `make generate`"}
		}
		return nil
	}
	listed := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(list.Src), "\n") {
		hash, name, ok := strings.Cut(line, "  ")
		if !ok {
			return []string{inputsFile + ": not as sha256sum prints it"}
		}
		listed[name] = hash
	}
	for _, f := range t.Files {
		if !isInput(f.Path) {
			continue
		}
		sum := sha256.Sum256([]byte(f.Src))
		if listed[f.Path] != hex.EncodeToString(sum[:]) {
			found = append(found, f.Path+": changed after code was generated from it; run `make generate`")
		}
		delete(listed, f.Path)
	}
	for name := range listed {
		found = append(found, name+": code was generated from it, but it is gone; run `make generate`")
	}
	slices.Sort(found)
	return found
}

func isInput(name string) bool {
	dir := path.Dir(name)
	return name == "sqlc.yaml" || name == "internal/store/sqlc.yaml" ||
		path.Ext(name) == ".sql" && (dir == "internal/store/queries" || dir == "internal/store/migrations")
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
