package verify_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/verify"
)

// TestALiveSystemIsNeverCalledBroken verifies while two replicas and a sweep are at work: what is under way is no
// offence, in any snapshot.
func TestALiveSystemIsNeverCalledBroken(t *testing.T) {
	r := rig.New(t, nil)
	replicas := []*rig.Replica{r.Replica(), r.Replica()}
	methods := []string{"pm_ok", "pm_declined_do_not_honor", "pm_slow_40", "pm_reset_executed", "pm_timeout_executed", "pm_500_executed", "pm_401_once",
		"pm_timeout_not_executed", "pm_409_in_flight"}
	const each = 24 // payments of one worker
	var workers sync.WaitGroup
	for worker := range 4 {
		workers.Go(func() {
			for n := range each {
				key := fmt.Sprintf("key-%d-%d", worker/2, n) // two workers meet on each key
				order := rig.Order{Reference: "order-" + key, Method: methods[n%len(methods)]}
				if answer, err := replicas[worker%2].Pay(key, order); err == nil && answer.Status >= 500 {
					t.Errorf("%s: answered %d", key, answer.Status)
				}
				if n%8 == 7 {
					replicas[worker%2].Sweep.Pass(t.Context())
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { defer close(done); workers.Wait() }()
	pool := r.DB.ServicePool(t)
	runs := 0
	for working := true; working; runs++ {
		select {
		case <-done:
			working = false
		default:
		}
		report, err := verify.Run(t.Context(), pool, verify.Options{SandboxURL: r.Server.URL()})
		if err != nil {
			t.Fatal(err)
		}
		if !report.OK {
			t.Fatalf("run %d:\n%s", runs, report)
		}
	}
	if runs < 3 {
		t.Errorf("only %d runs while there was work", runs)
	}
	t.Logf("%d runs, %d movements", runs, len(r.Movements()))
}
