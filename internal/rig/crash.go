package rig

import (
	"context"
	"sync"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/operation"
)

// Crash is a fault plan: the process vanishes at the n-th hit of a point. What it does after that has no effect: no byte
// leaves, nothing is written. In tests one replica stands for one process, so a vanished replica must not be used again.
type Crash struct {
	Point string
	Nth   int // from 1

	mu   sync.Mutex
	hits int
	gone bool
	hit  chan struct{}
}

// CrashAt makes a plan.
func CrashAt(point string, nth int) *Crash {
	return &Crash{Point: point, Nth: nth, hit: make(chan struct{})}
}

// Hit implements operation.Faults.
func (c *Crash) Hit(_ context.Context, point string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return operation.ErrVanished
	}
	if point != c.Point {
		return nil
	}
	if c.hits++; c.hits != c.Nth {
		return nil
	}
	c.gone = true
	close(c.hit)
	return operation.ErrVanished
}

// Happened says whether the point was met.
func (c *Crash) Happened() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

// Gone is closed when the process vanishes.
func (c *Crash) Gone() <-chan struct{} { return c.hit }

// Doer is the transport of a process that may vanish around the write: before it, no byte leaves; after it, the request
// is with the acquirer and the answer is never seen.
func (c *Crash) Doer(real wire.Doer) wire.Doer { return crashDoer{c, real} }

type crashDoer struct {
	crash *Crash
	real  wire.Doer
}

// Do implements wire.Doer.
func (d crashDoer) Do(ctx context.Context, call wire.Call) wire.Result {
	vanished := wire.Result{Sent: wire.NotSent, Phase: wire.PhaseCheck, Err: operation.ErrVanished}
	if call.Permit != nil && d.crash.Hit(ctx, operation.PointBeforeWrite) != nil {
		return vanished
	}
	if d.crash.Happened() {
		return vanished
	}
	result := d.real.Do(ctx, call)
	if call.Permit != nil && d.crash.Hit(ctx, operation.PointAfterWrite) != nil {
		return wire.Result{Phase: wire.PhaseResponse, Err: operation.ErrVanished}
	}
	return result
}

// Gate is a fault plan that holds whoever meets a point until it is opened.
type Gate struct {
	Point   string
	reached chan struct{}
	open    chan struct{}
	once    sync.Once
	opened  sync.Once
}

// HoldAt makes a gate for the first one who meets the point; later ones pass.
func HoldAt(point string) *Gate {
	return &Gate{Point: point, reached: make(chan struct{}), open: make(chan struct{})}
}

// Hit implements operation.Faults.
func (g *Gate) Hit(_ context.Context, point string) error {
	if point != g.Point {
		return nil
	}
	first := false
	g.once.Do(func() { first = true })
	if first {
		close(g.reached)
		<-g.open
	}
	return nil
}

// Reached is closed when somebody stands at the gate.
func (g *Gate) Reached() <-chan struct{} { return g.reached }

// Open lets go.
func (g *Gate) Open() { g.opened.Do(func() { close(g.open) }) }
