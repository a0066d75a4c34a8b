package sim

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
)

// Terms are what an acquirer of a world keeps, and what its adapter declares. While no fault breaks them, the promise
// of PROTOCOL section 0 must hold.
type Terms struct {
	Name              string
	Keys              bool // the same key within KeyWindow is executed once
	KeyWindow         time.Duration
	UniqueReference   bool // a reference is accepted once
	RemembersRefusals bool
	Lookup            bool
	NotFoundFinal     bool
	Lag               time.Duration // a lookup may miss what was executed for as long as this
	Flight            time.Duration // longest way of bytes that left
	Execution         time.Duration // longest time from their arrival to the booking, in which a lookup finds nothing
	Processing        time.Duration // longest time in "processing"

	Unkeyed         []acquirer.Action // calls whose repeats are executed again, whatever key or reference they have
	Unseen          []acquirer.Action // calls that nothing can be looked up of
	Missing         []acquirer.Action // calls that are not offered
	TellsNow        bool              // a repeat is told what is true now, not what the first one was told
	NoHolds         bool
	HoldLife        time.Duration
	SessionLife     time.Duration // of a page and of a payer's step
	OneCapture      bool
	WholeRefunds    bool
	ReverseCaptured time.Duration // how long captured money can be reversed
	PageByAddress   bool          // lookups do not tell the address of a page
	Tells           string        // how it tells what happened: one of the Tells constants
}

// Profiles are the contracts that worlds are made with.
var Profiles = []Terms{
	{Name: "keys", Keys: true, KeyWindow: 24 * time.Hour, RemembersRefusals: true, Lookup: true, NotFoundFinal: true,
		Lag: 2 * time.Second, Flight: time.Minute, Execution: 30 * time.Second, Processing: 10 * time.Minute},
	{Name: "forgets refusals", Keys: true, KeyWindow: 24 * time.Hour, Lookup: true, NotFoundFinal: true,
		Lag: 30 * time.Second, Flight: 3 * time.Minute, Execution: 30 * time.Second, Processing: 10 * time.Minute},
	{Name: "reference", UniqueReference: true, KeyWindow: 72 * time.Hour, RemembersRefusals: true, Lookup: true,
		Lag: 5 * time.Second, Flight: 2 * time.Minute, Execution: 20 * time.Second, Processing: 10 * time.Minute},
	{Name: "keys, not found proves nothing", Keys: true, KeyWindow: 2 * time.Hour, RemembersRefusals: true, Lookup: true,
		Lag: 3 * time.Minute, Flight: 5 * time.Minute, Execution: 20 * time.Second, Processing: 10 * time.Minute},
	{Name: "short times", Keys: true, KeyWindow: time.Hour, RemembersRefusals: true, Lookup: true, NotFoundFinal: true,
		Lag: time.Second, Flight: 10 * time.Second, Execution: 2 * time.Second, Processing: time.Minute},
	{Name: "neither", Lookup: true, NotFoundFinal: true,
		Lag: 2 * time.Second, Flight: 2 * time.Minute, Execution: 20 * time.Second, Processing: 10 * time.Minute},
	{Name: "nothing", Flight: 2 * time.Minute, Execution: 20 * time.Second, Processing: 10 * time.Minute},
}

// Lives of holds and pages where Terms does not say: they have to end within a world.
const (
	holdLife    = 7 * 24 * time.Hour
	sessionLife = time.Hour
)

// filled gives the terms with what was left out.
func (t Terms) filled() Terms {
	if t.HoldLife == 0 {
		t.HoldLife = holdLife
	}
	if t.SessionLife == 0 {
		t.SessionLife = sessionLife
	}
	return t
}

// upon are the calls about something that is there already.
var upon = []acquirer.Action{acquirer.ActionCapture, acquirer.ActionReverse, acquirer.ActionRefund}

// honours says whether the same key, or reference, makes a repeat of this call safe. Closing a page is always safe.
func (t Terms) honours(a acquirer.Action) bool {
	return a == acquirer.ActionClose || (t.Keys || t.UniqueReference) && !slices.Contains(t.Unkeyed, a)
}

func (t Terms) offers(a acquirer.Action) bool { return !slices.Contains(t.Missing, a) }

func (t Terms) seen(a acquirer.Action) bool { return t.Lookup && !slices.Contains(t.Unseen, a) }

// Settings is the contract in the form in which an account of the sandbox's adapter declares it.
func (t Terms) Settings() []byte {
	t = t.filled()
	identity := "none"
	switch {
	case t.Keys:
		identity = "key"
	case t.UniqueReference:
		identity = "reference"
	}
	said := map[string]any{
		"identity": identity, "key_window": t.KeyWindow.String(), "remembers_refusals": t.RemembersRefusals,
		"lookup_by_key": t.Lookup, "lookup_by_reference": t.Lookup, "lookup_lag": t.Lag.String(),
		"max_flight": (t.Flight + t.Execution).String(), "max_processing": t.Processing.String(),
		"not_found_final": t.NotFoundFinal, "lists_movements": t.Lookup,
		"holds": !t.NoHolds, "hold_life": t.HoldLife.String(), "session_life": t.SessionLife.String(), "several_captures": !t.OneCapture,
		"partial_refunds": !t.WholeRefunds, "reverse_captured": t.ReverseCaptured.String(), "page_by_address": t.PageByAddress,
	}
	offers := []acquirer.Action{acquirer.ActionCharge}
	for _, a := range append(slices.Clone(upon), acquirer.ActionSession, acquirer.ActionClose) {
		if !t.offers(a) {
			continue
		}
		offers = append(offers, a)
		one := map[string]any{}
		if !t.honours(a) {
			one["identity"] = "none"
		}
		if !t.seen(a) {
			one["lookup_by_key"], one["lookup_by_reference"], one["not_found_final"] = false, false, false
		}
		said[string(a)] = one
	}
	said["offers"] = offers
	contract, err := json.Marshal(said)
	if err != nil {
		panic(err) // a map of texts and booleans
	}
	return []byte(`{"url":"http://acquirer.sim","contract":` + string(contract) + `}`)
}

// Vary gives the terms with what differs among acquirers of the same profile, by the seed.
func Vary(t Terms, seed uint64) Terms {
	r := rand.New(rand.NewPCG(seed, streamTerms))
	some := func(odds int) bool { return r.IntN(100) < odds }
	for _, a := range upon {
		if some(15) {
			t.Unkeyed = append(t.Unkeyed, a)
		}
		if some(10) {
			t.Unseen = append(t.Unseen, a)
		}
	}
	if some(10) {
		t.Missing = append(t.Missing, upon[r.IntN(len(upon))])
	}
	t.TellsNow, t.NoHolds, t.OneCapture, t.WholeRefunds, t.PageByAddress = some(50), some(10), some(30), some(20), some(30)
	t.HoldLife = time.Duration(1+r.IntN(100)) * time.Hour
	t.SessionLife = time.Duration(1+r.IntN(90)) * time.Minute
	if some(60) && t.offers(acquirer.ActionReverse) {
		t.ReverseCaptured = time.Duration(1+r.IntN(24)) * time.Hour
	}
	t.Tells = []string{TellsNothing, TellsSigned, TellsSigned, TellsHints}[r.IntN(4)]
	return t
}

const streamTerms = 0xc2b2ae3d27d4eb4f

// Mischief is what goes wrong at an acquirer and on the way, in chances of 1000 for each call. None of it breaks Terms but
// WrongAmount and Mistake.
type Mischief struct {
	Unreachable int // no connection
	LostRequest int
	LateRequest int // of what is sent: under way for up to Terms.Flight
	LostAnswer  int
	Reset       int
	SlowAnswer  int // later than anybody waits
	FrontReject int // 400, 401, 403, 422 before execution, whatever was executed under the key before
	FrontError  int // 429, 500, 503 or a proxy's page, not executed
	BackError   int // executed, answered 500 or by a proxy's page
	SlowBooking int // booked up to Terms.Execution after arrival
	Processes   int // answered "processing", decided up to Terms.Processing later
	Declines    int
	WrongAmount int // charged with another amount
	LookupDown  int
	DarkFrom    time.Duration // nobody is answered in [DarkFrom, DarkTo); what arrives is executed
	DarkTo      time.Duration

	ActFails   int // a capture, reversal or refund is decided against
	BankFails  int // a refund that succeeded fails later at the payer's bank
	ByHand     int // of a charge with money: captured, reversed or refunded at the acquirer's own desk
	Chargeback int // of a charge with money: the payer's bank takes it back, and decides later
	Mistake    int // of a charge with money: the acquirer charges once more by itself

	HookLost, HookTwice, HookLate int // of a message: never sent; sent several times; hours later than the others
}
