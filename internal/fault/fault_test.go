package fault_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/fault"
)

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"after-claim", "nowhere=kill", "after-claim=explode", "after-claim=kill@0", "after-claim=kill@x",
		"after-claim=hold", "clock=later", strings.Repeat("after-claim=kill,", 65)} {
		if p, err := fault.Parse(text); err == nil {
			t.Errorf("%q was taken: %+v", text, p)
		}
	}
}

func TestAnEmptyPlanIsInert(t *testing.T) {
	p, err := fault.Parse("  ")
	if err != nil || p.Active() {
		t.Fatalf("active %v, %v", p.Active(), err)
	}
	if err := p.Hit(t.Context(), "after-claim"); err != nil {
		t.Error(err)
	}
}

func TestTheClockOfAPlan(t *testing.T) {
	p, err := fault.Parse("clock=-5m")
	if err != nil || p.Clock != -5*time.Minute || !p.Active() {
		t.Errorf("clock %v, active %v, %v", p.Clock, p.Active(), err)
	}
}

// A held point waits until its file exists, at the named hit only.
func TestHold(t *testing.T) {
	file := filepath.Join(t.TempDir(), "go")
	p, err := fault.Parse("before-record=hold:" + file + "@2")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Hit(t.Context(), "before-record"); err != nil { // the first one passes
		t.Fatal(err)
	}
	passed := make(chan error, 1)
	go func() { passed <- p.Hit(context.Background(), "before-record") }()
	select {
	case <-passed:
		t.Fatal("the second one was not held")
	default:
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-passed; err != nil {
		t.Error(err)
	}
}
