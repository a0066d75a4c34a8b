package sim

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/adapter"
	"github.com/hapaxpay/hapax/internal/fault"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/intake"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/sweep"
)

// pod is one replica of the service, over all of its lives: the real flow and sweep on a runtime of the simulation.
type pod struct {
	w        *World
	name     string
	lives    int
	replica  *Replica
	flow     *flow.Flow
	adapters map[id.ID]acquirer.Adapter
	alarm    operation.Signal
	intake   *intake.Intake
	bell     operation.Signal // of the intake
}

// Defaults of the flows in a world.
const (
	payBefore = 24 * time.Hour
	downtime  = time.Minute // longest, of most crashes
	longDown  = 20 * time.Hour
)

// boot starts a life: nothing of the last one is known.
func (p *pod) boot() {
	w := p.w
	p.lives++
	offset := w.Scheduler.Between(-w.Config.Hazards.ClockOffset, w.Config.Hazards.ClockOffset)
	p.replica = w.Scheduler.NewReplica(p.name+"."+strconv.Itoa(p.lives), offset)
	p.adapters, p.alarm, p.bell = map[id.ID]acquirer.Adapter{}, nil, nil
	faults := fault.Func(func(ctx context.Context, point string) error {
		w.misfortune(ctx, point)
		return nil
	})
	p.flow = flow.New(flow.Config{Environment: "sim", PayBefore: payBefore, Retention: w.Config.Engine.Retention, CodeSecret: []byte("sim")},
		w.Config.Engine,
		w.Store, p, p.replica, faults, w)
	swept := sweep.New(sweep.Config{Lease: w.Config.Engine.Lease, Every: w.Config.Sweep}, w.Store, p.replica, p.flow.Engine(), p.flow, w.Store, w.failed)
	r := p.replica
	taken := intake.New(intake.Config{Lease: w.Config.Engine.Lease, Every: w.Config.Sweep, Retention: w.Config.Engine.Retention}, intake.Parts{Store: w.Store,
		Acquirers: p, Runtime: r, Faults: faults, Flow: p.flow, House: w.Store, Watch: w, Report: w.failed})
	p.intake = taken
	w.Scheduler.Note("boots", r.Name)
	r.Go(func() { p.sweeping(r, swept) })
	r.Go(func() { p.taking(r, taken) })
}

// crash ends a life; another one begins after a while.
func (p *pod) crash(point string) {
	s := p.w.Scheduler
	s.Note("vanishes", point)
	p.replica.Kill()
	down := s.Between(time.Second, downtime)
	if s.Odds(50) {
		down = s.Between(downtime, longDown)
	}
	s.After(down, p.boot)
}

// sweeping makes passes whenever something is due. Passes that would find nothing are left out.
func (p *pod) sweeping(r *Replica, s *sweep.Sweep[flow.Tx]) {
	ctx := context.Background()
	for !p.w.over {
		wait := time.Hour
		if due := p.w.Store.NextDue(); !due.IsZero() {
			wait = due.Sub(p.w.Store.Now()) + time.Duration(r.Jitter()*float64(p.w.Config.Sweep))
		}
		if wait > 0 {
			p.alarm = r.NewSignal()
			if p.alarm.Wait(ctx, wait) {
				continue
			}
		}
		report := s.Pass(ctx)
		p.w.Counts["swept"] += report.Picked + report.Gates
		r.Sleep(ctx, p.w.Config.Sweep/2+time.Duration(r.Jitter()*float64(p.w.Config.Sweep)))
	}
}

// For implements flow.Acquirers: the real adapter, over the simulated network.
func (p *pod) For(a flow.Account) (acquirer.Adapter, error) {
	if known, ok := p.adapters[a.ID]; ok {
		return known, nil
	}
	opened, err := adapter.Open(a.Adapter, a.Settings, a.Secrets, adapter.Options{
		Doer: &Network{Acquirer: p.w.accounts[a.ID], Replica: p.replica, Step: p.w.misfortune}})
	if err == nil {
		p.adapters[a.ID] = opened
	}
	return opened, err
}

// Count implements flow.Watcher.
func (w *World) Count(what string) { w.Counts[what]++ }

// Settled implements flow.Watcher.
func (w *World) Settled(time.Duration) { w.Counts["settled after takeover"]++ }

// Fault implements flow.Watcher. A database that is away is part of the world.
func (w *World) Fault(where string, err error) { w.failed(where, err) }

// Observed implements flow.Watcher.
func (w *World) Observed(flow.Sighting) {}

// Alarm implements flow.Watcher.
func (w *World) Alarm(what, _, _, _ string) { w.Counts["alarm "+what]++ }

// failed is told of the errors of sweep and intake. A database or an acquirer that is away is no defect.
func (w *World) failed(where string, err error) {
	w.Scheduler.Note("sweep:", where, err.Error())
	silent := errors.Is(err, flow.ErrNotAsked) || errors.Is(err, flow.ErrNotAnswered)
	if !silent && !errors.Is(err, operation.ErrNothingDone) && !errors.Is(err, operation.ErrCommitUnknown) {
		w.Faults = append(w.Faults, "sweep "+where+": "+err.Error())
	}
}
