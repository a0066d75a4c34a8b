package sandbox

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// The calls that a fault rule can name.
const (
	callCharge  = "charge"
	callSession = "session"
	callCapture = KindCapture
	callReverse = KindReverse
	callRefund  = KindRefund
	callClose   = "close"
	callAny     = "any"
)

// order is one request that may be executed, as the plan and the key see it.
type order struct {
	call      string
	path      string // empty for a charge; a key belongs to one path and body
	key       string // empty: none
	bodyHash  string
	reference string // what the merchant calls it; empty for a close
	about     string // reference of the charge or session that it acts upon
	plays     []play // of the payment method, one per call
}

// flight is an order between the moment its key or reference was taken and
// the moment it is on disk.
type flight struct {
	path, bodyHash string
	done           chan struct{}
}

// claim is what one request has taken for itself while it runs.
type claim struct {
	terms      Contract
	receivedAt time.Time
	lanes      []string
	flight     *flight
}

// outcome is what an execution came to, before the play covers it.
type outcome struct {
	entry   entry  // what to book; empty for none
	answer  *reply // nil when nothing was executed
	refused bool   // a refusal: remembered only where refusals are
}

// errStopped means that the sandbox closes and nothing was booked.
var errStopped = errors.New("sandbox: closing")

// run takes one order through the door, its key, its execution and the way
// back. What execute decides and books is up to it; it fails when the register
// could not be written.
func (s *Server) run(w http.ResponseWriter, r *request, o order, execute func(play, claim) (*reply, error)) {
	p := s.plan.forOrder(o, meeting{call: o.call, key: o.key, reference: o.reference, about: o.about, now: s.clock.now(), kept: r.kept})
	p.beforeDelay += s.book.terms().flight()
	if !s.pause(p.beforeDelay, p.beforeGate) {
		abort(w)
		return
	}
	if p.front != nil || p.neverExecuted {
		s.deliver(w, r, p, second(unavailable, p.front).backTo(r.URL.Path))
		return
	}
	var told []messageLine
	if p.newsFirst {
		p.told = &told
	}
	answer, err := s.once(o, p, execute)
	if err != nil {
		// The register could not be written: whether it was is not known.
		abort(w)
		return
	}
	s.awaitTold(told)
	if !s.pause(p.afterDelay, p.afterGate) {
		abort(w)
		return
	}
	s.deliver(w, r, p, second(answer, p.cover))
}

func (s *Server) refuseInput(w http.ResponseWriter, err error) {
	var rejected *rejection
	if !errors.As(err, &rejected) {
		refuse(w, http.StatusInternalServerError, "internal", "an internal error")
		return
	}
	refuse(w, rejected.status, rejected.code, rejected.message)
}

// pause waits for the delay by the sandbox's clock and then at the gate,
// whether or not the client is still there: what reached us goes on without
// it. False means that the sandbox is closing.
func (s *Server) pause(delay time.Duration, gate string) bool {
	if delay > 0 && !s.waitDelay(delay) {
		return false
	}
	if gate != "" {
		s.gates.wait(gate, holdCap, s.stop, nil)
	}
	select {
	case <-s.stop:
		return false
	default:
		return true
	}
}

func (s *Server) waitDelay(delay time.Duration) bool {
	due := s.clock.now().Add(delay)
	me := &holder{let: make(chan struct{})}
	if !s.gates.enter(clockGate, me) {
		return true // more than the gates hold: not delayed
	}
	defer s.gates.leave(clockGate, me)
	return s.clock.wait(due, s.stop, me.let)
}

// once answers from memory what is known already, or executes.
func (s *Server) once(o order, p play, execute func(play, claim) (*reply, error)) (*reply, error) {
	for {
		known, running, mine := s.take(o)
		switch {
		case known != nil:
			return known, nil
		case running == nil:
			defer s.giveBack(mine)
			if !s.pause(p.duringDelay, p.duringGate) {
				return nil, errStopped
			}
			return execute(p, mine)
		}
		select {
		case <-running.done: // ask again: now it is known, or was not remembered
		case <-s.stop:
			return nil, errStopped
		}
	}
}

// take decides under the lock: an answer that is known, a running request to
// wait for, or a claim of the key and the reference.
func (s *Server) take(o order) (known *reply, running *flight, mine claim) {
	b := s.book
	b.mu.Lock()
	defer b.mu.Unlock()
	mine = claim{terms: b.contract, receivedAt: b.clock.now(), flight: &flight{path: o.path, bodyHash: o.bodyHash, done: make(chan struct{})}}
	if mine.terms.keysFor(o.call) && o.key != "" {
		lane := laneOf(callCharge, o.key, "") // one lane for all calls: a key is used once
		if known, running = b.takenKey(o, mine, lane); known != nil || running != nil {
			return known, running, claim{}
		}
		mine.lanes = append(mine.lanes, lane)
	}
	if mine.terms.ReferenceUnique && o.reference != "" {
		lane := laneOf(o.call, "", o.reference)
		switch {
		case b.usedUp[lane]:
			return jsonError(http.StatusConflict, "duplicate_reference", "the reference was used before"), nil, claim{}
		case b.running[lane] != nil:
			return inFlight, nil, claim{}
		}
		mine.lanes = append(mine.lanes, lane)
	}
	for _, lane := range mine.lanes {
		b.running[lane] = mine.flight
	}
	return nil, nil, mine
}

// takenKey says what a key that was seen before answers; both nil when it is
// free or its window is over.
func (b *book) takenKey(o order, mine claim, lane string) (*reply, *flight) {
	reused := jsonError(http.StatusUnprocessableEntity, "key_reused", "the key was used with another body")
	if record := b.keys[o.key]; record != nil && mine.receivedAt.Sub(record.ReceivedAt) < mine.terms.keyWindow() {
		if record.Path != o.path || record.BodySHA256 != o.bodyHash {
			return reused, nil
		}
		return b.replay(record, mine.terms), nil
	}
	running := b.running[lane]
	switch {
	case running == nil:
		return nil, nil
	case running.path != o.path || running.bodyHash != o.bodyHash:
		return reused, nil
	case mine.terms.RepeatInFlight == RepeatConflict:
		return inFlight, nil
	default:
		return nil, running
	}
}

func (b *book) replay(record *keyRecord, terms Contract) *reply {
	if terms.RepeatLater == RepeatCurrent && record.Status != http.StatusInternalServerError {
		if c := b.charges.byID[record.Charge]; c != nil {
			return answerOf(b.view(c))
		}
		if a := b.acts.byID[record.Act]; a != nil {
			return jsonReply(http.StatusOK, a.Act)
		}
		if session := b.sessions.byID[record.Session]; session != nil {
			return jsonReply(http.StatusOK, b.viewSession(session.sessionLine))
		}
	}
	return &reply{status: record.Status, contentType: "application/json", body: record.Body}
}

// giveBack frees what take claimed and wakes those who wait for it.
func (s *Server) giveBack(mine claim) {
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	for _, lane := range mine.lanes {
		delete(s.book.running, lane)
	}
	close(mine.flight.done)
}

// conclude books an outcome and what is remembered of it in one line of the
// register, and returns the answer.
func (s *Server) conclude(o order, p play, mine claim, out outcome) (*reply, error) {
	e := out.entry
	if e.changes() {
		e.UsesUp = mine.terms.ReferenceUnique && o.reference != "" && (!out.refused || mine.terms.RefusalsRemembered)
	}
	e.Key, e.newsFirst = keyRecordOf(o, p, mine, out), p.newsFirst
	answer := second(out.answer, p.failure)
	if !e.changes() && e.Key == nil {
		return answer, nil
	}
	if err := s.book.write(&e); err != nil {
		return nil, fmt.Errorf("sandbox: book: %w", err)
	}
	if p.told != nil {
		*p.told = e.Messages
	}
	s.settleEntry(e)
	return answer, nil
}

// keyRecordOf is what the contract remembers for the key, nil for nothing.
func keyRecordOf(o order, p play, mine claim, out outcome) *keyRecord {
	if !mine.terms.keysFor(o.call) || o.key == "" || p.forgetKey {
		return nil
	}
	record := &keyRecord{Key: o.key, Path: o.path, BodySHA256: o.bodyHash, ReceivedAt: mine.receivedAt}
	var answer *reply
	if out.answer != nil && (!out.refused || mine.terms.RefusalsRemembered) {
		answer = out.answer
		switch e := out.entry; {
		case e.Act != nil:
			record.Act = e.Act.ID
		case e.Charge != nil:
			record.Charge = e.Charge.ID
		case e.Session != nil:
			record.Session = e.Session.ID
		}
	}
	if p.failure != nil && mine.terms.ErrorsStored {
		answer = p.failure
	}
	if answer == nil {
		return nil
	}
	record.Status, record.Body = answer.status, answer.body
	return record
}

// settleEntry books later what the entry left in processing.
func (s *Server) settleEntry(e entry) {
	switch {
	case e.SettleAt == nil:
	case e.Act != nil:
		s.settleLater(unsettled{id: e.Act.ID, at: *e.SettleAt})
	case e.Charge != nil:
		s.settleLater(unsettled{id: e.Charge.ID, at: *e.SettleAt})
	}
}

// settleLater books a charge or an act in processing when its time has come.
// A restart takes it up again from the register.
func (s *Server) settleLater(due unsettled) {
	if !s.begin() {
		return
	}
	go func() {
		defer s.work.Done()
		if !s.clock.wait(due.at, s.stop, nil) {
			return
		}
		settle := s.settleCharge
		if _, isAct := s.book.act(due.id); isAct {
			settle = s.settleAct
		}
		if err := settle(due.id); err != nil {
			// The journal refuses everything from now on; every later request says so.
			return
		}
	}()
}
