package operation

import (
	"context"
	"errors"
	"time"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/problem"
)

// Work is one ownership of an operation: from a claim or takeover to its record.
type Work struct {
	Op Operation
	// Permit is the first permit, granted by the claim; nil after a takeover, whose owner asks before it sends.
	Permit        *wire.Permit
	Takeover      bool
	ClientWaiting bool
	Now           time.Time // database time of the claim or takeover: before anything that this owner sends or asks
	Held          bool
	Epoch         int64
	LostTo        time.Time    // end of the interval that a failover may have lost; zero: never lost anything
	Granted       wire.Instant // local time before the statement of the claim was sent
	RequestID     string
	Data          any // what Open left for Call; nil after a takeover

	// Unsent counts permits of this owner that saw zero bytes leave and are not in the row yet (PROTOCOL O1).
	Unsent int

	ask func(ctx context.Context, terms PermitTerms) (*wire.Permit, string, error)
	hit func(ctx context.Context, point string) error
}

// Lost says that the row may stem from an interval lost in a failover (PROTOCOL A8).
func (w *Work) Lost() bool { return w.Op.Lost || w.Op.Epoch < w.Epoch }

// PermitTerms are what the acquirer's contract says about a further send.
type PermitTerms struct {
	MaxSends int
	CutOff   time.Duration
	HeldOK   bool
	Family   []string
}

// AskPermit asks for one more send. It returns the permit, or why there is none; an error is ErrVanished only.
func (w *Work) AskPermit(ctx context.Context, terms PermitTerms) (*wire.Permit, string, error) {
	return w.ask(ctx, terms)
}

// Hit is a named point at which a process may vanish; inert in production.
func (w *Work) Hit(ctx context.Context, point string) error { return w.hit(ctx, point) }

// Recover runs an operation that the sweep has taken over: it asks, and sends only what PROTOCOL section 7 allows.
// granted is local time before the statement of the takeover was sent.
func (e *Engine[T]) Recover(ctx context.Context, op Operation, g Guard, granted wire.Instant) error {
	if !op.Follows.IsZero() {
		ctx, cancel := e.rt.WithTimeout(ctx, e.cfg.RecordWithin)
		defer cancel()
		return e.store.InTx(ctx, "follow", func(ctx context.Context, tx T) error {
			g, err := tx.Guard(ctx)
			if err != nil {
				return err
			}
			return e.kinds[op.Kind].(Caller[T]).Follow(ctx, tx, g, op)
		})
	}
	e.watch.Count("takeover")
	w := &Work{Op: op, Takeover: true, Now: g.Now, Held: g.Held, Epoch: g.Epoch, LostTo: g.LostTo, Granted: granted}
	_, err := e.run(ctx, w)
	var p *problem.Problem
	if errors.As(err, &p) { // lost its ownership while working: somebody else has it
		return nil
	}
	return err
}

// run calls and records. What it returns is true whatever happened: a final answer, or the current state.
func (e *Engine[T]) run(ctx context.Context, w *Work) (Answer, error) {
	w.ask = func(ctx context.Context, t PermitTerms) (*wire.Permit, string, error) { return e.permit(ctx, w, t) }
	w.hit = e.faults.Hit
	caller, ok := e.kinds[w.Op.Kind].(Caller[T])
	if !ok {
		return Answer{}, errors.New("operation: kind " + string(w.Op.Kind) + " makes no calls")
	}
	spent := e.rt.Instant().Mono - w.Granted.Mono
	callCtx, cancel := e.rt.WithTimeout(ctx, e.cfg.CallUntil-spent)
	result, err := caller.Call(callCtx, w)
	cancel()
	if err != nil {
		return Answer{}, err
	}
	if err := e.faults.Hit(ctx, PointBeforeRecord); err != nil {
		return Answer{}, err
	}
	answer, err := e.record(ctx, caller, w, result)
	if err != nil {
		return answer, err
	}
	return answer, e.faults.Hit(ctx, PointAfterRecord)
}

// record writes the result, again where the database was away or did not say whether it committed: every row that it
// writes is recognised by its id, its key or its fence, so a second run adds nothing (PROTOCOL K3, K10).
func (e *Engine[T]) record(ctx context.Context, caller Caller[T], w *Work, result Result) (Answer, error) {
	request := Request{Ref: w.Op.Ref, RequestID: w.RequestID}
	var failed error
	for try := range recordTries {
		var answer Answer
		var lost bool
		txCtx, cancel := e.rt.WithTimeout(ctx, e.cfg.RecordWithin)
		err := e.store.InTx(txCtx, "record", func(ctx context.Context, tx T) error {
			g, err := tx.Guard(ctx)
			if err != nil {
				return err
			}
			if err := caller.Record(ctx, tx, g, w, result); err != nil {
				return err
			}
			if err := e.faults.Hit(ctx, PointInRecord); err != nil {
				return err
			}
			answer, lost, err = e.after(ctx, tx, w)
			return err
		})
		cancel()
		switch {
		case err == nil && lost:
			return Answer{}, problem.New(problem.OperationInProgress, "").After(retryHint)
		case err == nil:
			return answer, nil
		case errors.Is(err, ErrVanished):
			return Answer{}, err
		}
		failed = err
		if !errors.Is(err, ErrCommitUnknown) && !e.away(err) {
			break // a defect: running it again would not help
		}
		e.watch.Count("record_repeated")
		e.rt.Sleep(ctx, recordPause<<try)
	}
	e.watch.Count("record_failed")
	e.watch.Fault("record", failed)
	// The client is not told of a failure after a permit; the lease ends, and whoever takes over asks the acquirer.
	return e.kinds[w.Op.Kind].Unconfirmed(request), nil
}

// after reads what is true now, in the record's own transaction.
func (e *Engine[T]) after(ctx context.Context, tx T, w *Work) (answer Answer, lost bool, err error) {
	rows, err := tx.ReadOperations(ctx, []Ref{w.Op.Ref})
	if err != nil {
		return Answer{}, false, err
	}
	if len(rows) == 0 { // purged while we worked: a month has passed
		return e.kinds[w.Op.Kind].Unconfirmed(Request{Ref: w.Op.Ref}), false, nil
	}
	op := rows[0]
	if op.State != Completed && op.Fence != w.Op.Fence {
		e.watch.Count("stale_owner")
		return Answer{}, true, nil
	}
	if op.State == Completed && w.Takeover {
		e.watch.Settled(op.CompletedAt.Sub(op.CreatedAt.Add(e.cfg.Lease)))
	}
	answer, err = e.state(ctx, tx, op)
	if answer.First != 0 && !w.Takeover {
		answer.Status = answer.First
	}
	return answer, false, err
}

// permit asks the database for one more send. Where the answer to COMMIT is lost it asks again with the same id: it is
// ours only if that id is in the row (PROTOCOL A0, K10). Whatever else goes wrong, there is no permit.
func (e *Engine[T]) permit(ctx context.Context, w *Work, t PermitTerms) (*wire.Permit, string, error) {
	if err := e.faults.Hit(ctx, PointBeforePermit); err != nil {
		return nil, "", err
	}
	ask := PermitAsk{Ref: w.Op.Ref, Fence: w.Op.Fence, PermitID: e.rt.NewID(), Unsent: w.Unsent, MaxSends: t.MaxSends,
		CutOff: t.CutOff, ClientWaiting: w.ClientWaiting, HeldOK: t.HeldOK, Family: t.Family}
	noteID := e.rt.NewID() // one note for one permit, however often the transaction runs
	granted := e.rt.Instant()
	var got PermitAnswer
	for range unknownCommitTries {
		txCtx, cancel := e.rt.WithTimeout(ctx, e.cfg.ClaimWithin)
		err := e.store.InTx(txCtx, "permit", func(ctx context.Context, tx T) error {
			if _, err := tx.Guard(ctx); err != nil {
				return err
			}
			var err error
			if got, err = tx.Permit(ctx, ask); err != nil {
				return err
			}
			return tx.NoteHistory(ctx, []Note{e.permitNote(noteID, w, got)})
		})
		cancel()
		if err == nil {
			break
		}
		got = PermitAnswer{Denied: "database: " + reason(err)}
		if !errors.Is(err, ErrCommitUnknown) {
			break
		}
	}
	if !got.Granted {
		e.watch.Count("permit_denied")
		return nil, got.Denied, nil
	}
	w.Op, w.Unsent = got.Op, 0
	return e.permitOf(granted, ask.PermitID), "", e.faults.Hit(ctx, PointAfterPermit)
}

func reason(err error) string {
	for _, known := range []error{ErrOnHold, ErrNotDurable, ErrCommitUnknown, ErrNothingDone} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "fault"
}

func (e *Engine[T]) permitNote(noteID id.ID, w *Work, a PermitAnswer) Note {
	n := Note{Merchant: w.Op.Merchant, ID: noteID, Intent: w.Op.Intent, Payment: w.Op.Payment, Operation: w.Op.ID,
		Kind: w.Op.Kind, What: WhatPermit, Request: w.RequestID, KeyHash: KeyHash(w.Op.Key), Fence: w.Op.Fence}
	if !a.Granted {
		n.What, n.Why = WhatDenied, a.Denied
	}
	return n
}
