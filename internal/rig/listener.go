package rig

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/hapaxpay/hapax/internal/app"
	"github.com/hapaxpay/hapax/internal/config"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/outbox"
)

// Listener is a sink that counts: the consumer of events in tests. The zero value takes everything.
type Listener struct {
	// Refuse fails the messages for which it gives an error; nil: none. It is asked outside of any lock and may wait.
	Refuse func(context.Context, outbox.Message) error

	mu    sync.Mutex
	heard []outbox.Message
}

// ErrPoison is what a listener refuses with where the reason does not matter.
var ErrPoison = errors.New("this event cannot be taken")

// Deliver implements outbox.Sink.
func (l *Listener) Deliver(ctx context.Context, messages []outbox.Message) []outbox.Result {
	results := make([]outbox.Result, len(messages))
	for n, m := range messages {
		if l.Refuse != nil {
			if err := l.Refuse(ctx, m); err != nil {
				results[n].Err = err
				continue
			}
		}
		if outbox.Over(ctx) {
			results[n].Err = outbox.ErrLate
			continue
		}
		l.mu.Lock()
		l.heard = append(l.heard, m)
		l.mu.Unlock()
	}
	return results
}

// Heard gives what was taken, in the order in which it came.
func (l *Listener) Heard() []outbox.Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.heard)
}

// WithSink gives the replica one more sink, by name.
func WithSink(name string, s outbox.Sink) Option {
	return func(_ *config.Config, o *app.Options) {
		if o.Sinks == nil {
			o.Sinks = map[string]outbox.Sink{}
		}
		o.Sinks[name] = s
	}
}

// AllHeard fails the test unless the listener heard every event of the database at least once, each time with the same bytes,
// and the first time of each in the order of its subject's versions. It returns how often events were repeated.
func (r *Rig) AllHeard(l *Listener) (repeats int) {
	r.T.Helper()
	first, last := map[id.ID]outbox.Message{}, map[id.ID]int64{}
	for _, m := range l.Heard() {
		if was, again := first[m.ID]; again {
			repeats++
			if string(was.Payload) != string(m.Payload) || was.Position != m.Position {
				r.T.Errorf("event %s came again with other bytes", m.ID)
			}
			continue
		}
		first[m.ID] = m
		if m.Version != last[m.Subject]+1 {
			r.T.Errorf("version %d of subject %s came after version %d", m.Version, m.Subject, last[m.Subject])
		}
		last[m.Subject] = m.Version
	}
	if n := r.Count("SELECT count(*) FROM event"); n != len(first) {
		r.T.Errorf("%d events, %d of them were heard", n, len(first))
	}
	return repeats
}
