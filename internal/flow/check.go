package flow

import (
	"context"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/problem"
)

// Check asks the acquirer now about a payment and what was done to it, and applies what it says, like any other evidence.
// It takes no key and its answer is never stored. A payment that is not the merchant's does not exist (PROTOCOL W1, I-15).
func (f *Flow) Check(ctx context.Context, merchant, pay id.ID, requestID string) (operation.Answer, error) {
	var answer operation.Answer
	err := f.store.InTx(ctx, "check", func(ctx context.Context, tx Tx) error {
		found, err := tx.ReadPayments(ctx, []Row{{merchant, pay}})
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return problem.New(problem.NotFound, "")
		}
		answer = answerOf(found[0], present.Extra{})
		return nil
	})
	return answer, err
}
