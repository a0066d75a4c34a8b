package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/jackc/pgx/v5"
)

// K12: whoever waits may give up while COMMIT waits, for a synchronous standby say; the wait itself goes on. Here a deferred
// trigger makes COMMIT slow, and the caller's context ends when the server is seen inside it.
func TestCommitHasNoTimeLimit(t *testing.T) {
	sh := newShop(t)
	owner := sh.db.OwnerPool(t)
	for _, q := range []string{
		"CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1); RETURN NULL; END'",
		"CREATE CONSTRAINT TRIGGER slowly AFTER INSERT ON operation DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slowly()",
	} {
		if _, err := owner.Exec(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	op := sh.operation("k")
	done := make(chan error, 1)
	go func() {
		done <- sh.s.InTx(ctx, "test", func(ctx context.Context, tx flow.Tx) error {
			_, err := tx.InsertOperations(ctx, []operation.Operation{op}, lease)
			return err
		})
	}()
	watch := sh.db.Superuser()
	dbtest.Eventually(t, func() bool { return sleeping(t, watch) })
	giveUp()
	if err := <-done; err != nil {
		t.Errorf("a slow COMMIT was cut short: %v", err)
	}
	if got := sh.count("operation", "idempotency_key = 'k'"); got != 1 {
		t.Errorf("%d rows, want 1", got)
	}
}

// sleeping says whether a connection of this database is inside pg_sleep.
func sleeping(t *testing.T, url string) bool {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	var n int
	err = conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'").Scan(&n)
	if err := errors.Join(err, conn.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	return n > 0
}
