package operation

import (
	"context"
	"errors"
	"time"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/problem"
)

// batch is one run of the claim transaction. A second run starts from a new one.
type batch[T Tx] struct {
	engine   *Engine[T]
	requests []Request
	ids      []id.ID // claim ids, aligned with requests
	granted  wire.Instant
	out      []claimed
	notes    []Note
}

// run is the claim transaction: insert, open what is new, answer or take over what is not (PROTOCOL K1, K2).
func (b *batch[T]) run(ctx context.Context, tx T) error {
	b.out, b.notes = make([]claimed, len(b.requests)), nil
	g, err := tx.Guard(ctx)
	if err != nil {
		return err
	}
	rows := make([]Operation, len(b.requests))
	for i, r := range b.requests {
		rows[i] = Operation{Ref: r.Ref, ID: b.engine.rt.NewID(), Fingerprint: r.Fingerprint, FPVersion: r.FPVersion,
			RequestID: r.RequestID, State: InProgress, Fence: 1, ClaimID: b.ids[i], Epoch: g.Epoch, Lost: g.Held,
			SendUntil: g.Now.Add(sendUntil)}
	}
	fresh, err := tx.InsertOperations(ctx, rows, b.engine.cfg.Lease)
	if err != nil {
		return err
	}
	var known []int
	for i := range rows {
		if !fresh[i] {
			known = append(known, i)
		}
	}
	if err := b.open(ctx, tx, g, rows, fresh); err != nil {
		return err
	}
	if err := b.meet(ctx, tx, g, known); err != nil {
		return err
	}
	if err := tx.NoteHistory(ctx, b.notes); err != nil {
		return err
	}
	return b.engine.faults.Hit(ctx, PointInClaim)
}

// sendUntil is how long after the claim the sweep may still make a call that first takes money (PROTOCOL W3).
const sendUntil = 15 * time.Minute

// open hands the new rows to their kinds and carries out the verdicts.
func (b *batch[T]) open(ctx context.Context, tx T, g Guard, rows []Operation, fresh []bool) error {
	byKind := map[Kind][]*Opening{}
	openings := make([]*Opening, len(rows))
	for i, row := range rows {
		if fresh[i] {
			row.ClaimedAt, row.CreatedAt = g.Now, g.Now
			row.LeaseUntil = g.Now.Add(b.engine.cfg.Lease)
			row.DueAt = row.LeaseUntil
			openings[i] = &Opening{Request: b.requests[i], Op: row}
			byKind[row.Kind] = append(byKind[row.Kind], openings[i])
		}
	}
	for _, kind := range kindsInOrder {
		if len(byKind[kind]) == 0 {
			continue
		}
		if err := b.engine.kinds[kind].Open(ctx, tx, g, byKind[kind]); err != nil {
			return err
		}
	}
	var undo []Ref
	var save []Operation
	for i, o := range openings {
		if o == nil {
			continue
		}
		switch o.Verdict {
		case Proceed:
			permit := b.engine.permitOf(b.granted, o.Op.PermitID)
			if o.AskFirst {
				permit = nil
			}
			w := b.work(g, o.Op, permit)
			w.Data, w.ClientWaiting = o.Data, o.AskFirst
			b.out[i].work = w
			what := WhatClaimed
			if o.Op.Sends == 0 {
				what = WhatBegun
			}
			b.note(i, o.Op, what, "")
		case Finish:
			o.Op.State = Completed
			save = append(save, o.Op)
			o.Op.ExpiresAt = g.Now.Add(b.engine.cfg.Retention)
			b.out[i].answer = stored(o.Op, false)
			b.note(i, o.Op, WhatCompleted, "")
		case Follow:
			o.Op.State = AwaitingResult
			save = append(save, o.Op)
			b.note(i, o.Op, WhatJoined, "another key for the same live payment")
		default:
			undo = append(undo, o.Op.Ref)
			b.refuse(i, o)
		}
	}
	if err := tx.DeleteOperations(ctx, undo); err != nil {
		return err
	}
	if _, err := tx.SaveOperations(ctx, save, b.engine.cfg.Retention); err != nil {
		return err
	}
	return b.tellFollowers(ctx, tx, openings)
}

func (b *batch[T]) refuse(i int, o *Opening) {
	if o.Refusal == nil && o.Replay != nil {
		b.out[i].answer = *o.Replay
		b.note(i, o.Op, WhatRepeat, "rebuilt from what the command created")
		return
	}
	b.out[i].err = o.Refusal
	var p *problem.Problem
	if errors.As(o.Refusal, &p) {
		b.note(i, o.Op, WhatRefused, string(p.Code))
	}
}

func (b *batch[T]) tellFollowers(ctx context.Context, tx T, openings []*Opening) error {
	for i, o := range openings {
		if o == nil || o.Verdict != Follow {
			continue
		}
		a, err := b.engine.state(ctx, tx, o.Op)
		if err != nil {
			return err
		}
		b.out[i].answer = a
	}
	return nil
}

// meet answers the requests whose key exists already, or takes their operations over.
func (b *batch[T]) meet(ctx context.Context, tx T, g Guard, known []int) error {
	if len(known) == 0 {
		return nil
	}
	refs := make([]Ref, len(known))
	for k, i := range known {
		refs[k] = b.requests[i].Ref
	}
	rows, err := tx.ReadOperations(ctx, refs)
	if err != nil {
		return err
	}
	byRef := make(map[Ref]Operation, len(rows))
	for _, op := range rows {
		byRef[op.Ref] = op
	}
	for _, i := range known {
		op, ok := byRef[b.requests[i].Ref]
		if !ok {
			return errVanishedRow
		}
		if err := b.meetOne(ctx, tx, g, i, op); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch[T]) meetOne(ctx context.Context, tx T, g Guard, i int, op Operation) error {
	if op.ClaimID == b.ids[i] && op.State != Completed && op.Sends > 0 {
		// Our own claim or takeover, committed by a COMMIT whose answer was lost (PROTOCOL K10).
		w := b.work(g, op, nil)
		if op.Fence == 1 {
			w = b.work(g, op, b.engine.permitOf(b.granted, op.PermitID))
		}
		w.ClientWaiting = w.Takeover
		b.out[i].work = w
		return nil
	}
	meeting := op.Meet(b.requests[i].Fingerprint, g.Now, b.engine.cfg.AnswerWithin)
	if meeting == MeetsNobody {
		taken, err := tx.TakeOver(ctx, []Take{{Ref: op.Ref, Fence: op.Fence, ClaimID: b.ids[i], Lease: Lease(b.engine.cfg.Lease, op.Fence+1)}})
		if err != nil {
			return err
		}
		if len(taken) == 1 {
			w := b.work(g, taken[0], nil)
			w.ClientWaiting = true
			b.out[i].work = w
			b.note(i, taken[0], WhatTakeover, "a repeat after the lease")
			b.engine.watch.Count("takeover")
			return nil
		}
		meeting = MeetsOwner
	}
	return b.repeat(ctx, tx, i, op, meeting)
}

func (b *batch[T]) repeat(ctx context.Context, tx T, i int, op Operation, meeting Meeting) error {
	switch meeting {
	case MeetsOther:
		b.engine.watch.Count("key_reuse")
		b.note(i, op, WhatReuse, "same key, other parameters")
		b.out[i].err = problem.New(problem.KeyReuse, "")
	case MeetsAnswer:
		b.engine.watch.Count("repeat_served")
		b.note(i, op, WhatRepeat, "the stored answer")
		b.out[i].answer = stored(op, true)
	case MeetsOwner:
		b.engine.watch.Count("repeat_served")
		b.note(i, op, WhatRepeat, "being worked on")
		b.out[i].err = problem.New(problem.OperationInProgress, "").After(retryHint)
	default:
		a, err := b.engine.state(ctx, tx, op)
		if err != nil {
			return err
		}
		b.engine.watch.Count("repeat_served")
		b.note(i, op, WhatRepeat, "the current state")
		b.out[i].answer = a
	}
	return nil
}

func (b *batch[T]) work(g Guard, op Operation, permit *wire.Permit) *Work {
	return &Work{Op: op, Permit: permit, Takeover: permit == nil, Now: g.Now, Held: g.Held, Epoch: g.Epoch, LostTo: g.LostTo,
		Granted: b.granted, RequestID: op.RequestID}
}

func (b *batch[T]) note(i int, op Operation, what, why string) {
	r := b.requests[i]
	b.notes = append(b.notes, Note{Merchant: op.Merchant, ID: b.engine.rt.NewID(), Intent: op.Intent, Payment: op.Payment,
		Operation: op.ID, Kind: op.Kind, What: what, Why: why, Request: r.RequestID, KeyHash: KeyHash(op.Key), Fence: op.Fence})
}

var kindsInOrder = []Kind{CreateIntent, CreatePayment, CapturePayment, CancelPayment, IssueCode, CreateRefund, Compensate, DecideReview,
	CreateEndpoint, UpdateEndpoint, DisableEndpoint, EnableEndpoint, RotateSecret, TestEndpoint, ResendEvent, ResendFailed}
