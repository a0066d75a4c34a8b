package sandbox

import (
	"sync"
	"time"

	"github.com/hapaxpay/hapax/money"
)

// States of a charge.
const (
	StatusSucceeded      = "succeeded"       // money taken
	StatusHeld           = "held"            // funds held, perhaps partly captured
	StatusDeclined       = "declined"        // refused, final
	StatusProcessing     = "processing"      // decided later
	StatusActionRequired = "action_required" // the payer must confirm on a page
	StatusReversed       = "reversed"        // released, closed, or given back on the same day
	StatusExpired        = "expired"         // lapsed by itself with nothing taken
)

// Further states of an act.
const (
	StatusFailed = "failed" // of a capture, reverse or refund, with a code
	StatusOpened = "opened" // of a chargeback
	StatusWon    = "won"    // of a chargeback: the merchant got the money back
	StatusLost   = "lost"   // of a chargeback
)

// Kinds of movements; all but the first are kinds of acts too.
const (
	KindCharge     = "charge"
	KindCapture    = "capture"
	KindReverse    = "reverse"
	KindRefund     = "refund"
	KindChargeback = "chargeback"
)

// idPrefixes begin the ids of acts.
var idPrefixes = map[string]string{KindCapture: "cp_", KindReverse: "rv_", KindRefund: "rf_", KindChargeback: "cb_"}

// ChargeCore is what the register holds of a charge.
type ChargeCore struct {
	ID             string         `json:"id"`
	Reference      string         `json:"reference"`
	IdempotencyKey string         `json:"idempotency_key"`
	Status         string         `json:"status"`
	Amount         int64          `json:"amount"` // minor units
	Currency       money.Currency `json:"currency"`
	Reason         string         `json:"reason,omitempty"`  // of a decline
	Session        string         `json:"session,omitempty"` // id of the session whose page made it
	CreatedAt      time.Time      `json:"created_at"`
	ExpiresAt      *time.Time     `json:"expires_at,omitempty"` // told while held or action_required
}

// Charge is one charge as the acquirer tells it.
type Charge struct {
	ChargeCore
	RedirectURL    string `json:"redirect_url,omitempty"` // while action_required
	CapturedAmount int64  `json:"captured_amount"`        // minor units that were ever taken
	RefundedAmount int64  `json:"refunded_amount"`        // minor units of refunds that stand
	Acts           []Act  `json:"acts"`                   // oldest first, never null
}

// Act is a capture, reverse, refund or chargeback upon a charge.
type Act struct {
	ID        string         `json:"id"`
	Kind      string         `json:"kind"`
	Charge    string         `json:"charge"`
	Reference string         `json:"reference"` // as the merchant sent it; empty: done by hand at the acquirer
	Status    string         `json:"status"`
	Amount    int64          `json:"amount"` // minor units
	Currency  money.Currency `json:"currency"`
	Final     bool           `json:"final,omitempty"` // of a capture: nothing more can be captured
	Held      bool           `json:"held,omitempty"`  // of a reverse: it released a hold or closed a payer's step, and no money moved
	Code      string         `json:"code,omitempty"`  // of a failure
	At        time.Time      `json:"at"`
}

// Movement is one line of the register: money that moved, or a hold that was
// released. It is never changed or removed.
type Movement struct {
	ID     string `json:"id"`
	Charge string `json:"charge"` // id of the charge that it is about
	// ChargeReference is the reference of that charge.
	ChargeReference string `json:"charge_reference"`
	// Object is the id of the charge or act that moved it.
	Object string `json:"object"`
	// Of is what a reverse undoes: the id of a charge whose hold is released
	// or whose money is given back, of a refund that failed at the bank, or of
	// a chargeback that was won.
	Of string `json:"of,omitempty"`
	// Reference and IdempotencyKey are the object's own, as the merchant sent
	// them; empty for what was done by hand at the acquirer.
	Reference      string         `json:"reference"`
	IdempotencyKey string         `json:"idempotency_key"`
	Kind           string         `json:"kind"`
	Amount         int64          `json:"amount"` // minor units
	Currency       money.Currency `json:"currency"`
	Held           bool           `json:"held,omitempty"` // a reverse of a hold: no money moved
	At             time.Time      `json:"at"`
}

// chargeLine is a charge in the register file.
type chargeLine struct {
	ChargeCore
	Hold bool   `json:"hold,omitempty"` // funds are held first, and taken by captures
	News string `json:"news,omitempty"` // what a fault does to messages about it and its acts
}

// chargeRecord is a charge in memory.
type chargeRecord struct {
	// lock is held while something about this charge is decided and booked, so
	// that parallel acts see each other. It is taken before the book's own.
	lock sync.Mutex
	chargeLine
	acts []*actLine
	sums sums
}

// actLine is an act in the register file.
type actLine struct {
	Act
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	SettleCode     string `json:"settle_code,omitempty"` // in processing: it will fail with this code
	News           string `json:"news,omitempty"`        // what a fault does to messages about it
}

// sums are a charge's movements, added up.
type sums struct {
	captured    int64 // taken, by the charge itself or by captures
	refunded    int64 // by refunds that stand
	chargedBack int64 // by chargebacks that stand
	returned    int64 // given back by a reverse
	capturedAt  time.Time
}

// add counts one movement in. A window for giving captured money back counts
// from the first of it.
func (s *sums) add(m Movement) {
	switch {
	case m.Held:
	case m.Kind == KindCharge || m.Kind == KindCapture:
		s.captured += m.Amount
		if s.capturedAt.IsZero() {
			s.capturedAt = m.At
		}
	case m.Kind == KindRefund:
		s.refunded += m.Amount
	case m.Kind == KindChargeback:
		s.chargedBack += m.Amount
	case m.Of == m.Charge:
		s.returned += m.Amount
	case isRefund(m.Of):
		s.refunded -= m.Amount
	default:
		s.chargedBack -= m.Amount
	}
}

func isRefund(id string) bool { return len(id) > 3 && id[:3] == idPrefixes[KindRefund] }

// rest is the money of the charge that is still with the merchant.
func (s sums) rest() int64 { return s.captured - s.refunded - s.chargedBack - s.returned }

func (b *book) applyCharge(line chargeLine) {
	known := b.charges.byID[line.ID]
	if known == nil {
		known = &chargeRecord{}
		b.charges.put(line.ID, line.IdempotencyKey, line.Reference, known)
	}
	known.chargeLine = line
	b.expectCharge(known)
}

func (b *book) applyAct(line actLine) {
	c := b.charges.byID[line.Charge]
	if known := b.acts.byID[line.ID]; known != nil {
		*known = line
	} else {
		b.acts.put(line.ID, line.IdempotencyKey, line.Reference, &line)
		if c != nil {
			c.acts = append(c.acts, &line)
		}
	}
	b.expectCharge(c)
}

// view is a charge as it is told now; b.mu is held.
func (b *book) view(r *chargeRecord) Charge {
	c := b.tellLine(r.afterLapse(b.clock.now()), r.sums)
	for _, a := range r.acts {
		c.Acts = append(c.Acts, a.Act)
	}
	return c
}

// tellLine is how a charge is told that has the line and the sums, without its
// acts.
func (b *book) tellLine(line chargeLine, s sums) Charge {
	c := Charge{ChargeCore: line.ChargeCore, CapturedAmount: s.captured, RefundedAmount: s.refunded, Acts: []Act{}}
	if c.Status != StatusHeld && c.Status != StatusActionRequired {
		c.ExpiresAt = nil
	}
	if c.Status == StatusActionRequired {
		c.RedirectURL = b.base + "/challenge/" + c.ID
	}
	return c
}

// fresh is how a charge is told that is about to be booked.
func (b *book) fresh(e entry) Charge {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &chargeRecord{chargeLine: *e.Charge}
	if e.Movement != nil {
		r.sums.add(*e.Movement)
	}
	return b.view(r)
}

// lapsed says whether the time of the hold, or of the payer's confirmation, is
// over. A hold waits for an act that is in processing.
func (r *chargeRecord) lapsed(now time.Time) bool {
	if r.Status != StatusHeld && r.Status != StatusActionRequired || r.ExpiresAt == nil || now.Before(*r.ExpiresAt) {
		return false
	}
	for _, a := range r.acts {
		if a.Status == StatusProcessing {
			return false
		}
	}
	return true
}

// afterLapse is the line as it is once time was taken into account: what was
// captured of a hold stays taken.
func (r *chargeRecord) afterLapse(now time.Time) chargeLine {
	line := r.chargeLine
	if r.lapsed(now) {
		line.Status = StatusExpired
		if r.sums.captured > 0 {
			line.Status = StatusSucceeded
		}
	}
	return line
}

// record returns a charge's record, nil for an unknown id. Its line, acts and
// sums are read under b.mu only.
func (b *book) record(id string) *chargeRecord {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.charges.byID[id]
}

func (b *book) charge(id string) (Charge, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.charges.byID[id]
	if r == nil {
		return Charge{}, false
	}
	return b.view(r), true
}

// findCharges returns the charges made under a key, or else a reference, that
// a lookup can see now, oldest first.
func (b *book) findCharges(key, reference string) []Charge {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []Charge
	for _, r := range b.charges.under(key, reference) {
		if b.inSight(r.CreatedAt) {
			found = append(found, b.view(r))
		}
	}
	return found
}

// allCharges returns every charge with the reference, all for an empty one.
func (b *book) allCharges(reference string) []Charge {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := []Charge{}
	for _, r := range b.charges.all {
		if reference == "" || r.Reference == reference {
			found = append(found, b.view(r))
		}
	}
	return found
}

func (b *book) act(id string) (actLine, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.acts.byID[id]
	if a == nil {
		return actLine{}, false
	}
	return *a, true
}

// findActs is findCharges for the acts of one kind.
func (b *book) findActs(kind, key, reference string) []Act {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []Act
	for _, a := range b.acts.under(key, reference) {
		if a.Kind == kind && b.inSight(a.At) {
			found = append(found, a.Act)
		}
	}
	return found
}

// chargeReference is the reference of the charge with the id, empty for none.
func (b *book) chargeReference(id string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.charges.byID[id]; r != nil {
		return r.Reference
	}
	return ""
}

// noteLapse writes down that the charge's time is over; the caller holds the
// charge's lock.
func (b *book) noteLapse(r *chargeRecord) error {
	b.mu.Lock()
	line, over := r.afterLapse(b.clock.now()), r.lapsed(b.clock.now())
	b.mu.Unlock()
	if !over {
		return nil
	}
	return b.write(&entry{Charge: &line})
}

// noteLapseSeen is noteLapse for a question: it waits for nobody, since who
// holds the lock writes it down.
func (b *book) noteLapseSeen(id string) error {
	r := b.record(id)
	if r == nil || !r.lock.TryLock() {
		return nil
	}
	defer r.lock.Unlock()
	return b.noteLapse(r)
}
