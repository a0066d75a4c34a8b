package archtest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository loads the tracked files and those that would be: in a folder
// without git, every file.
func repository(t *testing.T) *Tree {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatal(err)
	}
	tree, err := Load(os.DirFS(root), tracked(t, root))
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func tracked(t *testing.T, root string) []string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, ".git")); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	cmd := exec.CommandContext(t.Context(), "git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Logf("git ls-files: %v %s; reading every file instead", err, stderr.String())
		return nil
	}
	var names []string
	for _, name := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		// A tracked file may be deleted in the working tree.
		if _, err := os.Stat(filepath.Join(root, name)); err == nil {
			names = append(names, name)
		}
	}
	return names
}

func TestImports(t *testing.T) {
	tree := repository(t)
	for _, rule := range ImportRules {
		t.Run(rule.Name, func(t *testing.T) { report(t, rule.check(tree)) })
	}
}

func TestRules(t *testing.T) {
	tree := repository(t)
	for _, rule := range Rules {
		t.Run(rule.Name, func(t *testing.T) {
			if tree.find(casesFile) == nil && rule.Name == "cases" {
				t.Skipf("there is no %s yet", casesFile)
			}
			if report(t, rule.Check(tree)) {
				t.Logf("the reason of the rule: %s", rule.Reason)
			}
		})
	}
}

func report(t *testing.T, found []string) bool {
	t.Helper()
	for _, line := range found {
		t.Error(line)
	}
	return len(found) > 0
}
