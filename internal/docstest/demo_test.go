package docstest

import (
	"slices"
	"testing"

	"github.com/hapaxpay/hapax/internal/demo/scene"
)

// TestScenarios: docs/demo.md tells every scenario of the demo, in its order.
func TestScenarios(t *testing.T) {
	var told []string
	for _, m := range packageRow.FindAllStringSubmatch(read(t, "docs/demo.md"), -1) {
		told = append(told, m[1])
	}
	if want := scene.Names(); !slices.Equal(told, want) {
		t.Errorf("docs/demo.md tells\n%v, the demo plays\n%v", told, want)
	}
}
