package sandbox

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// WireEntry is one request that reached the acquirer's calls, written down
// before anything was done about it. It holds no secret and no body.
type WireEntry struct {
	Seq            int64     `json:"seq"`
	At             time.Time `json:"at"`
	Method         string    `json:"method"`
	Path           string    `json:"path"`
	Query          string    `json:"query,omitempty"`
	IdempotencyKey string    `json:"idempotency_key"`
	BodySHA256     string    `json:"body_sha256"`
	BodyBytes      int       `json:"body_bytes"`
	Complete       bool      `json:"complete"` // false: the body broke off or was too long
}

// keyRecord is what is remembered for an idempotency key. At most one of
// Charge, Act and Session names the object that the key's request made.
type keyRecord struct {
	Key        string    `json:"key"`
	Path       string    `json:"path,omitempty"` // of the call; empty for a charge
	BodySHA256 string    `json:"body_sha256"`
	ReceivedAt time.Time `json:"received_at"` // first receipt
	Charge     string    `json:"charge,omitempty"`
	Act        string    `json:"act,omitempty"`
	Session    string    `json:"session,omitempty"`
	Status     int       `json:"status"`
	Body       []byte    `json:"body"`
}

// entry is one line of the register file; its parts take effect together or
// not at all.
type entry struct {
	Charge   *chargeLine  `json:"charge,omitempty"`
	Act      *actLine     `json:"act,omitempty"`
	Session  *sessionLine `json:"session,omitempty"`
	SettleAt *time.Time   `json:"settle_at,omitempty"` // of the act, or else of the charge, in processing
	UsesUp   bool         `json:"uses_up,omitempty"`   // its reference, under a contract with unique ones
	Movement *Movement    `json:"movement,omitempty"`
	Key      *keyRecord   `json:"key,omitempty"`
	Contract *Contract    `json:"contract,omitempty"`
	Webhooks *Webhooks    `json:"webhooks,omitempty"`
	ShiftMS  *int64       `json:"clock_offset_ms,omitempty"`
	// Messages tell the line's changes; write makes them.
	Messages  []messageLine `json:"messages,omitempty"`
	newsFirst bool          // they are sent before the order is answered
}

// changes says whether the entry changes a charge, an act or a session.
func (e entry) changes() bool { return e.Charge != nil || e.Act != nil || e.Session != nil }

// unsettled is a charge or an act in processing and when it will be booked.
type unsettled struct {
	id string
	at time.Time
}

// book is everything the sandbox remembers. The files come first: memory
// changes only after the line is on disk.
type book struct {
	register  *journal
	wire      *journal
	sent      *journal // tries of messages
	clock     *clock
	base      string         // the sandbox's address, for the pages; set before the first request
	onMessage func(*message) // called with each new message and mu held; set before the first request

	mu        sync.Mutex
	contract  Contract
	charges   shelf[chargeRecord]
	acts      shelf[actLine]
	sessions  shelf[sessionRecord]
	settleAt  map[string]time.Time
	usedUp    map[string]bool // lanes of references
	keys      map[string]*keyRecord
	running   map[string]*flight // by lane, see order.go
	movements []Movement
	requests  []WireEntry
	lastWire  int64
	changed   chan struct{} // closed and replaced with every movement

	webhooks        Webhooks
	webhooksChanged chan struct{} // closed and replaced with the settings
	messages        shelf[message]
	posts           map[string]post // by charge reference
	newsChanged     chan struct{}   // closed and replaced with every message and try
	lapses          lapses
	lapsesChanged   chan struct{} // closed and replaced when an earlier one comes, and with the settings
}

// shelf keeps the objects of one sort, oldest first.
type shelf[T any] struct {
	all         []*T
	byID        map[string]*T
	byKey       map[string][]*T
	byReference map[string][]*T
}

func newShelf[T any]() shelf[T] {
	return shelf[T]{byID: map[string]*T{}, byKey: map[string][]*T{}, byReference: map[string][]*T{}}
}

func (s *shelf[T]) put(id, key, reference string, item *T) {
	s.all = append(s.all, item)
	s.byID[id] = item
	if key != "" {
		s.byKey[key] = append(s.byKey[key], item)
	}
	if reference != "" {
		s.byReference[reference] = append(s.byReference[reference], item)
	}
}

// under returns what was made under the key or, without one, the reference.
func (s *shelf[T]) under(key, reference string) []*T {
	if key != "" {
		return s.byKey[key]
	}
	return s.byReference[reference]
}

func openBook(dir string, clk *clock) (*book, error) {
	b := &book{
		clock: clk, contract: DefaultContract(),
		charges: newShelf[chargeRecord](), acts: newShelf[actLine](), sessions: newShelf[sessionRecord](),
		settleAt: map[string]time.Time{}, usedUp: map[string]bool{}, keys: map[string]*keyRecord{},
		running: map[string]*flight{}, changed: make(chan struct{}),
		webhooksChanged: make(chan struct{}), messages: newShelf[message](), posts: map[string]post{},
		newsChanged: make(chan struct{}), lapsesChanged: make(chan struct{}),
	}
	var err error
	if b.register, err = openJournal(filepath.Join(dir, "register.jsonl"), b.readEntry); err != nil {
		return nil, err
	}
	if b.wire, err = openJournal(filepath.Join(dir, "wire.jsonl"), b.readWire); err != nil {
		return nil, errors.Join(err, b.register.close())
	}
	if b.sent, err = openJournal(filepath.Join(dir, "webhooks.jsonl"), b.readTry); err != nil {
		return nil, errors.Join(err, b.register.close(), b.wire.close())
	}
	return b, nil
}

func (b *book) close() error { return errors.Join(b.register.close(), b.wire.close(), b.sent.close()) }

func (b *book) readEntry(line []byte) error {
	var e entry
	if err := decodeLine(line, &e); err != nil {
		return err
	}
	b.apply(e)
	return nil
}

func (b *book) readWire(line []byte) error {
	var e WireEntry
	if err := decodeLine(line, &e); err != nil {
		return err
	}
	b.requests = append(b.requests, e)
	b.lastWire = max(b.lastWire, e.Seq)
	return nil
}

func decodeLine(line []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// write puts one entry, with the messages that tell it, on disk and then into
// memory. It is never called with b.mu held. Who changes a charge or a session
// holds its lock, so that messages tell what the entry makes of it.
func (b *book) write(e *entry) error {
	var err error
	if e.Messages, err = b.news(*e); err != nil {
		return err
	}
	return b.register.append(e, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.apply(*e)
	})
}

// apply is the only place where the register changes in memory; the same
// lines give the same state after a restart.
func (b *book) apply(e entry) {
	if e.Charge != nil {
		b.applyCharge(*e.Charge)
	}
	if e.Act != nil {
		b.applyAct(*e.Act)
	}
	if e.Session != nil {
		b.applySession(*e.Session)
	}
	b.applySettlement(e)
	if e.UsesUp {
		b.usedUp[laneOf(e.call(), "", e.reference())] = true
	}
	if e.Movement != nil {
		b.applyMovement(*e.Movement)
	}
	if e.Key != nil {
		b.keys[e.Key.Key] = e.Key
	}
	if e.Contract != nil {
		b.contract = *e.Contract
	}
	if e.Webhooks != nil {
		b.webhooks = *e.Webhooks
		b.wake(&b.webhooksChanged)
		b.wake(&b.lapsesChanged)
	}
	if e.ShiftMS != nil {
		b.clock.setShift(time.Duration(*e.ShiftMS) * time.Millisecond)
	}
	for _, line := range e.Messages {
		b.applyMessage(line)
	}
}

// applySettlement notes when the entry's act, or else its charge, is booked.
func (b *book) applySettlement(e entry) {
	id := ""
	switch {
	case e.Act != nil:
		id = e.Act.ID
	case e.Charge != nil:
		id = e.Charge.ID
	default:
		return
	}
	delete(b.settleAt, id)
	if e.SettleAt != nil {
		b.settleAt[id] = *e.SettleAt
	}
}

// call and reference say what the entry's own request was. A charge of a
// session's page is a charge.
func (e entry) call() string {
	switch {
	case e.Act != nil:
		return e.Act.Kind
	case e.Charge != nil:
		return callCharge
	}
	return callSession
}

func (e entry) reference() string {
	switch {
	case e.Act != nil:
		return e.Act.Reference
	case e.Charge != nil:
		return e.Charge.Reference
	case e.Session != nil:
		return e.Session.Reference
	}
	return ""
}

func (b *book) applyMovement(m Movement) {
	known := b.charges.byID[m.Charge]
	if m.Object == "" { // written before there were acts
		m.Object = m.Charge
	}
	if m.ChargeReference == "" && known != nil {
		m.ChargeReference = known.Reference
	}
	if known != nil {
		known.sums.add(m)
	}
	b.movements = append(b.movements, m)
	close(b.changed)
	b.changed = make(chan struct{})
}

// logWire writes down a request; it returns when the line is on disk.
func (b *book) logWire(e WireEntry) error {
	b.mu.Lock()
	b.lastWire++
	e.Seq, e.At = b.lastWire, b.clock.now()
	b.mu.Unlock()
	return b.wire.append(e, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.requests = append(b.requests, e)
	})
}

func (b *book) unsettled() []unsettled {
	b.mu.Lock()
	defer b.mu.Unlock()
	var due []unsettled
	for id, at := range b.settleAt {
		due = append(due, unsettled{id: id, at: at})
	}
	return due
}

func (b *book) terms() Contract {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.contract
}

// moved returns all movements and a channel that is closed with the next one.
func (b *book) moved() ([]Movement, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// The slice only grows, so that what is handed out never changes.
	return b.movements[:len(b.movements):len(b.movements)], b.changed
}

// wireAfter returns the requests on disk with a number above seq, in order.
func (b *book) wireAfter(seq int64) []WireEntry {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := []WireEntry{}
	for _, e := range b.requests {
		if e.Seq > seq {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(x, y WireEntry) int { return cmp.Compare(x.Seq, y.Seq) })
	return found
}

// inSight says whether a lookup finds what was made at the time.
func (b *book) inSight(at time.Time) bool {
	age := b.clock.now().Sub(at)
	tooOld := b.contract.LookupWindowSeconds > 0 && age >= b.contract.lookupWindow()
	return age >= b.contract.lookupLag() && !tooOld
}
