// Package intake takes what acquirers tell us: the door that stores it, and the loop that applies it.
//
// Owns the inbox: verified on the raw bytes, stored before anything else, applied once, parked when early (PROTOCOL V3, V4).
// Never parses a body at the door, starts a goroutine, reads a clock, or decides what a message proves.
// Read next: door.go, then internal/flow/receive.go, which lets what was told enter like any other truth.
package intake

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
)

// Limits of the inbox.
const (
	MaxBody     = 256 << 10 // of one message, in bytes
	Batch       = 32        // messages picked at once
	PerMerchant = 8         // of them, of one merchant: many due messages of one do not starve the rest (PROTOCOL S2)
	PurgeBatch  = 1000
	maxBatches  = 16 // in a row, before purging gets its turn
	maxWork     = 10 * time.Minute
	// patience is how long the loop waits for the messages of one pick before it looks for others: those of an acquirer that
	// does not answer our questions hold up nobody else's (PROTOCOL S6).
	patience = 2 * time.Second
	// maxUnderWay bounds the messages that are being worked on, those of earlier picks too.
	maxUnderWay = 8 * Batch
)

// Config of an intake.
type Config struct {
	Lease     time.Duration // of a pick; it doubles with each one that did not end the message
	Every     time.Duration // between two passes, where nobody rings
	Retention time.Duration // of messages that were applied or ignored
}

// Flow says what messages tell, and applies it.
type Flow interface {
	ReadMessage(m flow.Message, box flow.Mailbox) flow.Reading
	Receive(ctx context.Context, r flow.Reading) error
	Postpone(ctx context.Context, m flow.Message, why error) error
}

// Housekeeping is what the store does between the passes.
type Housekeeping interface {
	PurgeMessages(ctx context.Context, retention time.Duration, limit int) (int, error)
}

// Watcher counts what operators alert on (PROTOCOL section 15).
type Watcher interface {
	Count(what string)
	// Refused counts a message that was not proven to be genuine, by one of the Reasons.
	Refused(reason string)
	// Skew tells how far the signed time of a genuine message was from ours, either way.
	Skew(d time.Duration)
}

// Parts are what an intake is put together from.
type Parts struct {
	Store     flow.Store
	Acquirers flow.Acquirers
	Runtime   operation.Runtime
	Faults    operation.Faults
	Flow      Flow
	House     Housekeeping
	Watch     Watcher
	Report    func(where string, err error) // told of every error; the intake goes on
}

// Intake is the inbox of one replica.
type Intake struct {
	cfg Config
	Parts
	watch    Watcher
	bell     *operation.Bell // rings when the door of this process has stored something
	underWay atomic.Int64    // messages that were picked and are not done
}

// New makes an intake.
func New(cfg Config, parts Parts) *Intake {
	return &Intake{cfg: cfg, Parts: parts, watch: parts.Watch, bell: operation.NewBell(parts.Runtime)}
}

// Run makes passes until ctx is done.
func (n *Intake) Run(ctx context.Context) {
	for ctx.Err() == nil {
		rung := n.bell.Next()
		n.pass(ctx, patience)
		rung.Wait(ctx, n.cfg.Every+time.Duration(n.Runtime.Jitter()*float64(n.cfg.Every)/4))
	}
}

// Report says what a pass did.
type Report struct {
	Picked, Purged int
	Failed         int // could not be applied; they stay due
}

// Pass works on all messages that are due now. One that cannot be applied never stops the others (PROTOCOL V2).
func (n *Intake) Pass(ctx context.Context) Report { return n.pass(ctx, maxWork) }

// pass is Pass; what takes longer than wait goes on, is bounded by its own limits, and is not in the report.
func (n *Intake) pass(ctx context.Context, wait time.Duration) Report {
	var r Report
	for range maxBatches {
		picked, failed, err := n.batch(ctx, wait)
		n.tell("pick", err)
		r.Picked, r.Failed = r.Picked+picked, r.Failed+failed
		if picked == 0 || ctx.Err() != nil {
			break
		}
	}
	var err error
	r.Purged, err = n.House.PurgeMessages(ctx, n.cfg.Retention, PurgeBatch)
	n.tell("purge", err)
	return r
}

func (n *Intake) tell(where string, err error) {
	if err != nil {
		n.Report(where, err)
	}
}

// batch picks due messages and works on them: those of one payment one after another, the others side by side (PROTOCOL V4).
func (n *Intake) batch(ctx context.Context, wait time.Duration) (picked, failed int, err error) {
	free := min(Batch, maxUnderWay-int(n.underWay.Load()))
	if free <= 0 {
		return 0, 0, nil
	}
	messages, boxes, err := n.pick(ctx, free)
	if err != nil {
		return 0, 0, err
	}
	n.underWay.Add(int64(len(messages)))
	lines := n.lines(messages, boxes)
	fails := make([]atomic.Int64, len(lines))
	done := make([]operation.Signal, len(lines))
	for k, line := range lines {
		done[k] = n.Runtime.NewSignal()
		n.Runtime.Go(func() {
			defer done[k].Set()
			defer n.underWay.Add(-int64(len(line)))
			for _, r := range line {
				if !n.apply(ctx, r) {
					fails[k].Add(1)
				}
			}
		})
	}
	until := n.Runtime.Instant().Mono + wait
	for k := range done {
		done[k].Wait(context.WithoutCancel(ctx), max(0, until-n.Runtime.Instant().Mono))
		failed += int(fails[k].Load())
	}
	return len(messages), failed, nil
}

func (n *Intake) pick(ctx context.Context, limit int) (messages []flow.Message, boxes map[flow.Row]flow.Mailbox, err error) {
	err = n.Store.InTx(ctx, "pick messages", func(ctx context.Context, tx flow.Tx) error {
		if _, err := tx.Guard(ctx); err != nil {
			return err
		}
		var err error
		if messages, err = tx.PickMessages(ctx, limit, PerMerchant, n.cfg.Lease, func() id.ID { return n.Runtime.NewID() }); err != nil {
			return err
		}
		boxes = map[flow.Row]flow.Mailbox{}
		var rows []flow.Row
		for _, m := range messages {
			row := flow.Row{Merchant: m.Merchant, ID: m.Account}
			if _, again := boxes[row]; !again {
				boxes[row] = flow.Mailbox{}
				rows = append(rows, row)
			}
		}
		found, err := tx.Mailboxes(ctx, rows)
		for _, box := range found {
			boxes[flow.Row{Merchant: box.Merchant, ID: box.ID}] = box
		}
		return err
	})
	return messages, boxes, err
}

// lines reads the messages and puts those of one subject into one line, in the order in which they came.
func (n *Intake) lines(messages []flow.Message, boxes map[flow.Row]flow.Mailbox) [][]flow.Reading {
	place := map[string]int{}
	var lines [][]flow.Reading
	for _, m := range messages {
		var r flow.Reading
		if err := contained(func() error {
			r = n.Flow.ReadMessage(m, boxes[flow.Row{Merchant: m.Merchant, ID: m.Account}])
			return nil
		}); err != nil {
			r = flow.Reading{Message: m, Err: err}
		}
		k, ok := place[r.Subject()]
		if !ok {
			k = len(lines)
			place[r.Subject()] = k
			lines = append(lines, nil)
		}
		lines[k] = append(lines[k], r)
	}
	return lines
}

// apply works on one message; false: it stays due.
func (n *Intake) apply(ctx context.Context, r flow.Reading) bool {
	err := contained(func() error { return n.Flow.Receive(ctx, r) })
	if err == nil {
		return true
	}
	if errors.Is(err, operation.ErrVanished) {
		return false
	}
	n.watch.Count("message_failed")
	n.Report("message "+r.Message.ID.Text(id.Message), err)
	n.tell("postpone", n.Flow.Postpone(ctx, r.Message, err))
	return false
}

// contained makes a defect an error: what a stranger wrote must not end a process in which payments are under way, and come back
// as soon as it has started again. A panic that is no defect of the program goes on.
func contained(work func() error) (err error) {
	defer func() {
		v := recover()
		if defect, ok := v.(runtime.Error); ok {
			err = fmt.Errorf("a defect: %w\n%s", defect, debug.Stack())
		} else if v != nil {
			panic(v)
		}
	}()
	return work()
}
