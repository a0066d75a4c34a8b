package bench

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hapaxpay/hapax/internal/app"
	"github.com/hapaxpay/hapax/internal/outbox"
)

// counter is a sink that acknowledges at once, and notes when: what is measured is the relay, and no broker.
type counter struct {
	mu    sync.Mutex
	begun time.Time // of the first call
	ended time.Time // of the last one
	took  []time.Duration
}

// Deliver implements outbox.Sink. How long a message took counts from the time of its event, by the database's clock: the same
// machine's.
func (c *counter) Deliver(_ context.Context, messages []outbox.Message) []outbox.Result {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun.IsZero() {
		c.begun = now
	}
	c.ended = now
	for _, m := range messages {
		c.took = append(c.took, now.Sub(m.At))
	}
	return make([]outbox.Result, len(messages))
}

// relayAlone lets one relay work off what the payments before have left, and gives how many events it brings to a sink in a
// second, the numbering included.
func (l *lab) relayAlone(ctx context.Context) (p Point, err error) {
	p.Name = pointRelay
	c := &counter{}
	r, err := app.Open(ctx, l.cfg, app.Options{Log: l.log, Version: "bench", Sinks: map[string]outbox.Sink{outbox.SinkNATS: c}})
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, end(ctx, r)) }()
	begun := time.Now()
	if _, err := r.Relay.Pass(ctx); err != nil {
		return p, err
	}
	if len(c.took) == 0 {
		return p, errors.New("the payments left no events")
	}
	p.PerSecond = rate(len(c.took), time.Since(begun))
	return p, nil
}

// relayBeside measures payments while a relay in the same process brings their events to a sink, and how long after its commit an
// event is heard.
func (l *lab) relayBeside(ctx context.Context, each time.Duration) (payments, delay Point, err error) {
	payments.Name, delay.Name = pointTold, pointDelay
	c := &counter{}
	r, err := l.replica(ctx, app.Options{Sinks: map[string]outbox.Sink{outbox.SinkNATS: c}})
	if err != nil {
		return payments, delay, err
	}
	defer func() { err = errors.Join(err, r.stop(ctx)) }()
	working, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { r.Relay.Run(working) })
	took, err := l.load(ctx, r.url, 8, each)
	stop()
	work.Wait()
	return pointOf(pointTold, took, each), pointOf(pointDelay, c.took, each), err
}
