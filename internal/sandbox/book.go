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

	"github.com/hapaxpay/hapax/money"
)

// States of a charge.
const (
	StatusSucceeded  = "succeeded"
	StatusDeclined   = "declined"
	StatusProcessing = "processing"
)

// KindCharge is the kind of a movement that took money from the payer.
const KindCharge = "charge"

// Charge is one charge as the acquirer knows it. Only a succeeded one moved
// money.
type Charge struct {
	ID             string         `json:"id"`
	Reference      string         `json:"reference"`
	IdempotencyKey string         `json:"idempotency_key"`
	Status         string         `json:"status"`
	Amount         int64          `json:"amount"` // minor units
	Currency       money.Currency `json:"currency"`
	Reason         string         `json:"reason,omitempty"` // of a decline
	CreatedAt      time.Time      `json:"created_at"`
}

// Movement is one line of the register: money that moved. It is never changed
// or removed.
type Movement struct {
	ID             string         `json:"id"`
	Charge         string         `json:"charge"` // id of the charge that moved it
	Reference      string         `json:"reference"`
	IdempotencyKey string         `json:"idempotency_key"`
	Kind           string         `json:"kind"`
	Amount         int64          `json:"amount"` // minor units
	Currency       money.Currency `json:"currency"`
	At             time.Time      `json:"at"`
}

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

// keyRecord is what is remembered for an idempotency key.
type keyRecord struct {
	Key        string    `json:"key"`
	BodySHA256 string    `json:"body_sha256"`
	ReceivedAt time.Time `json:"received_at"` // first receipt
	Charge     string    `json:"charge,omitempty"`
	Status     int       `json:"status"`
	Body       []byte    `json:"body"`
}

// entry is one line of the register file; its parts take effect together or
// not at all.
type entry struct {
	Charge   *Charge    `json:"charge,omitempty"`
	SettleAt *time.Time `json:"settle_at,omitempty"` // of a charge in processing
	UsesUp   bool       `json:"uses_up,omitempty"`   // its reference, under a contract with unique ones
	Movement *Movement  `json:"movement,omitempty"`
	Key      *keyRecord `json:"key,omitempty"`
	Contract *Contract  `json:"contract,omitempty"`
	ShiftMS  *int64     `json:"clock_offset_ms,omitempty"`
}

// unsettledCharge is a charge in processing and when it will be booked.
type unsettledCharge struct {
	id string
	at time.Time
}

// book is everything the sandbox remembers. The files come first: memory
// changes only after the line is on disk.
type book struct {
	register *journal
	wire     *journal
	clock    *clock

	mu        sync.Mutex
	contract  Contract
	charges   map[string]*Charge
	byKey     map[string][]*Charge
	byRef     map[string][]*Charge
	settleAt  map[string]time.Time
	usedUp    map[string]bool // references
	keys      map[string]*keyRecord
	running   map[string]*flight // by lane, see charge.go
	movements []Movement
	requests  []WireEntry
	lastWire  int64
	changed   chan struct{} // closed and replaced with every movement
}

func openBook(dir string, clk *clock) (*book, error) {
	b := &book{
		clock: clk, contract: DefaultContract(), charges: map[string]*Charge{}, byKey: map[string][]*Charge{}, byRef: map[string][]*Charge{},
		settleAt: map[string]time.Time{}, usedUp: map[string]bool{}, keys: map[string]*keyRecord{},
		running: map[string]*flight{}, changed: make(chan struct{}),
	}
	var err error
	if b.register, err = openJournal(filepath.Join(dir, "register.jsonl"), b.readEntry); err != nil {
		return nil, err
	}
	if b.wire, err = openJournal(filepath.Join(dir, "wire.jsonl"), b.readWire); err != nil {
		return nil, errors.Join(err, b.register.close())
	}
	return b, nil
}

func (b *book) close() error { return errors.Join(b.register.close(), b.wire.close()) }

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

// write puts one entry on disk and then into memory.
func (b *book) write(e entry) error {
	if err := b.register.append(e); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.apply(e)
	return nil
}

// apply is the only place where the register changes in memory; the same
// lines give the same state after a restart.
func (b *book) apply(e entry) {
	if e.Charge != nil {
		b.applyCharge(e)
	}
	if e.Movement != nil {
		b.movements = append(b.movements, *e.Movement)
		close(b.changed)
		b.changed = make(chan struct{})
	}
	if e.Key != nil {
		b.keys[e.Key.Key] = e.Key
	}
	if e.Contract != nil {
		b.contract = *e.Contract
	}
	if e.ShiftMS != nil {
		b.clock.setShift(time.Duration(*e.ShiftMS) * time.Millisecond)
	}
}

func (b *book) applyCharge(e entry) {
	c := *e.Charge
	if known := b.charges[c.ID]; known != nil {
		*known = c
	} else {
		b.charges[c.ID] = &c
		b.byRef[c.Reference] = append(b.byRef[c.Reference], &c)
		if c.IdempotencyKey != "" {
			b.byKey[c.IdempotencyKey] = append(b.byKey[c.IdempotencyKey], &c)
		}
	}
	delete(b.settleAt, c.ID)
	if e.SettleAt != nil {
		b.settleAt[c.ID] = *e.SettleAt
	}
	if e.UsesUp {
		b.usedUp[c.Reference] = true
	}
}

// logWire writes down a request; it returns when the line is on disk.
func (b *book) logWire(e WireEntry) error {
	b.mu.Lock()
	b.lastWire++
	e.Seq, e.At = b.lastWire, b.clock.now()
	b.mu.Unlock()
	if err := b.wire.append(e); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests = append(b.requests, e)
	return nil
}

func (b *book) unsettled() []unsettledCharge {
	b.mu.Lock()
	defer b.mu.Unlock()
	var due []unsettledCharge
	for id, at := range b.settleAt {
		due = append(due, unsettledCharge{id: id, at: at})
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

// findByKey returns copies of the charges made under a key that a lookup can
// see now, oldest first.
func (b *book) findByKey(key string) []Charge {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.visible(b.byKey[key])
}

// findByReference is findByKey for the merchant's reference.
func (b *book) findByReference(reference string) []Charge {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.visible(b.byRef[reference])
}

func (b *book) visible(candidates []*Charge) []Charge {
	now := b.clock.now()
	var found []Charge
	for _, c := range candidates {
		age := now.Sub(c.CreatedAt)
		tooOld := b.contract.LookupWindowSeconds > 0 && age >= b.contract.lookupWindow()
		if age >= b.contract.lookupLag() && !tooOld {
			found = append(found, *c)
		}
	}
	return found
}

func (b *book) charge(id string) (Charge, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.charges[id]
	if c == nil {
		return Charge{}, false
	}
	return *c, true
}
