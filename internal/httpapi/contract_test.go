package httpapi

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/problem"
)

var update = flag.Bool("update", false, "write api/openapi.yaml and docs/errors.md")

// kept compares a written file with what the code says now, or writes it with -update.
func kept(t *testing.T, path string, want []byte) {
	t.Helper()
	path = filepath.Join("..", "..", path)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%s is not what the code says; run: go test ./internal/httpapi/ -run TestWritten -update", path)
	}
}

func TestWrittenContract(t *testing.T) {
	d := newDoor(Config{})
	yaml, err := d.api.OpenAPI().YAML()
	if err != nil {
		t.Fatal(err)
	}
	kept(t, "api/openapi.yaml", append([]byte("# Written by go test ./internal/httpapi/ -run TestWritten -update. Do not edit.\n"), yaml...))
}

// TestWaitsAreDeclared: each problem that may come with Retry-After says so in the contract, and no other does.
func TestWaitsAreDeclared(t *testing.T) {
	for _, rt := range newDoor(Config{}).routes() {
		for status, r := range rt.Responses {
			if r.Content["application/problem+json"] == nil {
				continue
			}
			waits := status == "409" || status == "429" || status == "503"
			if got := r.Headers["Retry-After"] != nil; got != waits && r.Content["application/json"] == nil {
				t.Errorf("%s %s: Retry-After declared: %v", rt.OperationID, status, got)
			}
		}
	}
}

const aboutErrors = `# Errors

<!-- Written by go test ./internal/httpapi/ -run TestWritten -update. Do not edit. -->

A refused request is answered with a problem document (RFC 9457, ` + "`application/problem+json`" + `):
` + "`type`" + ` is ` + "`" + present.ProblemType + "`" + ` and the code, ` + "`code`" + ` is stable and never changes its meaning, ` + "`field`" + ` names what was
refused, ` + "`link`" + ` is the path of what to look at, ` + "`do`" + ` says what to do, ` + "`request_id`" + ` is for support. The refused value is
never repeated.

409 never means that a payment was refused. 500 and 202 mean that it is not known whether there was an effect: repeat the
same key. The other codes below come with nothing done by this request.

| status | code | what it means | what to do |
|---|---|---|---|
`

const aboutFailures = `
## Refused payments

A payment that the acquirer refused is no error of the request. It is answered with 402 (` + "`declined`" + `) or 422 (` + "`failed`" + `,
` + "`canceled`" + `), with the payment as the body, and ` + "`failure.code`" + ` is one of those below. A capture, cancel or refund that failed is
answered with 422: the body of the first two is the payment, whose ` + "`modification`" + ` holds the failure; that of the third is the
refund. A cancellation that came after the money was taken fails with ` + "`already_captured`" + `: the payment is paid, refund it.

| code | what it means |
|---|---|
`

func TestWrittenErrors(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(aboutErrors)
	rows := slices.SortedStableFunc(slices.Values(problem.Table), func(a, b problem.Row) int { return cmp.Compare(a.Status, b.Status) })
	for _, r := range rows {
		fmt.Fprintf(&b, "| %d | `%s` | %s | %s |\n", r.Status, r.Code, r.Title, r.Do)
	}
	b.WriteString(aboutFailures)
	for _, code := range slices.Sorted(maps.Keys(acquirer.FailureCodes)) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", code, acquirer.FailureCodes[code])
	}
	kept(t, "docs/errors.md", b.Bytes())
}

func TestProblemTable(t *testing.T) {
	seen := map[problem.Code]bool{}
	for _, r := range problem.Table {
		if seen[r.Code] {
			t.Errorf("%s stands twice", r.Code)
		}
		seen[r.Code] = true
		if r.Status < 400 || r.Status > 599 || r.Title == "" || r.Do == "" || strings.ToLower(string(r.Code)) != string(r.Code) {
			t.Errorf("%s: incomplete row", r.Code)
		}
	}
}
