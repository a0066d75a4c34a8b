package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hapaxpay/hapax/internal/store"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Each rule of the schema refuses what breaks it, whoever writes it.
func TestTheSchemaRefuses(t *testing.T) {
	sh := newShop(t)
	st := sh.start("order-1")
	second := sh.claim("free")[0]
	pool := sh.db.OwnerPool(t)
	payment := func(set string) string { return "UPDATE payment SET " + set }
	op := func(set string) string { return "UPDATE operation SET " + set }
	insert := func(columns, values string) string {
		return fmt.Sprintf("INSERT INTO movement (merchant_id, id, account_id, reference, kind, amount, currency, state%s) VALUES ('%s', '%s', '%s', 'r', 'charge', 1, 'EUR'%s)",
			columns, sh.merchant, newID(), sh.account, values)
	}
	joined := func(payment, fingerprint string) string {
		return fmt.Sprintf("INSERT INTO joined_command (merchant_id, kind, idempotency_key, fingerprint, fingerprint_version, payment_id) VALUES ('%s', 'create_payment', 'k', %s, 1, '%s')",
			sh.merchant, fingerprint, payment)
	}
	stray := sh.stray(st, "ch_stray")
	compensation := sh.modification(st, "compensation", "k-1")
	compensation.Movement = stray.ID
	sh.modify(sh.modification(st, "cancel", "x-1"), compensation)
	modification := func(values string) string {
		return fmt.Sprintf(`INSERT INTO modification (merchant_id, id, intent_id, payment_id, action, k, amount, currency, account_id, acquirer_key, kind, idempotency_key,
			fingerprint, fingerprint_version, type, status, failure_code, movement_id) VALUES ('%s', '%s', '%s', '%s', '', 1, 1, 'EUR', '%s', 'new', 'x', 'new', sha256('x'), 1, %s)`,
			sh.merchant, newID(), st.intent.ID, st.payment.ID, sh.account, values)
	}
	dispute := func(values string) string {
		return fmt.Sprintf("INSERT INTO dispute (merchant_id, id, intent_id, payment_id, account_id, reference, amount, currency, status, decided_at) VALUES ('%s', '%s', '%s', '%s', '%s', 'cb', 1, 'EUR', %s)",
			sh.merchant, newID(), st.intent.ID, st.payment.ID, sh.account, values)
	}
	code := func(values string) string {
		return fmt.Sprintf("INSERT INTO cancel_code (merchant_id, payment_id, amount, expires_at, kind, idempotency_key, fingerprint, fingerprint_version, ordinal, tries) VALUES ('%s', '%s', 1, now(), 'cancel_code', 'k', sha256('x'), 1, %s)",
			sh.merchant, st.payment.ID, values)
	}
	rule := func(values string) string {
		return fmt.Sprintf("INSERT INTO routing_rule (merchant_id, id, account_id, weight, currency) VALUES ('%s', '%s', '%s', %s)", sh.merchant, newID(), sh.account, values)
	}
	review := func(values string) string {
		return fmt.Sprintf("INSERT INTO review (merchant_id, id, reason, payment_id, decided_at, decision) VALUES ('%s', '%s', 'no_proof', %s)", sh.merchant, newID(), values)
	}
	for _, c := range []struct{ sql, constraint string }{
		// P1, I-2: one payment that is not finally refused.
		{fmt.Sprintf("INSERT INTO payment (merchant_id, id, intent_id, n, flow, status, amount, currency, payment_method, account_id, acquirer_key, kind, idempotency_key, fingerprint, fingerprint_version) SELECT merchant_id, '%s', intent_id, 2, flow, 'pending', amount, currency, 'pm', account_id, 'other', kind, 'other', fingerprint, 1 FROM payment", newID()), "payment_one_live"},
		{payment("status = 'sleeping'"), "payment_status"},
		{payment("status = 'declined'"), "payment_refused"},
		{payment("refused_at = now(), due_at = now(), failure_code = 'x'"), "payment_refused"},
		{payment("status = 'declined', refused_at = now(), due_at = now()"), "payment_failure"},
		{payment("gate_open = true"), "payment_gate"},
		{payment("status = 'declined', refused_at = now(), failure_code = 'x'"), "payment_gate_due"},
		{payment("status = 'paid'"), "payment_paid"},
		{payment("captured_amount = amount + 1"), "payment_captured"}, // I-9
		{payment("captured_amount = 5, refunded_amount = 6"), "payment_given_back"},
		{payment("captured_amount = 5, refunded_amount = 2, refunding_amount = 2, disputed_amount = 2"), "payment_given_back"}, // X3, X5
		{payment("authorized_amount = 5, captured_amount = 6"), "payment_authorized"},                                          // X2
		{payment("authorized_amount = amount + 1"), "payment_authorized"},
		{payment("authorized_amount = 5, captured_amount = 3, capturing_amount = 3"), "payment_capturing"},
		{payment("capturing_amount = 1"), "payment_capturing"},
		{payment("refunding_amount = -1, captured_amount = 5"), "payment_refunding_amount_check"},
		{payment("payment_method = ''"), "payment_method"},
		{payment("dispute = 'maybe'"), "payment_dispute_check"},
		{payment("capture_method = 'later'"), "payment_capture_method_check"},
		{modification("'capture', 'unknown', NULL, NULL"), "modification_one_open"}, // X2
		{modification("'compensation', 'pending', NULL, NULL"), "modification_movement"},
		{modification("'compensation', 'pending', NULL, '" + stray.ID.String() + "'"), "modification_compensates"}, // X4
		{modification("'refund', 'pending', NULL, '" + stray.ID.String() + "'"), "modification_movement"},
		{modification("'refund', 'failed', NULL, NULL"), "modification_failed"},
		{modification("'refund', 'pending', 'declined', NULL"), "modification_failed"},
		{modification("'gift', 'pending', NULL, NULL"), "modification_type_check"},
		{modification("'refund', 'asleep', NULL, NULL"), "modification_status_check"},
		{dispute("'opened', now()"), "dispute_decided"},
		{dispute("'won', NULL"), "dispute_decided"},
		{code("0, 0"), "cancel_code_ordinal_check"},
		{code("1, 6"), "cancel_code_tries_check"},
		{rule("0, 'EUR'"), "routing_rule_weight_check"},
		{rule("1, 'eur'"), "routing_rule_currency_check"},
		{payment("captured_amount = -1"), "payment_captured_amount_check"},
		{payment("amount = 0"), "payment_amount_check"},
		{payment("currency = 'eur'"), "payment_currency_check"},
		{op("state = 'lost'"), "operation_state"},
		{op("state = 'completed', answer_status = 200"), "operation_completed"},
		{op("state = 'completed', completed_at = now(), expires_at = now()"), "operation_answer"},
		{op("completed_at = now(), expires_at = now()"), "operation_completed"},
		{op("sends = 0") + " WHERE sends = 1", "operation_permits"},
		{op("sends = 1, first_permit_at = now(), last_permit_at = now()") + " WHERE idempotency_key = 'free'", "operation_request"}, // A1
		{op("request_body = NULL") + " WHERE sends = 1", "operation_request"},
		{op("sends = 17") + " WHERE sends = 1", "operation_sends_check"},
		{op("unsent = 2") + " WHERE sends = 1", "operation_check"},
		{op("fence = 0"), "operation_fence_check"},
		{op("idempotency_key = ''"), "operation_idempotency_key_check"},
		{op("fingerprint = '\\x01'"), "operation_fingerprint_check"},
		{op(fmt.Sprintf("idempotency_key = 'free', id = '%s'", newID())) + " WHERE sends = 1", "operation_pkey"},
		{insert("", ", 'unapplied'"), "movement_unapplied"},
		{insert("", ", 'applied'"), "movement_applied"},
		{joined(newID().String(), "sha256('x')"), "joined_command_merchant_id_payment_id_fkey"},
		{joined(st.payment.ID.String(), "'\\x01'"), "joined_command_fingerprint_check"},
		{review("NULL, NULL, NULL"), "review_subject"},
		{review(fmt.Sprintf("'%s', now(), NULL", st.payment.ID)), "review_decided"},
		{"UPDATE payment_intent SET pay_before = NULL", ""},
		{"UPDATE payment_intent SET client_reference = ''", "payment_intent_client_reference_check"},
		{"UPDATE database_epoch SET held = true", "epoch_interval"},
		{"UPDATE database_epoch SET lost_from = now(), lost_to = now() - interval '1 second'", "epoch_order"},
		{"INSERT INTO database_epoch SELECT false, epoch, system_identifier, timeline FROM database_epoch", "database_epoch_singleton_check"},
		{"DELETE FROM payment_intent", "payment_intent_version_merchant_id_intent_id_fkey|payment_merchant_id_intent_id_fkey"},
	} {
		_, err := pool.Exec(t.Context(), c.sql)
		name, _ := store.Violation(err)
		if err == nil || name != c.constraint && (name == "" || !strings.Contains(c.constraint, name)) {
			t.Errorf("%s\ngot %v (constraint %q), want %s", c.sql, err, name, c.constraint)
		}
	}
	if row := sh.read(second.Ref); row.Fence != 1 {
		t.Error("a refused statement left something")
	}
}

// What is written once cannot be changed by the service, and the console cannot write at all (DESIGN data rule 9).
func TestRolesCannot(t *testing.T) {
	sh := newShop(t)
	sh.start("order-1")
	denied := func(url, sql string) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.Exec(t.Context(), sql)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "42501" {
			t.Errorf("%s: %v, want permission denied", sql, err)
		}
		if err := conn.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, table := range []string{"ledger_entry", "evidence", "event", "history", "decision", "payment_intent_version", "joined_command"} {
		denied(sh.db.Service(), "UPDATE "+table+" SET merchant_id = merchant_id")
		denied(sh.db.Service(), "DELETE FROM "+table)
	}
	for _, table := range []string{"payment_intent", "payment", "movement", "review", "merchant", "api_key", "acquirer_account", "database_epoch",
		"modification", "dispute", "cancel_code"} {
		denied(sh.db.Service(), "DELETE FROM "+table)
	}
	for _, sql := range []string{"TRUNCATE operation", "DROP TABLE payment", "CREATE TABLE x (y int)", "ALTER TABLE payment DROP CONSTRAINT payment_paid",
		"INSERT INTO schema_migration (version, name, hash) VALUES (99, 'x', sha256('x'))", "INSERT INTO database_epoch (epoch, system_identifier, timeline) VALUES (1, 'x', 1)"} {
		denied(sh.db.Service(), sql)
	}
	for _, sql := range []string{"UPDATE payment SET version = version", "DELETE FROM operation", "INSERT INTO history (merchant_id, id, kind, what) VALUES (gen_random_uuid(), gen_random_uuid(), 'x', 'x')",
		"SELECT key_hash FROM api_key", "SELECT secrets FROM acquirer_account", "TRUNCATE event", "DELETE FROM routing_rule", "UPDATE modification SET version = 1"} {
		denied(sh.db.Console(), sql)
	}
	conn, err := pgx.Connect(t.Context(), sh.db.Console())
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM payment").Scan(&n); err != nil || n != 1 {
		t.Errorf("the console reads %d payments, %v", n, err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestViolationIsNamedWithoutItsShard(t *testing.T) {
	for constraint, want := range map[string]string{
		"payment_one_live": "payment_one_live", "payment_one_live_102008": "payment_one_live", "operation_pkey_7": "operation_pkey",
		"trailing1": "trailing1", "12": "12",
	} {
		got, ok := store.Violation(fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: "23505", ConstraintName: constraint}))
		if !ok || got != want {
			t.Errorf("%s: %q, %v", constraint, got, ok)
		}
	}
	if _, ok := store.Violation(&pgconn.PgError{Code: "40001", ConstraintName: "x"}); ok {
		t.Error("a serialization failure is no violation")
	}
	if _, ok := store.Violation(errors.New("duplicate key value violates unique constraint")); ok {
		t.Error("recognised by its text")
	}
}
