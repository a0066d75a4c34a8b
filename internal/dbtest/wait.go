package dbtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Waiting is bounded: a condition that does not come is a failed test.
const (
	waitLimit = 30 * time.Second
	waitPoll  = 5 * time.Millisecond
)

// Eventually waits until cond is true and fails the test when it does not
// become true within 30 seconds. It is for states that only polling can see,
// such as another process's rows; where a channel or a condition variable can
// tell, wait for that instead.
func Eventually(t testing.TB, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	if !poll(ctx, cond) {
		t.Fatalf("the condition did not become true within %v", waitLimit)
	}
}

func poll(ctx context.Context, cond func() bool) bool {
	tick := time.NewTicker(waitPoll)
	defer tick.Stop()
	for {
		if cond() {
			return true
		}
		select {
		case <-ctx.Done():
			return cond()
		case <-tick.C:
		}
	}
}

// WaitBlocked waits until at least n of the database's connections wait for a
// lock, so that a race can be forced instead of hoped for: let one transaction
// hold the lock, start the others, wait here, let go.
func (db *DB) WaitBlocked(t testing.TB, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	blocked := 0
	err := withConn(ctx, db.Superuser(), func(conn *pgx.Conn) error {
		var failed error
		poll(ctx, func() bool {
			failed = conn.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND wait_event_type = 'Lock'",
				db.name).Scan(&blocked)
			return failed != nil || blocked >= n
		})
		return failed
	})
	if err != nil || blocked < n {
		t.Fatalf("%d connections wait for a lock, want %d (%v)", blocked, n, err)
	}
}
