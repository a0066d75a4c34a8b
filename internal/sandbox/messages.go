package sandbox

import (
	"errors"
	"net/http"
	"sync"
	"time"
)

const (
	// maxTries bounds how often a message is tried by itself.
	maxTries = 10
	// firstRetry is the pause after the first try; each later one is
	// retryGrowth times as long, retryCap at most. All tries take about half a day.
	firstRetry  = time.Second
	retryGrowth = 4
	retryCap    = 6 * time.Hour
	// overtakeWithin bounds how long a message waits to be overtaken.
	overtakeWithin = 10 * time.Second
)

// States of a message.
const (
	MessageWaiting   = "waiting"   // it will be tried
	MessageDelivered = "delivered" // answered with 2xx
	MessageDropped   = "dropped"   // never sent by itself, and not by hand so far
	MessageGivenUp   = "given_up"  // tried as often as it is tried, without 2xx
)

// Try is one time that a message was sent.
type Try struct {
	Message string    `json:"message"`
	At      time.Time `json:"at"`
	// Round counts the tries that the sandbox made by itself, from 1; copies
	// of one try share it. 0: sent by hand.
	Round  int    `json:"round"`
	Status int    `json:"status"`          // of the receiver's answer; 0: none came
	Error  string `json:"error,omitempty"` // why none came
}

func (t Try) good() bool { return t.Status >= http.StatusOK && t.Status < http.StatusMultipleChoices }

// Message is one message as the sandbox lists it.
type Message struct {
	ID              string     `json:"id"`
	Type            string     `json:"type"`
	CreatedAt       time.Time  `json:"created_at"`
	ChargeReference string     `json:"charge_reference"`
	Object          string     `json:"object"`
	ObjectID        string     `json:"object_id"`
	Body            string     `json:"body"` // the bytes that are sent
	State           string     `json:"state"`
	Tries           []Try      `json:"tries"`                 // oldest first, never null
	NextTryAt       *time.Time `json:"next_try_at,omitempty"` // of a waiting one; a pause or another message may hold it longer
}

// message is a message in memory. All but the channels is read and changed
// under the book's lock.
type message struct {
	messageLine
	tries     []Try
	rounds    int
	after     *message      // it waits until this one was tried; nil: for none
	overtaken chan struct{} // closed when another one went before it; nil: it waits for no other
	delivered chan struct{} // closed with the first 2xx
	tried     chan struct{} // closed after its first round, or when there will be none
	trying    sync.Once     // closes tried
}

// pass lets whoever waits behind the message go on.
func (m *message) pass() { m.trying.Do(func() { close(m.tried) }) }

func (m *message) isDelivered() bool {
	select {
	case <-m.delivered:
		return true
	default:
		return false
	}
}

func (m *message) state() string {
	switch {
	case m.isDelivered():
		return MessageDelivered
	case m.Dropped:
		return MessageDropped
	case m.rounds >= maxTries:
		return MessageGivenUp
	}
	return MessageWaiting
}

// due is when the next try by itself is due.
func (m *message) due() time.Time {
	pause := firstRetry
	for range m.rounds - 1 {
		pause = min(pause*retryGrowth, retryCap)
	}
	for i := len(m.tries) - 1; i >= 0; i-- {
		if m.tries[i].Round > 0 {
			return m.tries[i].At.Add(pause)
		}
	}
	return m.CreatedAt.Add(time.Duration(m.DelayMS) * time.Millisecond)
}

// post is the order of the messages with one charge reference.
type post struct {
	last *message // the next one waits until it was tried
	held *message // it waits to be overtaken; nil: none
}

// applyMessage takes up a message; b.mu is held. One message is tried for the
// first time after the one before it; with reorder it is the other way round,
// in pairs.
func (b *book) applyMessage(line messageLine) {
	m := &message{messageLine: line, delivered: make(chan struct{}), tried: make(chan struct{})}
	b.messages.put(line.ID, "", line.ChargeReference, m)
	b.wake(&b.newsChanged)
	if m.Dropped {
		m.pass()
		return
	}
	lane := b.posts[line.ChargeReference]
	switch held := lane.held; {
	case m.First:
		lane.last = m
	case held != nil:
		m.after, held.after, lane.held = held.after, m, nil
		close(held.overtaken)
	default:
		m.after, lane.last = lane.last, m
		if m.Reorder {
			m.overtaken, lane.held = make(chan struct{}), m
		}
	}
	b.posts[line.ChargeReference] = lane
	if b.onMessage != nil {
		b.onMessage(m)
	}
}

// letGo ends the wait of a message to be overtaken.
func (b *book) letGo(m *message) *message {
	b.mu.Lock()
	defer b.mu.Unlock()
	if lane := b.posts[m.ChargeReference]; lane.held == m {
		lane.held = nil
		b.posts[m.ChargeReference] = lane
	}
	return m.after
}

func (b *book) readTry(line []byte) error {
	var t Try
	if err := decodeLine(line, &t); err != nil {
		return err
	}
	if b.messages.byID[t.Message] == nil {
		return errors.New("a try of a message that is not known")
	}
	b.applyTry(t)
	return nil
}

// noteTry writes down that a message was sent.
func (b *book) noteTry(t Try) error {
	return b.sent.append(t, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.applyTry(t)
	})
}

func (b *book) applyTry(t Try) {
	m := b.messages.byID[t.Message]
	m.tries = append(m.tries, t)
	m.rounds = max(m.rounds, t.Round)
	if t.good() && !m.isDelivered() {
		close(m.delivered)
	}
	b.wake(&b.newsChanged)
}

// wake closes the channel for those who wait, and makes a new one.
func (b *book) wake(changed *chan struct{}) {
	close(*changed)
	*changed = make(chan struct{})
}

// waitingMessages are those that are to be sent, oldest first. Those that were
// tried, or will not be, let go who waits behind them.
func (b *book) waitingMessages() []*message {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []*message
	for _, m := range b.messages.all {
		waits := m.state() == MessageWaiting
		if !waits || m.rounds > 0 {
			m.pass()
		}
		if waits {
			found = append(found, m)
		}
	}
	return found
}

// nextTry says when the message is tried next and which round that is; false
// when it is not tried any more.
func (b *book) nextTry(m *message) (due time.Time, round int, open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return m.due(), m.rounds + 1, m.state() == MessageWaiting
}

func (b *book) message(id string) *message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.messages.byID[id]
}

// receiver returns the settings of webhooks and a channel that is closed when
// they change.
func (b *book) receiver() (Webhooks, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.webhooks, b.webhooksChanged
}

// listMessages returns the messages with the charge reference, all for an
// empty one, oldest first, and a channel that is closed with the next change.
func (b *book) listMessages(reference string) ([]Message, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	from := b.messages.all
	if reference != "" {
		from = b.messages.byReference[reference]
	}
	found := make([]Message, 0, len(from))
	for _, m := range from {
		told := Message{ID: m.ID, Type: m.Type, CreatedAt: m.CreatedAt, ChargeReference: m.ChargeReference, Object: m.Object,
			ObjectID: m.ObjectID, Body: m.Body, State: m.state(), Tries: append([]Try{}, m.tries...)}
		if told.State == MessageWaiting {
			due := m.due()
			told.NextTryAt = &due
		}
		found = append(found, told)
	}
	return found, b.newsChanged
}
