package flow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// life is one installation with one replica, for what happens to a payment after it was created.
type life struct {
	t *testing.T
	r *rig.Rig
	p *rig.Replica
}

func newLife(t *testing.T, terms rig.Terms) life {
	t.Helper()
	r := rig.New(t, terms)
	return life{t, r, r.Replica(rig.Hasty)}
}

// once are terms under which an answer that was lost is not asked for again in the same request.
var once = rig.Terms{"repeat_budget": 1}

// sale is a payment of 1000 that is paid at once.
func (l life) sale(key string) id.ID {
	l.t.Helper()
	status(l.t, "sale", 201)(l.p.Pay(key, rig.Order{Reference: "order-" + key, Minor: 1000}))
	return l.r.PaymentOf(key)
}

// held is a payment of 1000 whose funds are held.
func (l life) held(key string) id.ID {
	l.t.Helper()
	status(l.t, "hold", 201)(l.p.Hold(key, rig.Order{Reference: "order-" + key, Minor: 1000}))
	return l.r.PaymentOf(key)
}

func (l life) faults(rules ...sandbox.Rule) { l.t.Helper(); faults(l.t, l.r, rules...) }

// refused demands a problem with this code.
func (l life) refused(what string, code problem.Code) func(operation.Answer, error) {
	return func(a operation.Answer, err error) {
		l.t.Helper()
		if !problem.Is(err, code) {
			l.t.Errorf("%s: told %d %s, %v; want %s", what, a.Status, a.Body, err, code)
		}
	}
}

// count demands a number that a query gives.
func (l life) count(what string, want int, sql string, args ...any) {
	l.t.Helper()
	if got := l.r.Count(sql, args...); got != want {
		l.t.Errorf("%s: %d, want %d", what, got, want)
	}
}

// is demands the state of the payment that the key created.
func (l life) is(key, want string) {
	l.t.Helper()
	if got := l.r.Status(key); got != want {
		l.t.Errorf("payment %s is %s, want %s", key, got, want)
	}
}

// mod demands the state of the change that the key began.
func (l life) mod(key, want string) {
	l.t.Helper()
	if got := l.r.Text("SELECT status FROM modification WHERE idempotency_key = $1", key); got != want {
		l.t.Errorf("modification %s is %s, want %s", key, got, want)
	}
}

// calls counts the requests of a kind that arrived at the acquirer, such as "/refund".
func (l life) calls(ending string) int {
	l.t.Helper()
	return l.r.Sent(func(e sandbox.WireEntry) bool {
		return e.Method == http.MethodPost && strings.HasSuffix(e.Path, ending)
	})
}

// money demands what the three witnesses show in the end: the acquirer's register, the books, and each kind of event once.
func (l life) money(net int64, events ...string) {
	l.t.Helper()
	var taken int64
	for _, n := range sandbox.Net(l.r.Movements()) {
		taken += n.Net["KZT"]
	}
	if taken != net {
		l.t.Errorf("the acquirer's register shows %d taken, want %d: %+v", taken, net, l.r.Movements())
	}
	if got := l.r.Count("SELECT COALESCE(-sum(amount), 0) FROM ledger_entry WHERE account = 'merchant_payable'"); int64(got) != net {
		l.t.Errorf("the books owe the merchant %d, want %d", got, net)
	}
	got := l.r.Events()
	if strings.Join(got, " ") != strings.Join(events, " ") {
		l.t.Errorf("events %v, want %v", got, events)
	}
	l.sound()
}

// sound checks every invariant; a test says why its world breaks those that it leaves out.
func (l life) sound(except ...string) {
	l.t.Helper()
	l.r.Verify(except...)
}

// http makes a call with the rig's merchant and a JSON body.
func (l life) http(path, key, body string) rig.Response {
	l.t.Helper()
	a, err := l.p.Do(l.t.Context(), l.r.Merchant, http.MethodPost, path, key, []byte(body))
	if err != nil {
		l.t.Fatal(err)
	}
	return a
}

// Case 2: the acquirer forgets keys after a day; a refund whose answer was lost is asked about an hour later than that, and the
// old key is never sent again.
func TestCase002_RefundOlderThanTheKeysWindow(t *testing.T) {
	for _, tc := range []struct {
		name, fault string
		terms       rig.Terms
		want        string // of the refund, after the lookup answered
		review      int
		net         int64
	}{
		{"it was done", "timeout_executed", once, "succeeded", 0, 400},
		{"it was not done, and that is final", "timeout_not_executed", once, "failed", 0, 1000},
		{"not found proves nothing", "timeout_not_executed", rig.Terms{"repeat_budget": 1, "not_found_final": false}, "unknown", 1, 1000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLife(t, tc.terms)
			pay := l.sale("key-1")
			l.faults(sandbox.Rule{Fault: tc.fault, Call: "refund"}, sandbox.Rule{Fault: "lookup_down", Call: "refund"})
			status(t, "refund", 202)(l.p.Refund("ref-1", pay, 600))
			l.faults()
			l.r.Later(25 * time.Hour)
			l.p.Settle(2 * time.Hour)
			l.mod("ref-1", tc.want)
			if got := l.calls("/refund"); got != 1 {
				t.Errorf("%d refund calls, want 1: the key is no longer kept", got)
			}
			l.count("open reviews", tc.review, "SELECT count(*) FROM review WHERE decided_at IS NULL")
			l.count("kept for the refund", 600*tc.review, "SELECT refunding_amount FROM payment")
			if tc.review == 0 {
				l.money(tc.net, map[string][]string{"succeeded": {"payment.paid", "refund.succeeded"}, "failed": {"payment.paid", "refund.failed"}}[tc.want]...)
			}
			l.sound()
		})
	}
}

// Case 7: one key at every endpoint is one operation at each, and each answers with its own kind of thing.
func TestCase007_OneKeyAtEveryEndpoint(t *testing.T) {
	l := newLife(t, nil)
	make := func(reference, extra string) string {
		a := l.http("/v1/payments", "K-"+reference, `{"amount":1000,"currency":"KZT","client_reference":"`+reference+`","payment_method":"pm_ok"`+extra+`}`)
		if a.Status != 201 || a.Member("object") != "payment" {
			t.Fatalf("create: %d %s", a.Status, a.Body)
		}
		return a.Member("id")
	}
	hold := `,"capture_method":"manual"`
	canceled, captured := make("1", hold), make("2", hold)
	for _, call := range []struct{ path, key, body, object, kind string }{
		{"/v1/payments/" + canceled + "/cancel", "K-1", `{}`, "payment", "cancel"},
		{"/v1/payments/" + captured + "/capture", "K-1", `{}`, "payment", "capture"},
		{"/v1/refunds", "K-1", `{"payment":"` + captured + `"}`, "refund", ""},
	} {
		for n, replayed := range []string{"", "true"} {
			a := l.http(call.path, call.key, call.body)
			var body struct {
				Object       string
				Modification struct{ Type string }
			}
			if err := json.Unmarshal(a.Body, &body); err != nil {
				t.Fatal(err)
			}
			if a.Status != 201 || body.Object != call.object || body.Modification.Type != call.kind || a.Header.Get("Idempotency-Replayed") != replayed {
				t.Errorf("%s, time %d: told %d %s, replayed %q", call.path, n+1, a.Status, a.Body, a.Header.Get("Idempotency-Replayed"))
			}
		}
	}
	l.is("K-1", "canceled")
	l.is("K-2", "paid")
	for kind, want := range map[string]int{"reverse": 1, "capture": 1, "refund": 1} {
		if got := l.r.Moved(kind); got != want {
			t.Errorf("%d of %s at the acquirer, want %d", got, kind, want)
		}
	}
	l.sound()
}

// Case 18: two captures at once: the second is refused here, and where the acquirer says "already captured" to a repeat, that is
// stored beside the capture and is not the payment's state.
func TestCase018_SecondCaptureIsRefused(t *testing.T) {
	t.Run("two callers", func(t *testing.T) {
		l := newLife(t, nil)
		l.p = l.r.Replica(patient)
		pay := l.held("key-1")
		l.faults(sandbox.Rule{Fault: "hold_after", Gate: "booked", Call: "capture", Times: 1})
		first := make(chan operation.Answer, 1)
		go func() { first <- status(t, "first capture", 201)(l.p.Capture("cap-1", pay, 0, nil)) }()
		if err := l.r.Acquirer.WaitWaiting(t.Context(), "booked", 1); err != nil {
			t.Fatal(err)
		}
		l.refused("second capture", problem.OperationInProgress)(l.r.Replica().Capture("cap-2", pay, 0, nil))
		if _, err := l.r.Acquirer.Release(t.Context(), "booked", 0); err != nil {
			t.Fatal(err)
		}
		<-first
		if got := l.calls("/capture"); got != 1 {
			t.Errorf("%d capture calls, want 1", got)
		}
		l.refused("second capture, again", problem.NotCapturable)(l.p.Capture("cap-2", pay, 0, nil))
		l.is("key-1", "paid")
		l.money(1000, "payment.authorized", "payment.paid")
	})
	t.Run("the acquirer refuses the repeat", func(t *testing.T) {
		l := newLife(t, nil)
		pay := l.held("key-1")
		l.faults(sandbox.Rule{Fault: "timeout_executed", Call: "capture", Times: 1},
			sandbox.Rule{Fault: "refused_already_captured_executed", Call: "capture", Skip: 1})
		if a, err := l.p.Capture("cap-1", pay, 0, nil); err != nil || a.Status == 422 {
			t.Errorf("told %d %s, %v", a.Status, a.Body, err)
		}
		l.p.Settle(time.Hour)
		status(t, "repeat", 201)(l.p.Capture("cap-1", pay, 0, nil))
		l.count("refusals that are stored", 1, "SELECT count(*) FROM evidence WHERE class = 'already_captured'")
		l.money(1000, "payment.authorized", "payment.paid")
	})
}

// Case 19: a capture that was done is answered with an error, which the acquirer stores and would repeat for a day, and later
// refuses as "already captured": the acquirer's state is read, not its answer.
func TestCase019_StoredErrorHidesTheCapture(t *testing.T) {
	l := newLife(t, nil)
	pay := l.held("key-1")
	l.faults(sandbox.Rule{Fault: "500_executed", Call: "capture", Times: 1}, sandbox.Rule{Fault: "refused_already_captured_executed", Call: "capture", Skip: 1},
		sandbox.Rule{Fault: "lookup_down", Call: "any"})
	status(t, "capture", 202)(l.p.Capture("cap-1", pay, 0, nil))
	for range 3 {
		status(t, "repeat", 202)(l.p.Capture("cap-1", pay, 0, nil))
		l.r.Later(10 * time.Hour)
		l.p.Sweep.Pass(t.Context())
	}
	l.faults()
	l.r.Later(13 * time.Hour)
	l.p.Settle(time.Hour)
	status(t, "repeat", 201)(l.p.Capture("cap-1", pay, 0, nil))
	if got := l.calls("/capture"); got != 1 {
		t.Errorf("%d capture calls, want 1", got)
	}
	l.is("key-1", "paid")
	l.count("captures in the books", 1, "SELECT count(*) FROM ledger_entry WHERE account = 'merchant_payable'")
	l.money(1000, "payment.authorized", "payment.in_review", "payment.paid")
}

// Case 20: the socket dies after the acquirer booked the capture: the row stays, and what is sent again carries the same key and
// the same bytes.
func TestCase020_CaptureKeepsItsKey(t *testing.T) {
	l := newLife(t, nil)
	pay := l.held("key-1")
	l.faults(sandbox.Rule{Fault: "reset_executed", Call: "capture", Times: 1})
	status(t, "capture", 201)(l.p.Capture("cap-1", pay, 0, nil))
	var keys, bodies []string
	for _, e := range l.r.Charges() {
		if strings.HasSuffix(e.Path, "/capture") {
			keys, bodies = append(keys, e.IdempotencyKey), append(bodies, e.BodySHA256)
		}
	}
	if len(keys) != 2 || keys[0] != keys[1] || bodies[0] != bodies[1] {
		t.Errorf("keys %v and bodies %v; want two equal ones", keys, bodies)
	}
	status(t, "the client's repeat", 201)(l.p.Capture("cap-1", pay, 0, nil))

	// Dead on both tries: the row is there, the client's repeats join it, and another press begins nothing.
	second := l.held("key-2")
	l.faults(sandbox.Rule{Fault: "reset_executed", Call: "capture"})
	status(t, "capture", 202)(l.p.Capture("cap-2", second, 0, nil))
	l.faults()
	status(t, "the client's repeat", 202)(l.p.Capture("cap-2", second, 0, nil))
	l.refused("another press", problem.OperationInProgress)(l.p.Capture("cap-3", second, 0, nil))
	l.p.Settle(time.Hour)
	status(t, "the client's repeat", 201)(l.p.Capture("cap-2", second, 0, nil))
	l.count("rows of captures", 2, "SELECT count(*) FROM modification WHERE type = 'capture'")
	if got := l.r.Moved("capture"); got != 2 {
		t.Errorf("%d captures at the acquirer, want 2", got)
	}
	l.sound()
}

// Case 24: two tabs open one order: the second gets the first one's page. Where the acquirer takes a second payment all the same,
// it is kept aside as an excess, with a review, and goes back.
func TestCase024_TwoTabsOneOrder(t *testing.T) {
	l := newLife(t, quick)
	order := rig.Order{Reference: "order-1", Minor: 1000}
	status(t, "first tab", 201)(l.p.Hosted("tab-1", order))
	status(t, "second tab", 200)(l.p.Hosted("tab-2", order))
	pay := l.r.PaymentOf("tab-1")
	page := l.r.SessionOf(pay) // there is one
	if _, err := l.r.Acquirer.PaySession(t.Context(), page.ID); err != nil {
		t.Fatal(err)
	}
	status(t, "check", 200)(l.p.Check(pay))
	l.is("tab-1", "paid")
	l.refused("a third tab", problem.AlreadyPaid)(l.p.Hosted("tab-3", order))

	mistake(t, l, pay, 1000)
	if err := l.r.CompareAll(l.p); err != nil {
		t.Fatal(err)
	}
	l.is("tab-1", "paid")
	l.count("kept aside", 1000, "SELECT amount FROM movement WHERE state = 'unapplied'")
	l.count("reviews", 1, "SELECT count(*) FROM review WHERE reason = 'second_movement' AND decided_at IS NULL")
	if err := decide(t, l.r, l.p, "click", flow.VerdictCompensate, ""); err != nil {
		t.Fatal(err)
	}
	l.p.Settle(time.Hour)
	l.count("kept aside", 0, "SELECT count(*) FROM movement WHERE state = 'unapplied'")
	l.money(1000, "payment.registered", "payment.paid", "payment.conflict", "compensation.succeeded", "payment.conflict_resolved")
}

// mistake lets the acquirer take money that nobody asked for, under the reference of a payment.
func mistake(t *testing.T, l life, pay id.ID, minor int64) sandbox.Charge {
	t.Helper()
	c, err := l.r.Acquirer.ChargeByMistake(t.Context(), sandbox.HandCharge{Amount: minor, Currency: "KZT",
		Reference:      l.r.Text("SELECT acquirer_key FROM payment WHERE id = $1", pay),
		IdempotencyKey: l.r.Text("SELECT acquirer_key FROM payment WHERE id = $1", pay)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Case 25: the page of an abandoned try runs out; the order that a later try paid stays paid, in whichever order it is told, and a
// refused try on a page ends nothing.
func TestCase025_AbandonedPageRunsOut(t *testing.T) {
	l := newLife(t, nil)
	order := rig.Order{Reference: "order-1", Minor: 1000}
	status(t, "first try", 201)(l.p.Hosted("try-1", order))
	first := l.r.PaymentOf("try-1")
	if _, err := l.r.Acquirer.ExpireSession(t.Context(), l.r.SessionOf(first).ID); err != nil {
		t.Fatal(err)
	}
	status(t, "it ran out", 200)(l.p.Check(first))
	l.is("try-1", "canceled")
	status(t, "second try", 201)(l.p.Hosted("try-2", order))
	second := l.r.PaymentOf("try-2")
	page := l.r.SessionOf(second).ID
	if _, err := l.r.Acquirer.DeclineSession(t.Context(), page); err != nil {
		t.Fatal(err)
	}
	status(t, "a refused try", 200)(l.p.Check(second))
	l.is("try-2", "registered")
	if _, err := l.r.Acquirer.PaySession(t.Context(), page); err != nil {
		t.Fatal(err)
	}
	for _, pay := range []id.ID{first, second, first} { // told before it is known to be paid, and after
		status(t, "check", 200)(l.p.Check(pay))
	}
	l.is("try-1", "canceled")
	l.is("try-2", "paid")
	l.money(1000, "payment.registered", "payment.canceled", "payment.registered", "payment.paid")
}

// answering answers the call with this ending of the path, once, with bytes of its own.
type answering struct {
	real   wire.Doer
	ending string
	body   func() []byte
}

func (d answering) Do(ctx context.Context, c wire.Call) wire.Result {
	if c.Permit == nil || !strings.HasSuffix(c.Path, d.ending) {
		return d.real.Do(ctx, c)
	}
	return wire.Result{Sent: wire.PartlyOrFullySent, Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: d.body(), Complete: true, Phase: wire.PhaseDone}
}

// Case 26: a cancel that meets money: refused, an error, or a friendly 200 with a body that says "succeeded": never canceled with
// money taken, and the client sees what is true and can refund.
func TestCase026_CancelMeetsMoney(t *testing.T) {
	for _, tc := range []struct {
		name     string
		captured bool
		fault    string
		told     int // the first answer
		want     string
	}{
		{"refused: it was captured", true, "", 422, "paid"},
		{"given back with the reversal", true, "given back", 201, "canceled"},
		{"503, and it was captured", true, "503_once", 202, "paid"},
		{"503, and it is held", false, "503_once", 202, "canceled"},
		{"200 with a charge that succeeded", true, "body", 422, "paid"},
		{"refused for no reason, and it is held", false, "refused_already_captured", 422, "authorized"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLife(t, nil)
			pay := l.held("key-1")
			charge := l.r.ChargeOf(pay)
			if tc.captured {
				if _, err := l.r.Acquirer.CaptureByHand(t.Context(), charge.ID, 0); err != nil {
					t.Fatal(err)
				}
			}
			if tc.fault != "given back" {
				terms := sandbox.DefaultContract()
				terms.ReverseCapturedSeconds = 0
				if err := l.r.Acquirer.SetContract(t.Context(), terms); err != nil {
					t.Fatal(err)
				}
			}
			switch tc.fault {
			case "", "given back":
			case "body":
				l.p = l.r.Replica(rig.WithDoer(answering{client(t, l.r), "/reverse", func() []byte {
					raw, err := json.Marshal(l.r.ChargeOf(pay))
					if err != nil {
						t.Error(err)
					}
					return raw
				}}))
			default:
				l.faults(sandbox.Rule{Fault: tc.fault, Call: "reverse", Times: 1})
			}
			status(t, "cancel", tc.told)(l.p.Cancel("can-1", pay, ""))
			l.p.Settle(3 * time.Hour)
			l.is("key-1", tc.want)
			switch tc.want {
			case "paid":
				status(t, "cancel, told the truth", 422)(l.p.Cancel("can-1", pay, ""))
				status(t, "refund", 201)(l.p.Refund("ref-1", pay, 0))
				l.money(0, "payment.authorized", "payment.cancel_failed", "payment.paid", "refund.succeeded")
			case "canceled":
				status(t, "cancel", 201)(l.p.Cancel("can-1", pay, ""))
				l.money(0, "payment.authorized", "payment.canceled")
				status(t, "another try", 201)(l.p.Pay("key-2", rig.Order{Reference: "order-key-1", Minor: 1000}))
			default:
				status(t, "another cancel", 201)(l.p.Cancel("can-2", pay, ""))
				l.money(0, "payment.authorized", "payment.cancel_failed", "payment.canceled")
			}
		})
	}
}

// Case 27: more captured than authorized, more refunded than captured: refused here under the lock, and by the schema.
func TestCase027_LimitsOfCaptureAndRefund(t *testing.T) {
	l := newLife(t, nil)
	serial, parallel := l.held("key-1"), l.held("key-2")
	status(t, "first part", 201)(l.p.Capture("cap-1", serial, 600, nil))
	l.refused("second part", problem.ExceedsRemaining)(l.p.Capture("cap-2", serial, 600, nil))
	replicas := []*rig.Replica{l.p, l.r.Replica()}
	together(2, func(n int) {
		a, err := replicas[n].Capture(fmt.Sprintf("both-%d", n), parallel, 600, nil)
		if !(err == nil && a.Status == 201) && !problem.Is(err, problem.OperationInProgress) && !problem.Is(err, problem.ExceedsRemaining) {
			t.Errorf("told %d %s, %v", a.Status, a.Body, err)
		}
	})
	if got := l.r.Moved("capture"); got != 2 {
		t.Errorf("%d captures at the acquirer, want one of each payment", got)
	}
	sold := l.sale("key-3")
	l.refused("refund of too much", problem.ExceedsRemaining)(l.p.Refund("ref-1", sold, 1001))
	given := l.held("key-4")
	status(t, "cancel", 201)(l.p.Cancel("can-1", given, ""))
	l.refused("refund of what was released", problem.ExceedsRemaining)(l.p.Refund("ref-2", given, 1))
	for _, change := range []string{"captured_amount = authorized_amount + 1", "refunded_amount = captured_amount + 1",
		"refunding_amount = captured_amount - refunded_amount + 1", "disputed_amount = captured_amount - refunded_amount + 1"} {
		if _, err := l.r.Owner.Exec(t.Context(), "UPDATE payment SET "+change+" WHERE id = $1", serial); err == nil {
			t.Errorf("by hand: %s is let through", change)
		}
	}
	l.sound()
}

func eventually(t *testing.T, ok func() bool) { t.Helper(); dbtest.Eventually(t, ok) }

// Case 10: the longest keys stay whole: two that are equal but for their last byte are two changes.
func TestCase010_LongKeysOfChanges(t *testing.T) {
	l := newLife(t, nil)
	sold, first, second := l.sale("key-1"), l.held("key-2"), l.held("key-3")
	long := strings.Repeat("k", 254)
	for n, pay := range []id.ID{first, second} {
		key := long + []string{"a", "b"}[n]
		status(t, "capture", 201)(l.p.Capture(key, pay, 600, nil))
		status(t, "refund", 201)(l.p.Refund(key, sold, 100))
	}
	for n, pay := range []id.ID{l.held("key-4"), l.held("key-5")} {
		status(t, "cancel", 201)(l.p.Cancel(long+[]string{"a", "b"}[n], pay, ""))
	}
	for kind, want := range map[string]int{"capture": 2, "refund": 2, "reverse": 2} {
		if got := l.r.Moved(kind); got != want {
			t.Errorf("%d of %s at the acquirer, want %d", got, kind, want)
		}
	}
	l.count("whole keys", 6, "SELECT count(*) FROM modification WHERE octet_length(idempotency_key) = 255")
	l.sound()
}
