// Package host is the real runtime of the engine: the machine's clocks, goroutines and randomness.
//
// Owns operation.Runtime as processes use it, with the clock offset of a fault plan, and the count of what still runs.
// Never used by a simulation, which brings its own.
// Read next: internal/operation/ports.go, which says what a Runtime promises.
package host

import (
	"context"
	cryptorand "crypto/rand"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
)

// Runtime implements operation.Runtime. Offset shifts the wall clock, for tests of a replica whose clock is wrong.
type Runtime struct {
	Offset  time.Duration
	running sync.WaitGroup
}

var _ operation.Runtime = (*Runtime)(nil)

// Instant reads both clocks.
func (r *Runtime) Instant() wire.Instant {
	i := wire.SystemClock{}.Instant()
	i.Wall = i.Wall.Add(r.Offset)
	return i
}

// Go runs f beside the caller; Drain waits for it.
func (r *Runtime) Go(f func()) {
	r.running.Add(1)
	go func() {
		defer r.running.Done()
		f()
	}()
}

// Drain waits until everything that Go started has ended, or ctx is done. It says whether all ended.
func (r *Runtime) Drain(ctx context.Context) bool {
	done := make(chan struct{})
	go func() {
		r.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// WithTimeout limits ctx by the machine's clock.
func (r *Runtime) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

// Sleep waits for d or until ctx is done.
func (r *Runtime) Sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// NewID makes an identifier of the present moment.
func (r *Runtime) NewID() id.ID {
	var random [10]byte
	cryptorand.Read(random[:]) // never fails: the program ends if the system has no randomness
	return id.New(r.Instant().Wall, random)
}

// Jitter gives a number in [0, 1).
func (r *Runtime) Jitter() float64 { return rand.Float64() }

// NewSignal makes a one-time signal.
func (r *Runtime) NewSignal() operation.Signal { return &signal{c: make(chan struct{})} }

type signal struct {
	once sync.Once
	c    chan struct{}
}

// Set sets the signal; a second time changes nothing.
func (s *signal) Set() { s.once.Do(func() { close(s.c) }) }

// Wait returns true when the signal is set.
func (s *signal) Wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-s.c:
		return true
	default:
	}
	select {
	case <-s.c:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}
