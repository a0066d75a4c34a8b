package payment_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/ledger"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/money"
)

// world carries decisions over to an intent, its payments, its movements and its ledger, as internal/flow does.
type world struct {
	intent    payment.Intent
	attempts  []*attempt
	movements []payment.Movement
	entries   []ledger.Entry
	contract  acquirer.Contract
	now       time.Time
	ids       byte
}

// attempt is a payment with what its operation knows of its sends.
type attempt struct {
	payment.Payment
	sends, unsent int
	lastPermit    time.Time
	events        []payment.EventType
	reviews       []payment.ReviewReason
}

// seen is an observation with whether its bringer holds the fence.
type seen struct {
	evidence.Observation
	owner bool
}

const (
	listed    = "unauthorized"
	lag       = 2 * time.Second
	flight    = time.Minute
	quietTime = lag + flight
)

var (
	price = money.Must(18600, "KWD")
	start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

func newWorld(remembers bool) *world {
	return &world{now: start, intent: payment.Intent{Merchant: merchant, ID: id.ID{15: 99}, Amount: price, KeySeed: "seed", PayBefore: start.Add(24 * time.Hour)},
		contract: acquirer.Contract{Identity: acquirer.IdentityKey, KeyWindow: 24 * time.Hour, RemembersRefusals: remembers,
			BeforeExecution: []string{listed}, MaxFlight: flight, LookupLag: lag}}
}

// nextID gives the ids of payments and movements, all different.
func (w *world) nextID() id.ID {
	w.ids++
	return id.ID{14: 1, 15: w.ids}
}

func (w *world) standing() payment.Standing {
	s := payment.Standing{Intent: w.intent}
	if n := len(w.attempts); n > 0 {
		s.Latest = &w.attempts[n-1].Payment
	}
	s.Money = slices.ContainsFunc(w.movements, func(m payment.Movement) bool { return m.State != payment.Returned })
	return s
}

// create starts a payment if that is allowed, with the permit of the claim.
func (w *world) create() payment.Admission {
	s := w.standing()
	a := s.Create(true, w.intent.PayBefore, w.now)
	if a == payment.Admit {
		n := s.NextN()
		w.attempts = append(w.attempts, &attempt{sends: 1, lastPermit: w.now, Payment: payment.Payment{Merchant: merchant, ID: w.nextID(),
			Intent: w.intent.ID, N: n, Status: payment.Pending, Amount: price, Account: id.ID{15: 50}, AcquirerKey: fmt.Sprint("key", n)}})
	}
	return a
}

// unknownSends is what flow assumes where the operation is gone.
const unknownSends = 2

func (w *world) situation(a *attempt, o seen, working bool) payment.Situation {
	// A completed operation has no owner. The sweep asks about the gate of a refused payment under no fence (P6 d).
	gate := !working && a.Status.Refusal() && o.Source == evidence.FromLookup && o.Fence == 0
	st := evidence.Standing{Contract: w.contract, Owner: working && o.owner || o.Source == evidence.FromPerson || gate,
		Expected: a.Amount, Key: a.AcquirerKey, Sends: unknownSends}
	var last time.Time
	if working {
		st.Sends, st.Unsent, last = a.sends, a.unsent, a.lastPermit
	}
	var mine []payment.Movement
	for _, m := range w.movements {
		if m.Intent == w.intent.ID || m.Payment.IsZero() && m.AcquirerKey == a.AcquirerKey {
			mine = append(mine, m)
		}
	}
	return payment.Situation{Intent: w.intent, Payment: a.Payment, Standing: st, Movements: mine, Reviews: a.reviews, LastPermitAt: last, Now: w.now}
}

// record applies observations in one transaction: whether the operation is unfinished is read once, under the locks.
func (w *world) record(a *attempt, all ...seen) (decisions []payment.Decision) {
	working := a.Status.Open()
	for _, o := range all {
		d := payment.Apply(w.situation(a, o, working), o.Observation)
		w.carryOver(a, d, o)
		decisions = append(decisions, d)
	}
	return decisions
}

func (w *world) carryOver(a *attempt, d payment.Decision, o seen) {
	a.Payment = d.Payment
	if d.Conflict {
		a.Conflict, w.intent.Conflict = true, true
	}
	a.events = append(a.events, d.Events...)
	if d.Review != "" {
		a.reviews = append(a.reviews, d.Review)
	}
	for _, m := range d.Book {
		m.ID = w.nextID()
		w.movements = append(w.movements, m)
	}
	for _, m := range d.Change {
		for n := range w.movements {
			if w.movements[n].ID == m.ID {
				w.movements[n] = m
			}
		}
	}
	for _, p := range d.Posts {
		w.post(ledger.Post(w.subject(a), p))
	}
}

func (w *world) subject(a *attempt) ledger.Subject {
	return ledger.Subject{Merchant: merchant, Intent: w.intent.ID, Payment: a.ID, Account: a.Account,
		Base: payment.ChargeKey(w.intent.KeySeed, a.N)}
}

func (w *world) post(entries []ledger.Entry, err error) {
	if err != nil { // the transaction would fail, again and again
		panic(err)
	}
	w.entries = append(w.entries, entries...)
}

// stray books a movement under a payment's key before its payment is known, as the comparison after a failover does.
func (w *world) stray(key, reference string) {
	m := payment.Movement{Merchant: merchant, ID: w.nextID(), Account: id.ID{15: 50}, Reference: reference, Kind: acquirer.MovementCharge,
		AcquirerKey: key, Amount: price, State: payment.Unapplied, Cause: "unattributed_money"}
	w.movements = append(w.movements, m)
	w.post(ledger.Post(ledger.Subject{Merchant: merchant, Account: m.Account, Base: "account"}, ledger.Posting{Rule: ledger.ReceivedUnapplied, Reference: reference, Amount: m.Amount}))
}

// handBack is a person's decision that money kept aside was given back; the conflict ends with the last of it.
func (w *world) handBack(reference string) {
	left := false
	for n := range w.movements {
		m := &w.movements[n]
		if m.State == payment.Unapplied && m.Reference == reference && !m.Payment.IsZero() {
			m.State = payment.Returned
			w.post(ledger.Post(w.subject(w.owning(m.Payment)), ledger.Posting{Rule: ledger.ReturnedOutside, Reference: m.Reference, Amount: m.Amount}))
		}
		left = left || m.State == payment.Unapplied
	}
	if !left {
		w.intent.Conflict = false
		for _, a := range w.attempts {
			a.Conflict = false
		}
	}
}

func (w *world) owning(p id.ID) *attempt {
	n := slices.IndexFunc(w.attempts, func(a *attempt) bool { return a.ID == p })
	return w.attempts[n]
}

// books is the set of movements, without what became of them.
func (w *world) books() string {
	var lines []string
	for _, m := range w.movements {
		lines = append(lines, fmt.Sprint(m.Reference, " ", m.Amount))
	}
	return joined(lines)
}

// story is everything that must not depend on the order of evidence.
func (w *world) story() string {
	var lines []string
	for _, a := range w.attempts {
		slices.Sort(a.events)
		lines = append(lines, fmt.Sprintf("payment %d %s captured %d conflict %v events %v", a.N, a.Status, a.Captured, a.Conflict, a.events))
	}
	for _, m := range w.movements {
		lines = append(lines, fmt.Sprintf("movement %s %v %s of %v", m.Reference, m.Amount, m.State, m.Payment))
	}
	for _, e := range w.entries {
		lines = append(lines, fmt.Sprintf("entry %s/%d %s %v", e.TxKey, e.Line, e.Account, e.Amount))
	}
	return joined(lines)
}

func joined(lines []string) string {
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
