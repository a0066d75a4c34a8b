package flow_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/rig"
)

// behaviours are what the acquirer does, each with the states in which its payment may end, by whether money moved.
var behaviours = []struct {
	method  string
	unmoved []string // allowed when the register shows nothing
	moved   []string // allowed when it shows the movement
}{
	{"pm_ok", nil, []string{"paid"}},
	{"pm_declined_insufficient_funds", []string{"declined"}, nil},
	{"pm_timeout_executed", nil, []string{"paid"}},
	{"pm_timeout_not_executed", []string{"failed"}, []string{"paid"}},
	{"pm_reset_executed", nil, []string{"paid"}},
	{"pm_500_executed", nil, []string{"paid"}},
	{"pm_500_not_executed", []string{"failed"}, nil},
	{"pm_401_once", []string{"failed"}, []string{"paid"}},
	{"pm_409_in_flight", nil, []string{"paid"}},
	{"pm_429_once", []string{"failed"}, []string{"paid"}},
	{"pm_502_executed", nil, []string{"paid"}},
	{"pm_broken_json_executed", nil, []string{"paid"}},
	{"pm_200_error_executed", nil, []string{"paid"}},
	{"pm_wrong_amount", nil, []string{"unknown"}},
	{"pm_processing_20000", nil, []string{"paid"}},
	{"pm_executes_after_30s", nil, []string{"paid"}},
	{"pm_arrives_after_20s", nil, []string{"paid"}},
	{"pm_timeout_executed|pm_401_once", nil, []string{"paid"}},
}

// TestEveryBehaviourAtEveryCrashPoint: the process vanishes at each named point while the acquirer behaves in each way;
// then a repeat of the client at another replica, and the sweep. At most one movement, a state that tells the truth,
// and every invariant.
func TestEveryBehaviourAtEveryCrashPoint(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the matrix is left to the run without the race detector")
	}
	points := append([]string{"none"}, operation.Points...)
	for _, b := range behaviours {
		t.Run(b.method, func(t *testing.T) {
			t.Parallel()
			// A long flight: what was lost before the write is sent again, not given up.
			r := rig.New(t, rig.Terms{"max_flight": "15m"})
			met := map[string]bool{}
			for n, point := range points {
				crash := rig.CrashAt(point, 1)
				order := rig.Order{Reference: "order-" + point, Method: b.method}
				p := r.Replica(rig.WithFaults(crash), rig.WithDoer(crash.Doer(client(t, r))))
				answer, err := p.Pay("key-"+point, order)
				if err == nil && answer.Status == 500 {
					t.Errorf("%s: answered 500", point)
				}
				met[point] = crash.Happened()
				if n%2 == 0 { // half of the clients repeat before anybody's lease ends
					if _, err := r.Replica().Pay("key-"+point, order); err != nil {
						t.Logf("%s: repeat: %v", point, err)
					}
				}
			}
			for _, always := range []string{operation.PointAfterClaim, operation.PointBeforeWrite, operation.PointAfterWrite, operation.PointAfterReply, operation.PointBeforeRecord, operation.PointInRecord, operation.PointAfterRecord} {
				if !met[always] {
					t.Errorf("the point %s was never met", always)
				}
			}
			recoverAtPoints(t, r)
			r.Replica().Settle(72 * time.Hour)
			for _, point := range points {
				checkCell(t, r, point, b.unmoved, b.moved)
			}
			r.Verify()
		})
	}
}

// recoverAtPoints lets further processes vanish while they recover what the first ones left.
func recoverAtPoints(t *testing.T, r *rig.Rig) {
	for _, point := range []string{operation.PointBeforeLookup, operation.PointAfterLookup, operation.PointBeforePermit, operation.PointAfterPermit, operation.PointBeforeWrite, operation.PointAfterWrite, operation.PointInRecord} {
		r.Later(65 * time.Second)
		crash := rig.CrashAt(point, 1)
		r.Replica(rig.WithFaults(crash), rig.WithDoer(crash.Doer(client(t, r)))).Sweep.Pass(t.Context())
	}
}

func arrived(r *rig.Rig, key string) bool {
	for _, c := range r.Charges() {
		if c.IdempotencyKey == key {
			return true
		}
	}
	return false
}

func client(t *testing.T, r *rig.Rig) wire.Doer {
	t.Helper()
	c, err := wire.New(wire.Config{BaseURL: r.Server.URL(), ConnectTimeout: 500 * time.Millisecond, ReadTimeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func checkCell(t *testing.T, r *rig.Rig, point string, unmoved, moved []string) {
	t.Helper()
	key := r.Text("SELECT acquirer_key FROM payment WHERE idempotency_key = $1", "key-"+point)
	count := 0
	for _, m := range r.Movements() {
		if m.Reference == key {
			count++
		}
	}
	status := r.Status("key-" + point)
	allowed := unmoved
	if count > 0 {
		allowed = moved
	}
	if key == "" { // vanished before its claim was committed, and nobody came back
		return
	}
	if count > 1 {
		t.Errorf("%s: %d movements", point, count)
	}
	if !arrived(r, key) { // lost before its first byte, and nobody sent it while that was allowed
		allowed = []string{"failed"}
	}
	for _, a := range allowed {
		if a == status {
			return
		}
	}
	t.Errorf("%s: status %s with %d movements; want one of %s", point, status, count, fmt.Sprint(allowed))
}
