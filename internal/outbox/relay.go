package outbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/operation"
)

// Limits of one round.
const (
	NumberMerchants   = 64  // merchants whose events are numbered in one transaction
	NumberPerMerchant = 256 // events of each
	Batch             = 512 // messages picked at once
	PerSink           = 128 // of them, of one merchant at one sink that takes every event
	PerEndpoint       = 8   // of them, at one endpoint
	// SinkTries is how many batches of one sink are under way side by side: one message on which a sink hangs holds back no other
	// for long. An endpoint has one, and there are as many as EndpointTries endpoints at work.
	SinkTries     = 4
	EndpointTries = 256
	PurgeBatch    = 1000
	purgeEvery    = time.Minute
	maxRounds     = 1 << 16 // rounds of a pass, far above what fits into one
)

// Lease is how long a picked message belongs to the relay that picked it, at least. A try begins, and ends, within half of it, so
// that a relay which stood still sends no old news behind newer ones.
const Lease = time.Minute

// Writing what is known is tried again: what is not written is sent again.
const (
	settleTries = 4
	settlePause = 250 * time.Millisecond
)

// Config of a relay.
type Config struct {
	// Sinks by name: SinkKafka, SinkNATS, SinkMail. Those that are not configured are left out.
	Sinks map[string]Sink
	// Endpoints takes what goes to webhook endpoints; nil: this relay leaves them to another.
	Endpoints Sink
	Every     time.Duration // between two looks when nobody wakes the relay
	Retention time.Duration // of deliveries that are over
	Report    func(where string, err error)
}

// Relay brings events to sinks. Several relays on one database share the work.
type Relay struct {
	cfg    Config
	store  Store
	rt     Runtime
	faults operation.Faults
	watch  Watcher
	told   *operation.Bell // rings when events were committed
	lanes  []*lane
	gone   atomic.Bool // vanished at a point

	// Of the loop that numbers.
	noted  bool // that these sinks are there
	purged wire.Instant
}

// New makes a relay.
func New(cfg Config, store Store, rt Runtime, faults operation.Faults, watch Watcher) *Relay {
	r := &Relay{cfg: cfg, store: store, rt: rt, faults: faults, watch: watch, told: operation.NewBell(rt)}
	r.purged.Mono = rt.Instant().Mono - purgeEvery // the first round purges
	for _, name := range slices.Sorted(maps.Keys(cfg.Sinks)) {
		r.lanes = append(r.lanes, newLane(rt, name, cfg.Sinks[name]))
	}
	if cfg.Endpoints != nil {
		r.lanes = append(r.lanes, newLane(rt, "", cfg.Endpoints))
	}
	return r
}

// Wake says that events were committed. It returns at once.
func (r *Relay) Wake() { r.told.Ring() }

// Run works until ctx is done. What is under way then is finished, within the lease. Each sink has a loop of its own, so that none
// waits for another.
func (r *Relay) Run(ctx context.Context) {
	ended := []operation.Signal{r.beside(func() { r.loop(ctx, "number", r.told, r.number) })}
	for _, l := range r.lanes {
		ended = append(ended, r.beside(func() {
			r.loop(ctx, "pick for "+kindOf(l.sink), l.bell, func(ctx context.Context) (bool, error) {
				n, err := r.pick(ctx, l)
				return n > 0, err
			})
			l.rest(context.WithoutCancel(ctx))
		}))
	}
	for _, s := range ended {
		for !s.Wait(context.WithoutCancel(ctx), Lease) {
		}
	}
}

// beside runs f and gives the signal of its end.
func (r *Relay) beside(f func()) operation.Signal {
	done := r.rt.NewSignal()
	r.rt.Go(func() {
		defer done.Set()
		f()
	})
	return done
}

// loop makes rounds while there is more to do, and else waits to be woken, or for the time of the next look.
func (r *Relay) loop(ctx context.Context, name string, b *operation.Bell, round func(context.Context) (busy bool, err error)) {
	for ctx.Err() == nil && !r.gone.Load() {
		next := b.Next() // before the look: what comes meanwhile is not slept through
		busy, err := round(ctx)
		if err != nil && ctx.Err() == nil {
			r.failed(name, err)
		}
		if !busy || err != nil {
			next.Wait(ctx, r.cfg.Every+time.Duration(r.rt.Jitter()*float64(r.cfg.Every)/4))
		}
	}
}

// failed reports what went wrong. A process that vanished does nothing more.
func (r *Relay) failed(where string, err error) {
	if errors.Is(err, operation.ErrVanished) {
		r.gone.Store(true)
		return
	}
	r.cfg.Report(where, err)
}

// Pass does everything that is due now, for tests. It says how many messages were tried.
func (r *Relay) Pass(ctx context.Context) (tried int, err error) {
	for busy := true; busy && err == nil; {
		busy, err = r.number(ctx)
	}
	for range maxRounds {
		round := 0
		for _, l := range r.lanes {
			n, failed := r.pick(ctx, l)
			round, err = round+n, errors.Join(err, failed)
		}
		for _, l := range r.lanes {
			l.rest(ctx)
		}
		tried += round
		if round == 0 || err != nil {
			break
		}
	}
	return tried, err
}

// number gives events their places, and purges now and then.
func (r *Relay) number(ctx context.Context) (busy bool, err error) {
	if !r.noted {
		if err := r.store.AddEventSinks(ctx, slices.Sorted(maps.Keys(r.cfg.Sinks))); err != nil {
			return false, fmt.Errorf("note the sinks: %w", err)
		}
		r.noted = true
	}
	numbered, busy, err := r.store.NumberEvents(ctx)
	if err != nil {
		return false, fmt.Errorf("number: %w", err)
	}
	if numbered > 0 {
		if err := r.faults.Hit(ctx, PointAfterNumber); err != nil {
			return false, err
		}
		for _, l := range r.lanes {
			l.bell.Ring()
		}
	}
	return busy, r.purge(ctx)
}

func (r *Relay) purge(ctx context.Context) error {
	now := r.rt.Instant()
	if now.Mono-r.purged.Mono < purgeEvery {
		return nil
	}
	n, err := r.store.PurgeDeliveries(ctx, r.cfg.Retention, PurgeBatch)
	if err != nil {
		return fmt.Errorf("purge: %w", err)
	}
	if n < PurgeBatch { // else there is more, and the next round goes on
		r.purged = now
	}
	return nil
}

// ErrLate says that a relay stood still for so long that its messages may have been sent by another one.
var ErrLate = errors.New("the relay stood still, and the message may belong to another one")

// Over says whether the time of a try is over, by both clocks: a sink asks it right before it sends.
func Over(ctx context.Context) bool {
	e, limited := ctx.Value(endKey{}).(end)
	return ctx.Err() != nil || limited && e.over()
}

// end is when a try is over: the clocks, and the permit that it holds since its pick.
type end struct {
	clock  wire.Clock
	permit *wire.Permit
}

type endKey struct{}

// over asks both clocks, since one of them stands still in a suspended machine (as PROTOCOL A5).
func (e end) over() bool { return e.permit.Check(e.clock.Instant()) != nil }

// KindEndpoint is what all webhook endpoints are called where they are counted.
const KindEndpoint = "endpoint"

// kindOf names a sink among the few kinds that there are: metrics have no label for each endpoint.
func kindOf(sink string) string {
	switch sink {
	case SinkKafka, SinkNATS, SinkMail:
		return sink
	}
	return KindEndpoint
}
