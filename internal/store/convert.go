package store

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/store/dbgen"
	"github.com/hapaxpay/hapax/money"
	"github.com/jackc/pgx/v5/pgtype"
)

// Between the domain and the database "none" is the zero value here and NULL there.

func dbID(x id.ID) pgtype.UUID     { return pgtype.UUID{Bytes: x, Valid: !x.IsZero()} }
func domainID(x pgtype.UUID) id.ID { return x.Bytes }
func dbText(s string) pgtype.Text  { return pgtype.Text{String: s, Valid: s != ""} }
func domainAt(t pgtype.Timestamptz) time.Time {
	if !t.Valid {
		return time.Time{}
	}
	return t.Time.UTC()
}

func dbTime(t time.Time) pgtype.Timestamptz {
	return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()}
}

// dbHash gives NULL for the zero hash.
func dbHash(h [32]byte) []byte {
	if h == ([32]byte{}) {
		return nil
	}
	return h[:]
}

func domainHash(b []byte) (h [32]byte) {
	copy(h[:], b)
	return h
}

// domainAmount trusts the database: what it holds was an Amount when it was written.
func domainAmount(minor int64, currency string) (money.Amount, error) {
	return money.New(minor, money.Currency(currency))
}

// column makes the array of one column out of rows.
func column[R, V any](rows []R, value func(R) V) []V {
	values := make([]V, len(rows))
	for i, r := range rows {
		values[i] = value(r)
	}
	return values
}

// each converts rows, stopping at the first that cannot be.
func each[R, V any](rows []R, convert func(R) (V, error)) ([]V, error) {
	values := make([]V, len(rows))
	var err error
	for i, r := range rows {
		if values[i], err = convert(r); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// sorted gives a copy in the order in which rows are locked and inserted (PROTOCOL P4).
func sorted[R any](rows []R, compare func(a, b R) int) []R {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, compare)
	return rows
}

func compareID(a, b id.ID) int { return bytes.Compare(a[:], b[:]) }

func compareRef(a, b operation.Ref) int {
	return cmp.Or(compareID(a.Merchant, b.Merchant), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Key, b.Key))
}

// present says for each row whether its id came back.
func present[R any](rows []R, returned []pgtype.UUID, rowID func(R) id.ID) []bool {
	known := make(map[id.ID]bool, len(returned))
	for _, r := range returned {
		known[domainID(r)] = true
	}
	return column(rows, func(r R) bool { return known[rowID(r)] })
}

func domainOperation(o dbgen.Operation) operation.Operation {
	return operation.Operation{
		Ref: operation.Ref{Merchant: domainID(o.MerchantID), Kind: operation.Kind(o.Kind), Key: o.IdempotencyKey},
		ID:  domainID(o.ID), Fingerprint: domainHash(o.Fingerprint), FPVersion: int(o.FingerprintVersion), RequestID: o.RequestID,
		State: operation.State(o.State), Fence: o.Fence, ClaimID: domainID(o.ClaimID), ClaimedAt: domainAt(o.ClaimedAt),
		LeaseUntil: domainAt(o.LeaseUntil), DueAt: domainAt(o.DueAt), Checks: int(o.Checks),
		AnswerStatus: int(o.AnswerStatus.Int16), AnswerBody: o.AnswerBody, CompletedAt: domainAt(o.CompletedAt),
		ExpiresAt: domainAt(o.ExpiresAt), CreatedAt: domainAt(o.CreatedAt),
		Intent: domainID(o.IntentID), Payment: domainID(o.PaymentID), Modification: domainID(o.ModificationID), Follows: domainID(o.FollowsID),
		Account: domainID(o.AccountID), Action: o.Action.String, AcquirerKey: o.AcquirerKey.String, Object: o.Object.String, RequestBody: o.RequestBody,
		Sends: int(o.Sends), Unsent: int(o.Unsent), FirstPermitAt: domainAt(o.FirstPermitAt), LastPermitAt: domainAt(o.LastPermitAt),
		PermitID: domainID(o.PermitID), SendUntil: domainAt(o.SendUntil), Epoch: o.Epoch, Lost: o.Lost,
	}
}

func domainOperations(rows []dbgen.Operation) []operation.Operation {
	return column(rows, domainOperation)
}

func domainIntent(i dbgen.PaymentIntent) (payment.Intent, error) {
	amount, err := domainAmount(i.Amount, i.Currency)
	var metadata []byte
	if i.Metadata.Valid {
		metadata = []byte(i.Metadata.String)
	}
	return payment.Intent{
		Merchant: domainID(i.MerchantID), ID: domainID(i.ID), ClientReference: i.ClientReference.String, Customer: i.Customer.String,
		Description: i.Description.String, Metadata: metadata, Receipt: i.ReceiptEmail.String, Amount: amount, Capture: payment.CaptureMethod(i.CaptureMethod),
		PayBefore: domainAt(i.PayBefore), KeySeed: i.KeySeed, Version: int(i.Version), EventVersion: i.EventVersion,
		Conflict: i.Conflict, CreatedAt: domainAt(i.CreatedAt), UpdatedAt: domainAt(i.UpdatedAt),
	}, err
}

func domainPayment(p dbgen.Payment) (payment.Payment, error) {
	amount, err := domainAmount(p.Amount, p.Currency)
	return payment.Payment{
		Merchant: domainID(p.MerchantID), ID: domainID(p.ID), Intent: domainID(p.IntentID), N: int(p.N),
		Flow: payment.Flow(p.Flow), Status: payment.Status(p.Status), Conflict: p.Conflict, Amount: amount,
		Capture: payment.CaptureMethod(p.CaptureMethod), Authorized: p.AuthorizedAmount, Capturing: p.CapturingAmount, Captured: p.CapturedAmount,
		Refunding: p.RefundingAmount, Refunded: p.RefundedAmount, Disputed: p.DisputedAmount, Dispute: payment.DisputeStatus(p.Dispute.String),
		Method: p.PaymentMethod, ReturnURL: p.ReturnUrl.String, Account: domainID(p.AccountID),
		AcquirerKey: p.AcquirerKey, AcquirerReference: p.AcquirerReference.String, Session: p.SessionReference.String,
		RedirectURL: p.RedirectUrl.String, ExpiresAt: domainAt(p.ExpiresAt), AnsweredStatus: int(p.AnsweredStatus.Int16), Early: p.Early,
		Failure:   payment.Failure{Code: p.FailureCode.String, Message: p.FailureMessage.String},
		RefusedAt: domainAt(p.RefusedAt), GateOpen: p.GateOpen, DueAt: domainAt(p.DueAt), Version: p.Version,
		By:        domainCommand(p.Kind, p.IdempotencyKey, p.Fingerprint, p.FingerprintVersion),
		CreatedAt: domainAt(p.CreatedAt), UpdatedAt: domainAt(p.UpdatedAt),
	}, err
}

func domainCommand(kind, key string, fingerprint []byte, version int16) payment.Command {
	return payment.Command{Kind: kind, Key: key, Fingerprint: domainHash(fingerprint), FPVersion: int(version)}
}
