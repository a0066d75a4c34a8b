// Package evidence decides what an observation of the acquirer proves, and what to do while nothing is proven.
//
// Owns the row of one observation, Prove (PROTOCOL section 5, O1) and Next (section 7).
// Never reads a clock, a database or a network: times come from the database, as arguments.
// Read next: prove.go, next.go, then internal/payment/apply.go, which moves a payment by what was proven.
package evidence

import (
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/id"
)

// Source is the road by which an observation came.
type Source string

// The sources (PROTOCOL section 8).
const (
	FromCall       Source = "call"
	FromLookup     Source = "lookup"
	FromMovements  Source = "movements" // the acquirer's list, after a restore
	FromWebhook    Source = "webhook"
	FromSettlement Source = "settlement"
	FromPerson     Source = "person"
)

// Effect says what an observation changed, for the history (PROTOCOL E4).
type Effect string

// The effects.
const (
	Moved    Effect = "moved"       // the payment changed state
	Booked   Effect = "booked"      // money was booked, the state stays
	Repeat   Effect = "repeat"      // known already
	Behind   Effect = "behind"      // not above the present state
	Noted    Effect = "noted"       // nothing proven: stored
	Stale    Effect = "stale_owner" // an inference of an owner who lost its fence
	Conflict Effect = "conflict"    // contradicts what is settled
	Early    Effect = "early"       // waits for what must come before it
)

// Observation is one stored observation of what the acquirer holds to be true.
type Observation struct {
	Merchant, ID    id.ID
	Intent, Payment id.ID // zero: fits nothing of ours yet
	Operation       id.ID
	Modification    id.ID // of ours; zero: about the payment itself, or done by nobody of ours
	Account         id.ID
	Source          Source
	acquirer.Reply
	// AskedAt is when the question was asked, in database time; a lookup counts as of then (PROTOCOL section 4).
	AskedAt time.Time
	// Fence is the fence of the bringer; 0 for those who own nothing (webhook, person).
	Fence int64
	// Inference is a conclusion of ours that goes with the observation, made by Next or by a person.
	Inference Inference
	// Moment of a movement as the acquirer tells it; zero: not told.
	MovedAt time.Time
	Person  string // who decided, for FromPerson
	Note    string // in words
	Request string // id of our own request that brought it

	Effect Effect // written by what applied it
	Why    string // a reason in words
}

// Inference is what we conclude without the acquirer's word. Only the holder of the fence may record it (PROTOCOL K3).
type Inference string

// The inferences.
const (
	InferNothing     Inference = ""
	InferNotExecuted Inference = "not_executed" // "not found" that the contract makes final, or nothing was ever sent
	InferGiveUp      Inference = "give_up"      // to a person
)
