package outbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
)

// lane is the way to one sink that takes every event, or to all webhook endpoints.
type lane struct {
	sink string // empty: the endpoints
	to   Sink
	bell *operation.Bell // rings when messages may be due, and when a try has ended

	mu    sync.Mutex
	tries map[string]int // under way, by sink
	all   int
}

func newLane(rt Runtime, sink string, to Sink) *lane {
	return &lane{sink: sink, to: to, bell: operation.NewBell(rt), tries: map[string]int{}}
}

// room says what may be picked now. An endpoint that is at work is left alone, and no other waits for it.
func (l *lane) room() (p Pick, free bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sink != "" {
		return Pick{Sink: l.sink, Rows: Batch, PerLane: PerSink}, l.all < SinkTries
	}
	left := EndpointTries - l.all // each row may be of another endpoint
	return Pick{Busy: slices.Collect(maps.Keys(l.tries)), Rows: min(left, Batch), PerLane: PerEndpoint}, left > 0
}

func (l *lane) begin(sink string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all++
	l.tries[sink]++
}

func (l *lane) end(sink string) {
	l.mu.Lock()
	l.all--
	if l.tries[sink]--; l.tries[sink] == 0 {
		delete(l.tries, sink)
	}
	l.mu.Unlock()
	l.bell.Ring() // what came for this sink meanwhile was left, and what waited behind these messages may go
}

// rest waits until no try is under way.
func (l *lane) rest(ctx context.Context) {
	for {
		next := l.bell.Next()
		l.mu.Lock()
		idle := l.all == 0
		l.mu.Unlock()
		if idle || ctx.Err() != nil {
			return
		}
		next.Wait(ctx, Lease)
	}
}

// pick takes what is due, and lets each sink work on its part beside the others.
func (r *Relay) pick(ctx context.Context, l *lane) (picked int, err error) {
	p, free := l.room()
	if !free {
		return 0, nil // the end of a try rings
	}
	// Measured before the rows are asked for: whatever happens on the way shortens the try.
	permit := &wire.Permit{GrantedAt: r.rt.Instant(), Fresh: Lease / 2}
	p.Lease, p.Claim = Lease, r.rt.NewID()
	messages, err := r.store.PickDeliveries(ctx, p)
	if err != nil || len(messages) == 0 {
		return 0, err
	}
	if err := r.faults.Hit(ctx, PointBeforeSend); err != nil {
		return 0, err
	}
	parts := map[string][]Message{}
	for _, m := range messages {
		parts[m.Sink] = append(parts[m.Sink], m)
	}
	for sink, part := range parts {
		l.begin(sink)
		r.rt.Go(func() {
			defer l.end(sink)
			if err := r.part(ctx, l.to, p.Claim, permit, part); err != nil {
				r.failed("deliver to "+kindOf(sink), err)
			}
		})
	}
	return len(messages), nil
}

// part tries the messages of one sink, and writes what came of it.
func (r *Relay) part(ctx context.Context, to Sink, claim id.ID, permit *wire.Permit, messages []Message) error {
	results := r.try(ctx, to, messages, permit)
	if err := r.faults.Hit(ctx, PointAfterSend); err != nil {
		return err
	}
	done := make([]Settled, len(messages))
	for n, m := range messages {
		done[n] = Settled{Message: m, Result: results[n]}
		if results[n].Err != nil {
			done[n].Delay = r.backoff(m, results[n])
		}
		if log := results[n].Log; log != nil {
			log.ID = r.rt.NewID()
		}
	}
	if err := r.settle(context.WithoutCancel(ctx), claim, done); err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	r.tell(done)
	return nil
}

// settle writes what is known, again where the database does not answer.
func (r *Relay) settle(ctx context.Context, claim id.ID, done []Settled) (err error) {
	for n := range settleTries {
		if n > 0 {
			r.rt.Sleep(ctx, settlePause<<n)
		}
		if err = r.store.SettleDeliveries(ctx, claim, done); err == nil {
			return nil
		}
	}
	return err
}

// try hands the messages to the sink, if this relay did not stand still since it asked for them.
func (r *Relay) try(ctx context.Context, to Sink, messages []Message, permit *wire.Permit) []Result {
	e := end{r.rt, permit}
	if e.over() {
		return failed(len(messages), ErrLate)
	}
	left := permit.Fresh - (r.rt.Instant().Mono - permit.GrantedAt.Mono)
	ctx, cancel := r.rt.WithTimeout(context.WithValue(context.WithoutCancel(ctx), endKey{}, e), left)
	defer cancel()
	results := to.Deliver(ctx, messages)
	if len(results) != len(messages) {
		return failed(len(messages), fmt.Errorf("the sink answered %d of %d messages", len(results), len(messages)))
	}
	return results
}

func failed(n int, err error) []Result {
	results := make([]Result, n)
	for i := range results {
		results[i].Err = err
	}
	return results
}

// Back-off of brokers and mail: it grows and is capped, and never gives up.
const (
	firstDelay = 250 * time.Millisecond
	maxDelay   = time.Minute
)

func (r *Relay) backoff(m Message, result Result) time.Duration {
	d := result.Retry
	if d <= 0 {
		d = min(firstDelay<<min(max(m.Attempt-1, 0), 16), maxDelay)
	}
	return d + time.Duration(float64(d)*r.rt.Jitter()/4)
}

func (r *Relay) tell(done []Settled) {
	for _, s := range done {
		switch {
		case s.Err == nil:
			r.watch.Delivered(kindOf(s.Sink), r.rt.Instant().Wall.Sub(s.At))
		case !errors.Is(s.Err, ErrLate):
			r.watch.DeliveryFailed(kindOf(s.Sink))
		}
	}
}
