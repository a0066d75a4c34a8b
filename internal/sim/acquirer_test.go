package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/adapter"
	"github.com/hapaxpay/hapax/money"
)

// caller makes calls by the real adapter, as many as it likes, and keeps what was replied.
type caller struct {
	s       *Scheduler
	r       *Replica
	a       acquirer.Adapter
	n       int
	charges []string
	pages   []string
	keys    []acquirer.Query
}

func (c *caller) send(q acquirer.Request) acquirer.Reply {
	c.n++
	q.Key = fmt.Sprintf("hpxkey-%030d", c.n)
	if c.n > 1 && c.s.Odds(150) { // a repeat, not always of the same request
		q.Key = fmt.Sprintf("hpxkey-%030d", 1+c.s.Chance.IntN(c.n))
	}
	p, err := c.a.Prepare(q)
	if err != nil {
		return acquirer.Reply{Class: "cannot be sent"}
	}
	c.keys = append(c.keys, acquirer.Query{Action: q.Action, Key: q.Key, Object: q.Object})
	return c.a.Send(context.Background(), p, &wire.Permit{GrantedAt: c.r.Instant(), Fresh: time.Minute})
}

// random makes one call of any kind.
func (c *caller) random() acquirer.Reply {
	ctx, s := context.Background(), c.s
	q := acquirer.Request{Amount: money.Must(1+s.Chance.Int64N(50), "EUR"), PaymentMethod: "pm_ok", Hold: s.Odds(500), Final: s.Odds(300), ReturnURL: "https://shop.example/"}
	if s.Odds(200) {
		q.PaymentMethod = methodStep
	}
	if len(c.charges) == 0 || s.Odds(200) {
		q.Action, q.Amount = acquirer.ActionCharge, money.Must(100, "EUR")
		return c.send(q)
	}
	switch s.Chance.IntN(8) {
	case 0:
		q.Action = acquirer.ActionSession
	case 1, 2:
		q.Action, q.Object = acquirer.ActionCapture, c.charges[s.Chance.IntN(len(c.charges))]
	case 3:
		q.Action, q.Object = acquirer.ActionReverse, c.charges[s.Chance.IntN(len(c.charges))]
	case 4, 5:
		q.Action, q.Object = acquirer.ActionRefund, c.charges[s.Chance.IntN(len(c.charges))]
	case 6:
		if len(c.pages) == 0 {
			return acquirer.Reply{Class: "none"}
		}
		q.Action, q.Object = acquirer.ActionClose, c.pages[s.Chance.IntN(len(c.pages))]
	default:
		return c.a.Lookup(ctx, c.keys[s.Chance.IntN(len(c.keys))])
	}
	return c.send(q)
}

// TestRepliesAreListed: whatever the simulated acquirer does, each of its answers falls in a named class of the adapter
// (I-19), and its money adds up.
func TestRepliesAreListed(t *testing.T) {
	unnamed := []string{"unreadable", "unlisted", "unlisted_2xx", "unlisted_4xx", "bad_call"}
	classes := map[string]int{}
	for seed := range uint64(60) {
		terms := Vary(Profiles[int(seed)%len(Profiles)], seed)
		s := NewScheduler(seed, NewTrace(nil))
		a := NewAcquirer(s, terms, Mischief{Processes: 200, Declines: 100, ActFails: 100, BankFails: 300, ByHand: 300, Chargeback: 200, Mistake: 50})
		r := s.NewReplica("r", 0)
		opened, err := adapter.Open("sandbox", terms.Settings(), []byte(`{"secret":"sim"}`), adapter.Options{Doer: &Network{Acquirer: a, Replica: r}})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		c := &caller{s: s, r: r, a: opened}
		r.Go(func() {
			for range 200 {
				reply := c.random()
				classes[reply.Class]++
				if slices.Contains(unnamed, reply.Class) {
					t.Errorf("seed %d: %s for %+v", seed, reply.Class, c.keys[len(c.keys)-1])
				}
				if id := reply.Reference; strings.HasPrefix(id, "ch_") && !slices.Contains(c.charges, id) {
					c.charges = append(c.charges, id)
				}
				if reply.Session != "" {
					c.pages = append(c.pages, reply.Session)
				}
				r.Sleep(context.Background(), s.Between(0, 40*time.Minute))
			}
			if _, err := opened.Movements(context.Background(), Start, Start.Add(1000*time.Hour)); err != nil && opened.Contract().ListsMovements {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
		s.Run(1000*time.Hour, func() bool { return false })
		for _, one := range a.charges {
			if net := a.Net(one.reference)[one.id]; net != one.rest() || net < 0 || one.captured > one.amount {
				t.Errorf("seed %d: charge %s has %d, and its movements say %d", seed, one.id, one.rest(), net)
			}
		}
		s.Close()
	}
	t.Log(classes)
}
