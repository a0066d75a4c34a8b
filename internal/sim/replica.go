package sim

import (
	"context"
	"time"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
)

// Replica is one life of one process: its clocks, its tasks, its end. It implements operation.Runtime. A process that
// starts again after a crash is a new Replica.
type Replica struct {
	Name string
	// Offset shifts the wall clock: a replica whose clock is wrong.
	Offset time.Duration

	s           *Scheduler
	born        time.Duration
	stoodStill  time.Duration // how long the monotonic clock stood still, in a suspended machine
	pausedUntil time.Duration
	dead        bool
}

var _ operation.Runtime = (*Replica)(nil)

// NewReplica starts a process.
func (s *Scheduler) NewReplica(name string, offset time.Duration) *Replica {
	return &Replica{Name: name, Offset: offset, s: s, born: s.now}
}

// Dead says whether the process is gone.
func (r *Replica) Dead() bool { return r.dead }

// Kill ends the process between two steps: none of its tasks runs again. A task that kills its own process must call
// Vanish next.
func (r *Replica) Kill() {
	r.dead = true
	r.s.After(0, func() { r.s.reap(func(t *task) bool { return t.replica == r }) })
}

// Vanish ends the running task; it never returns.
func (r *Replica) Vanish() { r.s.vanish() }

// Pause stops the process for d: nothing of it runs, while its clocks go on.
func (r *Replica) Pause(d time.Duration) { r.pausedUntil = max(r.pausedUntil, r.s.now+d) }

// Suspend stops the machine for d: nothing runs, and the monotonic clock stands still.
func (r *Replica) Suspend(d time.Duration) {
	if r.pausedUntil <= r.s.now {
		r.Pause(d)
		r.s.After(d, func() { r.stoodStill += d })
	}
}

// Paused says whether the process stands still.
func (r *Replica) Paused() bool { return r.pausedUntil > r.s.now }

func (r *Replica) mono() time.Duration { return r.s.now - r.born - r.stoodStill }

// Instant reads both clocks.
func (r *Replica) Instant() wire.Instant {
	return wire.Instant{Mono: r.mono(), Wall: r.s.Time().Add(r.Offset)}
}

// Go runs f beside the caller, as soon as it is its turn.
func (r *Replica) Go(f func()) {
	if !r.dead {
		r.s.start(r, f)
	}
}

// NewID makes an identifier of the present moment, from the seed.
func (r *Replica) NewID() id.ID { return r.s.newID(r.Instant().Wall) }

// Jitter gives a number in [0, 1), from the seed.
func (r *Replica) Jitter() float64 { return r.s.jitter.Float64() }

// Sleep waits for d or until ctx is done.
func (r *Replica) Sleep(ctx context.Context, d time.Duration) {
	r.await(ctx, d, func() bool { return false }, nil)
}

// waiter is one reason to go on; the first one counts.
type waiter struct {
	over bool
	wake func()
}

func (w *waiter) fire() {
	if !w.over {
		w.over = true
		w.wake()
	}
}

// await parks the running task until ready, d by the monotonic clock, or ctx is done. It returns whether ready.
func (r *Replica) await(ctx context.Context, d time.Duration, ready func() bool, subscribe func(*waiter)) bool {
	end := r.mono() + d
	if at, limited := ctx.Deadline(); limited {
		end = min(end, at.Sub(Start))
	}
	for {
		if ready() {
			return true
		}
		left := end - r.mono()
		if left <= 0 || ctx.Err() != nil {
			return false
		}
		t := r.s.current
		w := &waiter{wake: func() { r.s.post(r.s.now, r, func() { r.s.resume(t) }) }}
		r.s.post(r.s.now+left, r, w.fire)
		if subscribe != nil {
			subscribe(w)
		}
		watchDone(ctx, w)
		r.s.park()
		w.over = true
	}
}

// signal implements operation.Signal.
type signal struct {
	replica *Replica
	set     bool
	waiters []*waiter
}

// NewSignal makes a one-time signal.
func (r *Replica) NewSignal() operation.Signal { return &signal{replica: r} }

// Set sets the signal; a dead process sets nothing any more.
func (s *signal) Set() {
	if s.set || s.replica.dead {
		return
	}
	s.set = true
	for _, w := range s.waiters {
		w.fire()
	}
	s.waiters = nil
}

// Wait returns true when the signal is set.
func (s *signal) Wait(ctx context.Context, d time.Duration) bool {
	return s.replica.await(ctx, d, func() bool { return s.set }, func(w *waiter) { s.waiters = append(s.waiters, w) })
}
