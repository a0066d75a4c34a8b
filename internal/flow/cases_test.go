package flow_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/config"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/pgproxy"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// faults sets the acquirer's fault plan.
func faults(t *testing.T, r *rig.Rig, rules ...sandbox.Rule) {
	t.Helper()
	if err := r.Acquirer.SetFaults(t.Context(), 0, rules...); err != nil {
		t.Fatal(err)
	}
}

// Case 1: a new key for each press of the button, while the first press is still with the acquirer.
func TestCase001_SecondPressWithAnotherKey(t *testing.T) {
	r := rig.New(t, nil)
	p := r.Replica(patient)
	faults(t, r, sandbox.Rule{Fault: "hold_after", Gate: "booked", Times: 1})
	first := make(chan rig.Response, 1)
	go func() { first <- p.PayHTTP("press-1", rig.Order{Reference: "topup-1"}) }()
	if err := r.Acquirer.WaitWaiting(t.Context(), "booked", 1); err != nil {
		t.Fatal(err)
	}
	second := p.PayHTTP("press-2", rig.Order{Reference: "topup-1"})
	if second.Status != http.StatusAccepted || second.Member("n") != "1" {
		t.Errorf("the second press was told %d %s; want 202 with the first payment", second.Status, second.Body)
	}
	if _, err := r.Acquirer.Release(t.Context(), "booked", 0); err != nil {
		t.Fatal(err)
	}
	if a := <-first; a.Status != http.StatusCreated {
		t.Errorf("the first press was told %d %s", a.Status, a.Body)
	}
	again := p.PayHTTP("press-2", rig.Order{Reference: "topup-1"})
	if again.Status != http.StatusCreated || again.Member("status") != "paid" {
		t.Errorf("the second press, repeated, was told %d %s; want the same payment, paid", again.Status, again.Body)
	}
	third := p.PayHTTP("press-3", rig.Order{Reference: "topup-1"})
	if third.Status != http.StatusConflict || third.Member("code") != string(problem.AlreadyPaid) {
		t.Errorf("a third press was told %d %s; want already_paid", third.Status, third.Body)
	}
	if got := len(r.Charges()); got != 1 {
		t.Errorf("%d charge calls arrived, want 1", got)
	}
	settled(t, r, 1)
}

// Case 4: a proxy hands the same request to two replicas; one is paused before its claim is committed.
func TestCase004_TwoReplicasOnePausedBeforeCommit(t *testing.T) {
	r := rig.New(t, nil)
	gate := rig.HoldAt(operation.PointInClaim)
	paused, quick := r.Replica(rig.WithFaults(gate)), r.Replica()
	answers := make(chan rig.Response, 2)
	go func() { answers <- paused.PayHTTP("key-1", rig.Order{Reference: "order-1"}) }()
	<-gate.Reached()
	go func() { answers <- quick.PayHTTP("key-1", rig.Order{Reference: "order-1"}) }()
	r.DB.WaitBlocked(t, 1) // the second claim waits for the first one's row
	gate.Open()
	for range 2 {
		a := <-answers
		if a.Status != http.StatusCreated && a.Status != http.StatusConflict && a.Status != http.StatusAccepted {
			t.Errorf("a replica answered %d %s", a.Status, a.Body)
		}
	}
	again := quick.PayHTTP("key-1", rig.Order{Reference: "order-1"})
	if again.Status != http.StatusCreated || again.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("the repeat was told %d, replayed %q", again.Status, again.Header.Get("Idempotency-Replayed"))
	}
	if got := len(r.Charges()); got != 1 {
		t.Errorf("%d charge calls arrived, want 1", got)
	}
	settled(t, r, 1)
}

// Case 5: fifty at once on a cold table: one row, and never an answer that blames the service.
func TestCase005_FiftyAtOnce(t *testing.T) {
	r := rig.New(t, nil)
	p := r.Replica()
	together(50, func(int) {
		a := p.PayHTTP("key-1", rig.Order{Reference: "order-1"})
		switch a.Status {
		case http.StatusCreated, http.StatusConflict, http.StatusAccepted:
		default:
			t.Errorf("answered %d %s", a.Status, a.Body)
		}
	})
	if got := r.Count("SELECT count(*) FROM operation"); got != 1 {
		t.Errorf("%d operations, want 1", got)
	}
	settled(t, r, 1)
}

// Case 6: the same key with another amount: refused, no effect, and nothing of the old answer.
func TestCase006_KeyReusedWithAnotherAmount(t *testing.T) {
	r := rig.New(t, nil)
	p := r.Replica()
	first := p.PayHTTP("key-1", rig.Order{Reference: "order-1", Minor: 1000})
	second := p.PayHTTP("key-1", rig.Order{Reference: "order-1", Minor: 9000})
	if second.Status != http.StatusUnprocessableEntity || second.Member("code") != string(problem.KeyReuse) {
		t.Errorf("told %d %s; want idempotency_key_reuse", second.Status, second.Body)
	}
	for _, secret := range []string{"1000", first.Member("id"), first.Member("acquirer_reference")} {
		if secret == "" || strings.Contains(string(second.Body), secret) {
			t.Errorf("the refusal shows %q of the first payment: %s", secret, second.Body)
		}
	}
	// While the first is in progress the comparison comes first too.
	faults(t, r, sandbox.Rule{Fault: "hold_before", Gate: "there", Times: 1})
	held := make(chan rig.Response, 1)
	slow := r.Replica(patient)
	go func() { held <- slow.PayHTTP("key-2", rig.Order{Reference: "order-2", Minor: 1000}) }()
	if err := r.Acquirer.WaitWaiting(t.Context(), "there", 1); err != nil {
		t.Fatal(err)
	}
	if a := p.PayHTTP("key-2", rig.Order{Reference: "order-2", Minor: 9000}); a.Member("code") != string(problem.KeyReuse) {
		t.Errorf("in progress: told %d %s; want idempotency_key_reuse", a.Status, a.Body)
	}
	if _, err := r.Acquirer.Release(t.Context(), "there", 0); err != nil {
		t.Fatal(err)
	}
	<-held
	settled(t, r, 2)
}

// Case 7, as far as its endpoints exist: one key at two kinds of operation is two operations.
func TestCase007_OneKeyAtTwoEndpoints(t *testing.T) {
	r := rig.New(t, nil)
	p := r.Replica()
	intent, err := p.Do(t.Context(), r.Merchant, http.MethodPost, "/v1/payment_intents", "key-1", []byte(`{"amount":1000,"currency":"KZT"}`))
	if err != nil || intent.Status != http.StatusCreated || intent.Member("object") != "payment_intent" {
		t.Fatalf("intent: %d %s, %v", intent.Status, intent.Body, err)
	}
	body := fmt.Sprintf(`{"payment_intent":%q,"payment_method":"pm_ok"}`, intent.Member("id"))
	pay, err := p.Do(t.Context(), r.Merchant, http.MethodPost, "/v1/payments", "key-1", []byte(body))
	if err != nil || pay.Status != http.StatusCreated || pay.Member("object") != "payment" {
		t.Errorf("payment with the same key: %d %s, %v", pay.Status, pay.Body, err)
	}
	settled(t, r, 1)
}

// Case 8: the process dies before the call, after it, and after the answer; the retry comes to a new process.
func TestCase008_RetryAfterTheProcessDied(t *testing.T) {
	for _, point := range []string{operation.PointAfterClaim, operation.PointBeforeWrite, operation.PointAfterWrite, operation.PointAfterReply, operation.PointBeforeRecord} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, nil)
			crash := rig.CrashAt(point, 1)
			order := rig.Order{Reference: "order-1"}
			if _, err := r.Replica(rig.WithFaults(crash), rig.WithDoer(crash.Doer(client(t, r)))).Pay("key-1", order); err == nil {
				t.Fatal("the process was to vanish")
			}
			p := r.Replica()
			if _, err := p.Pay("key-1", order); !problem.Is(err, problem.OperationInProgress) {
				t.Errorf("inside the lease the retry was told %v", err)
			}
			r.Later(31 * time.Second)
			a, err := p.Pay("key-1", order)
			if err != nil || a.Status != 201 {
				t.Errorf("after the lease the retry was told %d %s, %v; want 201", a.Status, a.Body, err)
			}
			settled(t, r, 1)
		})
	}
}

// Case 12: keys belong to the merchant, not to the caller's credential and not to the world.
func TestCase012_KeysOfTwoMerchants(t *testing.T) {
	r := rig.New(t, nil)
	p := r.Replica()
	other := r.AddMerchant(nil)
	body := []byte(`{"amount":1000,"currency":"KZT","client_reference":"order-1","payment_method":"pm_ok"}`)
	another := []byte(`{"amount":7000,"currency":"KZT","client_reference":"order-1","payment_method":"pm_ok"}`)
	pay := func(m rig.Merchant, body []byte) rig.Response {
		a, err := p.Do(t.Context(), m, http.MethodPost, "/v1/payments", "order-1", body)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	mine, theirs := pay(r.Merchant, body), pay(other, another)
	if mine.Status != 201 || theirs.Status != 201 || mine.Member("id") == theirs.Member("id") || theirs.Member("amount") != "7000" {
		t.Errorf("told %d %s and %d %s", mine.Status, mine.Body, theirs.Status, theirs.Body)
	}
	rotated := r.AddKey(r.Merchant)
	again := pay(rotated, body)
	if again.Status != 201 || !bytes.Equal(again.Body, mine.Body) {
		t.Errorf("after the rotation of the API key the repeat was told %d %s", again.Status, again.Body)
	}
	look, err := p.Do(t.Context(), other, http.MethodGet, "/v1/payments/"+mine.Member("id"), "", nil)
	if err != nil || look.Status != http.StatusNotFound {
		t.Errorf("somebody else's payment: %d %s, %v; want 404", look.Status, look.Body, err)
	}
	settled(t, r, 2)
}

// Case 15: sweep and client ask at the same instant, and the acquirer first says processing, then success.
func TestCase015_SweepAndRetryWhileUnknown(t *testing.T) {
	r := rig.New(t, nil)
	one, two := r.Replica(patient), r.Replica(patient)
	order := rig.Order{Reference: "order-1", Method: "pm_processing_30000"}
	a, err := one.Pay("key-1", order)
	if err != nil || a.Status != 202 {
		t.Fatalf("told %d %s, %v; want 202", a.Status, a.Body, err)
	}
	for range 4 {
		r.Later(16 * time.Second)
		together(3, func(n int) {
			switch n {
			case 0:
				one.Sweep.Pass(t.Context())
			case 1:
				two.Sweep.Pass(t.Context())
			default:
				if a, err := two.Pay("key-1", order); err == nil && a.Status != 201 && a.Status != 202 {
					t.Errorf("told %d %s", a.Status, a.Body)
				}
			}
		})
	}
	if got := r.Status("key-1"); got != "paid" {
		t.Errorf("status %s, want paid", got)
	}
	if got := len(r.Charges()); got != 1 {
		t.Errorf("%d charge calls arrived, want 1: nothing is charged while it is unknown", got)
	}
	settled(t, r, 1)
}

// Case 21: the process dies between the acquirer's answer and our save: there was a row before the call, so that
// whatever the acquirer tells later finds it; money that fits nothing is kept, not dropped.
func TestCase021_RowBeforeTheCall(t *testing.T) {
	r := rig.New(t, nil)
	crash := rig.CrashAt(operation.PointAfterReply, 1)
	if _, err := r.Replica(rig.WithFaults(crash)).Pay("key-1", rig.Order{Reference: "order-1"}); err == nil {
		t.Fatal("the process was to vanish")
	}
	moved := r.Movements()
	if len(moved) != 1 || r.Count("SELECT count(*) FROM payment WHERE acquirer_key = $1", moved[0].Reference) != 1 {
		t.Fatalf("no row for the movement %v", moved)
	}
	r.Replica().Settle(time.Hour)
	if got := r.Status("key-1"); got != "paid" {
		t.Errorf("status %s, want paid", got)
	}
	settled(t, r, 1)
}

// Case 22: the sweep stood still for four days; age never takes a payment out of its sight.
func TestCase022_FrozenSweep(t *testing.T) {
	r := rig.New(t, rig.Terms{"not_found_final": false})
	p := r.Replica(rig.Hasty)
	faults(t, r, sandbox.Rule{Fault: "timeout_not_executed"})
	for n := range 5 {
		if a, err := p.Pay(fmt.Sprintf("lost-%d", n), rig.Order{Reference: fmt.Sprintf("lost-%d", n)}); err != nil || a.Status != 202 {
			t.Fatalf("told %d, %v", a.Status, err)
		}
	}
	faults(t, r, sandbox.Rule{Fault: "timeout_executed"})
	for n := range 5 {
		if a, err := p.Pay(fmt.Sprintf("moved-%d", n), rig.Order{Reference: fmt.Sprintf("moved-%d", n)}); err != nil || a.Status != 202 {
			t.Fatalf("told %d, %v", a.Status, err)
		}
	}
	faults(t, r)
	r.Later(4 * 24 * time.Hour)
	p.Settle(time.Hour)
	if got := r.Count("SELECT count(*) FROM payment WHERE status = 'paid'"); got != 5 {
		t.Errorf("%d payments are paid, want 5", got)
	}
	if got := r.Count("SELECT count(*) FROM review WHERE decided_at IS NULL AND reason = 'window_over'"); got != 5 {
		t.Errorf("%d reviews are open, want 5", got)
	}
	if got := r.Count("SELECT count(*) FROM operation WHERE state NOT IN ('completed', 'in_review')"); got != 0 {
		t.Errorf("%d operations are neither finished nor with a person", got)
	}
	settled(t, r, 5)
}

// Case 63: a hundred at once on one merchant: nobody is refused because the database was busy.
func TestCase063_NoBusinessRefusalByTheDatabase(t *testing.T) {
	r := rig.New(t, nil)
	replicas := []*rig.Replica{r.Replica(), r.Replica()}
	var mu sync.Mutex
	told := map[int]int{}
	together(100, func(n int) {
		a := replicas[n%2].PayHTTP(fmt.Sprintf("key-%d", n), rig.Order{Reference: fmt.Sprintf("order-%d", n), Minor: 100})
		mu.Lock()
		defer mu.Unlock()
		told[a.Status]++
	})
	if told[201] != 100 {
		t.Errorf("answers by status: %v; want 100 times 201", told)
	}
	if got := r.Count("SELECT coalesce(sum(-amount), 0)::int FROM ledger_entry WHERE account = 'merchant_payable'"); got != 10_000 {
		t.Errorf("the merchant is owed %d, want 10000", got)
	}
	settled(t, r, 100)
}

// Case 64: a slow acquirer holds no transaction and no connection: everything else still answers.
func TestCase064_SlowAcquirerHoldsNoConnection(t *testing.T) {
	r := rig.New(t, nil)
	p := r.Replica(patient)
	paid := p.PayHTTP("key-before", rig.Order{Reference: "before"})
	faults(t, r, sandbox.Rule{Fault: "hold_before", Gate: "slow"})
	var all sync.WaitGroup
	for n := range 50 {
		all.Go(func() {
			a := p.PayHTTP(fmt.Sprintf("key-%d", n), rig.Order{Reference: fmt.Sprintf("order-%d", n)})
			if a.Status != 201 && a.Status != 202 {
				t.Errorf("told %d %s", a.Status, a.Body)
			}
		})
	}
	if err := r.Acquirer.WaitWaiting(t.Context(), "slow", 50); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if a, err := p.Do(t.Context(), r.Merchant, http.MethodGet, "/v1/payments/"+paid.Member("id"), "", nil); err != nil || a.Status != 200 {
			t.Errorf("a question was told %d, %v", a.Status, err)
		}
		if got := r.Count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'"); got != 0 {
			t.Errorf("%d connections are idle in a transaction during the calls", got)
		}
	}
	if _, err := r.Acquirer.Release(t.Context(), "slow", 0); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	p.Settle(time.Hour)
	settled(t, r, 51)
}

// Case 60: behind a transaction pooler every statement may reach another backend.
func TestCase060_BehindATransactionPooler(t *testing.T) {
	for _, mode := range []string{"transaction", ""} { // as configured, and as detected
		t.Run("pool mode "+mode, func(t *testing.T) {
			r := rig.New(t, nil)
			r.Pooler()
			pooled := rig.With(func(c *config.Config) { c.PoolMode = mode })
			replicas := []*rig.Replica{r.Replica(pooled), r.Replica(pooled)}
			together(100, func(n int) {
				a := replicas[n%2].PayHTTP(fmt.Sprintf("key-%d", n/2), rig.Order{Reference: fmt.Sprintf("order-%d", n/2)})
				if a.Status != 201 && a.Status != 202 && a.Member("code") != string(problem.OperationInProgress) {
					t.Errorf("told %d %s", a.Status, a.Body)
				}
			})
			replicas[0].Settle(time.Hour)
			settled(t, r, 50)
		})
	}
}

// Case 61: claims, joins, repeats, refusals, sweeps and decisions on the same few intents from all sides, for the time
// that HAPAX_DEADLOCK_SECONDS says: no deadlock reaches a client, and nothing is booked twice.
func TestCase061_NoDeadlockUnderLoad(t *testing.T) {
	load := 5 * time.Second
	if s := os.Getenv("HAPAX_DEADLOCK_SECONDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		load = time.Duration(n) * time.Second
	}
	r := rig.New(t, nil)
	replicas := []*rig.Replica{r.Replica(), r.Replica(), r.Replica()}
	ctx, cancel := context.WithTimeout(t.Context(), load)
	defer cancel()
	var all sync.WaitGroup
	for worker := range 12 {
		all.Go(func() {
			p := replicas[worker%3]
			for n := 0; ctx.Err() == nil; n++ {
				if worker%6 == 5 {
					p.Sweep.Pass(ctx)
					continue
				}
				o := rig.Order{Reference: fmt.Sprintf("order-%d", n%40), Method: []string{"pm_ok", "pm_declined_do_not_honor", "pm_500_executed"}[n%3]}
				a := p.PayHTTP(fmt.Sprintf("key-%d-%d", worker%4, n), o)
				if a.Status >= 500 {
					t.Errorf("told %d %s", a.Status, a.Body)
				}
			}
		})
	}
	all.Wait()
	replicas[0].Settle(time.Hour)
	orders := r.Count("SELECT count(*) FROM payment WHERE status = 'paid'")
	settled(t, r, orders)
	t.Logf("%d orders paid, %d transactions were run again", orders, r.Retries(replicas...))
}

// Case 16: the answer to a COMMIT is lost, of the claim or of the record, whether or not the server committed. The
// service finds out before it decides; the acquirer gets one request.
func TestCase016_LostAnswersToCommit(t *testing.T) {
	for _, c := range []struct {
		name   string
		mode   pgproxy.Mode
		after  int // commits that pass: none before the claim's, one before the record's
		status int
	}{
		{"claim, committed", pgproxy.SwallowReply, 0, 201},
		{"claim, not committed", pgproxy.SwallowCommit, 0, 201},
		{"record, committed", pgproxy.SwallowReply, 1, 201},
		{"record, not committed", pgproxy.SwallowCommit, 1, 201},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rig.New(t, nil)
			proxy, through := pgproxy.New(t, r.DB.Service())
			r.Through(through)
			p := r.Replica()
			proxy.Once(c.mode, c.after)
			a, err := p.Pay("key-1", rig.Order{Reference: "order-1"})
			if err != nil || a.Status != c.status {
				t.Errorf("told %d %s, %v; want %d", a.Status, a.Body, err, c.status)
			}
			if got := p.Store.Counters().CommitUnknown; got != 1 {
				t.Errorf("%d answers to COMMIT were lost, want 1", got)
			}
			if got := len(r.Charges()); got != 1 {
				t.Errorf("%d charge calls arrived, want 1", got)
			}
			settled(t, r, 1)
		})
	}
}
