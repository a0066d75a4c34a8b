package store_test

import (
	"testing"

	"github.com/hapaxpay/hapax/internal/store"
)

func TestOpenAndHeartbeat(t *testing.T) {
	s, _ := open(t)
	if err := s.Heartbeat(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.PoolMode(); got != store.PoolSession {
		t.Errorf("pool mode %q on a direct connection", got)
	}
}
