package sandbox

import (
	"net/http"
	"time"

	"github.com/hapaxpay/hapax/money"
)

// actInput is a checked request for an act upon a charge.
type actInput struct {
	order
	charge   string
	amount   int64          // minor units; 0: all that is left
	currency money.Currency // empty: the charge's
	final    bool
}

// postAct answers POST /charges/{id}/capture, reverse and refund.
func (s *Server) postAct(kind string) func(http.ResponseWriter, *request) {
	return func(w http.ResponseWriter, r *request) {
		in, err := parseAct(kind, r)
		if err != nil {
			s.refuseInput(w, err)
			return
		}
		in.about = s.book.chargeReference(in.charge)
		s.run(w, r, in.order, func(p play, mine claim) (*reply, error) { return s.act(in, p, mine) })
	}
}

// act executes under the charge's lock.
func (s *Server) act(in actInput, p play, mine claim) (*reply, error) {
	rec := s.book.record(in.charge)
	if rec == nil {
		return notFound, nil
	}
	rec.lock.Lock()
	defer rec.lock.Unlock()
	out, err := s.actOutcome(rec, in, p, mine.terms)
	if err != nil {
		return nil, err
	}
	return s.conclude(in.order, p, mine, out)
}

// actOutcome decides about the act and makes what it books.
func (s *Server) actOutcome(rec *chargeRecord, in actInput, p play, terms Contract) (outcome, error) {
	if p.unbooked {
		return outcome{}, nil
	}
	if p.refusal != nil {
		return outcome{answer: p.refusal, refused: true}, nil
	}
	if err := s.book.noteLapse(rec); err != nil {
		return outcome{}, err
	}
	now, st := s.clock.now(), s.book.standing(rec)
	amount, no := st.decide(in, terms, now)
	if no != nil {
		return outcome{answer: jsonError(no.status, no.code, no.message), refused: true}, nil
	}
	line := &actLine{IdempotencyKey: in.key, News: p.news, Act: Act{ID: newID(idPrefixes[in.call]), Kind: in.call, Charge: in.charge, Reference: in.reference,
		Status: StatusSucceeded, Amount: amount, Currency: st.charge.Currency, At: now}}
	if in.call == KindCapture {
		line.Final = in.final || !terms.SeveralCaptures || amount == st.capturable()
	}
	if p.wrongAmount {
		line.Amount++
	}
	e := entry{Act: line}
	switch {
	case in.call == KindChargeback:
		line.Status = StatusOpened
		st.carryOut(&e, now)
	case p.processing > 0:
		due := now.Add(p.processing)
		line.Status, line.SettleCode, e.SettleAt = StatusProcessing, p.failing, &due
	case p.failing != "":
		line.Status, line.Code = StatusFailed, p.failing
	default:
		st.carryOut(&e, now)
	}
	return outcome{entry: e, answer: jsonReply(http.StatusOK, line.Act), refused: line.Status == StatusFailed}, nil
}

// standing is what decisions about a charge look at, copied.
type standing struct {
	sums
	charge    chargeLine
	capturing int64 // captures in processing
	leaving   int64 // refunds and reverses in processing
	closing   bool  // a reverse is in processing
	last      bool  // a capture in processing is the final one
}

func (b *book) standing(rec *chargeRecord) standing {
	b.mu.Lock()
	defer b.mu.Unlock()
	st := standing{sums: rec.sums, charge: rec.chargeLine}
	for _, a := range rec.acts {
		switch {
		case a.Status != StatusProcessing:
		case a.Kind == KindCapture:
			st.capturing += a.Amount
			st.last = st.last || a.Final
		default:
			st.leaving += a.Amount
			st.closing = st.closing || a.Kind == KindReverse
		}
	}
	return st
}

// capturable is what can still be captured of a hold.
func (st standing) capturable() int64 { return st.charge.Amount - st.captured - st.capturing }

// returnable is what can still be given back.
func (st standing) returnable() int64 { return st.rest() - st.leaving }

func no(code, message string) *rejection {
	return &rejection{http.StatusUnprocessableEntity, code, message}
}

// decide returns the act's amount in minor units, or why it is refused.
func (st standing) decide(in actInput, terms Contract, now time.Time) (int64, *rejection) {
	if in.call == KindReverse {
		return st.decideReverse(terms, now)
	}
	left, closed := st.returnable(), st.notRefundable()
	if in.call == KindCapture {
		left, closed = st.capturable(), st.notCapturable()
	}
	amount := in.amount
	if amount == 0 {
		amount = left
	}
	switch {
	case closed != nil:
		return 0, closed
	case in.currency != "" && in.currency != st.charge.Currency:
		return 0, no("wrong_currency", "the currency is not the charge's")
	case amount > left || left <= 0:
		return 0, no("exceeds_remaining", "the amount is more than what is left")
	case in.call == KindRefund && !terms.PartialRefunds && amount != st.captured:
		return 0, no("partial_not_allowed", "only the whole captured amount can be refunded")
	}
	return amount, nil
}

func (st standing) notCapturable() *rejection {
	switch {
	case st.charge.Status == StatusSucceeded && st.charge.Hold, st.charge.Status == StatusHeld && (st.last || st.capturable() <= 0):
		return no("already_captured", "nothing more can be captured")
	case st.charge.Status != StatusHeld || st.closing:
		return no("not_capturable", "the charge holds no funds")
	}
	return nil
}

func (st standing) notRefundable() *rejection {
	switch {
	case st.captured == 0, st.closing, st.charge.Status == StatusReversed && st.returnable() <= 0:
		return no("not_refundable", "the charge has no money to give back")
	}
	return nil
}

func (st standing) decideReverse(terms Contract, now time.Time) (int64, *rejection) {
	switch {
	case st.closing:
		return 0, no("nothing_to_reverse", "a reverse of the charge is in processing")
	case st.charge.Status == StatusActionRequired:
		return st.charge.Amount, nil
	case st.capturing > 0, st.charge.Status == StatusHeld && st.captured > 0:
		return 0, no("already_captured", "something of the hold was captured, or is being captured")
	case st.charge.Status == StatusHeld:
		return st.charge.Amount, nil
	case st.charge.Status != StatusSucceeded || st.returnable() <= 0:
		return 0, no("nothing_to_reverse", "the charge holds and has no money")
	case now.Sub(st.capturedAt) >= terms.reverseWindow():
		return 0, no("too_late", "the money was captured too long ago")
	}
	return st.returnable(), nil
}

// carryOut adds to the entry what its act does once it succeeds: the charge's
// next state and the movement.
func (st standing) carryOut(e *entry, now time.Time) {
	c, act := st.charge, e.Act
	m := movementOf(st.charge, *act, act.Kind, now)
	switch act.Kind {
	case KindCapture:
		if c.Status == StatusHeld && (act.Final || st.captured+act.Amount >= c.Amount) {
			c.Status, e.Charge = StatusSucceeded, &c
		}
	case KindReverse:
		m.Of, m.Held = c.ID, c.Status == StatusHeld
		act.Held = c.Status == StatusHeld || c.Status == StatusActionRequired
		if c.Status == StatusActionRequired {
			m = nil // nothing was held yet
		}
		c.Status, e.Charge = StatusReversed, &c
	}
	e.Movement = m
}

func movementOf(c chargeLine, act actLine, kind string, at time.Time) *Movement {
	return &Movement{ID: newID("mv_"), Charge: c.ID, ChargeReference: c.Reference, Object: act.ID, Reference: act.Reference,
		IdempotencyKey: act.IdempotencyKey, Kind: kind, Amount: act.Amount, Currency: act.Currency, At: at}
}

// changeAct decides about one act under its charge's lock: change returns what
// to write, nil for nothing. False means that there is no such act.
func (s *Server) changeAct(id string, change func(standing, actLine) *entry) (Act, bool, error) {
	line, known := s.book.act(id)
	rec := s.book.record(line.Charge)
	if !known || rec == nil {
		return Act{}, false, nil
	}
	rec.lock.Lock()
	defer rec.lock.Unlock()
	line, _ = s.book.act(id)
	if e := change(s.book.standing(rec), line); e != nil {
		if err := s.book.write(e); err != nil {
			return Act{}, true, err
		}
	}
	line, _ = s.book.act(id)
	return line.Act, true, nil
}

// settleAct ends the processing of an act.
func (s *Server) settleAct(id string) error {
	_, _, err := s.changeAct(id, func(st standing, line actLine) *entry {
		if line.Status != StatusProcessing {
			return nil
		}
		e := &entry{Act: &line}
		if line.Kind == KindReverse && st.charge.Status == StatusDeclined {
			line.SettleCode = "nothing_to_reverse" // the payer refused meanwhile
		}
		if line.SettleCode != "" {
			line.Status, line.Code = StatusFailed, line.SettleCode
			return e
		}
		line.Status = StatusSucceeded
		st.carryOut(e, s.clock.now())
		return e
	})
	return err
}
