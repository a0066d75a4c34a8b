package sandbox

import (
	"sync"
	"time"
)

// clock is the sandbox's own time: a base clock and an offset that a control
// call moves. Whoever waits on it wakes at once when the offset moves past the
// time waited for, so that nobody needs to sleep through thirty seconds.
type clock struct {
	base func() time.Time

	mu      sync.Mutex
	offset  time.Duration
	changed chan struct{}
}

func newClock(base func() time.Time) *clock {
	return &clock{base: base, changed: make(chan struct{})}
}

// now is the sandbox's time in UTC.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.base().Add(c.offset).UTC()
}

func (c *clock) shift() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offset
}

func (c *clock) setShift(offset time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset = offset
	close(c.changed)
	c.changed = make(chan struct{})
}

// wait returns true when the sandbox's time reaches until or let is closed,
// false when stop is closed first.
func (c *clock) wait(until time.Time, stop, let <-chan struct{}) bool {
	for {
		c.mu.Lock()
		left, changed := until.Sub(c.base().Add(c.offset)), c.changed
		c.mu.Unlock()
		if left <= 0 {
			return true
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-changed:
			timer.Stop()
		case <-let:
			timer.Stop()
			return true
		case <-stop:
			timer.Stop()
			return false
		}
	}
}
