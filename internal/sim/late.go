package sim

import (
	"context"
	"time"

	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/problem"
)

// lateRepeats lets retention pass and repeats every key: nothing new happens, and the final answers are the same in
// status and code, from what the commands created (PROTOCOL K8).
func (w *World) lateRepeats() []string {
	s := w.Scheduler
	later := s.now + w.Config.Engine.Retention + 24*time.Hour
	w.over = true // the sweeps end; passes are made here
	s.Run(later, func() bool { return false })
	s.now = later
	j := &judge{w: w}
	seen := map[operation.Ref]bool{}
	var finals []Told
	for _, t := range w.Told {
		if t.Final && !seen[t.Ref] && !t.Altered {
			seen[t.Ref], finals = true, append(finals, t)
		}
	}
	before := w.amount()
	p := w.pods[0]
	p.replica.Go(func() {
		if _, err := w.Store.PurgeExpired(context.Background(), maxSteps); err != nil {
			j.say("purge: %v", err)
		}
		for _, t := range finals {
			j.lateRepeat(p, t)
		}
	})
	s.Run(later+24*time.Hour, func() bool { return s.Steps > 2*maxSteps })
	if w.amount() != before {
		j.say("I-11: late repeats added something")
	}
	return j.wrong
}

// lateRepeat sends a command again whose operation is long gone: it is told what it was told, and with other parameters
// nothing but that they are others.
func (j *judge) lateRepeat(p *pod, was Told) {
	a, err := was.command.do(context.Background(), p.flow)
	if t := j.w.tell(was.Ref, a, err); t.Status != was.Status || t.Payment != was.Payment {
		j.say("I-17: the late repeat of %s was told %d %s, before %d", was.Ref.Key, t.Status, t.Code, was.Status)
	}
	if was.command.other == nil {
		return
	}
	if a, err = was.command.other(context.Background(), p.flow); !problem.Is(err, problem.KeyReuse) {
		j.say("I-17: the late repeat of %s with other parameters was told %d %v", was.Ref.Key, a.Status, err)
	}
}

// amount is how much there is of everything that a repeat must not add to.
func (w *World) amount() (n [5]int) {
	n = [5]int{len(w.Store.payments.order), len(w.Store.modifications.order), len(w.Store.entries.order), len(w.Store.events.order)}
	for _, a := range w.Acquirers {
		n[4] += len(a.Register)
	}
	return n
}
