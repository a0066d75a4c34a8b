package store_test

import (
	"testing"

	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/store"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// open gives a store on a fresh database, as the service's role.
func open(t testing.TB, change ...func(*store.Config)) (*store.Store, *dbtest.DB) {
	t.Helper()
	db := dbtest.Open(t)
	cfg := store.Config{URL: db.Service(), MaxConns: 8}
	for _, f := range change {
		f(&cfg)
	}
	s, err := store.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, db
}
