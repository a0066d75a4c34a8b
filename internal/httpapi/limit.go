package httpapi

import (
	"container/list"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/hapaxpay/hapax/internal/id"
)

const (
	// maxLimited bounds the merchants whose rate is remembered. The one who was quiet for longest is forgotten first; if
	// it comes back it begins with a full bucket, which is what it would have had.
	maxLimited = 10_000
	// burst is how many seconds' worth of requests may come in one moment.
	burst = 2
)

// limits holds one bucket for each merchant. Each replica counts for itself.
type limits struct {
	perSecond int // where a merchant has no limit of its own
	mu        sync.Mutex
	buckets   map[id.ID]*list.Element
	quiet     *list.List // of *bucket, the one used last in front
}

type bucket struct {
	merchant id.ID
	perSec   int
	tokens   *rate.Limiter
}

func newLimits(perSecond int) *limits {
	return &limits{perSecond: perSecond, buckets: map[id.ID]*list.Element{}, quiet: list.New()}
}

// take asks for one request of the merchant now; a time above zero says how long to wait instead. own is the
// merchant's limit per second, zero for the default.
func (l *limits) take(merchant id.ID, own int, now time.Time) time.Duration {
	if own == 0 {
		own = l.perSecond
	}
	r := l.bucket(merchant, own).ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now)
	}
	return wait
}

func (l *limits) bucket(merchant id.ID, perSecond int) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.buckets[merchant]; ok {
		b := e.Value.(*bucket)
		if b.perSec == perSecond {
			l.quiet.MoveToFront(e)
			return b.tokens
		}
		l.forget(e) // the merchant's limit was changed
	}
	if l.quiet.Len() == maxLimited {
		l.forget(l.quiet.Back())
	}
	b := &bucket{merchant, perSecond, rate.NewLimiter(rate.Limit(perSecond), perSecond*burst)}
	l.buckets[merchant] = l.quiet.PushFront(b)
	return b.tokens
}

func (l *limits) forget(e *list.Element) {
	delete(l.buckets, e.Value.(*bucket).merchant)
	l.quiet.Remove(e)
}
