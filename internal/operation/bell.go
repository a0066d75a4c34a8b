package operation

import "sync"

// Bell wakes whoever waits for its next ring: a loop of this process, when there is work for it. Rings before anybody waits are
// forgotten, so a loop takes Next before it looks. Polling finds what another process has left; the bell only saves the wait.
type Bell struct {
	rt     interface{ NewSignal() Signal }
	mu     sync.Mutex
	signal Signal // of the next ring; nil: nobody waits
}

// NewBell makes a bell.
func NewBell(rt interface{ NewSignal() Signal }) *Bell { return &Bell{rt: rt} }

// Next gives the signal that the next ring sets.
func (b *Bell) Next() Signal {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.signal == nil {
		b.signal = b.rt.NewSignal()
	}
	return b.signal
}

// Ring wakes all who wait. It returns at once.
func (b *Bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.signal != nil {
		b.signal.Set()
		b.signal = nil
	}
}
