package bench

import (
	"slices"
	"testing"
	"time"
)

// A whole run: every point has a figure, the ratios are of this run's points, and pgbench's log is read.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("a run takes a minute, and its figures say nothing under the race detector")
	}
	if _, err := Run(t.Context(), Options{Each: time.Millisecond}); err == nil {
		t.Error("a point of a millisecond is measured")
	}
	var told []string
	r, err := Run(t.Context(), Options{Each: 3 * MinEach, Tell: func(p Point) { told = append(told, p.Name) }})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"pgbench_1", "pgbench_8", "pgbench_64", "payments_1", "payments_8", "payments_64", pointRelay, pointTold, pointDelay, pointAgain}
	if !slices.Equal(told, want) || len(r.Points) != len(want) || !r.OK {
		t.Errorf("told %v", told)
	}
	for _, p := range r.Points {
		timed := p.Name != pointRelay
		if p.PerSecond <= 0 || timed && (p.P50 <= 0 || p.P99 < p.P50) {
			t.Errorf("%+v", p)
		}
	}
	for name, x := range r.Ratios {
		if x <= 0 {
			t.Errorf("ratio %s is %v", name, x)
		}
	}
	if len(r.Ratios) != 2*len(Callers)+3 {
		t.Errorf("%d ratios", len(r.Ratios))
	}
}

func TestPointOf(t *testing.T) {
	var took []time.Duration
	for n := range 200 {
		took = append(took, time.Duration(200-n)*time.Millisecond)
	}
	if p := pointOf("x", took, 10*time.Second); p.PerSecond != 20 || p.P50 != 101 || p.P99 != 199 {
		t.Errorf("%+v", p)
	}
	if p := pointOf("x", nil, time.Second); p != (Point{Name: "x"}) {
		t.Errorf("of nothing: %+v", p)
	}
}

func TestNoisyMeasure(t *testing.T) {
	for again, want := range map[float64]bool{100: false, 80: false, 125: false, 70: true, 140: true, 0: true} {
		r := Report{Ratios: map[string]float64{}, Points: []Point{{Name: "pgbench_8", PerSecond: 100}, {Name: pointAgain, PerSecond: again}}}
		if r.compare(); r.Noisy != want {
			t.Errorf("100 at the begin and %v at the end: noisy %v", again, r.Noisy)
		}
	}
}

func TestLatencies(t *testing.T) {
	took, err := latencies(nil, []byte("0 1 1500 0 1764500000 12\n3 2 250 0 1764500000 13\n"))
	if err != nil || !slices.Equal(took, []time.Duration{1500 * time.Microsecond, 250 * time.Microsecond}) {
		t.Errorf("%v, %v", took, err)
	}
	for _, bad := range []string{"1 2\n", "0 1 x 0\n"} {
		if _, err := latencies(nil, []byte(bad)); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}
