package acquirertest

import (
	"context"
	"net/http"
	"slices"
	"sync"

	"github.com/hapaxpay/hapax/acquirer/wire"
)

// Script is a wire.Doer without a network: it keeps every call and answers with Answer. It refuses what wire.Client
// refuses: a call inside a transaction, one without a permit, one with a permit that is used or over.
type Script struct {
	// Answer gives the result of a call that is not refused. Nil: the zero Result, which proves nothing.
	Answer func(wire.Call) wire.Result
	// Clock judges permits; nil is the machine's.
	Clock wire.Clock

	mu    sync.Mutex
	calls []wire.Call
}

// Do keeps the call, with a copy of its body, and answers it.
func (s *Script) Do(ctx context.Context, call wire.Call) wire.Result {
	kept := call
	kept.Body, kept.Header = slices.Clone(call.Body), call.Header.Clone()
	s.mu.Lock()
	s.calls = append(s.calls, kept)
	s.mu.Unlock()
	if wire.NetworkForbidden(ctx) {
		return refused(wire.ErrInTransaction)
	}
	if call.Permit == nil && call.Method != http.MethodGet {
		return refused(wire.ErrPermitMissing)
	}
	if call.Permit != nil {
		if err := s.use(call.Permit); err != nil {
			return *err
		}
	}
	if s.Answer == nil {
		return wire.Result{}
	}
	return s.Answer(call)
}

// restart forgets the calls and answers the next ones with the result.
func (s *Script) restart(res wire.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls, s.Answer = nil, func(wire.Call) wire.Result { return res }
}

// Calls gives the calls until now, refused ones included.
func (s *Script) Calls() []wire.Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

func (s *Script) use(p *wire.Permit) *wire.Result {
	clock := s.Clock
	if clock == nil {
		clock = wire.SystemClock{}
	}
	switch err := p.Use(clock.Instant()); {
	case err == nil:
		return nil
	case err == wire.ErrPermitUsed:
		return &wire.Result{Sent: wire.PartlyOrFullySent, Phase: wire.PhaseCheck, Err: err}
	default:
		r := refused(err)
		return &r
	}
}

func refused(err error) wire.Result {
	return wire.Result{Sent: wire.NotSent, Phase: wire.PhaseCheck, Err: err}
}

// sentBytes is what the script's answers say left us.
const sentBytes = 321

// answered is a complete answer.
func answered(status int, contentType, body string) wire.Result {
	return wire.Result{
		Sent: wire.PartlyOrFullySent, BytesWritten: sentBytes, Status: status, Body: []byte(body),
		Header: http.Header{"Content-Type": {contentType}}, Complete: true, Phase: wire.PhaseDone,
	}
}

func always(res wire.Result) *Script {
	return &Script{Answer: func(wire.Call) wire.Result { return res }}
}
