package sandbox

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/money"
)

// postCharge takes one charge: the door, the key, the booking, the answer.
func (s *Server) postCharge(w http.ResponseWriter, r *request) {
	in, err := parseCharge(r.Header, r.body)
	if err != nil {
		s.refuseInput(w, err)
		return
	}
	in.call, in.bodyHash = callCharge, r.bodyHash
	s.run(w, r, in.order, func(p play, mine claim) (*reply, error) {
		out, err := s.chargeOutcome(in, p, mine.terms)
		if err != nil {
			return nil, err
		}
		return s.conclude(in.order, p, mine, out)
	})
}

// chargeOutcome makes the charge and, when money moves now, its movement.
func (s *Server) chargeOutcome(in chargeInput, p play, terms Contract) (outcome, error) {
	if p.unbooked {
		return outcome{}, nil
	}
	amount, err := p.amount(in.amount)
	if err != nil {
		return outcome{}, err
	}
	now := s.clock.now()
	line := newCharge(in.reference, in.key, amount.Minor(), amount.Currency(), now)
	line.Hold, line.News = p.hold || !in.capture, p.news
	e := entry{Charge: line}
	switch {
	case p.decline != "":
		line.Status, line.Reason = StatusDeclined, p.decline
	case p.challenge:
		until := now.Add(terms.sessionLife())
		line.Status, line.ExpiresAt = StatusActionRequired, &until
	case p.processing > 0:
		due := now.Add(p.processing)
		line.Status, e.SettleAt = StatusProcessing, &due
	default:
		e.goThrough(terms, now)
	}
	return outcome{entry: e, answer: answerOf(s.book.fresh(e)), refused: line.Status == StatusDeclined}, nil
}

// amount is the amount that is booked under the play.
func (p play) amount(asked money.Amount) (money.Amount, error) {
	if p.wrongCurrency {
		other := money.Currency("EUR")
		if asked.Currency() == other {
			other = "USD"
		}
		asked = money.Must(asked.Minor(), other)
	}
	if !p.wrongAmount {
		return asked, nil
	}
	more, err := asked.Add(money.Must(1, asked.Currency()))
	if err != nil {
		return money.Amount{}, fmt.Errorf("sandbox: a wrong amount: %w", err)
	}
	return more, nil
}

func newCharge(reference, key string, minor int64, currency money.Currency, now time.Time) *chargeLine {
	return &chargeLine{ChargeCore: ChargeCore{ID: newID("ch_"), Reference: reference, IdempotencyKey: key,
		Amount: minor, Currency: currency, CreatedAt: now}}
}

// goThrough lets the entry's charge hold or take its money.
func (e *entry) goThrough(terms Contract, now time.Time) {
	c := e.Charge
	if c.Hold {
		until := now.Add(terms.holdLife())
		c.Status, c.ExpiresAt = StatusHeld, &until
		return
	}
	c.Status = StatusSucceeded
	e.Movement = &Movement{ID: newID("mv_"), Charge: c.ID, ChargeReference: c.Reference, Object: c.ID, Reference: c.Reference,
		IdempotencyKey: c.IdempotencyKey, Kind: KindCharge, Amount: c.Amount, Currency: c.Currency, At: now}
}

func newID(prefix string) string { return prefix + strings.ToLower(rand.Text()) }

func answerOf(c Charge) *reply {
	if c.Status == StatusDeclined {
		return jsonReply(http.StatusPaymentRequired, c)
	}
	return jsonReply(http.StatusOK, c)
}

// changeCharge decides about one charge under its lock: change gets the
// charge's line, time taken into account, and returns what to write, nil for
// nothing. False means that there is no such charge.
func (s *Server) changeCharge(id string, change func(chargeLine) *entry) (Charge, bool, error) {
	rec := s.book.record(id)
	if rec == nil {
		return Charge{}, false, nil
	}
	rec.lock.Lock()
	defer rec.lock.Unlock()
	if err := s.book.noteLapse(rec); err != nil {
		return Charge{}, true, err
	}
	if e := change(s.book.standing(rec).charge); e != nil {
		if err := s.book.write(e); err != nil {
			return Charge{}, true, err
		}
	}
	c, _ := s.book.charge(id)
	return c, true, nil
}

// settleCharge ends the processing of a charge.
func (s *Server) settleCharge(id string) error {
	_, _, err := s.changeCharge(id, func(line chargeLine) *entry {
		if line.Status != StatusProcessing {
			return nil
		}
		e := &entry{Charge: &line}
		e.goThrough(s.book.terms(), s.clock.now())
		return e
	})
	return err
}

// confirm is the payer's answer to the bank's question (3-D Secure). It
// returns whether the charge still waited for it.
func (s *Server) confirm(id string, yes bool) (c Charge, known, waited bool, err error) {
	c, known, err = s.changeCharge(id, func(line chargeLine) *entry {
		if line.Status != StatusActionRequired {
			return nil
		}
		waited = true
		e := &entry{Charge: &line}
		if yes {
			e.goThrough(s.book.terms(), s.clock.now())
		} else {
			line.Status, line.Reason = StatusDeclined, reasonNotConfirmed
		}
		return e
	})
	return c, known, waited, err
}

// reasonNotConfirmed is the reason of a decline by the payer's own bank page.
const reasonNotConfirmed = "authentication_failed"
