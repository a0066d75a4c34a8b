package flow_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/app"
	"github.com/hapaxpay/hapax/internal/config"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// commands are the kinds of operation beside a direct charge: prepare is done by a process that lives on, run by one that may vanish.
var commands = []struct {
	name, call string
	prepare    func(l life, key string)
	run        func(l life, p *rig.Replica, key string) (operation.Answer, error)
	swept      bool // it begins in a sweep
}{
	{"page", "session", func(life, string) {}, func(l life, p *rig.Replica, key string) (operation.Answer, error) {
		return p.Hosted(key, rig.Order{Reference: "order-" + key, Minor: 1000})
	}, false},
	{"capture", "capture", func(l life, key string) { l.held(key) }, func(l life, p *rig.Replica, key string) (operation.Answer, error) {
		return p.Capture("mod-"+key, l.r.PaymentOf(key), 600, isTrue())
	}, false},
	{"cancel of a hold", "reverse", func(l life, key string) { l.held(key) }, cancelIt, false},
	{"cancel of a page", "close", func(l life, key string) {
		status(l.t, "page", 201)(l.p.Hosted(key, rig.Order{Reference: "order-" + key, Minor: 1000}))
	}, cancelIt, false},
	{"cancel that waits", "reverse", func(l life, key string) {
		l.faults(sandbox.Rule{Fault: "500_executed"})
		status(l.t, "hold", 202)(l.p.Hold(key, rig.Order{Reference: "order-" + key, Minor: 1000}))
		l.faults()
	}, cancelIt, true},
	{"refund", "refund", func(l life, key string) { l.sale(key) }, func(l life, p *rig.Replica, key string) (operation.Answer, error) {
		return p.Refund("mod-"+key, l.r.PaymentOf(key), 400)
	}, false},
	{"compensation", "refund", func(l life, key string) {
		pay := l.sale(key)
		mistake(l.t, l, pay, 1000)
		status(l.t, "check", 200)(l.p.Check(pay))
	}, func(_ life, _ *rig.Replica, _ string) (operation.Answer, error) { return operation.Answer{}, nil }, true},
}

func cancelIt(l life, p *rig.Replica, key string) (operation.Answer, error) {
	return p.Cancel("mod-"+key, l.r.PaymentOf(key), "")
}

// acts are what the acquirer does with the call while the command is run; then it behaves.
var acts = []struct{ name, fault string }{
	{"done", "ok"}, {"no answer, done", "reset_executed"}, {"500, not done", "500_not_executed"}, {"refused", "refused_exceeds_remaining"},
	{"no answer, not done", "reset_not_executed"}, {"500, done", "500_executed"}, {"later", "processing_20000"}, {"no connection", ""},
}

// sweptActs is how many of them are played with what begins in a sweep: each of its cells is a sweep over all.
const sweptActs = 5

// beforeCall are the points at which nothing has left yet: whatever the acquirer would do is the same there.
var beforeCall = []string{operation.PointInClaim, operation.PointAfterClaim, operation.PointBeforeWrite}

// TestEveryCommandAtEveryCrashPoint: every kind of command, whatever the acquirer does with it, with the process vanishing at each
// named point; then the client repeats at another replica, further processes vanish while they recover, and the sweep ends it. At
// most one act for one command at the acquirer, a state that tells the truth, and every invariant.
func TestEveryCommandAtEveryCrashPoint(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the matrix is left to the run without the race detector")
	}
	var met sync.Map // the points that were met
	t.Run("all", func(t *testing.T) {
		for n := range commands {
			t.Run(commands[n].name, func(t *testing.T) {
				t.Parallel()
				m := newMatrix(t, n, &met)
				for k, a := range acts {
					later := commands[n].call != "session" && commands[n].call != "close" // of these nothing is done later
					if a.fault == "processing_20000" && !later || commands[n].swept && k >= sweptActs {
						continue
					}
					for i, point := range append([]string{"none"}, operation.Points...) {
						if a.fault == "ok" || !slices.Contains(beforeCall, point) {
							m.cell(a.fault, point, i%2 == 0)
						}
					}
				}
				m.recover()
				m.judge()
			})
		}
	})
	for _, point := range operation.Points {
		if _, ok := met.Load(point); !ok {
			t.Errorf("the point %s was never met", point)
		}
	}
}

func newMatrix(t *testing.T, n int, met *sync.Map) *matrix {
	t.Helper()
	r := rig.New(t, rig.Terms{"max_flight": "15m"})
	m := &matrix{life: life{t, r, r.Replica(hurried)}, n: n, mortal: &mortal{}, real: client(t, r), closed: closedDoor(t), met: met}
	m.victim = r.Replica(rig.WithFaults(m.mortal), rig.WithDoer(m.mortal), hurried)
	m.automatic()
	return m
}

// hurried waits for the acquirer as short as a busy machine allows.
func hurried(c *config.Config, _ *app.Options) { c.Read = matrixRead }

const matrixRead = 200 * time.Millisecond

type matrix struct {
	life
	n            int
	keys         []string
	met          *sync.Map
	mortal       *mortal
	victim       *rig.Replica // its processes vanish
	real, closed wire.Doer
}

// mortal makes one replica stand for many processes, one after another: nothing of the one before is under way when the next begins.
type mortal struct {
	crash *rig.Crash
	doer  wire.Doer
}

// next begins a process that vanishes at a point.
func (m *mortal) next(point string, to wire.Doer) *rig.Crash {
	m.crash = rig.CrashAt(point, 1)
	m.doer = m.crash.Doer(to)
	return m.crash
}

func (m *mortal) Hit(ctx context.Context, point string) error { return m.crash.Hit(ctx, point) }

func (m *mortal) Do(ctx context.Context, c wire.Call) wire.Result { return m.doer.Do(ctx, c) }

// closedDoor refuses every connection.
func closedDoor(t *testing.T) wire.Doer {
	t.Helper()
	c, err := wire.New(wire.Config{BaseURL: "http://127.0.0.1:1", ConnectTimeout: matrixRead, ReadTimeout: matrixRead})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// cell runs one command at an acquirer that behaves in one way, in a process that vanishes at one point.
func (m *matrix) cell(fault, point string, repeat bool) {
	m.t.Helper()
	c := commands[m.n]
	key := fmt.Sprintf("%s-%s-%d", fault, point, len(m.keys))
	m.keys = append(m.keys, key)
	c.prepare(m.life, key)
	doer := m.real
	switch fault {
	case "ok":
	case "":
		doer = m.closed
	default:
		m.faults(sandbox.Rule{Fault: fault, Call: c.call})
	}
	crash := m.mortal.next(point, doer)
	if a, err := c.run(m.life, m.victim, key); err == nil && a.Status == 500 {
		m.t.Errorf("%s: answered 500", key)
	}
	if c.swept {
		m.r.Later(31 * time.Second)
		m.victim.Sweep.Pass(m.t.Context())
	}
	m.happened(crash)
	if repeat { // half of the clients repeat before anybody's lease ends
		if _, err := c.run(m.life, m.p, key); err != nil {
			m.t.Logf("%s: repeat: %v", key, err)
		}
	}
	if fault != "ok" && fault != "" {
		m.faults()
	}
}

// recover lets further processes vanish while they recover what the first ones left, lets half of the payers pay who have
// a page, and then the sweep end it.
func (m *matrix) recover() {
	m.t.Helper()
	for _, point := range operation.Points {
		m.r.Later(65 * time.Second)
		crash := m.mortal.next(point, m.real)
		m.victim.Sweep.Pass(m.t.Context())
		m.happened(crash)
	}
	all, err := m.r.Acquirer.Sessions(m.t.Context(), "")
	if err != nil {
		m.t.Fatal(err)
	}
	for n, s := range all {
		end := m.r.Acquirer.PaySession
		if n%2 == 0 {
			end = m.r.Acquirer.ExpireSession
		}
		if s.Status == "open" {
			if _, err := end(m.t.Context(), s.ID); err != nil {
				m.t.Fatal(err)
			}
		}
	}
	m.p.Settle(72 * time.Hour)
}

func (m *matrix) happened(c *rig.Crash) {
	if c.Happened() {
		m.met.Store(c.Point, true)
	}
}

// judge holds what we say against what the acquirer did.
func (m *matrix) judge() {
	m.t.Helper()
	done := m.done()
	rows, err := m.r.Owner.Query(m.t.Context(), `SELECT p.idempotency_key || ' ' || m.type, m.acquirer_key, m.action, m.status, p.status
		FROM modification m JOIN payment p ON p.id = m.payment_id`)
	if err != nil {
		m.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var what, key, action, state, pay string
		if err := rows.Scan(&what, &key, &action, &state, &pay); err != nil {
			m.t.Fatal(err)
		}
		switch n := done[key]; {
		case state != "succeeded" && state != "failed":
			m.t.Errorf("%s is %s, of a payment that is %s", what, state, pay)
		case n > 1:
			m.t.Errorf("%s was done %d times", what, n)
		case action != "" && action != "close" && (n == 1) != (state == "succeeded"):
			m.t.Errorf("%s is %s, and was done %d times", what, state, n)
		}
	}
	if err := rows.Err(); err != nil {
		m.t.Fatal(err)
	}
	net := sandbox.Net(m.r.Movements())
	for _, key := range m.keys {
		reference := m.r.Text("SELECT acquirer_key FROM payment WHERE idempotency_key = $1", key)
		if reference == "" { // vanished before its claim was committed, and nobody came back
			continue
		}
		m.count(key+": money", int(net[reference].Net["KZT"]), `SELECT captured_amount - refunded_amount + (SELECT COALESCE(sum(amount), 0)::bigint FROM movement
			WHERE payment_id = payment.id AND state = 'unapplied' AND kind = 'charge') FROM payment WHERE idempotency_key = $1`, key)
		if sessions := m.sessions(reference); len(sessions) > 1 {
			m.t.Errorf("%s: %d pages at the acquirer", key, len(sessions))
		}
		if got := m.r.Status(key); got != "paid" && got != "canceled" && got != "failed" && got != "authorized" {
			m.t.Errorf("%s: the payment is %s", key, got)
		}
	}
	if commands[m.n].name == "compensation" {
		m.sound("I-1") // the acquirer took more than it was asked for, and a person decides about what it does not give back
		return
	}
	m.sound()
}

func (m *matrix) sessions(reference string) []sandbox.Session {
	m.t.Helper()
	all, err := m.r.Acquirer.Sessions(m.t.Context(), reference)
	if err != nil {
		m.t.Fatal(err)
	}
	return all
}

// done counts what the acquirer did for each of our keys.
func (m *matrix) done() map[string]int {
	m.t.Helper()
	all, err := m.r.Acquirer.Charges(m.t.Context(), "")
	if err != nil {
		m.t.Fatal(err)
	}
	done := map[string]int{}
	for _, c := range all {
		for _, a := range c.Acts {
			if a.Status == "succeeded" {
				done[a.Reference]++
			}
		}
	}
	return done
}
