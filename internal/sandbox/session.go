package sandbox

import (
	"net/http"
	"sync"
	"time"

	"github.com/hapaxpay/hapax/money"
)

// States of a session; StatusExpired is the fourth.
const (
	StatusOpen   = "open"
	StatusPaid   = "paid"
	StatusClosed = "closed"
)

// Session is one hosted page as the acquirer tells it.
type Session struct {
	ID        string         `json:"id"`
	Reference string         `json:"reference"`
	PageURL   string         `json:"page_url,omitempty"`
	Status    string         `json:"status"`
	Amount    int64          `json:"amount"` // minor units
	Currency  money.Currency `json:"currency"`
	ExpiresAt time.Time      `json:"expires_at"`
	Charge    *Charge        `json:"charge"` // of a paid one
	Tries     int            `json:"tries"`  // refused tries on the page
}

// sessionLine is a session in the register file.
type sessionLine struct {
	ID             string         `json:"id"`
	Reference      string         `json:"reference"`
	IdempotencyKey string         `json:"idempotency_key"`
	Status         string         `json:"status"`
	Amount         int64          `json:"amount"`
	Currency       money.Currency `json:"currency"`
	ReturnURL      string         `json:"return_url"`
	Capture        bool           `json:"capture"`
	Charge         string         `json:"charge,omitempty"`
	Tries          int            `json:"tries"`
	CreatedAt      time.Time      `json:"created_at"`
	ExpiresAt      time.Time      `json:"expires_at"`
	News           string         `json:"news,omitempty"` // what a fault does to messages about it and its charge
}

// sessionRecord is a session in memory; lock is held while something about it
// is decided and booked, and taken before the book's own.
type sessionRecord struct {
	lock sync.Mutex
	sessionLine
}

func (b *book) applySession(line sessionLine) {
	if known := b.sessions.byID[line.ID]; known != nil {
		known.sessionLine = line
		return
	}
	b.expect(line.ID, line.ExpiresAt)
	b.sessions.put(line.ID, line.IdempotencyKey, line.Reference, &sessionRecord{sessionLine: line})
}

// afterLapse is the line once time was taken into account.
func (l sessionLine) afterLapse(now time.Time) sessionLine {
	if l.Status == StatusOpen && !now.Before(l.ExpiresAt) {
		l.Status = StatusExpired
	}
	return l
}

// viewSession is a session as it is told now; b.mu is held.
func (b *book) viewSession(l sessionLine) Session {
	l = l.afterLapse(b.clock.now())
	told := Session{ID: l.ID, Reference: l.Reference, PageURL: b.base + "/pay/" + l.ID, Status: l.Status, Amount: l.Amount,
		Currency: l.Currency, ExpiresAt: l.ExpiresAt, Tries: l.Tries}
	if r := b.charges.byID[l.Charge]; r != nil {
		c := b.view(r)
		told.Charge = &c
	}
	return told
}

// sessionInput is a checked request for a session.
type sessionInput struct {
	order
	amount    money.Amount
	returnURL string
	capture   bool
	expiresAt time.Time // zero: by the contract
}

// postSession answers POST /sessions.
func (s *Server) postSession(w http.ResponseWriter, r *request) {
	in, err := parseSession(r, s.clock.now())
	if err != nil {
		s.refuseInput(w, err)
		return
	}
	s.run(w, r, in.order, func(p play, mine claim) (*reply, error) {
		out, err := s.sessionOutcome(in, p, mine.terms)
		if err != nil {
			return nil, err
		}
		return s.conclude(in.order, p, mine, out)
	})
}

func (s *Server) sessionOutcome(in sessionInput, p play, terms Contract) (outcome, error) {
	switch {
	case p.unbooked:
		return outcome{}, nil
	case p.refusal != nil:
		return outcome{answer: p.refusal, refused: true}, nil
	}
	amount, err := p.amount(in.amount)
	if err != nil {
		return outcome{}, err
	}
	now := s.clock.now()
	line := &sessionLine{ID: newID("cs_"), Reference: in.reference, IdempotencyKey: in.key, Status: StatusOpen, Amount: amount.Minor(),
		Currency: amount.Currency(), ReturnURL: in.returnURL, Capture: in.capture, CreatedAt: now, ExpiresAt: in.expiresAt, News: p.news}
	if line.ExpiresAt.IsZero() {
		line.ExpiresAt = now.Add(terms.sessionLife())
	}
	return outcome{entry: entry{Session: line}, answer: jsonReply(http.StatusOK, s.book.tell(*line))}, nil
}

// tell is viewSession for those who do not hold b.mu.
func (b *book) tell(l sessionLine) Session {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.viewSession(l)
}

func (b *book) session(id string) (*sessionRecord, sessionLine) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.sessions.byID[id]
	if r == nil {
		return nil, sessionLine{}
	}
	return r, r.sessionLine
}

// findSessions is findCharges for sessions.
func (b *book) findSessions(key, reference string) []Session {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []Session
	for _, r := range b.sessions.under(key, reference) {
		if b.inSight(r.CreatedAt) {
			found = append(found, b.viewSession(r.sessionLine))
		}
	}
	return found
}

// allSessions returns every session with the reference, all for an empty one.
func (b *book) allSessions(reference string) []Session {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := []Session{}
	for _, r := range b.sessions.all {
		if reference == "" || r.Reference == reference {
			found = append(found, b.viewSession(r.sessionLine))
		}
	}
	return found
}

// changeSession decides about one session under its lock: change gets the
// line, time taken into account, and returns what to write, nil for nothing.
// False means that there is no such session.
func (s *Server) changeSession(id string, change func(sessionLine) *entry) (Session, bool, error) {
	rec, _ := s.book.session(id)
	if rec == nil {
		return Session{}, false, nil
	}
	rec.lock.Lock()
	defer rec.lock.Unlock()
	line, err := s.book.noteSessionLapse(id)
	if err != nil {
		return Session{}, true, err
	}
	if e := change(line); e != nil {
		if err := s.book.write(e); err != nil {
			return Session{}, true, err
		}
	}
	_, line = s.book.session(id)
	return s.book.tell(line), true, nil
}

// noteSessionLapse writes down that the session's time is over and returns its
// line; the caller holds the session's lock.
func (b *book) noteSessionLapse(id string) (sessionLine, error) {
	_, line := b.session(id)
	now := line.afterLapse(b.clock.now())
	if now.Status == line.Status {
		return line, nil
	}
	return now, b.write(&entry{Session: &now})
}

// noteSessionSeen is noteSessionLapse for a question: it waits for nobody.
func (b *book) noteSessionSeen(id string) error {
	rec, _ := b.session(id)
	if rec == nil || !rec.lock.TryLock() {
		return nil
	}
	defer rec.lock.Unlock()
	_, err := b.noteSessionLapse(id)
	return err
}

// pay lets the payer pay an open session: one charge, in the same line of the
// register. It returns whether the session was open.
func (s *Server) pay(id string) (session Session, known, wasOpen bool, err error) {
	session, known, err = s.changeSession(id, func(line sessionLine) *entry {
		if line.Status != StatusOpen {
			return nil
		}
		wasOpen = true
		now, terms := s.clock.now(), s.book.terms()
		charge := newCharge(line.Reference, line.IdempotencyKey, line.Amount, line.Currency, now)
		charge.Hold, charge.Session, charge.News = !line.Capture, line.ID, line.News
		line.Status, line.Charge = StatusPaid, charge.ID
		e := &entry{Session: &line, Charge: charge, UsesUp: terms.ReferenceUnique}
		e.goThrough(terms, now)
		return e
	})
	return session, known, wasOpen, err
}

// tryRefused counts a refused try on an open page, which stays open.
func (s *Server) tryRefused(id string) (session Session, known, wasOpen bool, err error) {
	session, known, err = s.changeSession(id, func(line sessionLine) *entry {
		if line.Status != StatusOpen {
			return nil
		}
		wasOpen = true
		line.Tries++
		return &entry{Session: &line}
	})
	return session, known, wasOpen, err
}

// endSession brings an open session to an end that is not paid.
func (s *Server) endSession(id, status string) (Session, bool, error) {
	return s.changeSession(id, func(line sessionLine) *entry {
		if line.Status != StatusOpen {
			return nil
		}
		line.Status = status
		return &entry{Session: &line}
	})
}

// postClose answers POST /sessions/{id}/close: a page that nobody can pay any
// more. Closing is safe to repeat, so it has no key.
func (s *Server) postClose(w http.ResponseWriter, r *request) {
	if err := parseClose(r.body); err != nil {
		s.refuseInput(w, err)
		return
	}
	id := r.PathValue("id")
	_, line := s.book.session(id)
	o := order{call: callClose, path: r.URL.Path, bodyHash: r.bodyHash, about: line.Reference}
	s.run(w, r, o, func(p play, _ claim) (*reply, error) {
		switch {
		case p.unbooked:
			return p.failure, nil
		case p.refusal != nil:
			return p.refusal, nil
		}
		session, known, err := s.endSession(id, StatusClosed)
		if err != nil {
			return nil, err
		}
		answer := jsonReply(http.StatusOK, session)
		switch {
		case !known:
			answer = notFound
		case session.Status == StatusPaid:
			answer = jsonError(http.StatusConflict, "already_paid", "the session was paid")
		}
		return second(answer, p.failure), nil
	})
}
