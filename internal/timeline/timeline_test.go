package timeline_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/timeline"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

var update = flag.Bool("update", false, "write testdata")

// The keys of the story: they must never be printed.
const (
	firstKey  = "secret-key-of-the-first-request"
	secondKey = "secret-key-of-a-second-tab"
	thirdKey  = "secret-key-of-a-late-customer"
)

// u names a row.
func u(n int) id.ID {
	x, err := id.ParseUUID(fmt.Sprintf("00000000-0000-7000-8000-%012d", n))
	if err != nil {
		panic(err)
	}
	return x
}

// book writes rows by hand, at stated times of 1 March 2026.
type book struct {
	t    testing.TB
	pool *pgxpool.Pool
	next int
}

func (b *book) exec(sql string, args ...any) {
	b.t.Helper()
	for n, a := range args {
		if x, is := a.(id.ID); is {
			args[n] = x.String()
		}
	}
	if _, err := b.pool.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatalf("%v\n%s", err, sql)
	}
}

func (b *book) id() id.ID {
	b.next++
	return u(1000 + b.next)
}

func (b *book) note(at, kind, what, why, request, key string, fence int) {
	b.exec(`INSERT INTO history (merchant_id, id, intent_id, payment_id, operation_id, kind, what, why, request_id, key_hash, fence, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, NULLIF($9, ''), $10, $11, ('2026-03-01 ' || $12 || 'Z')::timestamptz)`,
		u(1), b.id(), u(100), u(101), u(102), kind, what, why, request, operation.KeyHash(key), fence, at)
}

func (b *book) evidence(at, source, outcome, class, reference, effect, why string, minor, fence int) {
	b.exec(`INSERT INTO evidence (merchant_id, id, intent_id, payment_id, operation_id, account_id, source, outcome, class, reference, amount, currency, fence,
		effect, why, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, NULLIF($10, ''), NULLIF($11::bigint, 0), CASE WHEN $11 > 0 THEN 'KWD' END, $12, $13, $14, ('2026-03-01 ' || $15 || 'Z')::timestamptz)`,
		u(1), b.id(), u(100), u(101), u(102), u(11), source, outcome, class, reference, minor, fence, effect, why, at)
}

func (b *book) money(at, reference, state, credit string) {
	b.exec(`INSERT INTO movement (merchant_id, id, account_id, reference, kind, intent_id, payment_id, amount, currency, state, cause, created_at, updated_at)
		VALUES ($1, $2, $3, $4, 'charge', $5, $6, 18600, 'KWD', $7::text, 'second_movement', ('2026-03-01 ' || $8::text || 'Z')::timestamptz,
		('2026-03-01 ' || CASE WHEN $7 = 'returned' THEN '15:30:00' ELSE $8 END || 'Z')::timestamptz)`,
		u(1), b.id(), u(11), reference, u(100), u(101), state, at)
	b.entries(at, "tx-"+reference, "acquirer_receivable:"+u(11).String(), credit)
}

func (b *book) entries(at, key, debit, credit string) {
	b.exec(`INSERT INTO ledger_entry (merchant_id, tx_key, line, id, intent_id, payment_id, account, amount, currency, created_at)
		SELECT $1, $2, line, gen_random_uuid(), $3, $4, account, amount, 'KWD', ('2026-03-01 ' || $7 || 'Z')::timestamptz
		  FROM (VALUES (1, $5, 18600), (2, $6, -18600)) v(line, account, amount)`, u(1), key, u(100), u(101), debit, credit, at)
}

func (b *book) event(at string, version int, kind string) {
	b.exec(`INSERT INTO event (merchant_id, intent_id, version, id, payment_id, event_key, type, payload, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, '{}', ('2026-03-01 ' || $8 || 'Z')::timestamptz)`,
		u(1), u(100), version, u(110+version), u(101), fmt.Sprint("seed:event:", version), kind, at)
}

func (b *book) operation(op int, key string, follows any) {
	b.exec(`INSERT INTO operation (merchant_id, kind, idempotency_key, id, fingerprint, fingerprint_version, request_id, state, claim_id, lease_until, due_at,
		answer_status, answer_body, completed_at, expires_at, intent_id, payment_id, follows_id, send_until, epoch)
		VALUES ($1, 'create_payment', $2, $3, sha256('x'), 1, 'req_1', 'completed', $3, now(), now(), 201, '{}',
		'2026-03-01 10:02:44Z', '2026-03-31 10:02:44Z', $4, $5, $6, now(), 1)`, u(1), key, u(op), u(100), u(101), follows)
}

// rich writes a story with everything in it: time-out, repeats, a second tab, key reuse, takeover, a further send, a
// stale worker, money, and a second movement that a person gives back.
func rich(t testing.TB) (*dbtest.DB, *book) {
	t.Helper()
	db := dbtest.Open(t)
	b := &book{t: t, pool: db.OwnerPool(t)}
	for n, name := range map[int]string{1: "Coffee \x1b[31mHouse", 2: "Another"} {
		b.exec(`INSERT INTO merchant (merchant_id, name, mode) VALUES ($1, $2, 'test')`, u(n), name)
		b.exec(`INSERT INTO acquirer_account (merchant_id, id, adapter) VALUES ($1, $2, 'sandbox')`, u(n), u(10+n))
	}
	b.exec(`INSERT INTO payment_intent (merchant_id, id, client_reference, amount, currency, capture_method, pay_before, key_seed, event_version, created_at)
		VALUES ($1, $2, 'A-17', 18600, 'KWD', 'automatic', '2026-03-02Z', 'seed', 3, '2026-03-01 10:02:00Z')`, u(1), u(100))
	b.exec(`INSERT INTO payment_intent_version (merchant_id, intent_id, version, kind, idempotency_key, fingerprint, fingerprint_version, amount, currency, created_at)
		VALUES ($1, $2, 1, 'create_payment', $3, sha256('x'), 1, 18600, 'KWD', '2026-03-01 10:02:00Z')`, u(1), u(100), firstKey)
	b.exec(`INSERT INTO payment (merchant_id, id, intent_id, n, flow, status, amount, currency, captured_amount, payment_method, account_id, acquirer_key,
		acquirer_reference, kind, idempotency_key, fingerprint, fingerprint_version, created_at)
		VALUES ($1, $2, $3, 1, 'direct', 'paid', 18600, 'KWD', 18600, 'pm_secret', $4, 'hpxwirekey', 'ch_1', 'create_payment', $5, sha256('x'), 1,
		'2026-03-01 10:02:00Z')`, u(1), u(101), u(100), u(11), firstKey)
	b.operation(102, firstKey, nil)
	b.operation(103, secondKey, u(102))
	b.untilPaid()
	b.secondMovement()
	return db, b
}

func (b *book) untilPaid() {
	b.note("10:02:00", "create_payment", operation.WhatClaimed, "", "req_1", firstKey, 1)
	b.note("10:02:03", "create_payment", operation.WhatRepeat, "being worked on", "req_2", firstKey, 1)
	b.note("10:02:04", "create_payment", operation.WhatJoined, "another key for the same live payment", "req_3", secondKey, 1)
	b.evidence("10:02:11", "call", "unknown", "read_timeout", "", "moved", "nothing proven: unknown", 0, 1)
	b.note("10:02:20", "create_payment", operation.WhatRepeat, "the current state", "req_4", firstKey, 1)
	b.note("10:02:21", "create_payment", operation.WhatReuse, "same key, other parameters", "req_5", firstKey, 1)
	b.note("10:02:40", "create_payment", operation.WhatTakeover, "the sweep found it due", "", firstKey, 2)
	b.note("10:02:41", "create_payment", operation.WhatDenied, operation.DeniedHold, "", firstKey, 2)
	b.note("10:02:42", "create_payment", operation.WhatPermit, "", "", firstKey, 2)
	b.evidence("10:02:44", "lookup", "not_found", "not_found", "", "noted", "not found: the same request is sent again", 0, 2)
	b.evidence("10:02:44", "call", "succeeded", "succeeded", "ch_1", "moved", "money taken", 18600, 2)
	b.money("10:02:44", "ch_1", "applied", "merchant_payable")
	b.event("10:02:44", 1, "payment.paid")
	b.note("10:02:44", "create_payment", operation.WhatCompleted, "paid", "", firstKey, 2)
	b.evidence("10:02:50", "call", "not_sent", "not_sent", "", "stale_owner", "an inference of an owner whose fence is over is not recorded", 0, 1)
	b.evidence("10:02:51", "lookup", "succeeded", "found_succeeded", "ch_1", "repeat", "this movement is booked already", 18600, 2)
	b.note("10:03:00", "create_payment", operation.WhatRefused, "already_paid", "req_6", thirdKey, 1)
	b.note("10:04:00", "create_payment", operation.WhatRepeat, "the stored answer", "req_7", firstKey, 2)
}

func (b *book) secondMovement() {
	b.evidence("14:00:00", "lookup", "succeeded", "found_several_succeeded", "ch_2", "conflict", "a second movement for an intent that is paid", 18600, 0)
	b.money("14:00:00", "ch_2", "returned", "unapplied")
	b.event("14:00:00", 2, "payment.conflict")
	b.exec(`INSERT INTO review (merchant_id, id, intent_id, payment_id, reason, opened_at, decided_at, decision)
		VALUES ($1, $2, $3, $4, 'second_movement', '2026-03-01 14:00:00Z', '2026-03-01 15:30:00Z', 'returned')`, u(1), u(120), u(100), u(101))
	b.exec(`INSERT INTO decision (merchant_id, id, review_id, kind, idempotency_key, fingerprint, fingerprint_version, verdict, person, second_person, reason, created_at)
		VALUES ($1, $2, $3, 'decide_review', 'click', sha256('x'), 1, 'returned', 'support-1', 'support-2', 'the acquirer gave ch_2 back', '2026-03-01 15:30:00Z')`,
		u(1), u(121), u(120))
	b.exec(`INSERT INTO evidence (merchant_id, id, intent_id, payment_id, source, outcome, class, effect, why, person, created_at)
		VALUES ($1, $2, $3, $4, 'person', 'unknown', 'decision_returned', 'booked', 'the books show that the money was given back at the acquirer by hand',
		'support-1', '2026-03-01 15:30:00Z')`, u(1), b.id(), u(100), u(101))
	b.entries("15:30:00", "tx-returned", "unapplied", "acquirer_receivable:"+u(11).String())
	b.event("15:30:00", 3, "payment.conflict_resolved")
}

func find(t testing.TB, db *dbtest.DB, q string, merchant id.ID) []timeline.Story {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(db.Console())
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // as behind a transaction pooler
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	stories, err := timeline.Find(t.Context(), pool, q, merchant)
	if err != nil {
		t.Fatal(err)
	}
	return stories
}

// untimed replaces the time of the last lines, which is the time of asking.
func untimed(stories []timeline.Story) []timeline.Story {
	for _, s := range stories {
		for n := range s.Lines {
			if s.Lines[n].Source == "now" {
				s.Lines[n].At = s.Lines[n-1].At
			}
		}
	}
	return stories
}

func TestARichStory(t *testing.T) {
	db, _ := rich(t)
	got := timeline.Text(untimed(find(t, db, "A-17", id.ID{})))
	const golden = "testdata/story.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, secret := range []string{firstKey, secondKey, thirdKey, "pm_secret", "\x1b"} {
		if strings.Contains(got, secret) {
			t.Errorf("the story holds %q", secret)
		}
	}
}

func TestEveryIDLeadsToTheStory(t *testing.T) {
	db, b := rich(t)
	b.exec(`UPDATE movement SET acquirer_key = 'hpxwirekey' WHERE reference = 'ch_1'`)
	want := timeline.Text(untimed(find(t, db, "A-17", id.ID{})))
	for what, q := range map[string]string{
		"intent": u(100).Text(id.Intent), "intent as UUID": u(100).String(), "payment": u(101).Text(id.Payment), "operation": u(102).Text(id.Operation),
		"follower": u(103).Text(id.Operation), "event": u(111).Text(id.Event), "review": u(120).Text(id.Review), "decision": u(121).Text("dec_"),
		"first movement": "ch_1", "second movement": "ch_2", "acquirer key": "hpxwirekey",
		"request": "req_1", "repeat": "req_7", "refused request": "req_6",
		"key": firstKey, "second key": secondKey, "key of a refused request": thirdKey, "hash of a key": operation.KeyHash(firstKey), "click": "click",
	} {
		if got := timeline.Text(untimed(find(t, db, q, id.ID{}))); got != want {
			t.Errorf("%s: another story\n%s", what, got)
		}
		if len(find(t, db, q, u(1))) != 1 || len(find(t, db, q, u(2))) != 0 {
			t.Errorf("%s: the story is not its own merchant's alone", what)
		}
	}
	for _, q := range []string{"", "A-18", "pi_nothing", strings.Repeat("x", timeline.MaxQuery+1), u(999).Text(id.Payment)} {
		if got := find(t, db, q, id.ID{}); len(got) != 0 {
			t.Errorf("%.20q leads to %d stories", q, len(got))
		}
	}
}

func TestTheSameReferenceAtTwoMerchants(t *testing.T) {
	db, b := rich(t)
	b.exec(`INSERT INTO payment_intent (merchant_id, id, client_reference, amount, currency, capture_method, pay_before, key_seed)
		VALUES ($1, $2, 'A-17', 500, 'JPY', 'automatic', now(), 'other')`, u(2), u(200))
	b.exec(`INSERT INTO payment_intent_version (merchant_id, intent_id, version, kind, idempotency_key, fingerprint, fingerprint_version, amount, currency)
		VALUES ($1, $2, 1, 'create_intent', 'k', sha256('x'), 1, 500, 'JPY')`, u(2), u(200))
	if got := find(t, db, "A-17", id.ID{}); len(got) != 2 || got[0].Merchant != u(1) || got[1].Merchant != u(2) {
		t.Errorf("%d stories", len(got))
	}
	got := find(t, db, "A-17", u(2))
	if len(got) != 1 || got[0].Title != "order A-17, payment intent "+u(200).Text(id.Intent)+", 500 JPY" {
		t.Fatalf("%+v", got)
	}
	if last := got[0].Lines[len(got[0].Lines)-1]; last.Text != "No payment was begun." {
		t.Errorf("the last line says %q", last.Text)
	}
}

func TestWhatReachedNoIntent(t *testing.T) {
	db, b := rich(t)
	b.exec(`INSERT INTO history (merchant_id, id, kind, what, why, request_id, key_hash) VALUES ($1, $2, 'create_payment', 'request_refused', 'intent_expired', 'req_lost', $3)`,
		u(1), b.id(), operation.KeyHash("lost"))
	b.exec(`INSERT INTO movement (merchant_id, id, account_id, reference, kind, acquirer_key, amount, currency, state, cause)
		VALUES ($1, $2, $3, 'ch_9', 'charge', 'hpxnobody', 500, 'JPY', 'unapplied', 'unattributed_money')`, u(1), u(300), u(11))
	b.exec(`INSERT INTO review (merchant_id, id, movement_id, reason) VALUES ($1, $2, $3, 'unattributed_money')`, u(1), u(301), u(300))
	for _, q := range []string{"req_lost", "lost"} {
		got := timeline.Text(find(t, db, q, id.ID{}))
		if !strings.Contains(got, "Request req_lost (key "+operation.KeyHash("lost")+") was refused: The intent is past its pay_before.") {
			t.Errorf("%s: %s", q, got)
		}
	}
	for _, q := range []string{"ch_9", "hpxnobody", u(300).Text(id.Movement), u(301).Text(id.Review)} {
		got := timeline.Text(find(t, db, q, id.ID{}))
		if !strings.Contains(got, "500 JPY were taken from the payer, the acquirer's reference ch_9; it is kept aside: unattributed money.") ||
			!strings.Contains(got, "A person must decide") {
			t.Errorf("%s: %s", q, got)
		}
	}
}

func TestJSONHasTheNamesOfTheContract(t *testing.T) {
	db, _ := rich(t)
	var got struct {
		OK    *bool
		Lines []map[string]string
	}
	if err := json.Unmarshal(timeline.JSON(find(t, db, "req_1", id.ID{})), &got); err != nil {
		t.Fatal(err)
	}
	if got.OK == nil || !*got.OK || len(got.Lines) < 20 {
		t.Fatalf("ok %v, %d lines", got.OK, len(got.Lines))
	}
	for _, l := range got.Lines {
		if l["at"] == "" || l["source"] == "" || l["text"] == "" {
			t.Errorf("a line without at, source or text: %v", l)
		}
	}
	if none := string(timeline.JSON(nil)); none != `{"ok":false,"lines":[]}` {
		t.Errorf("nothing found: %s", none)
	}
}

func TestACanceledSearchIsAnError(t *testing.T) {
	db, _ := rich(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := timeline.Find(ctx, db.ServicePool(t), "A-17", id.ID{}); err == nil {
		t.Error("nothing was read, and nobody was told")
	}
}

// TestAFurtherSendStandsAfterWhatItAnswers: the first answer is recorded only after the second send was allowed.
func TestAFurtherSendStandsAfterWhatItAnswers(t *testing.T) {
	db, b := rich(t)
	b.note("11:00:01", "create_payment", operation.WhatPermit, "", "req_8", firstKey, 7)
	b.evidence("11:00:05", "call", "unknown", "read_timeout", "", "noted", "nothing proven: unknown", 0, 7)
	b.evidence("11:00:05", "call", "unknown", "rate_limited", "", "noted", "nothing proven: unknown", 0, 7)
	b.exec(`UPDATE evidence SET raw_hash = sha256('x') WHERE class = 'rate_limited'`)
	b.note("11:00:06", "create_payment", operation.WhatPermit, "", "", firstKey, 8)
	got := timeline.Text(find(t, db, "A-17", id.ID{}))
	for _, want := range []string{
		"  11:00:01  acquirer  The acquirer did not answer in time; whether the money was taken is not known.\n" +
			"  11:00:01  request   The same stored request is sent once more: send 3 of this payment, under the same key.\n" +
			"  11:00:05  acquirer  The acquirer asked us to slow down, which does not prove whether the money was taken.\n" +
			"  11:00:06  request   The same stored request may be sent once more: send 4 of this payment, under the same key.\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("not told: %s\n%s", want, got)
		}
	}
}

// TestMoneyThatWasGivenBackWasTaken: the money of another amount that a person gave back is not told as never taken.
func TestMoneyThatWasGivenBackWasTaken(t *testing.T) {
	db, b := rich(t)
	b.exec(`UPDATE payment SET status = 'failed', captured_amount = 0, failure_code = 'given_back', failure_message = 'It was given back.', refused_at = now(), gate_open = true WHERE id = $1`, u(101))
	b.evidence("16:00:00", "person", "unknown", "decision_returned", "", "moved", "not_executed", 0, 0)
	b.event("16:00:00", 4, "payment.failed")
	got := timeline.Text(find(t, db, "A-17", id.ID{}))
	for _, want := range []string{"makes the payment failed: money was taken, but not as asked, and it was given back.",
		"the merchant is told that the payment failed: money was taken, but not as asked, and it was given back.",
		"is failed: no money counts for it (given_back: It was given back)"} {
		if !strings.Contains(got, want) {
			t.Errorf("not told: %s\n%s", want, got)
		}
	}
}
