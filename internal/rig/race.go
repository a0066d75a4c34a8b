package rig

import (
	"context"
	"sync"
)

// During forces a race: slow runs on a replica of its own until it stands at the point, then meanwhile happens, then slow
// goes on. It returns when slow has ended. It fails the test when slow ends without meeting the point.
func (r *Rig) During(point string, slow func(p *Replica), meanwhile func(), options ...Option) {
	r.T.Helper()
	gate := HoldAt(point)
	p := r.Replica(append(options, WithFaults(gate))...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		slow(p)
	}()
	defer func() {
		gate.Open()
		<-done
	}()
	select {
	case <-gate.Reached():
		meanwhile()
	case <-done:
		r.T.Errorf("the point %s was not met", point)
	}
}

// Together forces a race of equals: each runs on a replica of its own until all of them stand at the point; then all are let
// go at once. It returns when all have ended.
func (r *Rig) Together(point string, all ...func(p *Replica)) {
	r.T.Helper()
	var running sync.WaitGroup
	gates := make([]*Gate, len(all))
	ended := make(chan struct{}, len(all))
	for n, f := range all {
		gates[n] = HoldAt(point)
		p := r.Replica(WithFaults(gates[n]))
		running.Go(func() {
			defer func() { ended <- struct{}{} }()
			f(p)
		})
	}
	for _, g := range gates {
		select {
		case <-g.Reached():
		case <-ended:
			r.T.Errorf("somebody did not meet the point %s", point)
		}
	}
	for _, g := range gates {
		g.Open()
	}
	running.Wait()
}

// BehindLock forces a race of equals at the database: every intent is locked by somebody else until all of them wait for a
// lock, past whatever they looked at without one. It returns when all have ended.
func (r *Rig) BehindLock(all ...func()) {
	r.T.Helper()
	ctx := context.WithoutCancel(r.T.Context())
	tx, err := r.Owner.Begin(ctx)
	r.must(err)
	var running sync.WaitGroup
	defer running.Wait()
	defer func() {
		if err := tx.Rollback(ctx); err != nil {
			r.T.Errorf("the lock: %v", err)
		}
	}()
	_, err = tx.Exec(ctx, "SELECT FROM payment_intent FOR UPDATE")
	r.must(err)
	for _, f := range all {
		running.Go(f)
	}
	r.DB.WaitBlocked(r.T, len(all))
}
