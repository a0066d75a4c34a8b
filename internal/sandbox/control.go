package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	// maxPoll bounds, in real time, how long a control call waits for something.
	maxPoll = 30 * time.Second
	// maxControlBody bounds the body of a control call, in bytes.
	maxControlBody = 256 << 10
)

// ClockState is the sandbox's clock: its time and its offset from real time.
type ClockState struct {
	Now      time.Time `json:"now"`
	OffsetMS int64     `json:"offset_ms"`
}

type registerAnswer struct {
	Movements []Movement `json:"movements"`
}

type wireAnswer struct {
	Requests []WireEntry `json:"requests"`
}

type waitingAnswer struct {
	Reached bool           `json:"reached"`
	Gates   map[string]int `json:"gates"`
}

type releaseAnswer struct {
	Released int `json:"released"`
}

// getRegister answers GET /register, the truth about money. With at_least=n it
// waits up to wait_ms for the n-th movement.
func (s *Server) getRegister(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	want, err1 := number(query, "at_least", maxLines)
	wait, err2 := number(query, "wait_ms", int64(maxPoll/time.Millisecond))
	if err := errors.Join(err1, err2); err != nil {
		refuse(w, http.StatusBadRequest, "malformed", err.Error())
		return
	}
	deadline := time.NewTimer(time.Duration(wait) * time.Millisecond)
	defer deadline.Stop()
	movements, changed := s.book.moved()
	for int64(len(movements)) < want && s.woken(r, changed, deadline) {
		movements, changed = s.book.moved()
	}
	if movements == nil {
		movements = []Movement{}
	}
	jsonReply(http.StatusOK, registerAnswer{Movements: movements}).send(w)
}

// woken waits for a change; false at the deadline, when the client is gone and
// when the sandbox closes.
func (s *Server) woken(r *http.Request, changed <-chan struct{}, deadline *time.Timer) bool {
	select {
	case <-changed:
		return true
	case <-deadline.C:
	case <-r.Context().Done():
	case <-s.stop:
	}
	return false
}

// getWire answers GET /wire?after=: every request received, in order.
func (s *Server) getWire(w http.ResponseWriter, r *http.Request) {
	after, err := number(r.URL.Query(), "after", maxLines)
	if err != nil {
		refuse(w, http.StatusBadRequest, "malformed", err.Error())
		return
	}
	jsonReply(http.StatusOK, wireAnswer{Requests: s.book.wireAfter(after)}).send(w)
}

func (s *Server) getContract(w http.ResponseWriter, _ *http.Request) {
	jsonReply(http.StatusOK, s.book.terms()).send(w)
}

// putContract replaces the contract; a member left out takes its default.
func (s *Server) putContract(w http.ResponseWriter, r *http.Request) {
	terms := DefaultContract()
	if !decodeControl(w, r, &terms) {
		return
	}
	if err := terms.check(); err != nil {
		refuse(w, http.StatusUnprocessableEntity, "invalid_value", err.Error())
		return
	}
	if err := s.book.write(&entry{Contract: &terms}); err != nil {
		unavailable.send(w)
		return
	}
	jsonReply(http.StatusOK, terms).send(w)
}

func (s *Server) getFaults(w http.ResponseWriter, _ *http.Request) {
	jsonReply(http.StatusOK, s.plan.current()).send(w)
}

// putFaults replaces the fault plan. Requests that a fault holds already stay
// held.
func (s *Server) putFaults(w http.ResponseWriter, r *http.Request) {
	var next FaultPlan
	if !decodeControl(w, r, &next) {
		return
	}
	if err := s.plan.arm(next, s.clock.now()); err != nil {
		refuse(w, http.StatusUnprocessableEntity, "invalid_value", err.Error())
		return
	}
	jsonReply(http.StatusOK, s.plan.current()).send(w)
}

func (s *Server) getClock(w http.ResponseWriter, _ *http.Request) {
	jsonReply(http.StatusOK, ClockState{Now: s.clock.now(), OffsetMS: s.clock.shift().Milliseconds()}).send(w)
}

// putClock sets the offset, or advances it.
func (s *Server) putClock(w http.ResponseWriter, r *http.Request) {
	var in struct {
		OffsetMS  *int64 `json:"offset_ms"`
		AdvanceMS *int64 `json:"advance_ms"`
	}
	if !decodeControl(w, r, &in) {
		return
	}
	if (in.OffsetMS == nil) == (in.AdvanceMS == nil) {
		refuse(w, http.StatusUnprocessableEntity, "invalid_value", "one of offset_ms and advance_ms is needed")
		return
	}
	const most = int64(maxContractTime / time.Millisecond)
	s.clockMu.Lock()
	defer s.clockMu.Unlock()
	change, offset := in.OffsetMS, int64(0)
	if in.AdvanceMS != nil {
		change, offset = in.AdvanceMS, s.clock.shift().Milliseconds()
	}
	if *change < -most || *change > most || offset+*change < -most || offset+*change > most {
		refuse(w, http.StatusUnprocessableEntity, "invalid_value", "the offset is out of range")
		return
	}
	offset += *change
	if err := s.book.write(&entry{ShiftMS: &offset}); err != nil {
		unavailable.send(w)
		return
	}
	s.getClock(w, r)
}

// getWaiting answers GET /control/waiting?gate=&at_least=&wait_ms=: how many
// requests wait at each gate, as soon as enough do.
func (s *Server) getWaiting(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	want, err1 := number(query, "at_least", maxHeld)
	wait, err2 := number(query, "wait_ms", int64(maxPoll/time.Millisecond))
	if err := errors.Join(err1, err2); err != nil {
		refuse(w, http.StatusBadRequest, "malformed", err.Error())
		return
	}
	gate := query.Get("gate")
	deadline := time.NewTimer(time.Duration(wait) * time.Millisecond)
	defer deadline.Stop()
	counts, changed := s.gates.counts()
	for int64(counts[gate]) < want && s.woken(r, changed, deadline) {
		counts, changed = s.gates.counts()
	}
	jsonReply(http.StatusOK, waitingAnswer{Reached: int64(counts[gate]) >= want, Gates: counts}).send(w)
}

// postRelease answers POST /control/release/{gate}?n=: lets the n that wait
// longest go, all when n is left out.
func (s *Server) postRelease(w http.ResponseWriter, r *http.Request) {
	n, err := number(r.URL.Query(), "n", maxHeld)
	if err != nil {
		refuse(w, http.StatusBadRequest, "malformed", err.Error())
		return
	}
	jsonReply(http.StatusOK, releaseAnswer{Released: s.gates.release(r.PathValue("gate"), int(n))}).send(w)
}

// number reads an optional number between 0 and most from the query.
func number(query url.Values, name string, most int64) (int64, error) {
	text := query.Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > most {
		return 0, errors.New(name + " is not a number in range")
	}
	return n, nil
}

// decodeControl reads the body of a control call, or answers 400.
func decodeControl(w http.ResponseWriter, r *http.Request, into any) bool {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxControlBody+1))
	if err != nil || len(body) > maxControlBody {
		refuse(w, http.StatusBadRequest, "malformed", "the body broke off or is too long")
		return false
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil || decoder.More() {
		refuse(w, http.StatusBadRequest, "malformed", "the body is not the JSON object that this call takes")
		return false
	}
	return true
}
