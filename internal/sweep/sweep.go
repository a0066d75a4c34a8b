// Package sweep is the one loop that finishes what nobody finished.
//
// Owns the order and the limits of a pass: due operations, gates, the comparison after a failover, purging (PROTOCOL 7, K7, K8).
// Never starts a goroutine, reads a clock or decides about a payment: it picks and hands over.
// Read next: internal/operation/run.go (Recover), internal/flow/gates.go, internal/flow/compare.go.
package sweep

import (
	"context"
	"errors"
	"time"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
)

// Limits of one pass.
const (
	Batch       = 32 // operations picked and worked on side by side
	PerMerchant = 8  // of them, of one merchant: many due rows of one do not starve the rest (PROTOCOL S2)
	GateBatch   = 16
	PurgeBatch  = 1000
	maxBatches  = 16 // batches in a row before gates and purging get their turn
)

// Tx is what a pass needs of a transaction.
type Tx interface{ operation.Tx }

// Engine finishes one operation that was taken over.
type Engine interface {
	Recover(ctx context.Context, op operation.Operation, g operation.Guard, granted wire.Instant) error
}

// Chores are the parts of a pass that are not operations.
type Chores interface {
	OpenGates(ctx context.Context, limit, perMerchant int) (int, error)
	CompareLost(ctx context.Context) (int, error)
}

// Housekeeping is what the store does between the passes.
type Housekeeping interface {
	// PurgeExpired deletes up to limit finished operations whose time is over, and returns how many (PROTOCOL K8).
	PurgeExpired(ctx context.Context, limit int) (int, error)
	// Heartbeat notes that the database was seen well: a failover later loses at most what came after (PROTOCOL A8).
	Heartbeat(ctx context.Context) error
}

// Config of a sweep.
type Config struct {
	Lease time.Duration // of a first claim; takeovers double it
	Every time.Duration // between two passes that found nothing more
}

// Report says what a pass did.
type Report struct {
	Picked, Gates, Compared, Purged int
	Failed                          int // operations whose work failed; they stay due
}

// Sweep finishes what is due.
type Sweep[T Tx] struct {
	cfg    Config
	store  operation.Store[T]
	rt     operation.Runtime
	engine Engine
	chores Chores
	house  Housekeeping
	report func(where string, err error)
}

// New makes a sweep. report is told of every error; the sweep goes on.
func New[T Tx](cfg Config, store operation.Store[T], rt operation.Runtime, engine Engine, chores Chores, house Housekeeping, report func(string, error)) *Sweep[T] {
	return &Sweep[T]{cfg, store, rt, engine, chores, house, report}
}

// Run makes passes until ctx is done.
func (s *Sweep[T]) Run(ctx context.Context) {
	for ctx.Err() == nil {
		s.Pass(ctx)
		s.rt.Sleep(ctx, s.cfg.Every+time.Duration(s.rt.Jitter()*float64(s.cfg.Every)/4))
	}
}

// Pass finishes what is due now. One bad row never stops the others (PROTOCOL S2).
func (s *Sweep[T]) Pass(ctx context.Context) Report {
	var r Report
	s.tell("heartbeat", s.house.Heartbeat(ctx))
	for range maxBatches {
		picked, failed, err := s.batch(ctx)
		s.tell("pick", err)
		r.Picked, r.Failed = r.Picked+picked, r.Failed+failed
		// Not "fewer than a batch": the bound of one merchant also ends a pick, while more of its rows are due.
		if picked == 0 || ctx.Err() != nil {
			break
		}
	}
	var err error
	r.Gates, err = s.chores.OpenGates(ctx, GateBatch, PerMerchant)
	s.tell("gates", err)
	r.Compared, err = s.chores.CompareLost(ctx)
	s.tell("compare", err)
	r.Purged, err = s.house.PurgeExpired(ctx, PurgeBatch)
	s.tell("purge", err)
	return r
}

func (s *Sweep[T]) tell(where string, err error) {
	if err != nil {
		s.report(where, err)
	}
}

// batch picks due operations, moving their due time in the same statement, and works on them side by side.
func (s *Sweep[T]) batch(ctx context.Context) (picked, failed int, err error) {
	var ops []operation.Operation
	var g operation.Guard
	granted := s.rt.Instant()
	err = s.store.InTx(ctx, "pick", func(ctx context.Context, tx T) (err error) {
		if g, err = tx.Guard(ctx); err != nil {
			return err
		}
		if ops, err = tx.PickDue(ctx, Batch, PerMerchant, s.cfg.Lease, func() id.ID { return s.rt.NewID() }); err != nil {
			return err
		}
		return tx.NoteHistory(ctx, s.notes(ops))
	})
	if err != nil {
		return 0, 0, err
	}
	errs := make([]error, len(ops))
	done := make([]operation.Signal, len(ops))
	for n, op := range ops {
		done[n] = s.rt.NewSignal()
		s.rt.Go(func() {
			defer done[n].Set()
			errs[n] = s.engine.Recover(ctx, op, g, granted)
		})
	}
	for n := range done {
		// An owner ends by its own limits; the bound here only says that nothing waits for ever.
		done[n].Wait(context.WithoutCancel(ctx), maxWork)
		if errs[n] != nil && !errors.Is(errs[n], operation.ErrVanished) {
			failed++
			s.report("recover", errs[n])
		}
	}
	return len(ops), failed, nil
}

const maxWork = 10 * time.Minute

func (s *Sweep[T]) notes(ops []operation.Operation) []operation.Note {
	var notes []operation.Note
	for _, op := range ops {
		if op.Follows.IsZero() {
			notes = append(notes, operation.Note{Merchant: op.Merchant, ID: s.rt.NewID(), Intent: op.Intent, Payment: op.Payment,
				Operation: op.ID, Kind: op.Kind, What: operation.WhatTakeover, Why: "the sweep found it due", KeyHash: operation.KeyHash(op.Key), Fence: op.Fence})
		}
	}
	return notes
}
