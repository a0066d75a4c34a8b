package rig

import (
	"cmp"
	"slices"

	"github.com/hapaxpay/hapax/internal/sandbox"
	"github.com/hapaxpay/hapax/internal/verify"
)

// Unsettled counts operations that are neither finished nor waiting for a person, gates that are closed, and holds that should be over.
func (r *Rig) Unsettled() int {
	r.T.Helper()
	return r.Count(`SELECT (SELECT count(*) FROM operation WHERE state IN ('in_progress', 'awaiting_result'))
		+ (SELECT count(*) FROM payment WHERE due_at IS NOT NULL AND (refused_at IS NOT NULL OR due_at <= now()) AND NOT EXISTS (SELECT FROM review
		   WHERE review.payment_id = payment.id AND decided_at IS NULL))`)
}

// Count runs a query that gives one number, as the owner.
func (r *Rig) Count(sql string, args ...any) int {
	r.T.Helper()
	var n int
	r.must(r.Owner.QueryRow(r.T.Context(), sql, args...).Scan(&n))
	return n
}

// Text runs a query that gives one text, as the owner; no row gives the empty text.
func (r *Rig) Text(sql string, args ...any) string {
	r.T.Helper()
	rows, err := r.Owner.Query(r.T.Context(), sql, args...)
	r.must(err)
	defer rows.Close()
	var s string
	if rows.Next() {
		r.must(rows.Scan(&s))
	}
	r.must(rows.Err())
	return s
}

// Status gives the state of the payment that the key created.
func (r *Rig) Status(key string) string {
	r.T.Helper()
	return r.Text("SELECT status FROM payment WHERE idempotency_key = $1", key)
}

// Retries counts the transactions that the replicas ran again after a deadlock or serialization failure.
func (r *Rig) Retries(replicas ...*Replica) (n int64) {
	for _, p := range replicas {
		n += p.Store.Counters().Retries
	}
	return n
}

// Movements gives the acquirer's register: the first witness.
func (r *Rig) Movements() []sandbox.Movement {
	r.T.Helper()
	m, err := r.Acquirer.Register(r.T.Context())
	r.must(err)
	return m
}

// Charges gives the requests to charge that arrived at the acquirer, in order of arrival.
func (r *Rig) Charges() []sandbox.WireEntry { return r.calls("POST") }

// Lookups gives the questions that arrived at the acquirer.
func (r *Rig) Lookups() []sandbox.WireEntry { return r.calls("GET") }

func (r *Rig) calls(method string) []sandbox.WireEntry {
	r.T.Helper()
	all, err := r.Acquirer.Wire(r.T.Context(), 0)
	r.must(err)
	all = slices.DeleteFunc(all, func(e sandbox.WireEntry) bool { return e.Method != method })
	slices.SortFunc(all, func(a, b sandbox.WireEntry) int { return cmp.Compare(a.Seq, b.Seq) })
	return all
}

// Events gives the types of the events in the outbox, in their order: the third witness.
func (r *Rig) Events() []string {
	r.T.Helper()
	return r.texts("SELECT type FROM event ORDER BY merchant_id, intent_id, version")
}

// Receipts counts the ledger's transactions of money applied: the second witness.
func (r *Rig) Receipts() int {
	return r.Count("SELECT count(*) FROM ledger_entry WHERE account = 'merchant_payable' AND amount < 0")
}

// Verify checks every invariant, the acquirer's register included, and fails the test with the offending rows. Those
// named are left out: a test says why its world breaks them.
func (r *Rig) Verify(except ...string) {
	r.T.Helper()
	pool := r.DB.ServicePool(r.T)
	report, err := verify.Run(r.T.Context(), pool, verify.Options{SandboxURL: r.Server.URL()})
	r.must(err)
	for _, inv := range report.Invariants {
		if !inv.OK && !slices.Contains(except, inv.ID) {
			r.T.Errorf("invariants broken:\n%s", report)
			return
		}
	}
}
