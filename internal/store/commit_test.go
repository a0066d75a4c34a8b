package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/store"
)

// K12: the statements of a transaction have a limit, its COMMIT has none: a wait for a synchronous standby that was cut
// short would be told as success while nothing but this server knows of it. Here a deferred trigger makes COMMIT slow.
func TestCommitHasNoTimeLimit(t *testing.T) {
	sh := newShop(t)
	owner := sh.db.OwnerPool(t)
	for _, q := range []string{
		"CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.4); RETURN NULL; END'",
		"CREATE CONSTRAINT TRIGGER slowly AFTER INSERT ON operation DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slowly()",
		"GRANT EXECUTE ON FUNCTION slowly() TO hapax_service",
	} {
		if _, err := owner.Exec(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	s := again(t, sh.db, func(c *store.Config) {
		c.LockTimeout, c.StatementTimeout, c.IdleInTxTimeout = 100*time.Millisecond, 200*time.Millisecond, 10*time.Second
	})
	op := sh.operation("k")
	err := s.InTx(t.Context(), "test", func(ctx context.Context, tx flow.Tx) error {
		_, err := tx.InsertOperations(ctx, []operation.Operation{op}, lease)
		return err
	})
	if err != nil {
		t.Errorf("a slow COMMIT was cut short: %v", err)
	}
}
