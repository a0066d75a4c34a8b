package sim

import (
	"context"
	"slices"
	"time"
)

// limited is a context whose deadline is virtual, by the monotonic clock of its replica. Its Deadline is that clock
// added to Start, which only this package reads.
type limited struct {
	parent   context.Context
	replica  *Replica
	deadline time.Duration // monotonic; negative: none
	err      error
	done     chan struct{} // made when somebody asks for it
	waiters  []*waiter
}

const noDeadline = time.Duration(-1)

type limitedKey struct{}

// WithTimeout limits ctx by the replica's monotonic clock.
func (r *Replica) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	c := &limited{parent: ctx, replica: r, deadline: max(r.mono()+d, 0)}
	if at, ok := ctx.Deadline(); ok {
		c.deadline = min(c.deadline, at.Sub(Start))
	}
	return c, func() { c.end(context.Canceled) }
}

// WithCancel gives a context that ends when the function is called: a client that goes away.
func (r *Replica) WithCancel(ctx context.Context) (context.Context, context.CancelFunc) {
	c := &limited{parent: ctx, replica: r, deadline: noDeadline}
	if at, ok := ctx.Deadline(); ok {
		c.deadline = at.Sub(Start)
	}
	return c, func() { c.end(context.Canceled) }
}

// Deadline implements context.Context.
func (c *limited) Deadline() (time.Time, bool) {
	if c.deadline == noDeadline {
		return time.Time{}, false
	}
	return Start.Add(c.deadline), true
}

// Err implements context.Context: it is judged when it is asked for.
func (c *limited) Err() error {
	switch {
	case c.err != nil:
	case c.parent.Err() != nil:
		c.err = c.parent.Err()
	case c.deadline != noDeadline && c.replica.mono() >= c.deadline:
		c.err = context.DeadlineExceeded
	}
	return c.err
}

// Value implements context.Context.
func (c *limited) Value(key any) any {
	if key == (limitedKey{}) {
		return c
	}
	return c.parent.Value(key)
}

// Done implements context.Context. The engine never asks: it waits through its Runtime.
func (c *limited) Done() <-chan struct{} {
	if c.done != nil {
		return c.done
	}
	c.done = make(chan struct{})
	w := &waiter{wake: func() { close(c.done) }}
	if c.Err() != nil {
		w.fire()
		return c.done
	}
	c.watch(w)
	if c.deadline != noDeadline {
		c.replica.s.post(c.replica.s.now+c.deadline-c.replica.mono(), c.replica, w.fire)
	}
	return c.done
}

func (c *limited) end(err error) {
	if c.Err() == nil {
		c.err = err
	}
	for _, w := range c.waiters {
		w.fire()
	}
	c.waiters = nil
}

// watch wakes w when this context or one above it is ended by somebody.
func (c *limited) watch(w *waiter) {
	if len(c.waiters) > maxIdleWaiters {
		c.waiters = slices.DeleteFunc(c.waiters, func(w *waiter) bool { return w.over })
	}
	c.waiters = append(c.waiters, w)
	watchDone(c.parent, w)
}

// maxIdleWaiters is when a context forgets who waits no more.
const maxIdleWaiters = 16

// watchDone finds the nearest context of ours that ctx ends with. Behind context.WithoutCancel there is none.
func watchDone(ctx context.Context, w *waiter) {
	if c, ok := ctx.Value(limitedKey{}).(*limited); ok && endsWith(ctx, c) {
		c.watch(w)
	}
}

// endsWith says whether ctx ends when c does: they have one channel in common, as in the standard library.
func endsWith(ctx context.Context, c *limited) bool {
	if ctx == context.Context(c) {
		return true
	}
	return ctx.Done() != nil && ctx.Done() == c.Done()
}
