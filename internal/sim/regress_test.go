package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/operation"
)

// one is a world with one order at one acquirer, and no trouble but what the test adds.
func one(seed uint64, terms Terms) Config {
	return Config{Seed: seed, Orders: 1, Replicas: 1, Merchant: []Terms{terms}, Engine: operation.Default(), Sweep: 2 * time.Second,
		Habits: Habits{NewTry: 1000}, Trouble: 2 * time.Hour}
}

// runMany runs a world for each seed; change may set up its store.
func runMany(t *testing.T, worlds uint64, make func(seed uint64) Config, change func(*World)) {
	t.Helper()
	for seed := range worlds {
		w, err := NewWorld(make(seed))
		if err != nil {
			t.Fatal(err)
		}
		change(w)
		if wrong := w.Run(); len(wrong) > 0 {
			t.Fatalf("seed %d: %s\n%s", seed, strings.Join(wrong, "\n"), w.Tail)
		}
	}
}

// TestBytesThatLeaveLate: a permit is used just before it is over, and its bytes take the longest way. An acquirer that
// says "not found" meanwhile keeps its contract.
func TestBytesThatLeaveLate(t *testing.T) {
	terms := Terms{Name: "neither", Lookup: true, NotFoundFinal: true, Lag: 2 * time.Second, Flight: time.Minute, Processing: time.Minute}
	runMany(t, 60, func(seed uint64) Config {
		c := one(seed, terms)
		c.Mischief.LateRequest = 1000
		return c
	}, func(w *World) {
		w.Store.Faults = func(name string) (f TxFault) {
			if name == "claim" {
				f.After = w.Scheduler.Between(8*time.Second, 9900*time.Millisecond)
			}
			return f
		}
	})
}

// TestRefusalThenLateMoney: an acquirer that forgets refusals declines the repeat and takes the money with the first
// request, which was under way longer. The intent must not be free before that is known.
func TestRefusalThenLateMoney(t *testing.T) {
	terms := Terms{Name: "forgets", Keys: true, KeyWindow: 24 * time.Hour, Lookup: true, NotFoundFinal: true, Lag: time.Second,
		Flight: time.Minute, Processing: time.Minute}
	runMany(t, 120, func(seed uint64) Config {
		c := one(seed, terms)
		c.Mischief.LateRequest, c.Mischief.Declines = 500, 500
		return c
	}, func(*World) {})
}

// TestRecordWithoutAnswer: the COMMIT of a record gets no answer, and the record runs again.
func TestRecordWithoutAnswer(t *testing.T) {
	for _, terms := range Profiles {
		runMany(t, 40, func(seed uint64) Config {
			c := one(seed, terms)
			c.Mischief.Unreachable, c.Mischief.LostAnswer, c.Mischief.LateRequest = 400, 400, 200
			return c
		}, func(w *World) {
			w.Store.Faults = func(name string) TxFault {
				return TxFault{Lost: name == "record" && w.Scheduler.Odds(500), After: time.Millisecond}
			}
		})
	}
}
