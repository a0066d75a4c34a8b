package store

import (
	"context"
	"errors"

	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/store/dbgen"
	"github.com/jackc/pgx/v5"
)

// Permit implements operation.Tx (PROTOCOL A0): it locks the intent, then counts one more send in one guarded UPDATE.
// Asked again with the id of a permit that was granted, it is granted again and counts nothing (K10).
func (t *tx) Permit(ctx context.Context, ask operation.PermitAsk) (operation.PermitAnswer, error) {
	if _, err := t.Guard(ctx); err != nil {
		return operation.PermitAnswer{}, err
	}
	if ask.PermitID.IsZero() || ask.Unsent < 0 || ask.MaxSends < 1 || ask.CutOff < 0 {
		return operation.PermitAnswer{}, t.fail("permit", errors.New("asked for without an id or with impossible limits"))
	}
	_, err := t.q.LockIntentOf(ctx, dbgen.LockIntentOfParams{MerchantID: dbID(ask.Merchant), Kind: string(ask.Kind), IdempotencyKey: ask.Key})
	if errors.Is(err, pgx.ErrNoRows) { // nothing is sent for a command without an intent
		return operation.PermitAnswer{Denied: operation.DeniedStale}, nil
	}
	if err != nil {
		return operation.PermitAnswer{}, t.fail("permit: lock intent", err)
	}
	row, err := t.q.GrantPermit(ctx, dbgen.GrantPermitParams{
		Unsent: int32(ask.Unsent), PermitID: dbID(ask.PermitID), MerchantID: dbID(ask.Merchant), Kind: string(ask.Kind),
		IdempotencyKey: ask.Key, Fence: ask.Fence, MaxEver: operation.MaxSendsEver, MaxSends: int32(ask.MaxSends),
		CutOffUs: ask.CutOff.Microseconds(), ClientWaiting: ask.ClientWaiting, HeldOk: ask.HeldOK, Family: ask.Family,
	})
	switch {
	case err == nil:
		return operation.PermitAnswer{Granted: true, Op: domainOperation(row)}, nil
	case errors.Is(err, pgx.ErrNoRows):
		return t.whyDenied(ctx, ask)
	}
	return operation.PermitAnswer{}, t.fail("permit", err)
}

// whyDenied reads the conditions of a permit one by one. It changes nothing.
func (t *tx) whyDenied(ctx context.Context, ask operation.PermitAsk) (operation.PermitAnswer, error) {
	why, err := t.q.WhyDenied(ctx, dbgen.WhyDeniedParams{
		HeldOk: ask.HeldOK, ClientWaiting: ask.ClientWaiting, CutOffUs: ask.CutOff.Microseconds(), Unsent: int32(ask.Unsent),
		MerchantID: dbID(ask.Merchant), Kind: string(ask.Kind), IdempotencyKey: ask.Key, Family: ask.Family,
	})
	if err != nil {
		return operation.PermitAnswer{}, t.fail("permit: why denied", err)
	}
	op := domainOperation(why.Operation)
	working := op.State == operation.InProgress || op.State == operation.AwaitingResult
	switch {
	case op.Fence != ask.Fence || !working || op.Action == "":
		return operation.PermitAnswer{Denied: operation.DeniedStale}, nil
	case op.PermitID == ask.PermitID:
		return operation.PermitAnswer{Granted: true, Op: op}, nil
	case why.MoneyOrConflict:
		return operation.PermitAnswer{Denied: operation.DeniedMoney}, nil
	case why.Canceling:
		return operation.PermitAnswer{Denied: operation.DeniedCanceling}, nil
	case why.Expired:
		return operation.PermitAnswer{Denied: operation.DeniedExpired}, nil
	case why.OnHold:
		return operation.PermitAnswer{Denied: operation.DeniedHold}, nil
	case why.Late:
		return operation.PermitAnswer{Denied: operation.DeniedLate}, nil
	case why.CutOff:
		return operation.PermitAnswer{Denied: operation.DeniedCutOff}, nil
	case op.Sends >= operation.MaxSendsEver || op.Sends-op.Unsent-ask.Unsent >= ask.MaxSends:
		return operation.PermitAnswer{Denied: operation.DeniedBudget}, nil
	}
	// More unsent permits than permits, or the row moved between two statements: in both cases it is not ours any more.
	return operation.PermitAnswer{Denied: operation.DeniedStale}, nil
}
