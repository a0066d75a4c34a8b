package flow_test

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// heard is what one caller of a race was told.
type heard struct {
	operation.Answer
	err error
}

// says condenses it: the status, or the code of the refusal.
func (a heard) says() string {
	var p *problem.Problem
	switch {
	case a.err == nil:
		return map[int]string{200: "200", 201: "201", 202: "202", 402: "402", 422: "422"}[a.Status]
	case problem.Is(a.err, problem.OperationInProgress):
		return "in progress"
	}
	if p, _ = a.err.(*problem.Problem); p != nil {
		return string(p.Code)
	}
	return a.err.Error()
}

// race runs two calls on two replicas: the first stands at the end of its claim, decided and not committed, while the second
// begins and waits for its locks; then both go on. So both have looked before either has written.
func race(t *testing.T, r *rig.Rig, first, second func(p *rig.Replica) (operation.Answer, error)) []string {
	t.Helper()
	gate := rig.HoldAt(operation.PointInClaim)
	one, two := r.Replica(rig.WithFaults(gate), rig.Hasty), r.Replica(rig.Hasty)
	var a, b heard
	var both sync.WaitGroup
	both.Go(func() { a.Answer, a.err = first(one) })
	<-gate.Reached()
	both.Go(func() { b.Answer, b.err = second(two) })
	r.DB.WaitBlocked(t, 1)
	gate.Open()
	both.Wait()
	return []string{a.says(), b.says()}
}

func among(t *testing.T, got string, want ...string) {
	t.Helper()
	if !slices.Contains(want, got) {
		t.Errorf("told %q, want one of %v", got, want)
	}
}

func lines(r *rig.Rig, path string) int {
	return r.Sent(func(e sandbox.WireEntry) bool { return e.Method == http.MethodPost && strings.HasSuffix(e.Path, path) })
}

// Two of each command, with one key and with two, forced to race after the look, over two replicas: one registration, one
// capture, one reversal, one closing, one refund at the acquirer.
func TestRaceOfTwoCommands(t *testing.T) {
	for name, tc := range map[string]struct {
		path string
		set  func(t *testing.T, r *rig.Rig) func(p *rig.Replica, key string) (operation.Answer, error)
		one  []string // what the second may be told with the same key
		two  []string // and with another
	}{
		"create": {path: "/sessions", one: []string{"200", "202", "in progress"}, two: []string{"200", "202"},
			set: func(*testing.T, *rig.Rig) func(p *rig.Replica, key string) (operation.Answer, error) {
				return func(p *rig.Replica, key string) (operation.Answer, error) {
					return p.Hosted(key, rig.Order{Reference: "order-1"})
				}
			}},
		"capture": {path: "/capture", one: []string{"201", "in progress"}, two: []string{"in progress", "not_capturable"},
			set: func(t *testing.T, r *rig.Rig) func(p *rig.Replica, key string) (operation.Answer, error) {
				status(t, "hold", 201)(r.Replica().Hold("key-1", rig.Order{Reference: "order-1"}))
				pay := r.PaymentOf("key-1")
				return func(p *rig.Replica, key string) (operation.Answer, error) { return p.Capture(key, pay, 0, nil) }
			}},
		"cancel of a hold": {path: "/reverse", one: []string{"201", "in progress"}, two: []string{"201", "202"},
			set: func(t *testing.T, r *rig.Rig) func(p *rig.Replica, key string) (operation.Answer, error) {
				status(t, "hold", 201)(r.Replica().Hold("key-1", rig.Order{Reference: "order-1"}))
				pay := r.PaymentOf("key-1")
				return func(p *rig.Replica, key string) (operation.Answer, error) { return p.Cancel(key, pay, "") }
			}},
		"cancel of a page": {path: "/close", one: []string{"201", "in progress"}, two: []string{"201", "202"},
			set: func(t *testing.T, r *rig.Rig) func(p *rig.Replica, key string) (operation.Answer, error) {
				status(t, "page", 201)(r.Replica().Hosted("key-1", rig.Order{Reference: "order-1"}))
				pay := r.PaymentOf("key-1")
				return func(p *rig.Replica, key string) (operation.Answer, error) { return p.Cancel(key, pay, "") }
			}},
		"refund": {path: "/refund", one: []string{"201", "in progress"}, two: []string{"exceeds_remaining"},
			set: func(t *testing.T, r *rig.Rig) func(p *rig.Replica, key string) (operation.Answer, error) {
				status(t, "sale", 201)(r.Replica().Pay("key-1", rig.Order{Reference: "order-1"}))
				pay := r.PaymentOf("key-1")
				return func(p *rig.Replica, key string) (operation.Answer, error) { return p.Refund(key, pay, 0) }
			}},
	} {
		for keys, second := range map[string]string{"one key": "click-1", "two keys": "click-2"} {
			t.Run(name+"/"+keys, func(t *testing.T) {
				r := rig.New(t, nil)
				do := tc.set(t, r)
				got := race(t, r,
					func(p *rig.Replica) (operation.Answer, error) { return do(p, "click-1") },
					func(p *rig.Replica) (operation.Answer, error) { return do(p, second) })
				among(t, got[0], "201")
				if second == "click-1" {
					among(t, got[1], tc.one...)
				} else {
					among(t, got[1], tc.two...)
				}
				if n := lines(r, tc.path); n != 1 {
					t.Errorf("%d calls to %s arrived at the acquirer, want 1", n, tc.path)
				}
				r.Replica().Settle(time.Minute)
				r.Verify()
			})
		}
	}
}

// Two checks learn the same success at once: both have asked before either has written, and one receipt is booked.
func TestRaceOfTwoChecks(t *testing.T) {
	r := rig.New(t, nil)
	status(t, "page", 201)(r.Replica().Hosted("key-1", rig.Order{Reference: "order-1"}))
	pay := r.PaymentOf("key-1")
	if _, err := r.Acquirer.PaySession(t.Context(), r.SessionOf(pay).ID); err != nil {
		t.Fatal(err)
	}
	meet := rig.MeetAt(operation.PointAfterLookup, 2)
	replicas := []*rig.Replica{r.Replica(rig.WithFaults(meet)), r.Replica(rig.WithFaults(meet))}
	together(2, func(n int) { status(t, "check", 200)(replicas[n].Check(pay)) })
	settled(t, r, 1)
}

// A check, the sweep and a repeat of the client learn it at once.
func TestRaceOfCheckSweepAndRepeat(t *testing.T) {
	r := rig.New(t, nil)
	status(t, "page", 201)(r.Replica().Hosted("key-1", rig.Order{Reference: "order-1"}))
	pay := r.PaymentOf("key-1")
	if _, err := r.Acquirer.PaySession(t.Context(), r.SessionOf(pay).ID); err != nil {
		t.Fatal(err)
	}
	r.Later(10 * time.Second)
	meet := rig.MeetAt(operation.PointAfterLookup, 2)
	a, b := r.Replica(rig.WithFaults(meet)), r.Replica(rig.WithFaults(meet))
	together(2, func(n int) {
		if n == 0 {
			status(t, "check", 200)(a.Check(pay))
			return
		}
		b.Sweep.Pass(t.Context())
	})
	status(t, "repeat", 201)(a.Hosted("key-1", rig.Order{Reference: "order-1"}))
	settled(t, r, 1)
}

// row is one row of docs/races.md: its name, and what it shows.
type row struct {
	name string
	run  func(l life)
}

// racesOfCancel are the rows of the table in docs/races.md, in its order.
var racesOfCancel = []row{
	{"cancel and capture, cancel first", func(l life) {
		pay := l.held("key-1")
		got := race(l.t, l.r, func(p *rig.Replica) (operation.Answer, error) { return p.Cancel("can-1", pay, "") },
			func(p *rig.Replica) (operation.Answer, error) { return p.Capture("cap-1", pay, 0, nil) })
		among(l.t, got[0], "201")
		among(l.t, got[1], "in progress", "not_capturable")
		l.is("key-1", "canceled")
		l.money(0, "payment.authorized", "payment.canceled")
	}},
	{"cancel and capture, capture first", func(l life) {
		pay := l.held("key-1")
		got := race(l.t, l.r, func(p *rig.Replica) (operation.Answer, error) { return p.Capture("cap-1", pay, 0, nil) },
			func(p *rig.Replica) (operation.Answer, error) { return p.Cancel("can-1", pay, "") })
		among(l.t, got[0], "201")
		among(l.t, got[1], "in progress", "not_cancelable")
		l.is("key-1", "paid")
		l.money(1000, "payment.authorized", "payment.paid")
	}},
	{"cancel, and the hold is captured by hand first", func(l life) {
		terms := sandbox.DefaultContract()
		terms.ReverseCapturedSeconds = 0
		if err := l.r.Acquirer.SetContract(l.t.Context(), terms); err != nil {
			l.t.Fatal(err)
		}
		pay := l.held("key-1")
		if _, err := l.r.Acquirer.CaptureByHand(l.t.Context(), l.r.ChargeOf(pay).ID, 1000); err != nil {
			l.t.Fatal(err)
		}
		status(l.t, "cancel", 422)(l.p.Cancel("can-1", pay, ""))
		l.is("key-1", "paid")
		status(l.t, "the same once more", 422)(l.p.Cancel("can-1", pay, ""))
		l.money(1000, "payment.authorized", "payment.cancel_failed", "payment.paid")
	}},
	{"the same, and the reversal gives the money back", func(l life) {
		pay := l.held("key-1")
		if _, err := l.r.Acquirer.CaptureByHand(l.t.Context(), l.r.ChargeOf(pay).ID, 1000); err != nil {
			l.t.Fatal(err)
		}
		status(l.t, "cancel", 201)(l.p.Cancel("can-1", pay, ""))
		status(l.t, "check", 200)(l.p.Check(pay))
		l.is("key-1", "canceled")
		l.count("conflicts", 0, "SELECT count(*) FROM payment WHERE conflict")
		l.money(0, "payment.authorized", "payment.canceled")
	}},
	{"cancel, and the page is paid first", func(l life) {
		status(l.t, "page", 201)(l.p.Hosted("key-1", rig.Order{Reference: "order-1", Minor: 1000}))
		pay := l.r.PaymentOf("key-1")
		if _, err := l.r.Acquirer.PaySession(l.t.Context(), l.r.SessionOf(pay).ID); err != nil {
			l.t.Fatal(err)
		}
		status(l.t, "cancel", 422)(l.p.Cancel("can-1", pay, ""))
		l.is("key-1", "paid")
		l.money(1000, "payment.registered", "payment.cancel_failed", "payment.paid")
	}},
	{"cancel and check", func(l life) {
		pay := l.held("key-1")
		meet := rig.HoldAt(operation.PointAfterLookup)
		checking := l.r.Replica(rig.WithFaults(meet))
		done := make(chan struct{})
		go func() {
			defer close(done)
			status(l.t, "check", 200)(checking.Check(pay))
		}()
		<-meet.Reached()
		status(l.t, "cancel", 201)(l.p.Cancel("can-1", pay, ""))
		meet.Open()
		<-done
		l.is("key-1", "canceled")
		l.money(0, "payment.authorized", "payment.canceled")
	}},
	{"cancel answered 503, and asked about", func(l life) {
		pay := l.held("key-1")
		l.faults(sandbox.Rule{Fault: "503_once", Call: "reverse", Times: 2})
		status(l.t, "cancel", 202)(l.p.Cancel("can-1", pay, ""))
		l.is("key-1", "canceling")
		l.faults()
		l.p.Settle(time.Hour)
		l.is("key-1", "canceled")
		status(l.t, "cancel", 201)(l.p.Cancel("can-1", pay, ""))
		l.money(0, "payment.authorized", "payment.canceled")
	}},
	{"cancel done, and its answer lost", func(l life) {
		pay := l.held("key-1")
		l.faults(sandbox.Rule{Fault: "timeout_executed", Call: "reverse", Times: 2})
		status(l.t, "cancel", 202)(l.p.Cancel("can-1", pay, ""))
		l.faults()
		l.p.Settle(time.Hour)
		l.is("key-1", "canceled")
		if n := l.r.Moved("reverse"); n != 1 {
			l.t.Errorf("%d reversals, want 1", n)
		}
		l.money(0, "payment.authorized", "payment.canceled")
	}},
	{"cancel of a payer's step", func(l life) {
		status(l.t, "charge", 201)(l.p.Pay("key-1", rig.Order{Reference: "order-1", Minor: 1000, Method: "pm_3ds"}))
		pay := l.r.PaymentOf("key-1")
		status(l.t, "cancel", 201)(l.p.Cancel("can-1", pay, ""))
		l.is("key-1", "canceled")
		l.money(0, "payment.registered", "payment.canceled")
	}},
	{"cancel and refund", func(l life) {
		pay := l.sale("key-1")
		l.refused("cancel", problem.NotCancelable)(l.p.Cancel("can-1", pay, ""))
		status(l.t, "refund", 201)(l.p.Refund("ref-1", pay, 0))
		l.money(0, "payment.paid", "refund.succeeded")
	}},
}

// Each row of docs/races.md is played, and nothing is played that it does not tell.
func TestRacesOfCancel(t *testing.T) {
	raw, err := os.ReadFile("../../docs/races.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^\| ([^|]+?) \|`).FindAllStringSubmatch(string(raw), -1) {
		if m[1] != "what meets" && !strings.HasPrefix(m[1], "--") {
			names = append(names, m[1])
		}
	}
	var played []string
	for _, r := range racesOfCancel {
		played = append(played, r.name)
		t.Run(r.name, func(t *testing.T) { r.run(newLife(t, nil)) })
	}
	for _, deferred := range []string{"cancel, and the charge turns out held", "cancel, and the charge turns out taken", "cancel, and the charge turns out not executed"} {
		played = append(played, deferred) // TestCancelWaitsForTheCharge
	}
	if !slices.Equal(names, played) {
		t.Errorf("docs/races.md tells of %q, played are %q", names, played)
	}
}

// One code, two cancels at once: it is used up once. Wrong tries are counted although their claim is undone.
func TestRaceForOneCode(t *testing.T) {
	l := newLife(t, nil)
	if _, err := l.r.Owner.Exec(t.Context(), "UPDATE merchant SET cancel_code = true"); err != nil {
		t.Fatal(err)
	}
	pay := l.held("key-1")
	l.refused("without a code", problem.CodeInvalid)(l.p.Cancel("can-0", pay, ""))
	status(t, "code", 201)(l.p.IssueCode("code-1", pay))
	code := l.p.Flow.CancelCode(l.r.Merchant.ID, pay, 1000, 1)
	wrong := "000000"
	if wrong == code {
		wrong = "000001"
	}
	l.refused("a wrong code", problem.CodeInvalid)(l.p.Cancel("can-0", pay, wrong))
	l.count("tries", 1, "SELECT tries FROM cancel_code")
	l.count("claims", 0, "SELECT count(*) FROM operation WHERE kind = 'cancel'")
	got := race(t, l.r, func(p *rig.Replica) (operation.Answer, error) { return p.Cancel("can-1", pay, code) },
		func(p *rig.Replica) (operation.Answer, error) { return p.Cancel("can-2", pay, code) })
	among(t, got[0], "201")
	among(t, got[1], "201", "202")
	l.count("codes used", 1, "SELECT count(*) FROM cancel_code WHERE consumed_at IS NOT NULL")
	if n := lines(l.r, "/reverse"); n != 1 {
		t.Errorf("%d reversals were asked for, want 1", n)
	}
	l.sound()
}

// A code ends by tries, by time, and with its payment.
func TestCodesEnd(t *testing.T) {
	l := newLife(t, nil)
	pay, other := l.held("key-1"), l.held("key-2")
	status(t, "code", 201)(l.p.IssueCode("code-1", pay))
	code := l.p.Flow.CancelCode(l.r.Merchant.ID, pay, 1000, 1)
	status(t, "code", 201)(l.p.IssueCode("code-2", other))
	l.refused("another payment's code", problem.CodeInvalid)(l.p.Cancel("can-x", other, code))
	l.r.Later(11 * time.Minute)
	l.refused("an old code", problem.CodeExpired)(l.p.Cancel("can-1", pay, code))
	status(t, "a new code", 201)(l.p.IssueCode("code-3", pay))
	l.refused("the old one", problem.CodeInvalid)(l.p.Cancel("can-1", pay, code))
	fresh := l.p.Flow.CancelCode(l.r.Merchant.ID, pay, 1000, 2)
	for range 4 {
		l.refused("a wrong code", problem.CodeInvalid)(l.p.Cancel("can-1", pay, "nonsense"))
	}
	l.refused("the right one, too late", problem.CodeExpired)(l.p.Cancel("can-1", pay, fresh))
	if rows := l.r.Text("SELECT string_agg(answer_body::text, '') FROM operation WHERE kind = 'cancel_code'"); strings.Contains(rows, fresh) {
		t.Error("a code stands in a stored answer")
	}
	l.sound()
}
