package store_test

import (
	"testing"

	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/store"
)

// Numbering, and settling what comes after a failure, read what they take and little more, however much waits at a sink, and whatever
// the planner was told of the table and when: a statement that reads all of it for each event ends in its time limit, for ever.
func TestNumberingReadsLittle(t *testing.T) {
	sh := newShop(t, func(c *store.Config) { c.MaxConns = 1 })
	const intents, tried, most = 1500, 64, 30 // rows for each event
	sh.owner("ALTER TABLE delivery SET (autovacuum_enabled = false)")
	sh.events(sh.merchant, 8, 1)
	sh.number()
	sh.owner("ANALYZE delivery") // of a young installation
	sh.events(sh.merchant, intents, 2)
	sh.number()
	claim, picked := sh.take(tried, tried)
	sh.settle(claim, picked, errAway, 0)
	claim, picked = sh.take(tried, tried)
	sh.settle(claim, picked, nil, 0)
	sh.s.Close() // a session hands in what it counted when it ends
	const q = "SELECT seq_tup_read + idx_tup_fetch, n_tup_ins FROM pg_stat_user_tables WHERE relname = 'delivery'"
	var read, made int64
	dbtest.Eventually(t, func() bool {
		return sh.db.OwnerPool(t).QueryRow(t.Context(), q).Scan(&read, &made) == nil && made >= 2*intents
	})
	if read > most*made {
		t.Errorf("%d rows were read for %d events, want at most %d for each", read, made, most)
	}
}
