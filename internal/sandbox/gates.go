package sandbox

import (
	"sync"
	"time"
)

const (
	// holdCap bounds how long a request is kept at a gate, in real time.
	holdCap = 10 * time.Minute
	// maxHeld bounds the requests kept at all gates together; one more passes.
	maxHeld = 4096
	// silentGate is where requests stand that get no answer.
	silentGate = "silent"
	// clockGate is where requests stand that wait for the sandbox's clock.
	clockGate = "clock"
)

// gates are places where requests wait until a control call lets them go, so
// that a test forces a race in place of hoping for it.
type gates struct {
	mu      sync.Mutex
	held    map[string][]*holder
	total   int
	changed chan struct{} // closed and replaced whenever held grows
}

type holder struct{ let chan struct{} }

func newGates() *gates {
	return &gates{held: map[string][]*holder{}, changed: make(chan struct{})}
}

// wait keeps the caller at the gate until it is released, one of the two
// channels is closed, or the cap is reached; true means released.
func (g *gates) wait(name string, limit time.Duration, stop, gone <-chan struct{}) bool {
	me := &holder{let: make(chan struct{})}
	if !g.enter(name, me) {
		return false
	}
	defer g.leave(name, me)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-me.let:
		return true
	case <-stop:
	case <-gone:
	case <-timer.C:
	}
	return false
}

func (g *gates) enter(name string, me *holder) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.total >= maxHeld {
		return false
	}
	g.total++
	g.held[name] = append(g.held[name], me)
	close(g.changed)
	g.changed = make(chan struct{})
	return true
}

func (g *gates) leave(name string, me *holder) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.total--
	kept := g.held[name][:0]
	for _, other := range g.held[name] {
		if other != me {
			kept = append(kept, other)
		}
	}
	if g.held[name] = kept; len(kept) == 0 {
		delete(g.held, name)
	}
}

// release lets the n that wait longest go, all of them for n = 0, and says how
// many went. Those who come later wait again.
func (g *gates) release(name string, n int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	waiting := g.held[name]
	if n == 0 || n > len(waiting) {
		n = len(waiting)
	}
	for _, h := range waiting[:n] {
		close(h.let)
	}
	// They take themselves off the count in leave, but cannot be let go twice.
	g.held[name] = append([]*holder(nil), waiting[n:]...)
	return n
}

// counts says how many wait at each gate, and gives a channel that is closed
// when one more comes.
func (g *gates) counts() (map[string]int, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	counts := make(map[string]int, len(g.held))
	for name, waiting := range g.held {
		if len(waiting) > 0 {
			counts[name] = len(waiting)
		}
	}
	return counts, g.changed
}
