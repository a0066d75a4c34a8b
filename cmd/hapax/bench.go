package main

import (
	"fmt"
	"slices"
	"time"

	"maps"

	"github.com/hapaxpay/hapax/internal/bench"
)

type benchCmd struct {
	Each time.Duration `default:"5s" help:"How long each point is measured, 1s at least."`
}

// Run measures on a private PostgreSQL of its own.
func (c benchCmd) Run(t *tool) error {
	o := bench.Options{Each: c.Each}
	if !t.json {
		o.Tell = func(p bench.Point) {
			fmt.Fprintf(t.out, "%-24s %9.1f/s   p50 %8.2f ms   p99 %8.2f ms\n", p.Name, p.PerSecond, p.P50, p.P99)
		}
	}
	var report bench.Report
	err := t.withPostgres(func() (err error) {
		report, err = bench.Run(t.ctx, o)
		return err
	})
	if err != nil {
		return err
	}
	if t.json {
		return t.print(report)
	}
	fmt.Fprintln(t.out)
	for _, name := range slices.Sorted(maps.Keys(report.Ratios)) {
		fmt.Fprintf(t.out, "%-36s %6.3f\n", name, report.Ratios[name])
	}
	if report.Noisy {
		fmt.Fprintln(t.out, "noisy: the measure itself changed while we measured; the ratios say little")
	}
	return nil
}
