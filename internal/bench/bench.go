// Package bench measures payments and the relay next to what PostgreSQL alone could do, as ratios in one run.
//
// Owns the measured points, the private cluster they run on, and the acquirer that answers at once (an instrument, no witness).
// Never touches a database that it did not start, and judges nothing: figures of two machines, or of two runs, do not compare.
// Read next: Run below, then pgbench.go (the measure) and payments.go (the measured).
package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Options of a run.
type Options struct {
	// Each is how long one point is measured, at least MinEach.
	Each time.Duration
	// Tell is called with each point as it is ready; nil: nobody listens.
	Tell func(Point)
}

// MinEach is the shortest time of one point: below it PostgreSQL's own rhythm is all that is measured.
const MinEach = time.Second

// Callers are the numbers of callers at once that payments are measured with.
var Callers = []int{1, 8, 64}

// Point is one measured figure.
type Point struct {
	Name      string  `json:"name"`
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
}

// Report is the output of the command. Ratios are of two points of this very run.
type Report struct {
	OK     bool               `json:"ok"`
	Noisy  bool               `json:"noisy"` // the measure itself changed by more than noise while we measured
	Points []Point            `json:"points"`
	Ratios map[string]float64 `json:"ratios"`
}

// noise is by how much the measure may differ between begin and end of a run.
const noise = 0.25

// Names of points that are not made of a number.
const (
	pointAgain = "pgbench_8_again"
	pointRelay = "relay"
	pointTold  = "payments_8_with_relay"
	pointDelay = "relay_added_latency"
)

// Run measures all points: pgbench, payments without and with a relay, the relay alone, and pgbench again.
func Run(ctx context.Context, o Options) (report Report, err error) {
	if o.Each < MinEach {
		return Report{}, fmt.Errorf("a point is measured for %v at least", MinEach)
	}
	l, err := openLab(ctx)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	r := &Report{OK: true, Ratios: map[string]float64{}}
	add := func(p Point, err error) error {
		if err == nil && p.PerSecond == 0 {
			err = errors.New("nothing ended within the time; measure longer")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		r.Points = append(r.Points, p)
		if o.Tell != nil {
			o.Tell(p)
		}
		return nil
	}
	for _, n := range Callers {
		if err := add(l.pgbench(ctx, fmt.Sprintf("pgbench_%d", n), n, o.Each)); err != nil {
			return *r, err
		}
	}
	if err := l.warmUp(ctx); err != nil {
		return *r, err
	}
	for _, n := range Callers {
		if err := add(l.payments(ctx, fmt.Sprintf("payments_%d", n), n, o.Each)); err != nil {
			return *r, err
		}
	}
	if err := add(l.relayAlone(ctx)); err != nil {
		return *r, err
	}
	told, delay, err := l.relayBeside(ctx, o.Each)
	if err := errors.Join(add(told, err), add(delay, err)); err != nil {
		return *r, err
	}
	if err := add(l.pgbench(ctx, pointAgain, 8, o.Each)); err != nil {
		return *r, err
	}
	r.compare()
	return *r, nil
}

// compare makes the ratios, and says whether the machine was quiet.
func (r *Report) compare() {
	for _, n := range Callers {
		ours, theirs := r.point(fmt.Sprintf("payments_%d", n)), r.point(fmt.Sprintf("pgbench_%d", n))
		r.Ratios[fmt.Sprintf("payments_to_pgbench_%d", n)] = ratio(ours.PerSecond, theirs.PerSecond)
		r.Ratios[fmt.Sprintf("p50_to_pgbench_%d", n)] = ratio(ours.P50, theirs.P50)
	}
	r.Ratios["relay_to_payments"] = ratio(r.point(pointRelay).PerSecond, r.fastest())
	r.Ratios["payments_8_with_relay_to_without"] = ratio(r.point(pointTold).PerSecond, r.point("payments_8").PerSecond)
	again := ratio(r.point(pointAgain).PerSecond, r.point("pgbench_8").PerSecond)
	r.Ratios["pgbench_again"] = again
	r.Noisy = again < 1-noise || again > 1/(1-noise)
}

// fastest is the highest rate of payments without a relay.
func (r *Report) fastest() (best float64) {
	for _, n := range Callers {
		best = max(best, r.point(fmt.Sprintf("payments_%d", n)).PerSecond)
	}
	return best
}

func (r *Report) point(name string) Point {
	at := slices.IndexFunc(r.Points, func(p Point) bool { return p.Name == name })
	if at < 0 {
		return Point{}
	}
	return r.Points[at]
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return float64(int(1000*a/b+0.5)) / 1000
}

// pointOf makes a point of the times that single things took.
func pointOf(name string, took []time.Duration, within time.Duration) Point {
	if len(took) == 0 || within <= 0 {
		return Point{Name: name}
	}
	slices.Sort(took)
	at := func(q float64) float64 {
		return float64(took[min(int(q*float64(len(took))), len(took)-1)].Microseconds()) / 1000
	}
	return Point{Name: name, PerSecond: rate(len(took), within), P50: at(0.50), P99: at(0.99)}
}

// rate is how many in a second, to one decimal.
func rate(n int, within time.Duration) float64 {
	return float64(int(10*float64(n)/within.Seconds())) / 10
}
