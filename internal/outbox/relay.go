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

// Limits of one round.
const (
	NumberMerchants   = 64  // merchants whose events are numbered in one transaction
	NumberPerMerchant = 256 // events of each
	Batch             = 512 // messages picked at once
	PerSink           = 128 // of them, of one merchant at one sink that takes every event
	PerEndpoint       = 8   // of them, at one endpoint
	PurgeBatch        = 1000
	maxRounds         = 1 << 16 // rounds of a pass, far above what fits into one
)

// Lease is how long a picked message belongs to the relay that picked it. A try begins, and ends, within half of it, so that a
// relay which stood still sends no old news behind newer ones.
const Lease = time.Minute

// Store is what the relay needs of the database. Each function is one short transaction, or a few.
type Store interface {
	// NumberEvents gives committed events their places in their merchants' feeds, and makes a delivery for each of the sinks and
	// each endpoint that wants the event; mail says that there is a mail sink. It says how many were numbered; busy: more may
	// be left.
	NumberEvents(ctx context.Context, sinks []string, mail bool) (numbered int, busy bool, err error)
	// PickDeliveries claims up to Batch messages that are due, no two of one subject at one sink, and counts the try: for the
	// named sinks, and where endpoints is set for the webhook endpoints that are enabled, but for none that is busy.
	PickDeliveries(ctx context.Context, p Pick) ([]Message, error)
	// SettleDeliveries writes what the tries under a claim brought. Success is a fact; a failure holds only while the claim is
	// still the last one.
	SettleDeliveries(ctx context.Context, claim id.ID, done []Settled) error
	// PurgeDeliveries deletes up to limit rows that ended longer ago than retention.
	PurgeDeliveries(ctx context.Context, retention time.Duration, limit int) (int, error)
}

// Pick says what a relay can take on now.
type Pick struct {
	Sinks     []string
	Endpoints bool
	Busy      []string // sinks that are still at work
	Lease     time.Duration
	Claim     id.ID
}

// Settled is a message with what its try brought.
type Settled struct {
	Message
	Result
	Delay time.Duration // until the next try; only where it failed and is not abandoned
}

// Runtime is what the relay needs of the machine.
type Runtime interface {
	Instant() wire.Instant
	NewID() id.ID
	Jitter() float64
}

// Watcher counts what operators alert on. Methods return at once.
type Watcher interface {
	// Delivered tells of one acknowledged message, with the time since its event was written.
	Delivered(sink string, after time.Duration)
	// DeliveryFailed tells of one try that failed.
	DeliveryFailed(sink string)
}

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

// Points at which a test lets a relay vanish or wait.
const (
	PointAfterNumber = "relay-after-number" // events have their places in the feed
	PointBeforeSend  = "relay-before-send"  // messages are picked
	PointAfterSend   = "relay-after-send"   // the sink has answered, and nothing is written of it
)

// Points lists them.
var Points = []string{PointAfterNumber, PointBeforeSend, PointAfterSend}

// Relay brings events to sinks. Several relays on one database share the work.
type Relay struct {
	cfg    Config
	store  Store
	rt     Runtime
	faults operation.Faults
	watch  Watcher
	every  []string // names of the sinks that get every event
	named  []string // of all sinks but the endpoints

	told, due chan struct{} // events were committed; messages may be due

	mu   sync.Mutex
	busy map[string]bool // sinks that are at work: a slow one is left alone, and no other waits for it
}

// New makes a relay.
func New(cfg Config, store Store, rt Runtime, faults operation.Faults, watch Watcher) *Relay {
	r := &Relay{cfg: cfg, store: store, rt: rt, faults: faults, watch: watch,
		told: make(chan struct{}, 1), due: make(chan struct{}, 1), busy: map[string]bool{}}
	for name := range cfg.Sinks {
		r.named = append(r.named, name)
		if name != SinkMail {
			r.every = append(r.every, name)
		}
	}
	return r
}

// Wake says that events were committed. It returns at once.
func (r *Relay) Wake() { rouse(r.told) }

func rouse(loop chan struct{}) {
	select {
	case loop <- struct{}{}:
	default: // it is awake already
	}
}

// Run works until ctx is done. What is under way then is finished, within the lease.
func (r *Relay) Run(ctx context.Context) {
	var work sync.WaitGroup
	work.Go(func() { r.loop(ctx, "number", r.told, r.number) })
	work.Go(func() {
		r.loop(ctx, "deliver", r.due, func(ctx context.Context) (bool, error) {
			n, err := r.deliver(ctx, &work)
			return n > 0, err
		})
	})
	work.Wait()
}

// loop makes rounds while there is more to do, and else waits to be woken, or for the time of the next look.
func (r *Relay) loop(ctx context.Context, name string, wake chan struct{}, round func(context.Context) (busy bool, err error)) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for ctx.Err() == nil {
		busy, err := round(ctx)
		if err != nil && ctx.Err() == nil {
			r.cfg.Report(name, err)
		}
		if busy && err == nil {
			continue
		}
		pause.Reset(r.cfg.Every + time.Duration(r.rt.Jitter()*float64(r.cfg.Every)/4))
		select {
		case <-ctx.Done():
		case <-wake:
		case <-pause.C:
		}
	}
}

// Pass does everything that is due now, for tests. It says how many messages were tried.
func (r *Relay) Pass(ctx context.Context) (tried int, err error) {
	for busy := true; busy && err == nil; {
		busy, err = r.number(ctx)
	}
	for range maxRounds {
		var work sync.WaitGroup
		n, failed := r.deliver(ctx, &work)
		work.Wait()
		tried, err = tried+n, errors.Join(err, failed)
		if n == 0 || failed != nil {
			break
		}
	}
	return tried, err
}

// number gives events their places, and purges where there are none.
func (r *Relay) number(ctx context.Context) (busy bool, err error) {
	_, mail := r.cfg.Sinks[SinkMail]
	numbered, busy, err := r.store.NumberEvents(ctx, r.every, mail)
	if err != nil {
		return false, fmt.Errorf("number: %w", err)
	}
	if numbered > 0 {
		if err := r.faults.Hit(ctx, PointAfterNumber); err != nil {
			return false, err
		}
		rouse(r.due)
		return busy, nil
	}
	if _, err := r.store.PurgeDeliveries(ctx, r.cfg.Retention, PurgeBatch); err != nil {
		return false, fmt.Errorf("purge: %w", err)
	}
	return busy, nil
}

// deliver picks what is due and lets each sink work on its part beside the others.
func (r *Relay) deliver(ctx context.Context, work *sync.WaitGroup) (picked int, err error) {
	since := r.rt.Instant()
	p := Pick{Sinks: r.named, Endpoints: r.cfg.Endpoints != nil, Busy: r.atWork(), Lease: Lease, Claim: r.rt.NewID()}
	messages, err := r.store.PickDeliveries(ctx, p)
	if err != nil {
		return 0, fmt.Errorf("pick: %w", err)
	}
	if len(messages) == 0 {
		return 0, nil
	}
	if err := r.faults.Hit(ctx, PointBeforeSend); err != nil {
		return 0, err
	}
	parts := map[string][]Message{}
	for _, m := range messages {
		parts[m.Sink] = append(parts[m.Sink], m)
	}
	for sink, part := range parts {
		r.begin(sink)
		work.Go(func() {
			defer r.end(sink)
			if err := r.batch(ctx, p.Claim, since, part); err != nil && !errors.Is(err, operation.ErrVanished) {
				r.cfg.Report("deliver to "+kindOf(sink), err)
			}
		})
	}
	return len(messages), nil
}

func (r *Relay) atWork() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.busy))
}

func (r *Relay) begin(sink string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy[sink] = true
}

func (r *Relay) end(sink string) {
	r.mu.Lock()
	delete(r.busy, sink)
	r.mu.Unlock()
	rouse(r.due) // what came for this sink meanwhile was left
}

// batch tries the messages of one sink, and writes what came of it.
func (r *Relay) batch(ctx context.Context, claim id.ID, since wire.Instant, messages []Message) error {
	sink, named := r.cfg.Sinks[messages[0].Sink]
	if !named {
		sink = r.cfg.Endpoints
	}
	results := r.try(ctx, sink, messages, since)
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
	if err := r.store.SettleDeliveries(context.WithoutCancel(ctx), claim, done); err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	r.tell(done)
	return nil
}

// try hands the messages to the sink, if this relay did not stand still since it asked for them: the lease is counted from
// before the pick, by both clocks, since one of them stands still in a suspended machine.
func (r *Relay) try(ctx context.Context, sink Sink, messages []Message, since wire.Instant) []Result {
	now := r.rt.Instant()
	passed := max(now.Mono-since.Mono, now.Wall.Sub(since.Wall))
	if passed >= Lease/2 {
		return failed(len(messages), ErrLate)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Lease/2-passed)
	defer cancel()
	results := sink.Deliver(ctx, messages)
	if len(results) != len(messages) {
		return failed(len(messages), fmt.Errorf("the sink answered %d of %d messages", len(results), len(messages)))
	}
	return results
}

// ErrLate says that a relay stood still for so long that its messages may have been sent by another one.
var ErrLate = errors.New("the relay stood still, and the message may belong to another one")

// Over says whether the time of a try is over, by both clocks: a sink asks it right before it sends.
func Over(ctx context.Context) bool {
	end, limited := ctx.Deadline()
	now := time.Now()
	return ctx.Err() != nil || limited && (!now.Before(end) || now.Round(0).After(end.Round(0)))
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
		if s.Err != nil {
			r.watch.DeliveryFailed(kindOf(s.Sink))
			continue
		}
		r.watch.Delivered(kindOf(s.Sink), r.rt.Instant().Wall.Sub(s.At))
	}
}

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
