package sandbox

import (
	"errors"
	"net/http"
	"net/url"
	"time"
)

// find answers a lookup by key or by reference: ask returns what is visible
// under the one that is not empty, nil for nothing.
func (s *Server) find(call string, offered func(Contract) bool, ask func(key, reference string) (any, error)) func(http.ResponseWriter, *request) {
	return func(w http.ResponseWriter, r *request) {
		query := r.URL.Query()
		key, byKey, err1 := single(query, "idempotency_key")
		reference, byReference, err2 := single(query, "reference")
		if err := errors.Join(err1, err2); err != nil {
			s.refuseInput(w, err)
			return
		}
		if byKey == byReference || len(query) != 1 {
			refuse(w, http.StatusBadRequest, "malformed", "ask by idempotency_key or by reference")
			return
		}
		s.question(w, r, meeting{call: call, key: key, reference: reference}, func() *reply {
			terms := s.book.terms()
			if byKey && !terms.LookupByKey || byReference && !terms.LookupByReference || !offered(terms) {
				return jsonError(http.StatusUnprocessableEntity, "not_supported", "this lookup is not offered")
			}
			found, err := ask(key, reference)
			switch {
			case err != nil:
				return unavailable
			case found == nil:
				return notFound
			}
			return jsonReply(http.StatusOK, map[string]any{"data": found})
		})
	}
}

func always(Contract) bool        { return true }
func actsOffered(c Contract) bool { return c.ActsLookup }

// findCharges answers GET /charges?idempotency_key= or ?reference=.
func (s *Server) findCharges() func(http.ResponseWriter, *request) {
	return s.find(callCharge, always, func(key, reference string) (any, error) {
		found := s.book.findCharges(key, reference)
		if len(found) == 0 {
			return nil, nil
		}
		for _, c := range found {
			if err := s.book.noteLapseSeen(c.ID); err != nil {
				return nil, err
			}
		}
		return found, nil
	})
}

// findSessions answers GET /sessions?idempotency_key= or ?reference=.
func (s *Server) findSessions() func(http.ResponseWriter, *request) {
	return s.find(callSession, always, func(key, reference string) (any, error) {
		found := s.book.findSessions(key, reference)
		if len(found) == 0 {
			return nil, nil
		}
		for i := range found {
			if err := s.book.noteSessionSeen(found[i].ID); err != nil {
				return nil, err
			}
			found[i] = s.asLookedUp(found[i])
		}
		return found, nil
	})
}

// asLookedUp leaves the page's address out where lookups do not tell it.
func (s *Server) asLookedUp(session Session) Session {
	if s.book.terms().PageByAddress {
		session.PageURL = ""
	}
	return session
}

// findActs answers GET /captures, /reversals and /refunds.
func (s *Server) findActs(kind string) func(http.ResponseWriter, *request) {
	return s.find(kind, actsOffered, func(key, reference string) (any, error) {
		if found := s.book.findActs(kind, key, reference); len(found) > 0 {
			return found, nil
		}
		return nil, nil
	})
}

// getCharge answers GET /charges/{id}: present state, without lag.
func (s *Server) getCharge(w http.ResponseWriter, r *request) {
	id := r.PathValue("id")
	known, _ := s.book.charge(id)
	s.question(w, r, meeting{call: callCharge, key: known.IdempotencyKey, reference: known.Reference}, func() *reply {
		known, ok := s.book.charge(id)
		if !ok {
			return notFound
		}
		if err := s.book.noteLapseSeen(id); err != nil {
			return unavailable
		}
		return jsonReply(http.StatusOK, known)
	})
}

// getSession answers GET /sessions/{id}: present state, without lag.
func (s *Server) getSession(w http.ResponseWriter, r *request) {
	id := r.PathValue("id")
	_, line := s.book.session(id)
	s.question(w, r, meeting{call: callSession, key: line.IdempotencyKey, reference: line.Reference}, func() *reply {
		known, line := s.book.session(id)
		if known == nil {
			return notFound
		}
		if err := s.book.noteSessionSeen(id); err != nil {
			return unavailable
		}
		return jsonReply(http.StatusOK, s.asLookedUp(s.book.tell(line)))
	})
}

// getAct answers GET /captures/{id}, /reversals/{id} and /refunds/{id}.
func (s *Server) getAct(kind string) func(http.ResponseWriter, *request) {
	return func(w http.ResponseWriter, r *request) {
		id := r.PathValue("id")
		line, _ := s.book.act(id)
		m := meeting{call: kind, key: line.IdempotencyKey, reference: line.Reference, about: s.book.chargeReference(line.Charge)}
		s.question(w, r, m, func() *reply {
			line, ok := s.book.act(id)
			if !ok || line.Kind != kind {
				return notFound
			}
			return jsonReply(http.StatusOK, line.Act)
		})
	}
}

// listMovements answers GET /movements?from=&to=: what moved at or after from
// and before to.
func (s *Server) listMovements(w http.ResponseWriter, r *request) {
	var bounds [2]time.Time
	for i, name := range []string{"from", "to"} {
		text, sent, err := single(r.URL.Query(), name)
		if err == nil && sent {
			bounds[i], err = time.Parse(time.RFC3339Nano, text)
		}
		if err != nil {
			refuse(w, http.StatusBadRequest, "malformed", name+" is not a time as in RFC 3339")
			return
		}
	}
	s.question(w, r, meeting{call: callCharge}, func() *reply {
		found := []Movement{}
		all, _ := s.book.moved()
		for _, m := range all {
			if !m.At.Before(bounds[0]) && (bounds[1].IsZero() || m.At.Before(bounds[1])) {
				found = append(found, m)
			}
		}
		return jsonReply(http.StatusOK, map[string][]Movement{"movements": found})
	})
}

// question lets one lookup pass the gates and faults. It is answered as of the
// moment between them.
func (s *Server) question(w http.ResponseWriter, r *request, m meeting, ask func() *reply) {
	m.now, m.kept = s.clock.now(), r.kept
	p := s.plan.forLookup(m)
	if !s.pause(p.beforeDelay, p.beforeGate) {
		abort(w)
		return
	}
	answer := ask()
	if !s.pause(p.afterDelay, p.afterGate) {
		abort(w)
		return
	}
	s.deliver(w, r, p, second(answer, p.cover))
}

func single(query url.Values, name string) (value string, sent bool, err error) {
	values := query[name]
	if len(values) == 0 {
		return "", false, nil
	}
	if len(values) > 1 || values[0] == "" {
		return "", true, malformed(name + " is empty or there twice")
	}
	return values[0], true, nil
}
