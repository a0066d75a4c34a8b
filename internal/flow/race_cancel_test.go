package flow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// meeting is one row of the table in docs/races.md while it is played: a payment of 1000, and what each caller was told.
type meeting struct {
	life
	pay  id.ID
	says []string
}

// heard notes what somebody was told: the status and the state in the body, or the code of the refusal.
func (m *meeting) heard(who string, a operation.Answer, err error) {
	m.t.Helper()
	var p *problem.Problem
	switch {
	case errors.As(err, &p):
		m.says = append(m.says, fmt.Sprintf("%s %d %s", who, p.Row().Status, p.Code))
		return
	case err != nil:
		m.t.Errorf("%s: %v", who, err)
		return
	}
	var body struct{ Status string }
	m.ok(json.Unmarshal(a.Body, &body))
	m.says = append(m.says, fmt.Sprintf("%s %d %s", who, a.Status, body.Status))
}

// Callers: each notes what it is told.
func (m *meeting) cancel(key string) {
	a, err := m.p.Cancel(key, m.pay, "")
	m.heard("cancel", a, err)
}

func (m *meeting) capture(key string, minor int64) {
	a, err := m.p.Capture(key, m.pay, minor, nil)
	m.heard("capture", a, err)
}

func (m *meeting) refund() {
	a, err := m.p.Refund("ref-1", m.pay, 0)
	m.heard("refund", a, err)
}

func (m *meeting) check() {
	a, err := m.p.Check(m.pay)
	m.heard("check", a, err)
}

// during is rig.During for one caller; who it is and what it is told is noted when it ends.
func (m *meeting) during(point, who string, slow func(p *rig.Replica) (operation.Answer, error), meanwhile func()) {
	m.t.Helper()
	var got told
	m.r.During(point, func(p *rig.Replica) { got.answer, got.err = slow(p) }, meanwhile, rig.Hasty)
	if who != "" {
		m.heard(who, got.answer, got.err)
	}
}

// canceling holds a cancel at a point.
func (m *meeting) canceling(point string, meanwhile func()) {
	m.t.Helper()
	m.during(point, "cancel", func(p *rig.Replica) (operation.Answer, error) { return p.Cancel("can-1", m.pay, "") }, meanwhile)
}

// sweeping holds a sweep at a point.
func (m *meeting) sweeping(point string, meanwhile func()) {
	m.t.Helper()
	m.during(point, "", func(p *rig.Replica) (operation.Answer, error) {
		p.Sweep.Pass(m.t.Context())
		return operation.Answer{}, nil
	}, meanwhile)
}

// paying holds the call that makes the payment at a point; by is what pays.
func (m *meeting) paying(point string, by func(p *rig.Replica) (operation.Answer, error), meanwhile func()) {
	m.t.Helper()
	m.during(point, "create", by, func() {
		m.pay = m.r.PaymentOf("key-1")
		meanwhile()
	})
}

// vanishes lets the process that makes the payment vanish with the acquirer's answer.
func (m *meeting) vanishes(by func(p *rig.Replica) (operation.Answer, error)) {
	m.t.Helper()
	if _, err := by(m.r.Replica(rig.WithFaults(rig.CrashAt(operation.PointAfterReply, 1)))); err == nil {
		m.t.Error("the process was to vanish")
	}
	m.pay = m.r.PaymentOf("key-1")
}

func pays(method string) func(p *rig.Replica) (operation.Answer, error) {
	return func(p *rig.Replica) (operation.Answer, error) {
		return p.Pay("key-1", rig.Order{Reference: "order-1", Minor: 1000, Method: method})
	}
}

func holds(p *rig.Replica) (operation.Answer, error) { return p.Hold("key-1", theOrder) }

func opens(p *rig.Replica) (operation.Answer, error) { return p.Hosted("key-1", theOrder) }

// What is there before the race.

func (m *meeting) hold() { m.pay = m.held("key-1") }

func (m *meeting) page() { page(m.life); m.pay = m.r.PaymentOf("key-1") }

// heldPage is a page on which funds are held in place of taken.
func (m *meeting) heldPage() {
	c, url, manual := m.r.Command("key-1", theOrder), rig.ReturnURL, payment.CaptureManual
	c.Flow, c.ReturnURL, c.Method, c.Inline.Capture = payment.Hosted, &url, "", &manual
	status(m.t, "page", 201)(m.p.Flow.CreatePayment(m.t.Context(), c))
	m.pay = m.r.PaymentOf("key-1")
}

// step is a charge that its payer must confirm.
func (m *meeting) step() {
	status(m.t, "step", 201)(m.p.Pay("key-1", rig.Order{Reference: "order-1", Minor: 1000, Method: "pm_3ds"}))
	m.pay = m.r.PaymentOf("key-1")
}

// What others do at the acquirer.

func (m *meeting) paysPage() {
	_, err := m.r.Acquirer.PaySession(m.t.Context(), m.r.SessionOf(m.pay).ID)
	m.ok(err)
}

func (m *meeting) confirms() {
	_, err := m.r.Acquirer.ConfirmCharge(m.t.Context(), m.r.ChargeOf(m.pay).ID)
	m.ok(err)
}

func (m *meeting) capturedByHand(minor int64) {
	_, err := m.r.Acquirer.CaptureByHand(m.t.Context(), m.r.ChargeOf(m.pay).ID, minor)
	m.ok(err)
}

func (m *meeting) releasedByHand() {
	_, err := m.r.Acquirer.ReverseByHand(m.t.Context(), m.r.ChargeOf(m.pay).ID)
	m.ok(err)
}

// keeps makes an acquirer that does not reverse what was captured.
func (m *meeting) keeps() {
	terms := sandbox.DefaultContract()
	terms.ReverseCapturedSeconds = 0
	m.ok(m.r.Acquirer.SetContract(m.t.Context(), terms))
}

// lost lets the next answers to a call be lost.
func (m *meeting) lost(fault, call string) {
	m.faults(sandbox.Rule{Fault: fault, Call: call})
}

func (m *meeting) settle() {
	m.faults()
	m.p.Settle(3 * time.Hour)
}

// acquirer tells what was asked for there after the payment was made, each repeat with its first, and what is left taken.
func (m *meeting) acquirer() string {
	asked := map[string]map[string]bool{}
	for _, e := range m.r.Charges() {
		for _, kind := range changing {
			if strings.HasSuffix(e.Path, "/"+kind) {
				if asked[kind] == nil {
					asked[kind] = map[string]bool{}
				}
				asked[kind][e.Path+" "+e.IdempotencyKey] = true
			}
		}
	}
	var all []string
	for _, kind := range changing {
		if n := len(asked[kind]); n > 0 {
			all = append(all, fmt.Sprintf("%d %s", n, kind))
		}
	}
	if taken := m.taken(); taken != 0 {
		all = append(all, fmt.Sprintf("%d taken", taken))
	}
	if all == nil {
		return "nothing"
	}
	return strings.Join(all, ", ")
}

// changing are how the paths of the acquirer's calls end that change a payment.
var changing = []string{"capture", "reverse", "close", "refund"}

// taken is what the acquirer's register shows as taken and not given back.
func (m *meeting) taken() (sum int64) {
	m.t.Helper()
	for _, n := range sandbox.Net(m.r.Movements()) {
		sum += n.Net["KZT"]
	}
	return sum
}

// sums holds the witnesses against each other: the register, the books, and the events of the payment's end.
func (m *meeting) sums() {
	m.t.Helper()
	m.p.Settle(3 * time.Hour)
	m.count("owed to the merchant by the books", int(m.taken()), "SELECT COALESCE(-sum(amount), 0) FROM ledger_entry WHERE account = 'merchant_payable'")
	m.count("held in the books", map[bool]int{true: 1000}[m.r.Status("key-1") == "authorized"],
		"SELECT COALESCE(sum(amount), 0) FROM ledger_entry WHERE account LIKE 'authorized:%'")
	end := m.r.Status("key-1")
	for _, final := range []string{"paid", "canceled", "declined", "failed"} {
		m.count("events "+final, map[bool]int{true: 1}[final == end], "SELECT count(*) FROM event WHERE type = $1", "payment."+final)
	}
	m.count("conflicts", 0, "SELECT count(*) FROM payment WHERE conflict")
	m.count("reviews", 0, "SELECT count(*) FROM review WHERE decided_at IS NULL")
	m.count("unfinished operations", map[bool]int{true: m.r.Count("SELECT count(*) FROM operation WHERE kind = 'create_payment'")}[end == "registered"],
		"SELECT count(*) FROM operation WHERE state <> 'completed'")
	m.r.Verify()
}
