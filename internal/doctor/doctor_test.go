package doctor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/doctor"
	"github.com/hapaxpay/hapax/internal/store"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func healthy() store.Facts {
	return store.Facts{ServerVersion: "15.4 (Debian 15.4-1)", Role: "hapax_service", Fsync: true, FullPageWrites: true, SynchronousCommit: "on",
		SchemaVersion: 3, LatestSchemaVersion: 3, PoolMode: store.PoolSession, Now: noon}
}

// Each fault is found, by its own check alone, with advice.
func TestEachFaultIsFound(t *testing.T) {
	asked := doctor.Moment{Before: noon.Add(-time.Millisecond), After: noon.Add(time.Millisecond)}
	for want, spoil := range map[string]func(*store.Facts){
		"version":              func(f *store.Facts) { f.ServerVersion = "14.9" },
		"fsync":                func(f *store.Facts) { f.Fsync = false },
		"full_page_writes":     func(f *store.Facts) { f.FullPageWrites = false },
		"synchronous_commit":   func(f *store.Facts) { f.SynchronousCommit = "off" },
		"synchronous_standbys": func(f *store.Facts) { f.Standbys, f.SynchronousCommit = "ANY 1 (a, b)", "local" },
		"primary":              func(f *store.Facts) { f.InRecovery = true },
		"writable":             func(f *store.Facts) { f.ReadOnly = true },
		"pooling":              func(f *store.Facts) { f.PoolMode = store.PoolTransaction },
		"clock":                func(f *store.Facts) { f.Now = noon.Add(3 * time.Second) },
		"schema":               func(f *store.Facts) { f.SchemaVersion = 2 },
	} {
		f := healthy()
		spoil(&f)
		r := doctor.Judge(f, asked, store.PoolSession)
		var wrong []string
		for _, c := range r.Checks {
			if !c.OK {
				wrong = append(wrong, c.Name)
				if c.Advice == "" {
					t.Errorf("%s is wrong, and nobody says what to do", c.Name)
				}
			}
		}
		if r.OK || strings.Join(wrong, " ") != want {
			t.Errorf("with a bad %s: ok %v, found %v", want, r.OK, wrong)
		}
	}
}

func TestWhatIsNoFault(t *testing.T) {
	at := doctor.Moment{Before: noon.Add(-time.Minute), After: noon.Add(time.Minute)} // a slow answer is no difference of clocks
	for name, change := range map[string]func(*store.Facts){
		"healthy":                func(*store.Facts) {},
		"beta":                   func(f *store.Facts) { f.ServerVersion = "19beta1" },
		"newer schema":           func(f *store.Facts) { f.SchemaVersion = 4 },
		"transaction pooler":     func(f *store.Facts) { f.PoolMode = store.PoolTransaction },
		"synchronous standbys":   func(f *store.Facts) { f.Standbys = "ANY 1 (a, b)" },
		"remote_apply":           func(f *store.Facts) { f.SynchronousCommit = "remote_apply" },
		"the end of the minutes": func(f *store.Facts) { f.Now = at.After.Add(doctor.MaxClockDifference) },
	} {
		f := healthy()
		change(&f)
		if r := doctor.Judge(f, at, store.PoolTransaction); !r.OK {
			t.Errorf("%s: %+v", name, r.Checks)
		}
	}
}

// Asynchronous replication is no fault, but what it can lose is said.
func TestAsynchronousReplicationIsExplained(t *testing.T) {
	for _, c := range doctor.Judge(healthy(), doctor.Moment{Before: noon, After: noon}, store.PoolSession).Checks {
		if c.Name == "synchronous_standbys" && !strings.Contains(c.Advice, "can lose commits") {
			t.Errorf("%+v", c)
		}
	}
}
