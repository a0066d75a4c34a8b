package flow

import (
	"sync"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
)

// limits keeps an acquirer gone dark from starving the others, and from getting a storm when it comes back
// (PROTOCOL S6): a bound on parallel recovery work and a breaker, for each account. It concerns recovery only; a first
// call is bounded by its client. Forgetting it at a restart is harmless.
type limits struct {
	mu       sync.Mutex
	accounts map[id.ID]*limit
}

type limit struct {
	running  int
	failures int           // in a row
	closedAt time.Duration // monotonic: nothing is asked before
}

// Bounds of the breaker.
const (
	breakAfter    = 5
	breakFor      = 2 * time.Second
	breakDoubling = 5 // 64 s at most
)

func newLimits() *limits { return &limits{accounts: map[id.ID]*limit{}} }

// enter asks for a place; leave must be called with whether the acquirer answered.
func (l *limits) enter(account id.ID, bound int, now time.Duration) (leave func(answered bool, now time.Duration), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accounts[account]
	if a == nil {
		a = &limit{}
		l.accounts[account] = a
	}
	if a.running >= bound || now < a.closedAt {
		return nil, false
	}
	a.running++
	return func(answered bool, now time.Duration) {
		l.mu.Lock()
		defer l.mu.Unlock()
		a.running--
		if answered {
			a.failures, a.closedAt = 0, 0
			return
		}
		if a.failures++; a.failures >= breakAfter {
			a.closedAt = now + breakFor<<min(a.failures-breakAfter, breakDoubling)
		}
	}, true
}
