package acquirertest

import (
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
)

// Live is an acquirer's test environment, as RunLive needs it.
type Live struct {
	// Open makes an adapter that really calls. A second one is what a restart of the process gives.
	Open func() (acquirer.Adapter, error)
	// Charge gives a charge under the key that the acquirer takes at once. Its lookup must not lag during the run.
	Charge func(key string) acquirer.Request
	// Keys are two that were never used.
	Keys [2]string
	// Received counts the requests that reached the acquirer; Moved the movements under a key. Both look at the
	// acquirer's own records, not through the adapter.
	Received func() int
	Moved    func(key string) int
}

// RunLive makes one real charge and holds what comes back, its repeat from another process and its lookups against the
// contract and the acquirer's own records.
func RunLive(t *testing.T, l Live) {
	t.Helper()
	began := time.Now()
	a := l.open(t)
	charge := l.Charge(l.Keys[0])
	p, err := a.Prepare(charge)
	if err != nil {
		t.Fatal(err)
	}
	send := func(a acquirer.Adapter) acquirer.Reply { return a.Send(t.Context(), p, permit()) }
	ask := func(q acquirer.Query) acquirer.Reply { return a.Lookup(t.Context(), q) }

	first := l.once(t, "charge", func() acquirer.Reply { return send(a) })
	same := func(what string, r acquirer.Reply) {
		t.Helper()
		if r.Outcome != acquirer.OutcomeSucceeded || r.Amount != charge.Amount || r.Reference != first.Reference {
			t.Errorf("%s: %+v, want the charge %s of %v", what, r, first.Reference, charge.Amount)
		}
		if r.OurReference != "" && r.OurReference != p.Key {
			t.Errorf("%s: our reference is %q, want %q", what, r.OurReference, p.Key)
		}
	}
	same("charge", first)
	contract := a.Contract()
	switch {
	case !contract.Repeatable(): // never a second send
	case contract.Identity == acquirer.IdentityKey:
		same("repeat", l.once(t, "repeat", func() acquirer.Reply { return send(l.open(t)) }))
	default:
		if r := l.once(t, "repeat", func() acquirer.Reply { return send(l.open(t)) }); r.Outcome != acquirer.OutcomeDuplicate {
			t.Errorf("repeat of a unique reference: %+v", r)
		}
	}
	if contract.CanLookup() {
		same("lookup by key", l.once(t, "lookup", func() acquirer.Reply { return ask(acquirer.Query{Key: p.Key}) }))
		same("lookup by id", l.once(t, "lookup", func() acquirer.Reply {
			return ask(acquirer.Query{Key: p.Key, Reference: first.Reference})
		}))
		if r := ask(acquirer.Query{Key: l.Keys[1]}); r.Outcome != acquirer.OutcomeNotFound {
			t.Errorf("lookup of a key that was never used: %+v", r)
		}
	}
	if contract.ListsMovements {
		l.checkListed(t, a, first, charge, began)
	}
	for i, want := range []int{1, 0} {
		if n := l.Moved(l.Keys[i]); n != want {
			t.Errorf("%d movements under key %d, want %d", n, i, want)
		}
	}
}

// liveSlack is how far the acquirer's clock may be from ours.
const liveSlack = time.Hour

func (l Live) checkListed(t *testing.T, a acquirer.Adapter, first acquirer.Reply, charge acquirer.Request, began time.Time) {
	t.Helper()
	found, err := a.Movements(t.Context(), began.Add(-liveSlack), time.Now().Add(liveSlack))
	if err != nil {
		t.Fatalf("movements: %v", err)
	}
	n := 0
	for _, m := range found {
		if m.Reference == first.Reference {
			n++
			if m.Amount != charge.Amount || m.Kind != acquirer.MovementCharge || m.OurReference != charge.Key || m.At.IsZero() {
				t.Errorf("the list holds the charge as %+v", m)
			}
		}
	}
	if n != 1 {
		t.Errorf("the list holds the charge %d times", n)
	}
}

// once makes one call and holds that the acquirer received one request.
func (l Live) once(t *testing.T, what string, call func() acquirer.Reply) acquirer.Reply {
	t.Helper()
	before := l.Received()
	r := call()
	if n := l.Received() - before; n != 1 {
		t.Errorf("one %s reached the acquirer as %d requests", what, n)
	}
	return r
}

func (l Live) open(t *testing.T) acquirer.Adapter {
	t.Helper()
	a, err := l.Open()
	if err != nil {
		t.Fatal(err)
	}
	return a
}
