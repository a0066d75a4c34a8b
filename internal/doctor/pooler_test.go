package doctor_test

import (
	"strings"
	"testing"

	"github.com/hapaxpay/hapax/internal/app"
	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/doctor"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/store"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// A transaction pooler is seen by what it does, and wanted only where replicas were told of it.
func TestATransactionPoolerIsSeen(t *testing.T) {
	r := rig.New(t, nil)
	if found := pooling(t, r, store.PoolSession); !found.OK {
		t.Errorf("without a pooler: %+v", found)
	}
	r.Pooler()
	if found := pooling(t, r, store.PoolSession); found.OK {
		t.Errorf("behind a pooler that replicas do not know of: %+v", found)
	}
	if found := pooling(t, r, store.PoolTransaction); !found.OK {
		t.Errorf("behind a pooler that replicas know of: %+v", found)
	}
}

func pooling(t *testing.T, r *rig.Rig, configured store.PoolMode) doctor.Check {
	t.Helper()
	report, err := doctor.Look(t.Context(), app.StoreConfig(r.Config(), nil), configured)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range report.Checks {
		if c.Name == "pooling" {
			return c
		}
	}
	t.Fatalf("pooling was not looked at: %+v", report)
	return doctor.Check{}
}

// Whoever could rewrite the ledger should not serve; it is no fault of the database.
func TestARoleThatMayTooMuchIsWarnedOf(t *testing.T) {
	db := dbtest.Open(t)
	for at, want := range map[string]string{db.Service(): "", db.Owner(): "the schema's owner", db.Superuser(): "a superuser"} {
		report, err := doctor.Look(t.Context(), store.Config{URL: at}, store.PoolDetect)
		if err != nil || !report.OK {
			t.Fatalf("%+v %v", report, err)
		}
		last := report.Checks[len(report.Checks)-1]
		if last.Name != "role" || last.Warn != (want != "") || !strings.HasSuffix(last.Found, want) || strings.Contains(last.Advice, "hapax_service") != last.Warn {
			t.Errorf("%s: %+v", want, last)
		}
	}
}

func TestADatabaseThatWasNeverMigrated(t *testing.T) {
	report, err := doctor.Look(t.Context(), store.Config{URL: dbtest.OpenEmpty(t).Service()}, store.PoolSession)
	if err != nil || report.OK || len(report.Checks) != 1 || report.Checks[0].Name != "schema" {
		t.Errorf("%+v %v", report, err)
	}
}
