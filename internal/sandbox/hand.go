package sandbox

import (
	"net/http"

	"github.com/hapaxpay/hapax/money"
)

// What is done by hand at the acquirer's own desk, and by the payer without a
// browser. It passes no fault and no key; a refusal is answered as to a
// merchant.

// HandCharge is a charge that the acquirer makes by its own mistake.
type HandCharge struct {
	Reference      string         `json:"reference"`
	Amount         int64          `json:"amount"` // minor units
	Currency       money.Currency `json:"currency"`
	IdempotencyKey string         `json:"idempotency_key,omitempty"`
}

// handAmount is the body of an act by hand; no amount means all that is left.
type handAmount struct {
	Amount int64 `json:"amount,omitempty"`
}

type handChargeback struct {
	Charge string `json:"charge"`
	Amount int64  `json:"amount,omitempty"`
}

type handFailure struct {
	Code string `json:"code"`
}

type chargesAnswer struct {
	Charges []Charge `json:"charges"`
}

type sessionsAnswer struct {
	Sessions []Session `json:"sessions"`
}

// decodeHand is decodeControl for a body that may be left out.
func decodeHand(w http.ResponseWriter, r *http.Request, into any) bool {
	return r.ContentLength == 0 || decodeControl(w, r, into)
}

func goodMinor(w http.ResponseWriter, minor, least int64) bool {
	if minor < least || minor > money.MaxMinor {
		refuse(w, http.StatusUnprocessableEntity, "invalid_value", "amount is not in range")
		return false
	}
	return true
}

// answerHand answers with what became of the object.
func answerHand(w http.ResponseWriter, value any, known, done bool, err error) {
	switch {
	case err != nil:
		unavailable.send(w)
	case !known:
		notFound.send(w)
	case !done:
		refuse(w, http.StatusConflict, "already_decided", "it is not in a state for that any more")
	default:
		jsonReply(http.StatusOK, value).send(w)
	}
}

// handAct answers POST /control/charges/{id}/capture, reverse and refund, and
// the payer's confirm and refuse.
func (s *Server) handAct(w http.ResponseWriter, r *http.Request) {
	id, what := r.PathValue("id"), r.PathValue("act")
	var in handAmount
	switch what {
	case KindCapture, KindReverse, KindRefund:
		if decodeHand(w, r, &in) && goodMinor(w, in.Amount, 0) {
			s.actByHand(w, actInput{order: order{call: what}, charge: id, amount: in.Amount})
		}
	case "confirm", "refuse":
		c, known, waited, err := s.confirm(id, what == "confirm")
		answerHand(w, c, known, waited, err)
	default:
		refuse(w, http.StatusNotFound, "no_such_call", "no such call")
	}
}

// actByHand books an act with an empty reference.
func (s *Server) actByHand(w http.ResponseWriter, in actInput) {
	answer, err := s.act(in, play{}, claim{terms: s.book.terms()})
	if err != nil {
		unavailable.send(w)
		return
	}
	answer.send(w)
}

// handCharge answers POST /control/charges.
func (s *Server) handCharge(w http.ResponseWriter, r *http.Request) {
	var in HandCharge
	if !decodeControl(w, r, &in) || !goodMinor(w, in.Amount, 1) {
		return
	}
	if !in.Currency.Valid() || len(in.Reference) > maxReference || !visible(in.Reference) ||
		in.IdempotencyKey != "" && (len(in.IdempotencyKey) > maxKey || !visible(in.IdempotencyKey)) {
		refuse(w, http.StatusUnprocessableEntity, "invalid_value", "reference, currency or idempotency_key is not right")
		return
	}
	now := s.clock.now()
	e := entry{Charge: newCharge(in.Reference, in.IdempotencyKey, in.Amount, in.Currency, now)}
	e.goThrough(s.book.terms(), now)
	err := s.book.write(&e)
	c, _ := s.book.charge(e.Charge.ID)
	answerHand(w, c, true, true, err)
}

// failRefund answers POST /control/refunds/{id}/fail: the money comes back
// from the payer's bank.
func (s *Server) failRefund(w http.ResponseWriter, r *http.Request) {
	var in handFailure
	if !decodeControl(w, r, &in) {
		return
	}
	if len(in.Code) > maxReference || !visible(in.Code) {
		refuse(w, http.StatusUnprocessableEntity, "invalid_value", "code is empty, too long, or not visible ASCII")
		return
	}
	s.undo(w, r.PathValue("id"), KindRefund, func(line *actLine) bool {
		moved := line.Status == StatusSucceeded
		line.Status, line.Code = StatusFailed, in.Code
		return moved
	}, StatusSucceeded, StatusProcessing)
}

// undo changes an act of the kind that is in one of the states, and books that
// its money comes back when change says so.
func (s *Server) undo(w http.ResponseWriter, id, kind string, change func(*actLine) bool, from ...string) {
	done, isKind := false, false
	act, known, err := s.changeAct(id, func(st standing, line actLine) *entry {
		isKind = line.Kind == kind
		for _, status := range from {
			done = done || isKind && line.Status == status
		}
		if !done {
			return nil
		}
		e := &entry{Act: &line}
		if change(&line) {
			e.Movement = movementOf(st.charge, line, KindReverse, s.clock.now())
			e.Movement.Of = line.ID
		}
		return e
	})
	answerHand(w, act, known && isKind, done, err)
}

// openChargeback answers POST /control/chargebacks: the payer's bank takes the
// money back.
func (s *Server) openChargeback(w http.ResponseWriter, r *http.Request) {
	var in handChargeback
	if decodeControl(w, r, &in) && goodMinor(w, in.Amount, 0) {
		s.actByHand(w, actInput{order: order{call: KindChargeback}, charge: in.Charge, amount: in.Amount})
	}
}

// endChargeback answers POST /control/chargebacks/{id}/won and lost.
func (s *Server) endChargeback(w http.ResponseWriter, r *http.Request) {
	result := r.PathValue("result")
	if result != StatusWon && result != StatusLost {
		refuse(w, http.StatusNotFound, "no_such_call", "no such call")
		return
	}
	s.undo(w, r.PathValue("id"), KindChargeback, func(line *actLine) bool {
		line.Status = result
		return result == StatusWon
	}, StatusOpened)
}

// handSession answers POST /control/sessions/{id}/pay, decline and expire.
func (s *Server) handSession(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	var session Session
	var known, done bool
	var err error
	switch r.PathValue("what") {
	case "pay":
		session, known, done, err = s.pay(id)
	case "decline":
		session, known, done, err = s.tryRefused(id)
	case "expire":
		session, known, err = s.endSession(id, StatusExpired)
		done = session.Status == StatusExpired
	default:
		refuse(w, http.StatusNotFound, "no_such_call", "no such call")
		return
	}
	answerHand(w, session, known, done, err)
}

// listCharges answers GET /control/charges?reference=, all without one.
func (s *Server) listCharges(w http.ResponseWriter, r *http.Request) {
	jsonReply(http.StatusOK, chargesAnswer{s.book.allCharges(r.URL.Query().Get("reference"))}).send(w)
}

// listSessions answers GET /control/sessions?reference=, all without one.
func (s *Server) listSessions(w http.ResponseWriter, r *http.Request) {
	jsonReply(http.StatusOK, sessionsAnswer{s.book.allSessions(r.URL.Query().Get("reference"))}).send(w)
}
