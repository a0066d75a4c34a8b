package operation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/problem"
)

// Config holds the time limits of the engine. config.Config.Check refuses what does not fit (PROTOCOL A4, A7).
type Config struct {
	AnswerWithin time.Duration // the client gets 202 then
	CallUntil    time.Duration // the calls of one owner end by then
	Lease        time.Duration // of a first claim
	Fresh        time.Duration // of a permit, at the socket (PROTOCOL A5)
	ClaimWithin  time.Duration // for the statements of a claim or permit, not for COMMIT
	RecordWithin time.Duration // for the statements of a record, not for COMMIT (PROTOCOL K11)
	Retention    time.Duration // how long a finished operation keeps its answer (PROTOCOL K8)
}

// Default gives the protocol's values.
func Default() Config {
	return Config{AnswerWithin: 8 * time.Second, CallUntil: 25 * time.Second, Lease: 30 * time.Second, Fresh: 10 * time.Second,
		ClaimWithin: 4 * time.Second, RecordWithin: 4 * time.Second, Retention: 30 * 24 * time.Hour}
}

// Limits of repetition inside the engine.
const (
	unknownCommitTries = 3 // runs of a transaction whose COMMIT got no answer (PROTOCOL K10)
	recordTries        = 5 // runs of a record against a database that is away, within the lease
	vanishedRowTries   = 3 // claims that meet a row which is gone when it is read
	recordPause        = 200 * time.Millisecond
	retryHint          = time.Second // what Retry-After says while somebody works
)

// Handler is one kind of operation: what happens in the claim transaction.
type Handler[T any] interface {
	// Open is called in the claim transaction for newly claimed rows. It checks and writes the intention, and sets the
	// verdict of each opening. An error concerns all of them: the transaction is rolled back.
	Open(ctx context.Context, tx T, g Guard, openings []*Opening) error
	// Current tells the state of an unfinished operation, inside a transaction.
	Current(ctx context.Context, tx T, op Operation) (Answer, error)
	// Unconfirmed is the answer while it is not known whether anything was begun. It never reads as a failure.
	Unconfirmed(r Request) Answer
}

// Caller is a kind of operation that calls an acquirer.
type Caller[T any] interface {
	// Call uses the network, without a transaction. Its result is handed to Record. An error is ErrVanished only.
	Call(ctx context.Context, w *Work) (Result, error)
	// Record writes what the call proved, presenting the fence of w. It may run several times for one result.
	Record(ctx context.Context, tx T, g Guard, w *Work, r Result) error
	// Follow finishes an operation that follows another one, where that one is finished, or moves its due time.
	Follow(ctx context.Context, tx T, g Guard, op Operation) error
}

// Result is what a kind's Call hands to its Record.
type Result any

// Request is one idempotent command as it comes in.
type Request struct {
	Ref
	Fingerprint [32]byte
	FPVersion   int
	RequestID   string
	Payload     any // the kind's own, handed to Open
}

// Verdict is what Open decides about one opening.
type Verdict int

// The verdicts.
const (
	Refuse  Verdict = iota // the claim is undone, the key stays free; Opening.Refusal says why
	Proceed                // a call is to be made under the permit of the claim
	Finish                 // completed in the claim transaction; Op.AnswerStatus and AnswerBody are set
	Follow                 // another operation does the work; Op.Follows is set
)

// Opening is one newly claimed row on its way through Open.
type Opening struct {
	Request Request
	Op      Operation
	Verdict Verdict
	Refusal error
	// AskFirst makes Proceed begin like a takeover: the acquirer is asked before anything is sent, although nobody of ours
	// is known to have sent (PROTOCOL A8). The permit of the claim counts as sent.
	AskFirst bool
	// Replay is an answer from a command that was purged long ago, for Refuse without Refusal (PROTOCOL K8).
	Replay *Answer
	// Data is the kind's own, from Open to Call; it is gone after a takeover.
	Data any
}

// Engine runs operations. It holds no state about any of them: everything unfinished is a row (PROTOCOL K7).
type Engine[T Tx] struct {
	cfg    Config
	store  Store[T]
	rt     Runtime
	faults Faults
	kinds  map[Kind]Handler[T]
	watch  Watcher
}

// Watcher counts what operators alert on (PROTOCOL section 15). Methods return at once.
type Watcher interface {
	Count(what string)
	// Fault tells of an error that the client is not told: after a permit the answer is 202, whatever went wrong.
	Fault(where string, err error)
	// Settled tells the time from the end of the first lease to the final state.
	Settled(after time.Duration)
}

// New makes an engine.
func New[T Tx](cfg Config, store Store[T], rt Runtime, faults Faults, kinds map[Kind]Handler[T], watch Watcher) *Engine[T] {
	return &Engine[T]{cfg: cfg, store: store, rt: rt, faults: faults, kinds: kinds, watch: watch}
}

// KeyHash is how a key stands in logs and history: never as it is (PROTOCOL section 15).
func KeyHash(key string) string {
	h := sha256.Sum256([]byte(key))
	return hex.EncodeToString(h[:8])
}

// Do runs one command and answers within AnswerWithin; the work goes on after that, and after the client is gone
// (PROTOCOL A4, K11). A refusal is a *problem.Problem; any other error is a fault.
func (e *Engine[T]) Do(ctx context.Context, r Request) (Answer, error) {
	var answer Answer
	var err error
	done := e.rt.NewSignal()
	began := e.rt.Instant()
	detached := context.WithoutCancel(ctx)
	e.rt.Go(func() {
		defer done.Set()
		answer, err = e.finish(detached, r)
	})
	if done.Wait(ctx, e.cfg.AnswerWithin) {
		return answer, err
	}
	left := e.cfg.AnswerWithin + e.cfg.AnswerWithin/4 - (e.rt.Instant().Mono - began.Mono)
	return e.now(detached, r, left)
}

// finish claims and, where the claim is ours, calls and records.
func (e *Engine[T]) finish(ctx context.Context, r Request) (Answer, error) {
	c := e.claim(ctx, []Request{r})[0]
	if c.work == nil {
		return c.answer, c.err
	}
	if err := e.faults.Hit(ctx, PointAfterClaim); err != nil {
		return Answer{}, err
	}
	return e.run(ctx, c.work)
}

// now is the answer to a client whose time is over: the current state if the database tells it soon. Other parameters
// are refused here too: nothing of another request's answer is told (PROTOCOL section 2, W1).
func (e *Engine[T]) now(ctx context.Context, r Request, within time.Duration) (Answer, error) {
	h := e.kinds[r.Kind]
	answer := h.Unconfirmed(r)
	ctx, cancel := e.rt.WithTimeout(ctx, max(within, e.cfg.AnswerWithin/8))
	defer cancel()
	err := e.store.InTx(ctx, "current", func(ctx context.Context, tx T) error {
		rows, err := tx.ReadOperations(ctx, []Ref{r.Ref})
		if err != nil || len(rows) == 0 {
			return err
		}
		if rows[0].Fingerprint != r.Fingerprint {
			return problem.New(problem.KeyReuse, "")
		}
		a, err := e.state(ctx, tx, rows[0])
		if err == nil {
			answer = a
		}
		return err
	})
	switch {
	case problem.Is(err, problem.KeyReuse):
		e.watch.Count("key_reuse")
		return Answer{}, problem.New(problem.KeyReuse, "")
	case err != nil:
		return h.Unconfirmed(r), nil
	}
	return answer, nil
}

// state tells what is true of an operation now: the stored answer, or the current state.
func (e *Engine[T]) state(ctx context.Context, tx T, op Operation) (Answer, error) {
	if op.State == Completed {
		return stored(op, false), nil
	}
	a, err := e.kinds[op.Kind].Current(ctx, tx, op)
	a.Original = op.RequestID
	return a, err
}

func stored(op Operation, replayed bool) Answer {
	return Answer{Status: op.AnswerStatus, Body: op.AnswerBody, Final: true, Replayed: replayed,
		KeyExpires: op.ExpiresAt, Original: op.RequestID}
}

// Claimed is what became of one request in a claim.
type claimed struct {
	answer Answer
	err    error
	work   *Work // to be run by the caller: this process owns the operation
}

// claim runs the claim transaction for many requests. Claim ids are made once, before the first run, so that a run
// after a lost COMMIT recognises its own rows (PROTOCOL K10).
func (e *Engine[T]) claim(ctx context.Context, requests []Request) []claimed {
	ids := make([]id.ID, len(requests))
	for i := range ids {
		ids[i] = e.rt.NewID()
	}
	granted := e.rt.Instant()
	unknown := false
	var out []claimed
	for range max(unknownCommitTries, vanishedRowTries) {
		ctx, cancel := e.rt.WithTimeout(ctx, e.cfg.ClaimWithin)
		b := &batch[T]{engine: e, requests: requests, ids: ids, granted: granted}
		err := e.store.InTx(ctx, "claim", b.run)
		cancel()
		switch {
		case err == nil:
			return b.out
		case errors.Is(err, ErrCommitUnknown):
			unknown = true
			e.watch.Count("commit_unknown")
			continue
		case errors.Is(err, errVanishedRow):
			continue
		case len(requests) > 1 && !errors.Is(err, ErrNotDurable) && !errors.Is(err, ErrOnHold):
			return e.singly(ctx, requests)
		}
		out = e.failed(requests, err, unknown)
		break
	}
	if out == nil {
		out = e.failed(requests, ErrNothingDone, unknown)
	}
	return out
}

// errVanishedRow says that a row which refused our claim was gone when we read it: begin again.
var errVanishedRow = errors.New("the row that was in the way is gone")

func (e *Engine[T]) away(err error) bool {
	return errors.Is(err, ErrNothingDone) || errors.Is(err, ErrNotDurable) || errors.Is(err, ErrOnHold)
}

// singly falls back to one transaction for each request: an error of one row must not fail its neighbours.
func (e *Engine[T]) singly(ctx context.Context, requests []Request) []claimed {
	out := make([]claimed, 0, len(requests))
	for _, r := range requests {
		out = append(out, e.claim(ctx, []Request{r})...)
	}
	return out
}

// failed answers requests whose claim did not come about (PROTOCOL section 2).
func (e *Engine[T]) failed(requests []Request, err error, unknown bool) []claimed {
	out := make([]claimed, len(requests))
	var refused *problem.Problem
	for i, r := range requests {
		switch {
		case errors.As(err, &refused):
			out[i].err = refused
		case unknown:
			out[i].answer = e.kinds[r.Kind].Unconfirmed(r)
		case errors.Is(err, ErrOnHold):
			out[i].err = problem.New(problem.SendsOnHold, "").After(holdHint).Because(err)
		case e.away(err):
			out[i].err = problem.New(problem.TryAgain, "").After(retryHint).Because(err)
		default:
			out[i].err = fmt.Errorf("claim %s: %w", r.Kind, err)
		}
	}
	return out
}

const holdHint = 30 * time.Second

// permitOf makes the permit that a claim or grant counted, fresh from before its statement was sent (PROTOCOL A5).
func (e *Engine[T]) permitOf(granted wire.Instant, permitID id.ID) *wire.Permit {
	return &wire.Permit{GrantedAt: granted, Fresh: e.cfg.Fresh, ID: permitID}
}
