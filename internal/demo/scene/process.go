package scene

import (
	"bytes"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hapaxpay/hapax/acquirer/wire"
)

// point is a moment in the life of a request that all three services have.
type point int

const (
	beforeCall point = iota + 1 // the intention is written, nothing was sent
	afterCall                   // the acquirer has answered, nothing of it is written
)

// process stands for the operating system process of one replica: it can die or stand still at a point. It is also the
// clock of the replica's transport, which has gone on when a process that stood still wakes.
type process struct {
	mu      sync.Mutex
	dieAt   point
	stopAt  point
	gone    bool
	stopped chan struct{} // closed when it stands still
	wake    chan struct{} // closed to let it go on
	stands  bool

	jump    atomic.Int64 // nanoseconds that passed while it stood still
	serving sync.WaitGroup
}

var _ wire.Clock = (*process)(nil)

// Instant implements wire.Clock.
func (p *process) Instant() wire.Instant {
	i, jump := wire.SystemClock{}.Instant(), time.Duration(p.jump.Load())
	return wire.Instant{Mono: i.Mono + jump, Wall: i.Wall.Add(jump)}
}

// die makes the process end when a request meets the point.
func (p *process) die(at point) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dieAt = at
}

// stop makes the process stand still when a request meets the point, until goOn.
func (p *process) stop(at point) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopAt, p.stopped, p.wake = at, make(chan struct{}), make(chan struct{})
}

// goOn wakes the process after it stood still for so long. A second call does nothing.
func (p *process) goOn(after time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wake != nil {
		p.jump.Add(int64(after))
		close(p.wake)
		p.stopAt, p.wake, p.stands = 0, nil, false
	}
}

// meet is called by a request at a point; false: its process is gone, and the request with it.
func (p *process) meet(at point) (alive bool) {
	p.mu.Lock()
	if p.dieAt == at {
		p.gone = true
	}
	gone, wait := p.gone, p.stopAt == at
	stopped, wake := p.stopped, p.wake
	if wait {
		p.stopAt, p.stands = 0, true
	}
	p.mu.Unlock()
	if !gone && wait {
		close(stopped)
		<-wake
	}
	return !gone
}

// works says that the process is there and does not stand still.
func (p *process) works() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.gone && !p.stands
}

func (p *process) dead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}

// front serves the replica's API as its process would: a process that is gone answers nothing, not even an error.
func (p *process) front(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.serving.Add(1)
		defer p.serving.Done()
		if p.dead() {
			panic(http.ErrAbortHandler)
		}
		answer := &held{header: w.Header(), status: http.StatusOK}
		api.ServeHTTP(answer, r)
		if p.dead() {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(answer.status)
		if _, err := w.Write(answer.body.Bytes()); err != nil {
			return // the client has gone, which several scenarios are about
		}
	})
}

// held is an answer that has not left yet.
type held struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (h *held) Header() http.Header         { return h.header }
func (h *held) WriteHeader(status int)      { h.status = status }
func (h *held) Write(b []byte) (int, error) { return h.body.Write(b) }
