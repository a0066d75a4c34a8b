package verify_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// lived is an installation on which payments lived whole lives, with a real acquirer.
type lived struct {
	*rig.Rig
	p *rig.Replica
}

func live(t testing.TB) lived {
	t.Helper()
	r := rig.New(t, nil)
	return lived{r, r.Replica(rig.Hasty)}
}

// told demands a final answer, or the current state, with this status code.
func (l lived) told(want int) func(operation.Answer, error) {
	l.T.Helper()
	return func(a operation.Answer, err error) {
		l.T.Helper()
		if err != nil || a.Status != want {
			l.T.Fatalf("told %d %s, %v; want %d", a.Status, a.Body, err, want)
		}
	}
}

func (l lived) must(_ any, err error) {
	l.T.Helper()
	if err != nil {
		l.T.Fatal(err)
	}
}

func (l lived) faults(rules ...sandbox.Rule) {
	l.T.Helper()
	l.must(nil, l.Acquirer.SetFaults(l.T.Context(), 1, rules...))
}

// order names an order after its key.
func order(key string) rig.Order { return rig.Order{Reference: "order-" + key, Minor: 1000} }

func (l lived) sale(key string) id.ID {
	l.T.Helper()
	l.told(201)(l.p.Pay(key, order(key)))
	return l.PaymentOf(key)
}

func (l lived) hold(key string) id.ID {
	l.T.Helper()
	l.told(201)(l.p.Hold(key, order(key)))
	return l.PaymentOf(key)
}

// decide gives a person's verdict about the oldest open review.
func (l lived) decide(key, verdict string) {
	l.T.Helper()
	review, err := id.ParseUUID(l.Text("SELECT id::text FROM review WHERE decided_at IS NULL ORDER BY opened_at, id LIMIT 1"))
	l.must(nil, err)
	l.told(201)(l.p.Flow.DecideReview(l.T.Context(), flow.DecideReviewCommand{Merchant: l.Merchant.ID, Key: key, RequestID: "req_person",
		Review: review, Verdict: verdict, Person: "support", Reason: "seen at the acquirer"}))
}

// captured is a hold that is taken in two parts and given back in part.
func (l lived) captured() {
	pay := l.hold("held")
	l.Verify()
	l.told(201)(l.p.Capture("capture-1", pay, 300, nil))
	l.Verify()
	last := true
	l.told(201)(l.p.Capture("capture-2", pay, 400, &last))
	l.told(201)(l.p.Refund("refund-1", pay, 100))
}

// paidOnPage is paid on the acquirer's page, and a refund of it fails at the bank.
func (l lived) paidOnPage() {
	l.told(201)(l.p.Hosted("hosted", order("hosted")))
	l.Verify()
	pay := l.PaymentOf("hosted")
	l.must(l.Acquirer.PaySession(l.T.Context(), l.SessionOf(pay).ID))
	l.told(200)(l.p.Check(pay))
	l.Verify()
	l.told(201)(l.p.Refund("refund-2", pay, 200))
	l.must(l.Acquirer.FailRefund(l.T.Context(), l.Text("SELECT acquirer_reference FROM modification WHERE idempotency_key = 'refund-2'"), "account_closed"))
	l.told(200)(l.p.Check(pay))
}

// toldByWebhook is paid by the acquirer's message alone, and another message fits no payment yet.
func (l lived) toldByWebhook() {
	l.Hooks(nil)
	l.faults(sandbox.Rule{Call: "charge", Fault: "500_executed"})
	l.told(202)(l.p.Pay("unheard", order("unheard")))
	m := l.Told("charge.succeeded")[0]
	l.p.Deliver(m)
	early := m
	early.ID, early.Body = "evt_early", strings.NewReplacer(l.Text("SELECT acquirer_key FROM payment"), "not-ours-yet", m.ObjectID, "ch_other").Replace(m.Body)
	l.p.Deliver(early)
	l.p.Intake.Pass(l.T.Context())
}

// givenUp are a hold and a page that are canceled, and a page that was paid before its cancel arrived.
func (l lived) givenUp() {
	pay := l.hold("released")
	l.told(201)(l.p.IssueCode("code", pay))
	l.told(201)(l.p.Cancel("cancel-1", pay, l.p.Flow.CancelCode(l.Merchant.ID, pay, 1000, 1)))
	l.told(201)(l.p.Hosted("closed", order("closed")))
	l.told(201)(l.p.Cancel("cancel-2", l.PaymentOf("closed"), ""))
	l.told(201)(l.p.Hosted("late", order("late")))
	l.must(l.Acquirer.PaySession(l.T.Context(), l.SessionOf(l.PaymentOf("late")).ID))
	l.told(422)(l.p.Cancel("cancel-3", l.PaymentOf("late"), ""))
}

// disputed is paid, refunded by hand at the acquirer, and disputed: one dispute is open, one was won.
func (l lived) disputed() {
	pay := l.sale("disputed")
	charge := l.ChargeOf(pay).ID
	l.must(l.Acquirer.RefundByHand(l.T.Context(), charge, 100))
	won, err := l.Acquirer.OpenChargeback(l.T.Context(), charge, 200)
	l.must(nil, err)
	l.told(200)(l.p.Check(pay))
	l.must(l.Acquirer.WinChargeback(l.T.Context(), won.ID))
	l.must(l.Acquirer.OpenChargeback(l.T.Context(), charge, 300))
	l.told(200)(l.p.Check(pay))
}

// compensated took another amount than was asked, and gave it back.
func (l lived) compensated() {
	l.told(202)(l.p.Pay("stray", rig.Order{Reference: "order-stray", Minor: 1000, Method: "pm_wrong_amount"}))
	l.decide("decide-1", flow.VerdictCompensate)
	l.p.Settle(time.Hour)
}

// underWay are a refund and a capture of which nothing is known, and a stray charge before a person.
func (l lived) underWay() {
	refunded, held := l.sale("refunded"), l.hold("capturing")
	l.told(202)(l.p.Pay("kept", rig.Order{Reference: "order-kept", Minor: 1000, Method: "pm_wrong_amount"}))
	l.faults(sandbox.Rule{Fault: "timeout_executed", Call: "refund"}, sandbox.Rule{Fault: "timeout_executed", Call: "capture"},
		sandbox.Rule{Fault: "lookup_down", Call: "any"})
	l.told(202)(l.p.Refund("refund-3", refunded, 600))
	l.told(202)(l.p.Capture("capture-3", held, 1000, nil))
	l.faults()
}

// TestWholeLivesAreNotCalledBroken verifies between the steps of whole lives, and at their end.
func TestWholeLivesAreNotCalledBroken(t *testing.T) {
	for name, story := range map[string]func(lived){"captured": lived.captured, "paid on the page": lived.paidOnPage, "given up": lived.givenUp,
		"disputed": lived.disputed, "compensated": lived.compensated, "under way": lived.underWay, "told by webhook": lived.toldByWebhook} {
		t.Run(name, func(t *testing.T) {
			l := live(t)
			story(l)
			l.Verify()
			l.p.Settle(time.Hour)
			l.Verify()
		})
	}
}
