package sandbox

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/money"
)

// flight is a charge between the moment its key or reference was taken and the
// moment it is on disk.
type flight struct {
	bodyHash string
	done     chan struct{}
}

// postCharge takes one charge: the door, the key, the booking, the answer.
func (s *Server) postCharge(w http.ResponseWriter, r *request) {
	in, err := parseCharge(r.Header, r.body)
	if err != nil {
		s.refuseInput(w, err)
		return
	}
	in.bodyHash = r.bodyHash
	p := s.plan.forCharge(in, meeting{key: in.key, reference: in.reference, now: s.clock.now(), kept: r.kept})
	p.beforeDelay += s.book.terms().flight()
	if !s.pause(p.beforeDelay, p.beforeGate) {
		abort(w)
		return
	}
	if p.front != nil || p.neverExecuted {
		s.deliver(w, r, p, second(unavailable, p.front))
		return
	}
	answer, err := s.charge(in, p)
	if err != nil {
		// The register could not be written: whether it was is not known.
		abort(w)
		return
	}
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

// errStopped means that the sandbox closes and nothing was booked.
var errStopped = errors.New("sandbox: closing")

// charge answers from memory what is known already, or books.
func (s *Server) charge(in chargeInput, p play) (*reply, error) {
	for {
		known, running, mine := s.take(in)
		switch {
		case known != nil:
			return known, nil
		case running == nil:
			defer s.giveBack(mine)
			return s.execute(in, p, mine)
		}
		select {
		case <-running.done: // ask again: now it is known, or was not remembered
		case <-s.stop:
			return nil, errStopped
		}
	}
}

// claim is what one request has taken for itself while it runs.
type claim struct {
	terms      Contract
	receivedAt time.Time
	lanes      []string
	flight     *flight
}

// take decides under the lock: an answer that is known, a running request to
// wait for, or a claim of the key and the reference.
func (s *Server) take(in chargeInput) (known *reply, running *flight, mine claim) {
	b := s.book
	b.mu.Lock()
	defer b.mu.Unlock()
	mine = claim{terms: b.contract, receivedAt: b.clock.now(), flight: &flight{bodyHash: in.bodyHash, done: make(chan struct{})}}
	if mine.terms.KeysHonoured && in.key != "" {
		lane := laneOf(in.key, "")
		if known, running = b.takenKey(in, mine, lane); known != nil || running != nil {
			return known, running, claim{}
		}
		mine.lanes = append(mine.lanes, lane)
	}
	if mine.terms.ReferenceUnique {
		lane := laneOf("", in.reference)
		switch {
		case b.usedUp[in.reference]:
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
func (b *book) takenKey(in chargeInput, mine claim, lane string) (*reply, *flight) {
	reused := jsonError(http.StatusUnprocessableEntity, "key_reused", "the key was used with another body")
	if record := b.keys[in.key]; record != nil && mine.receivedAt.Sub(record.ReceivedAt) < mine.terms.keyWindow() {
		if record.BodySHA256 != in.bodyHash {
			return reused, nil
		}
		return b.replay(record, mine.terms), nil
	}
	running := b.running[lane]
	switch {
	case running == nil:
		return nil, nil
	case running.bodyHash != in.bodyHash:
		return reused, nil
	case mine.terms.RepeatInFlight == RepeatConflict:
		return inFlight, nil
	default:
		return nil, running
	}
}

func (b *book) replay(record *keyRecord, terms Contract) *reply {
	if c := b.charges[record.Charge]; c != nil && terms.RepeatLater == RepeatCurrent && record.Status != http.StatusInternalServerError {
		return answerOf(*c)
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

// execute books the charge in one line of the register and returns the answer.
func (s *Server) execute(in chargeInput, p play, mine claim) (*reply, error) {
	if !s.pause(p.duringDelay, p.duringGate) {
		return nil, errStopped
	}
	e, err := bookingOf(in, p, s.clock.now())
	if err != nil {
		return nil, err
	}
	answer := p.failure
	if c := e.Charge; c != nil {
		answer = second(answerOf(*c), p.failure)
		e.UsesUp = mine.terms.ReferenceUnique && (c.Status != StatusDeclined || mine.terms.RefusalsRemembered)
	}
	e.Key = keyRecordOf(in, p, mine, e.Charge)
	if e == (entry{}) {
		return answer, nil
	}
	if err := s.book.write(e); err != nil {
		return nil, fmt.Errorf("sandbox: book a charge: %w", err)
	}
	if e.SettleAt != nil {
		s.settleLater(unsettledCharge{id: e.Charge.ID, at: *e.SettleAt})
	}
	return answer, nil
}

// keyRecordOf is what the contract remembers for the key, nil for nothing.
func keyRecordOf(in chargeInput, p play, mine claim, c *Charge) *keyRecord {
	if !mine.terms.KeysHonoured || in.key == "" || p.forgetKey {
		return nil
	}
	record := &keyRecord{Key: in.key, BodySHA256: in.bodyHash, ReceivedAt: mine.receivedAt}
	var answer *reply
	if c != nil && (c.Status != StatusDeclined || mine.terms.RefusalsRemembered) {
		answer, record.Charge = answerOf(*c), c.ID
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

// bookingOf makes the charge and, when money moves now, its movement.
func bookingOf(in chargeInput, p play, now time.Time) (entry, error) {
	if p.unbooked {
		return entry{}, nil
	}
	amount := in.amount
	if p.wrongCurrency {
		other := money.Currency("EUR")
		if amount.Currency() == other {
			other = "USD"
		}
		amount = money.Must(amount.Minor(), other)
	}
	if p.wrongAmount {
		var err error
		if amount, err = amount.Add(money.Must(1, amount.Currency())); err != nil {
			return entry{}, fmt.Errorf("sandbox: a wrong amount: %w", err)
		}
	}
	c := &Charge{ID: newID("ch_"), Reference: in.reference, IdempotencyKey: in.key, Status: StatusSucceeded,
		Amount: amount.Minor(), Currency: amount.Currency(), CreatedAt: now}
	if p.decline != "" {
		c.Status, c.Reason = StatusDeclined, p.decline
		return entry{Charge: c}, nil
	}
	if p.processing > 0 {
		due := now.Add(p.processing)
		c.Status = StatusProcessing
		return entry{Charge: c, SettleAt: &due}, nil
	}
	return entry{Charge: c, Movement: movementOf(*c, now)}, nil
}

func movementOf(c Charge, at time.Time) *Movement {
	return &Movement{ID: newID("mv_"), Charge: c.ID, Reference: c.Reference, IdempotencyKey: c.IdempotencyKey, Kind: KindCharge,
		Amount: c.Amount, Currency: c.Currency, At: at}
}

func newID(prefix string) string { return prefix + strings.ToLower(rand.Text()) }

func answerOf(c Charge) *reply {
	if c.Status == StatusDeclined {
		return jsonReply(http.StatusPaymentRequired, c)
	}
	return jsonReply(http.StatusOK, c)
}

// settleLater books a charge in processing when its time has come. A restart
// takes it up again from the register.
func (s *Server) settleLater(due unsettledCharge) {
	if !s.begin() {
		return
	}
	go func() {
		defer s.work.Done()
		if !s.clock.wait(due.at, s.stop, nil) {
			return
		}
		c, ok := s.book.charge(due.id)
		if !ok {
			return
		}
		c.Status = StatusSucceeded
		if err := s.book.write(entry{Charge: &c, Movement: movementOf(c, s.clock.now())}); err != nil {
			// The journal refuses everything from now on; every later request says so.
			return
		}
	}()
}
