// Package acquirertest is the conformance kit: what every adapter must pass before money goes through it.
//
// Owns the checks, a scripted transport (Script) and a raw server that misbehaves at the socket.
// Never talks to a real acquirer by itself; RunLive does, with an adapter that its caller has opened.
// Read next: Factory for what an author provides, replies.go for how answers are judged, then PROTOCOL O1, O3, A0 to A5.
package acquirertest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/wire"
)

// Factory is what the author of an adapter provides.
type Factory struct {
	// Open makes a new adapter whose calls go through doer, always with the same settings. The kit calls it again for
	// what a restart of the process does.
	Open func(doer wire.Doer) (acquirer.Adapter, error)
	// Charge is one that the acquirer would take. Its key and amount are those in the Answers.
	Charge acquirer.Request
	// Others are one request for each further call that the contract offers, in the same way. Their objects are those in
	// the Answers too.
	Others []acquirer.Request
	// Answers are all answers that the acquirer's documentation lists and the adapter maps, those to OutcomeUnknown
	// included. The kit holds that everything else is OutcomeUnknown.
	Answers []Answer
	// Volatile names the request headers that change from call to call by their nature: a date, a signature over it.
	Volatile []string
}

// Answer is one documented answer.
type Answer struct {
	// Action is the call that is answered, or that is looked up; empty: a charge.
	Action acquirer.Action
	// Lookup: the answer to a lookup; else to the call itself. Reference is the acquirer's id that the lookup knows; when
	// it is empty, only our key is known, and the object of the sample request where it has one.
	Lookup    bool
	Reference string

	Status      int
	ContentType string
	Body        string

	Outcome acquirer.Outcome
}

// SeedVariable names the environment variable that replays a run with random input; its value is the printed seed.
const SeedVariable = "ACQUIRERTEST_SEED"

// check is one rule. It says in words what it found wrong.
type check struct {
	name string
	run  func(c *checker)
}

var checks = []check{
	{"contract", checkContract},
	{"every offered call", checkOffered},
	{"prepared", checkPrepared},
	{"same bytes and key", checkSameRequest},
	{"documented answers", checkDocumented},
	{"unlisted is unknown", checkUnlisted},
	{"not sent by the count of bytes", checkNotSent},
	{"permit", checkPermit},
	{"network forbidden", checkForbidden},
	{"lookup moves no money", checkLookupAsks},
	{"movements are complete or an error", checkMovements},
	{"transport", checkTransport},
	{"kept connection dies", checkKeptConnection},
}

// Run holds an adapter against every rule, without a network beyond loopback. Random input is replayed with
// SeedVariable.
func Run(t *testing.T, f Factory) {
	t.Helper()
	seed := seedOf(t)
	for _, one := range checks {
		t.Run(one.name, func(t *testing.T) { report(t, one, f, seed) })
	}
}

// RunTransport is the part of Run that plays failures of the network and of what stands in it, on real connections:
// which of them prove that nothing was sent, and which do not (PROTOCOL section 5).
func RunTransport(t *testing.T, f Factory) {
	t.Helper()
	report(t, check{"transport", checkTransport}, f, seedOf(t))
}

func report(t *testing.T, one check, f Factory, seed uint64) {
	t.Helper()
	for _, problem := range one.problems(t.Context(), f, seed) {
		t.Errorf("%s (%s=%d)", problem, SeedVariable, seed)
	}
}

func seedOf(t *testing.T) uint64 {
	t.Helper()
	given := os.Getenv(SeedVariable)
	if given == "" {
		return uint64(time.Now().UnixNano())
	}
	seed, err := strconv.ParseUint(given, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", SeedVariable, err)
	}
	return seed
}

// maxProblems bounds what one check reports.
const maxProblems = 20

// checker collects what a check finds.
type checker struct {
	Factory
	ctx   context.Context
	seed  uint64
	found []string

	// script and asked are the transport and the adapter of ask, made once: an adapter holds no state.
	script *Script
	asked  acquirer.Adapter
}

// stop ends a check that cannot go on.
type stop struct{}

func (o check) problems(ctx context.Context, f Factory, seed uint64) (found []string) {
	c := &checker{Factory: f, ctx: ctx, seed: seed}
	defer func() {
		if r := recover(); r != nil && r != (stop{}) {
			panic(r)
		}
		found = c.found
	}()
	o.run(c)
	return c.found
}

func (c *checker) errorf(format string, args ...any) {
	c.found = append(c.found, fmt.Sprintf(format, args...))
	if len(c.found) >= maxProblems {
		panic(stop{})
	}
}

func (c *checker) fatalf(format string, args ...any) {
	c.errorf(format, args...)
	panic(stop{})
}

func (c *checker) open(doer wire.Doer) acquirer.Adapter {
	a, err := c.Open(doer)
	if err != nil {
		c.fatalf("the adapter cannot be opened: %v", err)
	}
	return a
}

// samples are the charge and one request for each other call.
func (c *checker) samples() []acquirer.Request {
	all := append([]acquirer.Request{c.Charge}, c.Others...)
	for i := range all {
		all[i].Action = cmp.Or(all[i].Action, acquirer.ActionCharge)
	}
	return all
}

// sample is the request of one action.
func (c *checker) sample(action acquirer.Action) acquirer.Request {
	for _, one := range c.samples() {
		if one.Action == cmp.Or(action, acquirer.ActionCharge) {
			return one
		}
	}
	c.fatalf("there is no sample of a %s", action)
	return acquirer.Request{}
}

func (c *checker) prepare(a acquirer.Adapter, sample acquirer.Request) acquirer.Prepared {
	p, err := a.Prepare(sample)
	if err != nil {
		c.fatalf("the sample of a %s cannot be prepared: %v", sample.Action, err)
	}
	return p
}

// query asks about what a sample sent.
func query(sample acquirer.Request, reference string) acquirer.Query {
	return acquirer.Query{Action: sample.Action, Key: sample.Key, Object: sample.Object, Reference: reference}
}

// permit is fresh for longer than any test.
func permit() *wire.Permit {
	return &wire.Permit{GrantedAt: wire.SystemClock{}.Instant(), Fresh: 10 * time.Minute, ID: [16]byte{1}}
}
