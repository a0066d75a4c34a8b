package sim

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/hapaxpay/hapax/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// seedsFrom reads HAPAX_SIM_SEED (one seed, whole trace) and HAPAX_SIM_WORLDS (how many).
func seedsFrom(t *testing.T, first uint64, worlds int) (seeds []uint64) {
	t.Helper()
	if one, err := strconv.ParseUint(os.Getenv("HAPAX_SIM_SEED"), 10, 64); err == nil {
		return []uint64{one}
	}
	if n, err := strconv.Atoi(os.Getenv("HAPAX_SIM_WORLDS")); err == nil {
		worlds = n
	}
	for n := range worlds {
		seeds = append(seeds, first+uint64(n))
	}
	return seeds
}

// traceFile is where HAPAX_SIM_TRACE wants the whole history.
func traceFile(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// TestWorlds runs worlds full of trouble; each must keep the invariants and come to an end.
func TestWorlds(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	counts := map[string]int{}
	payments, worlds, failed := 0, 0, 0
	for _, seed := range seedsFrom(t, 1, 600) {
		c := Swarm(seed)
		if path := os.Getenv("HAPAX_SIM_TRACE"); path != "" {
			c.Trace = traceFile(t, path)
		}
		w, err := NewWorld(c)
		if err != nil {
			t.Fatal(err)
		}
		if wrong := w.Run(); len(wrong) > 0 {
			failed++
			t.Errorf("seed %d (HAPAX_SIM_SEED=%d replays it):\n%s", seed, seed, strings.Join(wrong, "\n"))
			if failed == 1 {
				t.Log(w.Tail)
			}
			if failed == 10 {
				break
			}
		}
		payments, worlds = payments+len(w.Store.payments.order), worlds+1
		for what, n := range w.Counts {
			counts[what] += n
		}
	}
	t.Logf("%d worlds, %d payments", worlds, payments)
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%8d %s", counts[what], what)
	}
}

// TestTraceIsReplayable runs a thousand seeded payments twice: equal seeds give equal bytes, other seeds other bytes.
func TestTraceIsReplayable(t *testing.T) {
	run := func(seed uint64) (string, [32]byte, int) {
		var all strings.Builder
		c := Swarm(seed)
		c.Trace = &all
		w, err := NewWorld(c)
		if err != nil {
			t.Fatal(err)
		}
		if wrong := w.Run(); len(wrong) > 0 {
			t.Fatalf("seed %d: %s", seed, strings.Join(wrong, "\n"))
		}
		return all.String(), w.Scheduler.Trace.Sum(), len(w.Store.payments.order)
	}
	const wanted = 1000
	seen := map[[32]byte]uint64{}
	payments := 0
	for seed := uint64(100_000); payments < wanted; seed++ {
		first, sum, n := run(seed)
		second, again, _ := run(seed)
		if first != second || sum != again {
			t.Fatalf("seed %d: two runs differ, from line %s", seed, difference(first, second))
		}
		if other, twice := seen[sum]; twice {
			t.Fatalf("seeds %d and %d give one history", other, seed)
		}
		seen[sum] = seed
		payments += n
	}
	t.Logf("%d payments in %d worlds", payments, len(seen))
}

func difference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for n := range min(len(x), len(y)) {
		if x[n] != y[n] {
			return fmt.Sprintf("%d:\n%s\n%s", n, x[n], y[n])
		}
	}
	return strconv.Itoa(min(len(x), len(y)))
}
