package flow_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/config"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

func verdict(t *testing.T, r *rig.Rig, p *rig.Replica, key, where, verdict, reference string) (operation.Answer, error) {
	t.Helper()
	review, err := id.ParseUUID(r.Text("SELECT id::text FROM review WHERE decided_at IS NULL AND " + where + " ORDER BY id LIMIT 1"))
	if err != nil {
		t.Fatalf("no review %s: %v", where, err)
	}
	return p.Flow.DecideReview(t.Context(), flow.DecideReviewCommand{Merchant: r.Merchant.ID, Key: key, RequestID: "req_person",
		Review: review, Verdict: verdict, Reference: reference, Person: "support", Reason: "seen at the acquirer"})
}

// while its claim is slow, a request with the same key and OTHER parameters is told the first one's answer.
func TestSlowClaimTellsNothingOfAnotherRequest(t *testing.T) {
	r := rig.New(t, nil)
	first := r.Replica().PayHTTP("key-1", rig.Order{Reference: "order-1", Minor: 1000})
	if first.Status != 201 {
		t.Fatalf("first: %d %s", first.Status, first.Body)
	}
	gate := rig.HoldAt(operation.PointInClaim)
	slow := r.Replica(rig.WithFaults(gate), rig.With(func(c *config.Config) { c.AnswerWithin = 300 * time.Millisecond }))
	got := make(chan rig.Response, 1)
	go func() { got <- slow.PayHTTP("key-1", rig.Order{Reference: "order-1", Minor: 9000}) }()
	<-gate.Reached()
	a := <-got
	gate.Open()
	if a.Status == 201 || a.Member("amount") == "1000" || a.Member("status") == "paid" {
		t.Errorf("asked to pay 9000 under a used key, told %d %s", a.Status, a.Body)
	}
}

// money kept aside under the key of an order is not seen by the claim: past the acquirer's window it is charged again.
func wipe(t *testing.T, r *rig.Rig) {
	t.Helper()
	for _, lost := range []string{"review", "history", "outbox", "event", "ledger_entry", "evidence", "movement", "operation", "payment", "payment_intent_version", "payment_intent"} {
		if _, err := r.Owner.Exec(t.Context(), "DELETE FROM "+lost); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStrayMoneyIsFoundByTheClaim(t *testing.T) {
	r := rig.New(t, quick)
	x := table{t, r, r.Replica(fleeting)}
	x.want(x.p.PayHTTP("key-1", rig.Order{Reference: "1"}), 201, "paid")
	wipe(t, r)
	if err := x.p.Store.EpochRestored(t.Context(), "the last commits are lost"); err != nil {
		t.Fatal(err)
	}
	compared(t, x.p)
	if got := r.Text("SELECT reason FROM review WHERE decided_at IS NULL"); got != "unattributed_money" {
		t.Fatalf("review %q, want unattributed_money", got)
	}
	r.Later(25 * time.Hour) // the acquirer keeps keys for 24 h
	a := x.p.PayHTTP("key-1", rig.Order{Reference: "1"})
	t.Logf("told %d %s", a.Status, a.Body)
	if got := len(r.Movements()); got != 1 {
		t.Errorf("the register shows %d movements for one order, want 1", got)
	}
}

// a person gives stray money back while the order's own record adopts it.
func TestStrayMoneyReturnedWhileItIsFound(t *testing.T) {
	r := rig.New(t, quick)
	x := table{t, r, r.Replica(fleeting)}
	x.want(x.p.PayHTTP("key-1", rig.Order{Reference: "1"}), 201, "paid")
	wipe(t, r)
	if err := x.p.Store.EpochRestored(t.Context(), "lost"); err != nil {
		t.Fatal(err)
	}
	compared(t, x.p)
	gate := rig.HoldAt(operation.PointInClaim)
	person := r.Replica(rig.WithFaults(gate))
	decided := make(chan error, 1)
	go func() {
		_, err := verdict(t, r, person, "click", "true", flow.VerdictReturned, "")
		decided <- err
	}()
	select {
	case <-gate.Reached(): // the decision is written, not committed
	case err := <-decided:
		t.Fatalf("the decision: %v", err)
	}
	told := make(chan rig.Response, 1)
	go func() {
		a := x.p.PayHTTP("key-1", rig.Order{Reference: "1"})
		t.Log(a.Status, string(a.Body))
		told <- a
	}()
	t.Cleanup(gate.Open)
	r.DB.WaitBlocked(t, 1)
	gate.Open()
	if err := <-decided; err != nil {
		t.Errorf("the decision: %v", err)
	}
	a := <-told
	t.Logf("unapplied balance: %d", r.Count("SELECT coalesce(sum(amount),0)::int FROM ledger_entry WHERE account LIKE '%unapplied%'"))
	if a.Member("status") == "paid" {
		t.Errorf("money was given back by a decision, and the client was told %d %s", a.Status, a.Body)
	}
	r.Verify()
}

// late makes a declined payment whose first request still moved money (the acquirer breaks its promise to remember).
func lateMoney(t *testing.T) (*rig.Rig, *rig.Replica) {
	t.Helper()
	r := rig.New(t, rig.Terms{"max_flight": "1us", "lookup_lag": "0s"})
	terms := sandbox.DefaultContract()
	terms.RefusalsRemembered = false
	if err := r.Acquirer.SetContract(t.Context(), terms); err != nil {
		t.Fatal(err)
	}
	return r, r.Replica(rig.Hasty)
}

// two movements of one intent can both be applied.
func TestOneMovementIsAppliedToAnIntent(t *testing.T) {
	r, p := lateMoney(t)
	for n := 1; n <= 2; n++ {
		a := p.PayHTTP(fmt.Sprintf("card-%d", n), rig.Order{Reference: "1", Method: "pm_arrives_after_60s|pm_declined_do_not_honor"})
		if a.Status != 402 {
			t.Fatalf("told %d %s", a.Status, a.Body)
		}
	}
	r.Later(2 * time.Minute)
	if _, err := r.Acquirer.WaitMovements(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if err := r.CompareAll(p); err != nil {
		t.Fatal(err)
	}
	for n := range 2 {
		a, err := verdict(t, r, p, fmt.Sprintf("click-%d", n), "true", flow.VerdictApply, "")
		t.Logf("apply %d: %d %v", n, a.Status, err)
	}
	if got := r.Receipts(); got > 1 {
		t.Errorf("%d receipts for one intent", got)
	}
	// One of two conflicts is decided: the intent waits for the other one.
	if a := p.PayHTTP("card-3", rig.Order{Reference: "1"}); a.Member("code") != string(problem.PaymentConflict) {
		t.Errorf("told %d %s, want payment_conflict", a.Status, a.Body)
	}
	r.Verify("I-1") // the acquirer broke its promise to remember refusals
}

// the second movement of an open payment is given back: nothing ends the payment.
func TestAPaymentEndsWhenItsMoneyWasGivenBack(t *testing.T) {
	r, p := lateMoney(t)
	if a := p.PayHTTP("card-1", rig.Order{Reference: "1", Method: "pm_arrives_after_60s|pm_declined_do_not_honor"}); a.Status != 402 {
		t.Fatalf("told %d %s", a.Status, a.Body)
	}
	r.Later(2 * time.Minute)
	if _, err := r.Acquirer.WaitMovements(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if a := p.PayHTTP("card-2", rig.Order{Reference: "1", Method: "pm_500_executed"}); a.Status != 202 {
		t.Fatalf("told %d %s", a.Status, a.Body)
	}
	if err := r.CompareAll(p); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < 4 && r.Count("SELECT count(*) FROM review WHERE decided_at IS NULL") > 0; n++ {
		v := flow.VerdictReturned
		a, err := verdict(t, r, p, fmt.Sprintf("click-%d", n), "true", v, "")
		t.Logf("returned: %d %s %v", a.Status, a.Body, err)
	}
	p.Settle(14 * 24 * time.Hour)
	if got := r.Count("SELECT count(*) FROM payment WHERE status IN ('pending','unknown') AND NOT EXISTS (SELECT FROM review WHERE review.payment_id = payment.id AND decided_at IS NULL)"); got != 0 {
		t.Errorf("%d payments are open for ever, without a review, although all their money was given back", got)
	}
	r.Verify("I-1") // the acquirer broke its promise, and what is given back by hand is not in the register
}

// stray money of another amount under the payment's key: nothing ends the payment.
func TestStrayMoneyOfAnotherAmountReachesAPerson(t *testing.T) {
	r := rig.New(t, quick)
	x := table{t, r, r.Replica(fleeting)}
	x.want(x.p.PayHTTP("key-1", rig.Order{Reference: "1", Minor: 1000}), 201, "paid")
	wipe(t, r)
	if err := x.p.Store.EpochRestored(t.Context(), "lost"); err != nil {
		t.Fatal(err)
	}
	compared(t, x.p)
	a := x.p.PayHTTP("key-2", rig.Order{Reference: "1", Minor: 900})
	t.Logf("told %d %s", a.Status, a.Body)
	x.p.Settle(time.Hour)
	if _, err := verdict(t, r, x.p, "click", "true", flow.VerdictReturned, ""); err != nil {
		t.Fatal(err)
	}
	x.p.Settle(14 * 24 * time.Hour)
	if got := r.Count("SELECT count(*) FROM payment WHERE status IN ('pending','unknown') AND NOT EXISTS (SELECT FROM review WHERE review.payment_id = payment.id AND decided_at IS NULL)"); got != 0 {
		t.Errorf("%d payments are open for ever, without a review", got)
	}
	r.Verify()
}

// an account that cannot be used any more: its unknown payments never reach a person.
func TestAnUnusableAccountReachesAPerson(t *testing.T) {
	r := rig.New(t, nil)
	p := r.Replica(rig.Hasty)
	faults(t, r, sandbox.Rule{Fault: "lookup_down"})
	if a := p.PayHTTP("key-1", rig.Order{Reference: "1", Method: "pm_500_executed"}); a.Status != 202 {
		t.Fatalf("told %d %s", a.Status, a.Body)
	}
	if _, err := r.Owner.Exec(t.Context(), "UPDATE acquirer_account SET secrets = 'x'"); err != nil {
		t.Fatal(err)
	}
	other := r.Replica(rig.Hasty)
	other.Settle(14 * 24 * time.Hour)
	if got := r.Count("SELECT count(*) FROM review WHERE decided_at IS NULL"); got == 0 {
		t.Error("unknown for two weeks, and no person was told")
	}
}

// the comparison books a movement while the payment's own record is on its way: what the client is told.
func TestTheComparisonIsFasterThanTheRecord(t *testing.T) {
	r := rig.New(t, quick)
	x := table{t, r, r.Replica(fleeting)}
	x.want(x.p.PayHTTP("key-1", rig.Order{Reference: "1"}), 201, "paid")
	wipe(t, r)
	if err := x.p.Store.EpochRestored(t.Context(), "lost"); err != nil {
		t.Fatal(err)
	}
	r.Later(5 * time.Second)
	lock, err := r.Owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(t.Context(), "LOCK TABLE review IN EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	comparing := make(chan error, 1)
	go func() { _, err := x.p.Flow.CompareLost(t.Context()); comparing <- err }()
	r.DB.WaitBlocked(t, 1) // the movement is booked as stray, not committed
	told := make(chan rig.Response, 1)
	go func() { told <- x.p.PayHTTP("key-1", rig.Order{Reference: "1"}) }()
	r.DB.WaitBlocked(t, 2) // the record waits for the movement's row
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := <-told
	if err := <-comparing; err != nil {
		t.Error(err)
	}
	if a.Status >= 500 {
		t.Errorf("after a permit the client is told %d %s", a.Status, a.Body)
	}
	r.Later(time.Minute)
	x.p.Settle(time.Hour)
}

// a person names a reference that is booked elsewhere.
func TestAPersonNamesAReferenceThatIsTaken(t *testing.T) {
	r := rig.New(t, rig.Terms{"not_found_final": false, "max_flight": "1us", "lookup_lag": "0s"})
	p := r.Replica(rig.Hasty)
	paid := p.PayHTTP("key-0", rig.Order{Reference: "order-0"})
	faults(t, r, sandbox.Rule{Fault: "timeout_not_executed"}, sandbox.Rule{Fault: "lookup_down"})
	if a, err := p.Pay("key-1", rig.Order{Reference: "order-1"}); err != nil || a.Status != 202 {
		t.Fatalf("told %d, %v", a.Status, err)
	}
	r.Later(13 * time.Hour)
	p.Settle(time.Minute)
	a, err := verdict(t, r, p, "click", "true", flow.VerdictPaid, paid.Member("acquirer_reference"))
	t.Logf("told %d %s, %v", a.Status, a.Body, err)
	if err != nil && !problem.Is(err, problem.InvalidValue) {
		t.Errorf("a wrong reference is answered with a fault: %v", err)
	}
	r.Verify()
}

// a second key's final answer changes after the purge.
func TestASecondKeyAfterThePurge(t *testing.T) {
	x := newTable(t, nil)
	release := x.hold("tab-1", rig.Order{Reference: "1"})
	x.want(x.p.PayHTTP("tab-2", rig.Order{Reference: "1"}), 202, "pending")
	x.want(release(), 201, "paid")
	x.want(x.p.PayHTTP("tab-2", rig.Order{Reference: "1"}), 201, "paid")
	x.r.Later(31 * 24 * time.Hour)
	if n, err := x.p.Store.PurgeExpired(t.Context(), 100); err != nil || n != 2 {
		t.Fatalf("purged %d, %v", n, err)
	}
	x.want(x.p.PayHTTP("tab-1", rig.Order{Reference: "1"}), 201, "paid")
	x.want(x.p.PayHTTP("tab-2", rig.Order{Reference: "1"}), 201, "paid")
	x.want(x.p.PayHTTP("tab-2", rig.Order{Reference: "1", Minor: 3}), 422, string(problem.KeyReuse))
}

// an acquirer that executed twice tells so in a lookup: the second movement must not be hidden.
func TestASecondExecutionIsBooked(t *testing.T) {
	r := rig.New(t, nil)
	terms := sandbox.DefaultContract()
	terms.KeysHonoured = false
	if err := r.Acquirer.SetContract(t.Context(), terms); err != nil {
		t.Fatal(err)
	}
	p := r.Replica(rig.Hasty)
	faults(t, r, sandbox.Rule{Fault: "timeout_executed"})
	if a := p.PayHTTP("key-1", rig.Order{Reference: "1"}); a.Status != 202 {
		t.Fatalf("told %d %s", a.Status, a.Body)
	}
	faults(t, r)
	p.Settle(time.Hour)
	t.Logf("evidence: %s", r.Text("SELECT coalesce(string_agg(source||' '||class||' '||effect, '; ' ORDER BY id), '-') FROM evidence"))
	if moved, booked := len(r.Movements()), r.Count("SELECT count(*) FROM movement"); moved != booked {
		t.Errorf("%d movements at the acquirer, told by its lookup; %d in the books; conflicts %d, reviews %d", moved, booked,
			r.Count("SELECT count(*) FROM payment WHERE conflict"), r.Count("SELECT count(*) FROM review"))
	}
}

// after a refusal the acquirer cannot be asked any more: the gate stays shut for ever and nobody is told.
func TestAGateThatCannotBeAskedReachesAPerson(t *testing.T) {
	x := newTable(t, rig.Terms{"remembers_refusals": false, "max_flight": "10m"})
	terms := sandbox.DefaultContract()
	terms.RefusalsRemembered = false
	if err := x.r.Acquirer.SetContract(t.Context(), terms); err != nil {
		t.Fatal(err)
	}
	x.want(x.p.PayHTTP("card-1", rig.Order{Reference: "1", Method: "pm_timeout_not_executed|pm_declined_expired_card"}), 402, "declined")
	faults(t, x.r, sandbox.Rule{Fault: "lookup_down"})
	x.r.Later(11 * time.Minute)
	for range 8 {
		x.p.Sweep.Pass(t.Context())
		x.r.Later(2 * time.Hour)
	}
	if got := x.r.Count("SELECT count(*) FROM review WHERE decided_at IS NULL"); got == 0 {
		t.Errorf("the intent is shut for 16 hours (%d questions unanswered) and no person was told", x.r.Count("SELECT count(*) FROM evidence WHERE source = 'lookup'"))
	}
	if got := x.r.Count("SELECT count(*) FROM payment WHERE gate_open"); got != 0 {
		t.Error("the gate opened although nobody could be asked")
	}
}

// a failover loses "n=1 was rejected" and "n=2 was paid". The comparison keeps n=2's money aside; then the sweep, with
// no client at all, sends n=1 again.
func TestNothingIsSentBesideStrayMoneyOfTheIntent(t *testing.T) {
	r := rig.New(t, quick)
	x := table{t, r, r.Replica(fleeting)}
	x.want(x.p.PayHTTP("key-1", rig.Order{Reference: "1", Method: "pm_401_once"}), 422, "failed")
	x.want(x.p.PayHTTP("key-2", rig.Order{Reference: "1"}), 201, "paid")
	// The state after n=1's claim, before its record: what a standby that lagged two seconds knows.
	for _, q := range []string{
		"DELETE FROM outbox", "DELETE FROM event", "DELETE FROM ledger_entry", "DELETE FROM movement", "DELETE FROM evidence", "DELETE FROM history",
		"DELETE FROM operation WHERE idempotency_key = 'key-2'", "DELETE FROM payment WHERE idempotency_key = 'key-2'",
		"UPDATE payment SET status = 'pending', refused_at = NULL, failure_code = NULL, failure_message = NULL, gate_open = false, due_at = NULL, version = 1",
		"UPDATE operation SET state = 'in_progress', completed_at = NULL, expires_at = NULL, answer_status = NULL, answer_body = NULL",
		"UPDATE payment_intent SET event_version = 0",
	} {
		if _, err := r.Owner.Exec(t.Context(), q); err != nil {
			t.Fatal(q, err)
		}
	}
	if err := x.p.Store.EpochRestored(t.Context(), "two seconds are lost"); err != nil {
		t.Fatal(err)
	}
	compared(t, x.p)
	r.Later(time.Minute)
	x.p.Sweep.Pass(t.Context())
	if got := len(r.Movements()); got != 1 {
		t.Errorf("the register shows %d movements for one intent", got)
	}
	r.Verify("I-13") // the permits of the lost rows are lost with them
}

// the journal of a client is replayed after a restore: n=1 was rejected, n=2 was paid. "The same derived key is a
// replay" does not hold for n=1.
func TestAJournalReplayedAfterARestore(t *testing.T) {
	for _, held := range []bool{true, false} {
		t.Run(fmt.Sprintf("held %v", held), func(t *testing.T) {
			r := rig.New(t, quick)
			x := table{t, r, r.Replica(fleeting)}
			x.want(x.p.PayHTTP("key-1", rig.Order{Reference: "1", Method: "pm_401_once"}), 422, "failed")
			x.want(x.p.PayHTTP("key-2", rig.Order{Reference: "1"}), 201, "paid")
			wipe(t, r)
			if err := x.p.Store.EpochRestored(t.Context(), "lost"); err != nil {
				t.Fatal(err)
			}
			if !held {
				compared(t, x.p)
			}
			a := x.p.PayHTTP("key-1", rig.Order{Reference: "1", Method: "pm_401_once"})
			t.Logf("told %d %s", a.Status, a.Member("status"))
			if got := len(r.Movements()); got != 1 {
				t.Errorf("the register shows %d movements for one intent", got)
			}
		})
	}
}

// Stray money was given back by a person's decision: it pays nothing. A request that comes later is a new payment, under
// the next key, since the old one was used.
func TestReturnedMoneyPaysNothing(t *testing.T) {
	r := rig.New(t, quick)
	x := table{t, r, r.Replica(fleeting)}
	x.want(x.p.PayHTTP("key-1", rig.Order{Reference: "1"}), 201, "paid")
	wipe(t, r)
	if err := x.p.Store.EpochRestored(t.Context(), "lost"); err != nil {
		t.Fatal(err)
	}
	compared(t, x.p)
	if _, err := verdict(t, r, x.p, "click", "true", flow.VerdictReturned, ""); err != nil {
		t.Fatal(err)
	}
	a := x.want(x.p.PayHTTP("key-1", rig.Order{Reference: "1"}), 201, "paid")
	if a.Member("n") != "2" || len(r.Movements()) != 2 {
		t.Errorf("payment %s, %d movements; want a second one with money of its own", a.Member("n"), len(r.Movements()))
	}
	if got := r.Receipts(); got != 1 {
		t.Errorf("%d receipts, want 1", got)
	}
	r.Verify("I-1", "I-13") // what is given back by hand is not in the register, and the first permit is lost
}

// an account that is paused during the hold is never compared, not even when it is used again.
func TestAPausedAccountIsCompared(t *testing.T) {
	r := rig.New(t, quick)
	x := table{t, r, r.Replica(fleeting)}
	x.want(x.p.PayHTTP("key-1", rig.Order{Reference: "1"}), 201, "paid")
	wipe(t, r)
	exec := func(q string) {
		if _, err := r.Owner.Exec(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	exec("UPDATE acquirer_account SET paused = true")
	r.AddMerchant(quick)
	if err := x.p.Store.EpochRestored(t.Context(), "lost"); err != nil {
		t.Fatal(err)
	}
	compared(t, x.p)
	t.Logf("held: %d", r.Count("SELECT count(*) FROM database_epoch WHERE held"))
	exec("UPDATE acquirer_account SET paused = false")
	r.Later(time.Minute)
	x.p.Sweep.Pass(t.Context())
	x.p.Sweep.Pass(t.Context())
	if got := r.Count("SELECT count(*) FROM movement WHERE merchant_id = $1", r.Merchant.ID); got != 1 {
		t.Errorf("the account is in use again, %d of 1 movements of its lost interval are in the books", got)
	}
	r.Verify("I-13") // the permits of the lost rows are lost with them
}

// the client's time is over while another request of the same key waits: create intent leaks too.
func TestSlowClaimOfAnIntentTellsNothingOfAnotherRequest(t *testing.T) {
	r := rig.New(t, nil)
	post := func(p *rig.Replica, body string) rig.Response {
		a, err := p.Do(t.Context(), r.Merchant, http.MethodPost, "/v1/payment_intents", "key-1", []byte(body))
		if err != nil {
			t.Error(err)
		}
		return a
	}
	if a := post(r.Replica(), `{"amount":1000,"currency":"KZT"}`); a.Status != 201 {
		t.Fatal(a.Status)
	}
	gate := rig.HoldAt(operation.PointInClaim)
	slow := r.Replica(rig.WithFaults(gate), rig.With(func(c *config.Config) { c.AnswerWithin = 300 * time.Millisecond }))
	got := make(chan rig.Response, 1)
	go func() { got <- post(slow, `{"amount":9000,"currency":"KZT"}`) }()
	<-gate.Reached()
	a := <-got
	gate.Open()
	if a.Member("amount") == "1000" {
		t.Errorf("asked for 9000 under a used key, told %d %s", a.Status, a.Body)
	}
}
