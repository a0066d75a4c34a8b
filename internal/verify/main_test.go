package verify_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/verify"
	"github.com/jackc/pgx/v5/pgxpool"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// u names a row in the tests: the same number is the same row.
func u(n int) string { return fmt.Sprintf("00000000-0000-7000-8000-%012d", n) }

// The rows of the good history. Merchant one has the intents 100 to 140, merchant two has 200.
const (
	one, two                    = 1, 2
	accountOne, accountTwo      = 11, 12
	paid, declined, failed      = 100, 110, 120
	inReview, pending, conflict = 115, 130, 200
	stray, crossed              = 300, 140
)

// world is a database with a good history and an acquirer that agrees with it.
type world struct {
	t        testing.TB
	db       *dbtest.DB
	owner    *pgxpool.Pool
	register []map[string]any
	wire     []map[string]any
	acquirer *httptest.Server
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.owner.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatalf("%v\n%s", err, sql)
	}
}

// run verifies as the service's role, with the acquirer's register.
func (w *world) run(o verify.Options) verify.Report {
	w.t.Helper()
	pool := w.db.ServicePool(w.t)
	o.SandboxURL = w.acquirer.URL
	report, err := verify.Run(w.t.Context(), pool, o)
	if err != nil {
		w.t.Fatal(err)
	}
	return report
}

func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	var body any
	switch r.URL.Path {
	case "/register":
		body = map[string]any{"movements": w.register}
	case "/wire":
		body = map[string]any{"requests": w.wire}
	default:
		http.NotFound(rw, r)
		return
	}
	if err := json.NewEncoder(rw).Encode(body); err != nil {
		w.t.Error(err)
	}
}

// good makes the world: a payment that was settled by a takeover and has a second key, one that was declined and one in
// review after it, a rejected one, one under way, one that was refused and took money all the same, and money of nobody.
func good(t testing.TB) *world {
	t.Helper()
	db := dbtest.Open(t)
	w := &world{t: t, db: db, owner: db.OwnerPool(t)}
	w.acquirer = httptest.NewServer(http.HandlerFunc(w.serve))
	t.Cleanup(w.acquirer.Close)
	for m, account := range map[int]int{one: accountOne, two: accountTwo} {
		w.exec(`INSERT INTO merchant (merchant_id, name, mode) VALUES ($1, $2, 'test')`, u(m), fmt.Sprint("m", m))
		w.exec(`INSERT INTO acquirer_account (merchant_id, id, adapter) VALUES ($1, $2, 'sandbox')`, u(m), u(account))
	}
	w.paid()
	w.declinedThenInReview()
	w.failed()
	w.pending()
	w.conflicted()
	w.stray()
	return w
}

// try is one payment with its leading operation.
type try struct {
	merchant, account, intent, payment, n int
	status, key                           string
	state                                 string // of the operation
	answer                                int
	sends, unsent                         int
	ago                                   string // since the claim
}

func (w *world) intent(merchant, id int, events int, conflict bool) {
	w.exec(`INSERT INTO payment_intent (merchant_id, id, client_reference, amount, currency, capture_method, pay_before, key_seed, event_version, conflict)
		VALUES ($1, $2, $3, 18600, 'KWD', 'automatic', now() + interval '1 day', $4, $5, $6)`,
		u(merchant), u(id), fmt.Sprint("order-", id), fmt.Sprint("seed", id), events, conflict)
	w.exec(`INSERT INTO payment_intent_version (merchant_id, intent_id, version, kind, idempotency_key, fingerprint, fingerprint_version, amount, currency)
		VALUES ($1, $2, 1, 'create_payment', $3, sha256('x'), 1, 18600, 'KWD')`, u(merchant), u(id), fmt.Sprint("key-i", id))
}

func (w *world) try(p try) {
	refused := p.status == "declined" || p.status == "failed"
	w.exec(`INSERT INTO payment (merchant_id, id, intent_id, n, flow, status, amount, currency, captured_amount, payment_method, account_id, acquirer_key,
		acquirer_reference, failure_code, refused_at, gate_open, kind, idempotency_key, fingerprint, fingerprint_version)
		VALUES ($1, $2, $3, $4, 'direct', $5::text, 18600, 'KWD', CASE WHEN $5 = 'paid' THEN 18600 ELSE 0 END, 'pm', $6, $7::text,
		CASE WHEN $5 = 'paid' THEN 'ch-' || $7 END, CASE WHEN $8 THEN 'x' END, CASE WHEN $8 THEN now() END, $8::boolean, 'create_payment', 'key-' || $7,
		sha256('x'), 1)`, u(p.merchant), u(p.payment), u(p.intent), p.n, p.status, u(p.account), p.key, refused)
	w.operation(p, p.payment+1, "key-"+p.key, 0)
	w.note(p, "claimed", 1, p.ago)
	for range p.sends - 1 {
		w.note(p, "permit_granted", 1, p.ago)
	}
}

func (w *world) operation(p try, id int, key string, follows int) {
	done := p.state == "completed"
	w.exec(`INSERT INTO operation (merchant_id, kind, idempotency_key, id, fingerprint, fingerprint_version, request_id, state, claim_id, lease_until, due_at,
		answer_status, answer_body, completed_at, expires_at, intent_id, payment_id, follows_id, account_id, action, acquirer_key, request_body,
		sends, unsent, first_permit_at, last_permit_at, send_until, epoch)
		VALUES ($1, 'create_payment', $2, $3, sha256('x'), 1, 'req', $4, $3, now(), now() + interval '10 seconds',
		$5, $6, CASE WHEN $7 THEN now() END, CASE WHEN $7 THEN now() + interval '30 days' END, $8, $9, $10,
		$11, CASE WHEN $12::int > 0 THEN 'charge' END, CASE WHEN $12 > 0 THEN $13 END, CASE WHEN $12 > 0 THEN $14::bytea END,
		$12, $15, CASE WHEN $12 > 0 THEN now() - $16::interval END, CASE WHEN $12 > 0 THEN now() - $16::interval END, now(), 1)`,
		u(p.merchant), key, u(id), p.state, null(p.answer), answer(p, done), done, u(p.intent), u(p.payment), ref(follows),
		u(p.account), p.sends, p.key, []byte("body of "+p.key), p.unsent, p.ago)
}

func answer(p try, done bool) []byte {
	if !done {
		return nil
	}
	failure := ""
	if p.status != "paid" {
		failure = `,"failure":{"code":"do_not_honor","message":"no"}`
	}
	return []byte(`{"id":"x","client_reference":"a \"status\":\"b\" é","status":"` + p.status + `"` + failure + `}`)
}

func null(n int) any {
	if n == 0 {
		return nil
	}
	return n
}

func ref(n int) any {
	if n == 0 {
		return nil
	}
	return u(n)
}

func (w *world) note(p try, what string, fence int, ago string) {
	w.exec(`INSERT INTO history (merchant_id, id, intent_id, payment_id, operation_id, kind, what, fence, created_at)
		VALUES ($1, gen_random_uuid(), $2, $3, $4, 'create_payment', $5, $6, now() - $7::interval)`,
		u(p.merchant), u(p.intent), u(p.payment), u(p.payment+1), what, fence, ago)
}

func (w *world) evidence(p try, source, outcome, effect, inference, code, reference string, fence int, ago string) {
	w.exec(`INSERT INTO evidence (merchant_id, id, intent_id, payment_id, operation_id, account_id, source, outcome, class, code, reference, fence, inference,
		effect, why, asked_at, created_at)
		VALUES ($1, gen_random_uuid(), $2, $3, $4, $5, $6, $7, 'class', NULLIF($8, ''), NULLIF($9, ''), $10, $11, $12, 'why', now() - $13::interval, now() - $13::interval)`,
		u(p.merchant), u(p.intent), u(p.payment), u(p.payment+1), u(p.account), source, outcome, code, reference, fence, inference, effect, ago)
}

func (w *world) event(p try, version int, kind string) {
	w.exec(`INSERT INTO event (merchant_id, intent_id, version, id, payment_id, event_key, type, payload)
		VALUES ($1, $2, $3, gen_random_uuid(), $4, $5, $6, '{}')`,
		u(p.merchant), u(p.intent), version, u(p.payment), fmt.Sprintf("seed%d:event:%d", p.intent, version), kind)
	w.exec(`INSERT INTO event_sink (name, created_at) VALUES ('nats', now() - interval '1 day') ON CONFLICT (name) DO NOTHING`)
	w.exec(`INSERT INTO feed_head (merchant_id) VALUES ($1) ON CONFLICT (merchant_id) DO NOTHING`, u(p.merchant))
	w.exec(`WITH h AS (UPDATE feed_head SET position = position + 1 WHERE merchant_id = $1 RETURNING position), f AS (
		INSERT INTO feed (merchant_id, position, event_id, subject_id, type)
		SELECT e.merchant_id, h.position, e.id, e.intent_id, e.type FROM event e, h WHERE e.merchant_id = $1 AND e.intent_id = $2 AND e.version = $3
		RETURNING merchant_id, position, event_id, subject_id)
		INSERT INTO delivery (merchant_id, sink, event_id, subject_id, position, state, attempts, ended_at)
		SELECT merchant_id, 'nats', event_id, subject_id, position, 'delivered', 1, now() FROM f`, u(p.merchant), u(p.intent), version)
}

// money books a movement, both lines of its transaction, and the acquirer's side of it.
func (w *world) money(p try, id int, state, credit string) {
	w.exec(`INSERT INTO movement (merchant_id, id, account_id, reference, kind, acquirer_key, intent_id, payment_id, amount, currency, state, cause)
		VALUES ($1, $2, $3, $4, 'charge', $5, $6, $7, 18600, 'KWD', $8, CASE WHEN $8::text = 'unapplied' THEN 'x' END)`,
		u(p.merchant), u(id), u(p.account), "ch-"+p.key, p.key, ref(p.intent), ref(p.payment), state)
	w.exec(`INSERT INTO ledger_entry (merchant_id, tx_key, line, id, intent_id, payment_id, account, amount, currency)
		VALUES ($1, $2, 1, gen_random_uuid(), $3, $4, 'acquirer_receivable:' || $5, 18600, 'KWD'),
		       ($1, $2, 2, gen_random_uuid(), $3, $4, $6, -18600, 'KWD')`,
		u(p.merchant), "tx-"+p.key, ref(p.intent), ref(p.payment), u(p.account), credit)
	w.moved(p.key, "ch-"+p.key, "charge", 18600)
}

func (w *world) moved(key, charge, kind string, amount int) {
	w.register = append(w.register, map[string]any{"id": fmt.Sprint("mv", len(w.register)), "charge": charge, "reference": key, "idempotency_key": key,
		"kind": kind, "amount": amount, "currency": "KWD", "at": "2026-01-01T00:00:00Z"})
}

func (w *world) sent(key, body string) {
	sum := sha256.Sum256([]byte(body))
	w.wire = append(w.wire, map[string]any{"seq": len(w.wire), "at": "2026-01-01T00:00:00Z", "method": "POST", "path": "/charges",
		"idempotency_key": key, "body_sha256": hex.EncodeToString(sum[:]), "complete": true})
	w.wire = append(w.wire, map[string]any{"seq": len(w.wire), "method": "GET", "path": "/charges", "body_sha256": "", "complete": true})
}

func (w *world) review(p try, id, movement int, reason string) {
	w.exec(`INSERT INTO review (merchant_id, id, intent_id, payment_id, operation_id, movement_id, reason) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		u(p.merchant), u(id), ref(p.intent), ref(p.payment), ref(p.payment+1), ref(movement), reason)
}

// Tries of the good history, by the rows that tests break.
var (
	paidTry     = try{one, accountOne, paid, 101, 1, "paid", "k101", "completed", 201, 2, 0, "1 hour"}
	declinedTry = try{one, accountOne, declined, 111, 1, "declined", "k111", "completed", 402, 1, 0, "1 hour"}
	reviewTry   = try{one, accountOne, declined, inReview, 2, "unknown", "k115", "in_review", 0, 1, 0, "1 hour"}
	failedTry   = try{one, accountOne, failed, 121, 1, "failed", "k121", "completed", 422, 2, 1, "1 hour"}
	pendingTry  = try{one, accountOne, pending, 131, 1, "pending", "k131", "in_progress", 0, 1, 0, "1 second"}
	conflictTry = try{two, accountTwo, conflict, 201, 1, "declined", "k201", "completed", 402, 1, 0, "1 hour"}
)

func (w *world) paid() {
	p := paidTry
	w.intent(one, paid, 1, false)
	w.try(p)
	w.operation(try{one, accountOne, paid, 101, 1, "paid", "", "completed", 201, 0, 0, "1 hour"}, 103, "second-key", 102)
	w.evidence(p, "call", "unknown", "moved", "", "", "", 1, "59 minutes")
	w.note(p, "taken_over", 2, "50 minutes")
	w.evidence(p, "call", "not_sent", "stale_owner", "", "", "", 1, "49 minutes")
	w.evidence(p, "lookup", "succeeded", "moved", "", "", "ch-k101", 2, "0")
	w.evidence(p, "call", "succeeded", "repeat", "", "", "ch-k101", 1, "0")
	w.event(p, 1, "payment.paid")
	w.money(p, 104, "applied", "merchant_payable")
	w.sent(p.key, "body of k101")
	w.sent(p.key, "body of k101")
}

func (w *world) declinedThenInReview() {
	w.intent(one, declined, 2, false)
	w.try(declinedTry)
	w.evidence(declinedTry, "call", "declined", "moved", "", "do_not_honor", "", 1, "0")
	w.event(declinedTry, 1, "payment.declined")
	w.sent("k111", "body of k111")
	w.try(reviewTry)
	w.evidence(reviewTry, "call", "unknown", "moved", "", "", "", 1, "59 minutes")
	w.evidence(reviewTry, "lookup", "unknown", "noted", "give_up", "", "", 2, "0")
	w.event(reviewTry, 2, "payment.in_review")
	w.review(reviewTry, 118, 0, "no_proof")
	w.moved("k115", "ch-k115", "charge", 18600) // under way: nobody here knows yet
}

func (w *world) failed() {
	w.intent(one, failed, 1, false)
	w.try(failedTry)
	w.evidence(failedTry, "call", "not_sent", "noted", "", "", "", 1, "0")
	w.evidence(failedTry, "call", "rejected", "moved", "", "unauthorized", "", 1, "0")
	w.event(failedTry, 1, "payment.failed")
	w.sent("k121", "body of k121")
}

func (w *world) pending() {
	w.intent(one, pending, 0, false)
	w.try(pendingTry)
}

func (w *world) conflicted() {
	p := conflictTry
	w.intent(two, conflict, 2, true)
	w.try(p)
	w.exec(`UPDATE payment SET conflict = true WHERE id = $1`, u(p.payment))
	w.evidence(p, "call", "declined", "moved", "", "do_not_honor", "", 1, "0")
	w.event(p, 1, "payment.declined")
	w.evidence(p, "lookup", "succeeded", "conflict", "", "", "ch-k201", 1, "0")
	w.event(p, 2, "payment.conflict")
	w.money(p, 204, "unapplied", "unapplied")
	w.review(p, 205, 204, "money_after_refusal")
	w.sent("k201", "body of k201")
}

func (w *world) stray() {
	p := try{merchant: one, account: accountOne, key: "stranger"}
	w.money(p, stray, "unapplied", "unapplied")
	w.exec(`INSERT INTO review (merchant_id, id, movement_id, reason) VALUES ($1, $2, $3, 'unattributed_money')`, u(one), u(301), u(stray))
}
