package sim

import (
	"iter"
	"math/rand/v2"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
)

// Start is when every history begins.
var Start = time.Date(2026, time.January, 5, 9, 0, 0, 0, time.UTC)

// Scheduler is virtual time and the order of everything that happens: events in a heap, tasks as coroutines of which
// exactly one runs at a time. It is used by one goroutine.
type Scheduler struct {
	// Chance decides about faults and delays. A history is a function of the seed alone.
	Chance *rand.Rand
	// Trace gets one line for every step.
	Trace *Trace
	// Steps counts the events that ran.
	Steps int

	names   *rand.Rand // of identifiers: a stream of its own, so that one more row changes no fault
	jitter  *rand.Rand
	now     time.Duration
	seq     uint64
	heap    []*event
	current *task
	tasks   []*task
}

// Streams of randomness that follow from one seed.
const (
	streamChance = 0x9e3779b97f4a7c15
	streamNames  = 0xbf58476d1ce4e5b9
	streamJitter = 0x94d049bb133111eb
)

// NewScheduler starts a history. Close must be called.
func NewScheduler(seed uint64, trace *Trace) *Scheduler {
	source := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }
	return &Scheduler{Chance: source(streamChance), names: source(streamNames), jitter: source(streamJitter), Trace: trace}
}

// Now is virtual time since Start.
func (s *Scheduler) Now() time.Duration { return s.now }

// Time is virtual time as a moment.
func (s *Scheduler) Time() time.Time { return Start.Add(s.now) }

// Note writes one line of the trace, for whoever runs now; words are joined by spaces.
func (s *Scheduler) Note(words ...string) {
	who := "world"
	if s.current != nil {
		who = s.current.replica.Name
	}
	s.Trace.line(s.now, who, words)
}

// event is one thing that will happen, to a replica or to the world outside (nil).
type event struct {
	at      time.Duration
	seq     uint64
	replica *Replica
	do      func()
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// After lets do happen after d, in the world outside. It runs on the loop: it must not wait for anything.
func (s *Scheduler) After(d time.Duration, do func()) { s.post(s.now+max(d, 0), nil, do) }

func (s *Scheduler) post(at time.Duration, r *Replica, do func()) {
	s.push(&event{at: at, replica: r, do: do})
}

func (s *Scheduler) push(e *event) {
	s.seq++
	e.seq = s.seq
	s.heap = append(s.heap, e)
	for n := len(s.heap) - 1; n > 0; {
		parent := (n - 1) / 2
		if !s.heap[n].before(s.heap[parent]) {
			break
		}
		s.heap[n], s.heap[parent] = s.heap[parent], s.heap[n]
		n = parent
	}
}

func (s *Scheduler) pop() *event {
	first, last := s.heap[0], len(s.heap)-1
	s.heap[0], s.heap[last] = s.heap[last], nil
	s.heap = s.heap[:last]
	for n := 0; ; {
		child := 2*n + 1
		if child >= last {
			break
		}
		if child+1 < last && s.heap[child+1].before(s.heap[child]) {
			child++
		}
		if !s.heap[child].before(s.heap[n]) {
			break
		}
		s.heap[n], s.heap[child] = s.heap[child], s.heap[n]
		n = child
	}
	return first
}

// Run lets things happen until none is left, until passes, or stop says so. It returns whether anything is left.
func (s *Scheduler) Run(until time.Duration, stop func() bool) bool {
	for len(s.heap) > 0 && s.heap[0].at <= until && !stop() {
		e := s.pop()
		s.now = max(s.now, e.at)
		if r := e.replica; r != nil {
			if r.dead {
				continue
			}
			if r.pausedUntil > s.now { // a stopped process does nothing: it does it afterwards, in the same order
				e.at = r.pausedUntil
				s.push(e)
				continue
			}
		}
		s.Steps++
		e.do()
	}
	return len(s.heap) > 0
}

// task is one coroutine of a replica.
type task struct {
	replica *Replica
	next    func() (struct{}, bool)
	stop    func()
	yield   func(struct{}) bool
	place   int // in Scheduler.tasks
}

// abandoned unwinds a coroutine whose process is gone. What its deferred calls do is ignored: the replica is dead.
type abandoned struct{}

func (s *Scheduler) start(r *Replica, f func()) {
	t := &task{replica: r, place: len(s.tasks)}
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if p := recover(); p != nil {
				if _, ok := p.(abandoned); !ok {
					panic(p)
				}
			}
		}()
		t.yield = yield
		f()
	})
	s.tasks = append(s.tasks, t)
	s.post(s.now, r, func() { s.resume(t) })
}

func (s *Scheduler) resume(t *task) {
	s.current = t
	_, alive := t.next()
	s.current = nil
	if !alive {
		s.forget(t)
	}
}

func (s *Scheduler) forget(t *task) {
	last := len(s.tasks) - 1
	if t.place > last || s.tasks[t.place] != t {
		return
	}
	s.tasks[t.place], s.tasks[last].place = s.tasks[last], t.place
	s.tasks[last] = nil
	s.tasks = s.tasks[:last]
}

// park gives the turn back; whoever parked has arranged for being resumed.
func (s *Scheduler) park() {
	t := s.current
	if t == nil {
		panic("sim: only a task can wait")
	}
	if !t.yield(struct{}{}) || t.replica.dead {
		panic(abandoned{})
	}
}

// vanish ends the running task for good, without anything more of it being done.
func (s *Scheduler) vanish() { panic(abandoned{}) }

// reap unwinds the parked tasks of dead replicas, so that nothing leaks.
func (s *Scheduler) reap(of func(*task) bool) {
	var gone []*task
	for _, t := range s.tasks {
		if of(t) {
			gone = append(gone, t)
		}
	}
	for _, t := range gone {
		s.forget(t)
		t.stop()
	}
}

// Close ends the history: every coroutine is unwound.
func (s *Scheduler) Close() {
	for _, t := range s.tasks {
		t.replica.dead = true
	}
	s.reap(func(*task) bool { return true })
	s.heap = nil
}

// Odds says yes with a probability of p in 1000.
func (s *Scheduler) Odds(p int) bool { return p > 0 && s.Chance.IntN(1000) < p }

// Between gives a duration in [low, high), in whole microseconds.
func (s *Scheduler) Between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(s.Chance.Int64N(int64((high-low)/time.Microsecond)+1))*time.Microsecond
}

// edge is Between with a liking for the longest: what a contract just allows.
func (s *Scheduler) edge(low, high time.Duration) time.Duration {
	if s.Odds(300) {
		return high
	}
	return s.Between(low, high)
}

func (s *Scheduler) newID(at time.Time) id.ID {
	var random [10]byte
	for n := range random {
		random[n] = byte(s.names.Uint32())
	}
	return id.New(at, random)
}
