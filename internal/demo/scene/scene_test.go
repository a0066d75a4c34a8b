package scene

import (
	"os"
	"testing"
)

// TestDemo plays everything once.
func TestDemo(t *testing.T) {
	r, err := Run(t.Context(), Options{Only: os.Getenv("ONLY")})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Print(os.Stdout); err != nil {
		t.Fatal(err)
	}
}
