package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/devdb"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/store"
)

// Case 13: keys looked up on a replica that lags are not found. Here a replica is refused: money decisions are made on
// the primary only (PROTOCOL K9).
func TestCase013_AReplicaIsRefused(t *testing.T) {
	primary := dbtest.Cluster(t, devdb.Config{Dir: dbtest.Dir(t)})
	ctx := t.Context()
	if err := store.Migrate(ctx, primary.URL(devdb.RoleOwner, devdb.Database)); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dbtest.Dir(t), "standby")
	if err := primary.BaseBackup(ctx, copied); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(copied, "data", "standby.signal"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	standby := dbtest.Cluster(t, devdb.Config{Dir: copied})
	_, err := store.Open(ctx, store.Config{URL: standby.URL(devdb.RoleService, devdb.Database), MaxConns: 2})
	if !errors.Is(err, operation.ErrNotDurable) {
		t.Errorf("a replica was opened: %v", err)
	}
	if err != nil && strings.Contains(err.Error(), "password") {
		t.Errorf("the refusal shows a secret: %v", err)
	}
}
