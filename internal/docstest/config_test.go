package docstest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/hapaxpay/hapax/internal/config"
)

var update = flag.Bool("update", false, "write docs/config.md")

const aboutConfig = `# Settings

<!-- Written by go test ./internal/docstest/ -run TestWrittenConfig -update. Do not edit. -->

Every command takes its settings from flags or from the environment; a flag wins. ` + "`hapax config`" + ` prints the effective values
with secrets masked, and the arithmetic of the time budget; it exits with 1 where they do not fit. A process refuses to
start with settings that do not fit.

| variable | flag | default | what it is |
|---|---|---|---|
`

// TestWrittenConfig: docs/config.md is what the settings say about themselves.
func TestWrittenConfig(t *testing.T) {
	var c config.Config
	parser, err := kong.New(&c, kong.Name("hapax"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(aboutConfig)
	for _, f := range parser.Model.Flags {
		if f.Name == "help" {
			continue
		}
		if len(f.Envs) != 1 || f.Help == "" {
			t.Errorf("the setting %s has no variable of its own, or no words", f.Name)
			continue
		}
		words := f.Help
		if f.Enum != "" {
			words += " One of: " + strings.ReplaceAll(f.Enum, ",", ", ") + "."
		}
		fmt.Fprintf(&b, "| `%s` | `--%s` | %s | %s |\n", f.Envs[0], f.Name, standard(f), words)
	}
	b.WriteString(afterConfig(c))
	kept(t, "docs/config.md", b.String())
}

func standard(f *kong.Flag) string {
	switch {
	case f.HasDefault:
		return "`" + f.Default + "`"
	case f.IsBool():
		return "off"
	}
	return "none"
}

// afterConfig shows the arithmetic of the defaults.
func afterConfig(c config.Config) string {
	if _, err := kong.Must(&c).Parse(nil); err != nil {
		panic(err) // defaults of our own
	}
	return "\n## The time budget\n\nWith the defaults: " + c.Budget().String() + ".\n\n" +
		`The worst first call is connect, write and read, a pause, and the same again; after a takeover it is one lookup and one call.
Both must end by *call until*; *call until*, the record and a margin must fit into the lease; a permit must not outlive the
lease; the client's answer comes before the calls end. So nobody still works when the next owner begins, if the clocks run; if
they do not, the fence and the freshness of permits hold.

## Beside these

` + "`HAPAX_SANDBOX_SECRET`" + ` is what callers of ` + "`hapax sandbox`" + ` must send. ` + "`HAPAX_TEST_DATABASE_URL`" + ` names the superuser's URL of a
cluster for tests; when it is set, tests start none of their own. Secrets are better given by the environment than by a flag:
other users of a machine can see a process's flags.
`
}

// kept compares a written page with what the code says now, or writes it with -update.
func kept(t *testing.T, name, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(filepath.Join(root, name), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if read(t, name) != want {
		t.Errorf("%s is not what the code says; run: go test ./internal/docstest/ -run TestWritten -update", name)
	}
}
