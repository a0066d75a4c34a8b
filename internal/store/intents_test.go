package store_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/money"
)

// sameRows compares what was written with what was read, apart from what the database sets.
func sameRows(t *testing.T, what string, got, want any, but ...string) {
	t.Helper()
	opts := []cmp.Option{cmp.AllowUnexported(money.Amount{}), cmpopts.EquateApproxTime(time.Millisecond)}
	for _, name := range but {
		opts = append(opts, cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == "."+name }, cmp.Ignore()))
	}
	if d := cmp.Diff(want, got, opts...); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func (sh *shop) lock(refs ...flow.IntentRef) (locked []flow.LockedIntent) {
	sh.t.Helper()
	sh.tx(func(ctx context.Context, tx flow.Tx) (err error) {
		locked, err = tx.LockIntents(ctx, refs)
		return err
	})
	return locked
}

func TestIntentsAreUniqueByReference(t *testing.T) {
	sh := newShop(t)
	first, twin, other, bare, bare2 := sh.intent("order-1"), sh.intent("order-1"), sh.intent("order-2"), sh.intent(""), sh.intent("")
	twin.By.Key, bare.By.Key, bare2.By.Key = "i-twin", "i-bare", "i-bare2"
	bare.Customer, bare.Description, bare.Metadata, bare.Receipt = "", "", nil, ""
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		return tx.InsertIntents(ctx, []payment.Intent{first, other, twin, bare, bare2})
	})
	sh.tx(func(ctx context.Context, tx flow.Tx) error { // another request with the same order number
		late := sh.intent("order-1")
		late.By.Key = "i-late"
		return tx.InsertIntents(ctx, []payment.Intent{late})
	})
	locked := sh.lock(flow.IntentRef{Merchant: sh.merchant, ClientReference: "order-1"}, flow.IntentRef{Merchant: sh.merchant, ID: bare.ID},
		flow.IntentRef{Merchant: sh.merchant, ID: first.ID}, flow.IntentRef{Merchant: sh.merchant, ClientReference: "none"})
	if len(locked) != 2 {
		t.Fatalf("locked %d intents, want 2", len(locked))
	}
	sameRows(t, "intent", locked[0].Intent, first, "By", "CreatedAt", "UpdatedAt")
	sameRows(t, "intent without reference", locked[1].Intent, bare, "By", "CreatedAt", "UpdatedAt")
	if locked[0].Latest != nil || locked[0].Money || locked[0].CreatedAt.IsZero() {
		t.Errorf("a new intent: %+v", locked[0])
	}
	if n := sh.count("payment_intent_version", "true"); n != 4 {
		t.Errorf("%d versions, want 4", n)
	}
}

func TestTheSameReferenceAtTheSameMoment(t *testing.T) {
	sh := newShop(t)
	const racers = 8
	done := make(chan id.ID, racers)
	for i := range racers {
		go func() {
			mine := sh.intent("order-1")
			mine.By.Key = "i-" + string(rune('a'+i))
			var found id.ID
			if err := sh.s.InTx(t.Context(), "claim", func(ctx context.Context, tx flow.Tx) error {
				if err := tx.InsertIntents(ctx, []payment.Intent{mine}); err != nil {
					return err
				}
				locked, err := tx.LockIntents(ctx, []flow.IntentRef{{Merchant: sh.merchant, ClientReference: "order-1"}})
				if err == nil && len(locked) == 1 {
					found = locked[0].ID
				}
				return err
			}); err != nil {
				t.Error(err)
			}
			done <- found
		}()
	}
	var ids []id.ID
	for range racers {
		ids = append(ids, <-done)
	}
	slices.SortFunc(ids, func(a, b id.ID) int { return bytes.Compare(a[:], b[:]) })
	if ids = slices.Compact(ids); len(ids) != 1 || ids[0].IsZero() {
		t.Errorf("racers found %v", ids)
	}
}

func TestLockedIntentsKnowTheirPaymentsAndMoney(t *testing.T) {
	sh := newShop(t)
	a, b := sh.start("order-a"), sh.start("order-b")
	next := sh.payment(a.intent, 2)
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		refused := a.payment
		refused.Status, refused.RefusedAt, refused.GateOpen, refused.Version = payment.Declined, time.Now(), true, 2
		refused.Failure = payment.Failure{Code: "declined", Message: "no"}
		if err := tx.SavePayments(ctx, []flow.PaymentChange{{ExpectedStatus: payment.Pending, ExpectedVersion: 1, New: refused}}); err != nil {
			return err
		}
		_, err := tx.InsertPayments(ctx, []payment.Payment{next})
		return err
	})
	movement := func(reference string, state payment.MovementState, p payment.Payment, kind acquirer.MovementKind) payment.Movement {
		return payment.Movement{Merchant: sh.merchant, ID: newID(), Account: sh.account, Reference: reference, Kind: kind, Intent: p.Intent,
			Payment: p.ID, Amount: p.Amount, State: state, Cause: "c"}
	}
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		_, err := tx.InsertMovements(ctx, []payment.Movement{
			movement("1", payment.Returned, b.payment, acquirer.MovementCharge), movement("2", payment.Applied, b.payment, acquirer.MovementRefund),
			movement("3", payment.Unapplied, a.payment, acquirer.MovementCharge), movement("4", payment.Applied, next, acquirer.MovementCharge)})
		return err
	})
	locked := sh.lock(flow.IntentRef{Merchant: sh.merchant, ID: b.intent.ID}, flow.IntentRef{Merchant: sh.merchant, ID: a.intent.ID})
	if len(locked) != 2 || locked[0].ID != a.intent.ID {
		t.Fatalf("locked %+v", locked)
	}
	if l := locked[0]; l.Latest == nil || l.Latest.N != 2 || !l.Money || l.MoneyOn != next.ID {
		t.Errorf("first intent: %+v", l)
	}
	if l := locked[1]; l.Latest == nil || l.Latest.ID != b.payment.ID || l.Money {
		t.Errorf("second intent: %+v", l)
	}
}

func TestAmendKeepsEveryVersionsCommand(t *testing.T) {
	sh := newShop(t)
	first := sh.intent("order-1")
	sh.tx(func(ctx context.Context, tx flow.Tx) error { return tx.InsertIntents(ctx, []payment.Intent{first}) })
	second := first
	second.Amount, second.Description, second.Metadata, second.Customer = money.Must(99, "USD"), "shoes", nil, ""
	second.Receipt = "other@shop.example"
	second.PayBefore, second.Version = time.Now().Add(2*time.Hour), 2
	second.By = payment.Command{Kind: "create_intent", Key: "i-2", Fingerprint: [32]byte{9}, FPVersion: 1}
	sh.tx(func(ctx context.Context, tx flow.Tx) error { return tx.AmendIntents(ctx, []payment.Intent{second}) })
	sameRows(t, "amended", sh.lock(flow.IntentRef{Merchant: sh.merchant, ID: first.ID})[0].Intent, second, "By", "CreatedAt", "UpdatedAt")
	err := sh.s.InTx(t.Context(), "amend", func(ctx context.Context, tx flow.Tx) error {
		again := second
		again.By.Key = "i-3"
		return tx.AmendIntents(ctx, []payment.Intent{again})
	})
	if !errors.Is(err, operation.ErrNothingDone) {
		t.Errorf("a version that is not the next: %v", err)
	}
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		got, err := tx.IntentsByCommand(ctx, []flow.CommandRef{{Merchant: sh.merchant, Kind: "create_intent", Key: first.By.Key},
			{Merchant: sh.merchant, Kind: "create_intent", Key: "i-2"}, {Merchant: sh.merchant, Kind: "create_payment", Key: "i-2"}})
		if err != nil {
			return err
		}
		slices.SortFunc(got, func(a, b payment.Intent) int { return a.Version - b.Version })
		if len(got) != 2 {
			t.Fatalf("found %+v", got)
		}
		if g := got[0]; g.By != first.By || !g.Amount.Equal(first.Amount) || g.ID != first.ID {
			t.Errorf("the first command made %+v", g)
		}
		if g := got[1]; g.By != second.By || !g.Amount.Equal(second.Amount) {
			t.Errorf("the second command made %+v", g)
		}
		return nil
	})
}

func TestSaveIntentsNeverGoesBack(t *testing.T) {
	sh := newShop(t)
	in := sh.intent("order-1")
	sh.tx(func(ctx context.Context, tx flow.Tx) error { return tx.InsertIntents(ctx, []payment.Intent{in}) })
	in.EventVersion, in.Conflict = 2, true
	sh.tx(func(ctx context.Context, tx flow.Tx) error { return tx.SaveIntents(ctx, []payment.Intent{in}) })
	if l := sh.lock(flow.IntentRef{Merchant: sh.merchant, ID: in.ID}); l[0].EventVersion != 2 || !l[0].Conflict {
		t.Errorf("stored %+v", l[0])
	}
	in.EventVersion = 1
	err := sh.s.InTx(t.Context(), "save", func(ctx context.Context, tx flow.Tx) error { return tx.SaveIntents(ctx, []payment.Intent{in}) })
	if !errors.Is(err, operation.ErrNothingDone) {
		t.Errorf("got %v", err)
	}
}
