package sim

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/operation"
)

// Network is the way from a replica to an acquirer. It implements wire.Doer as wire.Client does: a permit is used up by
// its call and checked last thing before the first byte; a transaction forbids it; nothing is ever repeated.
type Network struct {
	Acquirer *Acquirer
	Replica  *Replica
	// Step is called where a process may stop or vanish; nil: nothing.
	Step func(ctx context.Context, point string)
}

var _ wire.Doer = (*Network)(nil)

// errReset stands for a connection that ended without an answer.
var errReset = errors.New("sim: connection reset")

// call is one request under way.
type call struct {
	answered *answer
	reset    bool
	done     operation.Signal
}

// Do implements wire.Doer. It waits for virtual time, never longer than wire's own limits.
func (n *Network) Do(ctx context.Context, c wire.Call) wire.Result {
	if refused := n.refuse(ctx, c); refused != nil {
		return *refused
	}
	s, m := n.Replica.s, n.Acquirer.Mischief
	if s.Odds(m.Unreachable) {
		n.Replica.Sleep(ctx, s.Between(time.Millisecond, wire.DefaultConnectTimeout))
		return n.notSent(wire.PhaseConnect, wire.ErrConnectTimeout)
	}
	n.Replica.Sleep(ctx, s.Between(200*time.Microsecond, 30*time.Millisecond))
	n.step(ctx, wire.PointBeforeWrite)
	if ctx.Err() != nil {
		return n.notSent(wire.PhaseWrite, ctx.Err())
	}
	if c.Permit != nil {
		if err := c.Permit.Check(n.Replica.Instant()); err != nil {
			return n.notSent(wire.PhaseWrite, err)
		}
	}
	sent := &call{done: n.Replica.NewSignal()}
	n.leave(c, sent)
	n.step(ctx, wire.PointAfterWrite)
	sent.done.Wait(ctx, wire.DefaultReadTimeout)
	return n.result(ctx, c, sent)
}

func (n *Network) refuse(ctx context.Context, c wire.Call) *wire.Result {
	if wire.NetworkForbidden(ctx) {
		n.Acquirer.Defects = append(n.Acquirer.Defects, "network inside a transaction (I-12)")
		r := n.notSent(wire.PhaseCheck, wire.ErrInTransaction)
		return &r
	}
	if c.Method == http.MethodGet {
		return nil
	}
	if c.Permit == nil {
		n.Acquirer.Defects = append(n.Acquirer.Defects, "a charge without a permit (A0)")
		r := n.notSent(wire.PhaseCheck, wire.ErrPermitMissing)
		return &r
	}
	err := c.Permit.Use(n.Replica.Instant())
	switch {
	case errors.Is(err, wire.ErrPermitUsed):
		n.Acquirer.Defects = append(n.Acquirer.Defects, "a permit used twice (A0)")
		return &wire.Result{Sent: wire.PartlyOrFullySent, Phase: wire.PhaseCheck, Err: err}
	case err != nil:
		r := n.notSent(wire.PhaseCheck, err)
		return &r
	}
	return nil
}

func (n *Network) notSent(phase wire.Phase, err error) wire.Result {
	n.Replica.s.Note("call not sent:", string(phase))
	return wire.Result{Sent: wire.NotSent, Phase: phase, Err: err}
}

// leave lets the bytes go: from here on the world outside decides.
func (n *Network) leave(c wire.Call, sent *call) {
	a, s, m := n.Acquirer, n.Replica.s, n.Acquirer.Mischief
	s.Note("call", c.Method, c.Path, c.Header.Get("Idempotency-Key"))
	if s.Odds(m.LostRequest) {
		s.Note("request lost")
		return
	}
	flight := s.Between(time.Millisecond, 80*time.Millisecond)
	if c.Method == http.MethodPost && s.Odds(m.LateRequest) {
		flight = s.edge(3*time.Second, a.Terms.Flight)
	}
	s.After(min(flight, a.Terms.Flight), func() {
		s.Note("request arrives", c.Method, c.Header.Get("Idempotency-Key"))
		a.arrive(c, func(said answer) { n.back(said, sent) })
	})
}

// back brings an answer to whoever still waits for it.
func (n *Network) back(said answer, sent *call) {
	s, m := n.Replica.s, n.Acquirer.Mischief
	if n.Acquirer.dark() || s.Odds(m.LostAnswer) {
		s.Note("answer lost", strconv.Itoa(said.status))
		return
	}
	delay := s.Between(time.Millisecond, 80*time.Millisecond)
	if s.Odds(m.SlowAnswer) {
		delay = s.Between(time.Second, 30*time.Second)
	}
	reset := s.Odds(m.Reset)
	s.After(delay, func() {
		if reset {
			sent.reset = true
		} else {
			sent.answered = &said
		}
		sent.done.Set()
	})
}

// result is what the caller learned.
func (n *Network) result(ctx context.Context, c wire.Call, sent *call) wire.Result {
	r := wire.Result{Sent: wire.PartlyOrFullySent, BytesWritten: int64(len(c.Body) + len(c.Path)), Phase: wire.PhaseResponse}
	switch {
	case sent.reset:
		r.Err = errReset
	case sent.answered != nil:
		r.Status, r.Body, r.Complete, r.Phase = sent.answered.status, []byte(sent.answered.body), true, wire.PhaseDone
		r.Header = http.Header{"Content-Type": {"application/json"}}
		if sent.answered.page {
			r.Header = http.Header{"Content-Type": {"text/html"}}
		}
	case ctx.Err() != nil:
		r.Err = ctx.Err()
	default:
		r.Err = wire.ErrReadTimeout
	}
	n.Replica.s.Note("call over", strconv.Itoa(r.Status), string(r.Phase))
	return r
}

func (n *Network) step(ctx context.Context, point string) {
	if n.Step != nil {
		n.Step(ctx, point)
	}
}
