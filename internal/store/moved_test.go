package store_test

import (
	"context"
	"testing"

	"github.com/hapaxpay/hapax/internal/flow"
)

// A server whose change of epoch is never written (another server behind the same address answers in between): InTx
// must not say that it committed.
func TestATransactionThatNeverRanIsNoSuccess(t *testing.T) {
	s, db := open(t)
	owner := db.OwnerPool(t)
	for _, q := range []string{
		"CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
		"UPDATE database_epoch SET system_identifier = 'another'",
		"CREATE TRIGGER nothing BEFORE UPDATE ON database_epoch FOR EACH ROW EXECUTE FUNCTION nothing()",
	} {
		if _, err := owner.Exec(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	finished := 0
	err := s.InTx(t.Context(), "test", func(ctx context.Context, tx flow.Tx) error {
		if _, err := tx.Guard(ctx); err != nil {
			return err
		}
		finished++
		return nil
	})
	if err == nil && finished == 0 {
		t.Error("InTx says success, and nothing was committed")
	}
}
