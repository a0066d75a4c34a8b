package sandbox

import (
	"net/http"
	"net/url"
	"time"
)

// findCharges answers GET /charges?idempotency_key= or ?reference=.
func (s *Server) findCharges(w http.ResponseWriter, r *request) {
	query := r.URL.Query()
	key, byKey, err := single(query, "idempotency_key")
	if err != nil {
		s.refuseInput(w, err)
		return
	}
	reference, byReference, err := single(query, "reference")
	switch {
	case err != nil:
		s.refuseInput(w, err)
		return
	case byKey == byReference || len(query) != 1:
		refuse(w, http.StatusBadRequest, "malformed", "ask by idempotency_key or by reference")
		return
	}
	s.question(w, r, meeting{key: key, reference: reference}, func() *reply {
		terms := s.book.terms()
		if byKey && !terms.LookupByKey || byReference && !terms.LookupByReference {
			return jsonError(http.StatusUnprocessableEntity, "not_supported", "this lookup is not offered")
		}
		found := s.book.findByReference(reference)
		if byKey {
			found = s.book.findByKey(key)
		}
		if len(found) == 0 {
			return notFound
		}
		return jsonReply(http.StatusOK, map[string][]Charge{"data": found})
	})
}

// getCharge answers GET /charges/{id}: present state, without lag.
func (s *Server) getCharge(w http.ResponseWriter, r *request) {
	id := r.PathValue("id")
	known, ok := s.book.charge(id)
	s.question(w, r, meeting{key: known.IdempotencyKey, reference: known.Reference}, func() *reply {
		if known, ok = s.book.charge(id); !ok {
			return notFound
		}
		return jsonReply(http.StatusOK, known)
	})
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
	s.question(w, r, meeting{}, func() *reply {
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
