package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/store"
	"github.com/hapaxpay/hapax/money"
	"golang.org/x/sync/errgroup"
)

// modification is a change to a payment under way that was not inserted yet.
func (sh *shop) modification(st started, of payment.ModificationType, name string) payment.Modification {
	return payment.Modification{
		Merchant: sh.merchant, ID: newID(), Intent: st.intent.ID, Payment: st.payment.ID, Type: of, Action: acquirer.Action(""), K: 1,
		Status: payment.ModPending, Amount: money.Must(500, "EUR"), Account: sh.account, AcquirerKey: "hpx-" + name, Version: 1,
		By: payment.Command{Kind: string(of), Key: name, Fingerprint: [32]byte{4}, FPVersion: 1},
	}
}

func (sh *shop) modify(rows ...payment.Modification) (fresh []bool) {
	sh.t.Helper()
	sh.tx(func(ctx context.Context, tx flow.Tx) (err error) {
		fresh, err = tx.InsertModifications(ctx, rows)
		return err
	})
	return fresh
}

// stray books money that is kept aside.
func (sh *shop) stray(st started, reference string) payment.Movement {
	sh.t.Helper()
	m := payment.Movement{Merchant: sh.merchant, ID: newID(), Account: sh.account, Reference: reference, Kind: acquirer.MovementCharge,
		Intent: st.intent.ID, Payment: st.payment.ID, Amount: st.intent.Amount, State: payment.Unapplied, Cause: "second_movement"}
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		_, err := tx.InsertMovements(ctx, []payment.Movement{m})
		return err
	})
	return m
}

// X2, X4: one open capture or cancel, one compensation of a movement that did not fail, as many refunds as are asked for.
func TestTheIndexesAllowOneOpenModification(t *testing.T) {
	sh := newShop(t)
	st, other := sh.start("order-1"), sh.start("order-2")
	m := sh.stray(st, "ch_stray")
	compensation := func(name string) payment.Modification {
		c := sh.modification(st, payment.Compensation, name)
		c.Movement = m.ID
		return c
	}
	capture, cancel := sh.modification(st, payment.Capture, "c-1"), sh.modification(st, payment.Cancel, "x-1")
	refunds := []payment.Modification{sh.modification(st, payment.Refund, "r-1"), sh.modification(st, payment.Refund, "r-2")}
	first, second := compensation("k-1"), compensation("k-2")
	fresh := sh.modify(capture, cancel, refunds[0], refunds[1], first, second, sh.modification(other, payment.Cancel, "x-2"))
	if want := []bool{true, false, true, true, true, false, true}; !slices.Equal(fresh, want) {
		t.Fatalf("got %v, want %v", fresh, want)
	}
	settle := func(m payment.Modification, to payment.ModificationStatus, failure string) {
		t.Helper()
		done := m
		done.Status, done.Failure.Code, done.Version = to, failure, 2
		sh.tx(func(ctx context.Context, tx flow.Tx) error {
			return tx.SaveModifications(ctx, []flow.ModificationChange{{ExpectedStatus: payment.ModPending, ExpectedVersion: 1, New: done}})
		})
	}
	settle(capture, payment.ModSucceeded, "")
	settle(first, payment.ModFailed, "declined")
	if fresh := sh.modify(cancel, second); !slices.Equal(fresh, []bool{true, true}) {
		t.Errorf("after the first ones were over: %v", fresh)
	}
	settle(second, payment.ModSucceeded, "")
	if fresh := sh.modify(compensation("k-3"), sh.modification(st, payment.Capture, "c-2")); !slices.Equal(fresh, []bool{false, false}) {
		t.Errorf("given back twice, or captured during a cancel: %v", fresh)
	}
	for name, c := range map[string]struct {
		change func(*payment.Modification)
		want   string
	}{
		"the same command twice": {func(m *payment.Modification) { m.By = refunds[0].By }, "modification_merchant_id_kind_idempotency_key_key"},
		"the same acquirer key":  {func(m *payment.Modification) { m.AcquirerKey = refunds[0].AcquirerKey }, "modification_merchant_id_acquirer_key_key"},
		"no such payment":        {func(m *payment.Modification) { m.Payment = newID() }, "modification_merchant_id_payment_id_fkey"},
	} {
		r := sh.modification(st, payment.Refund, "r-3")
		c.change(&r)
		err := sh.s.InTx(t.Context(), "insert", func(ctx context.Context, tx flow.Tx) error {
			_, err := tx.InsertModifications(ctx, []payment.Modification{r})
			return err
		})
		if got, ok := store.Violation(err); !ok || got != c.want || !errors.Is(err, operation.ErrNothingDone) {
			t.Errorf("%s: %v, constraint %q", name, err, got)
		}
	}
}

// What waits among the changes to payments: a refund and a compensation whose results are not proven, and what a bank took back.
func TestBacklogOfChanges(t *testing.T) {
	sh := newShop(t)
	refunded, stray := sh.start("order-1"), sh.start("order-2")
	refund, back := sh.modification(refunded, payment.Refund, "r-1"), sh.modification(stray, payment.Compensation, "k-1")
	refund.Status, back.Movement = payment.ModUnknown, sh.stray(stray, "ch_stray").ID
	sh.modify(refund, back)
	dispute := payment.Dispute{Merchant: sh.merchant, Intent: refunded.intent.ID, Payment: refunded.payment.ID, Account: sh.account,
		Amount: money.Must(1, "EUR"), Status: payment.DisputeOpened, ID: newID(), Reference: "cb_1"}
	lost := dispute
	lost.ID, lost.Reference, lost.Status, lost.DecidedAt = newID(), "cb_2", payment.DisputeLost, time.Now()
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		return tx.SaveDisputes(ctx, []payment.Dispute{dispute, lost})
	})
	for _, m := range []payment.Modification{refund, back} {
		sh.owner("UPDATE operation SET modification_id = $1 WHERE payment_id = $2", m.ID.String(), m.Payment.String())
	}
	sh.owner("UPDATE modification SET created_at = now() - CASE type WHEN 'refund' THEN interval '10 minutes' ELSE interval '20 minutes' END")
	b, err := sh.s.Backlog(t.Context())
	if err != nil || b.OpenRefunds != 1 || b.UnknownChanges != 1 || b.OpenCompensations != 1 || b.OpenDisputes != 1 ||
		b.OldestRefund.Round(time.Minute) != 10*time.Minute || b.OldestUnknownChange.Round(time.Minute) != 10*time.Minute ||
		b.OldestCompensation.Round(time.Minute) != 20*time.Minute {
		t.Errorf("got %+v, %v", b, err)
	}
}

// Without any lock the index alone decides among many.
func TestTwentyAtOnceMakeOneModification(t *testing.T) {
	sh := newShop(t)
	st := sh.start("order-1")
	m := sh.stray(st, "ch_stray")
	const callers = 20
	for name, of := range map[string]func(n int) payment.Modification{
		"capture or cancel": func(n int) payment.Modification {
			return sh.modification(st, []payment.ModificationType{payment.Capture, payment.Cancel}[n%2], fmt.Sprint("c-", n))
		},
		"compensation": func(n int) payment.Modification {
			c := sh.modification(st, payment.Compensation, fmt.Sprint("k-", n))
			c.Movement = m.ID
			return c
		},
	} {
		var made atomic.Int64
		var all errgroup.Group
		for n := range callers {
			row := of(n)
			all.Go(func() error {
				var fresh []bool
				err := sh.s.InTx(t.Context(), "modify", func(ctx context.Context, tx flow.Tx) (err error) {
					fresh, err = tx.InsertModifications(ctx, []payment.Modification{row})
					return err
				})
				if err == nil && fresh[0] {
					made.Add(1)
				}
				return err
			})
		}
		if err := all.Wait(); err != nil {
			t.Fatal(err)
		}
		if made.Load() != 1 {
			t.Errorf("%s: %d of %d were made", name, made.Load(), callers)
		}
	}
	if n := sh.count("modification", "true"); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}

// I-9 by hand: twenty that reserve the same money by SQL alone, with no code of ours between.
func TestTwentyAtOnceReserveWhatIsThere(t *testing.T) {
	sh := newShop(t)
	sh.start("order-1")
	sh.owner("UPDATE payment SET status = 'authorized', capture_method = 'manual', authorized_amount = amount, captured_amount = 900")
	pool := sh.db.OwnerPool(t)
	const callers = 20
	for _, c := range []struct {
		set, constraint string
		want            int64 // of the callers
	}{
		{"refunding_amount = refunding_amount + 300", "payment_given_back", 3},
		{"capturing_amount = capturing_amount + 150", "payment_capturing", 4},
	} {
		var done atomic.Int64
		var all errgroup.Group
		for range callers {
			all.Go(func() error {
				_, err := pool.Exec(t.Context(), "UPDATE payment SET "+c.set)
				if name, ok := store.Violation(err); ok && name == c.constraint {
					return nil
				}
				if err == nil {
					done.Add(1)
				}
				return err
			})
		}
		if err := all.Wait(); err != nil {
			t.Fatal(err)
		}
		if done.Load() != c.want {
			t.Errorf("%s: %d of %d succeeded, want %d", c.set, done.Load(), callers, c.want)
		}
	}
}

func TestModificationsKeepWhatTheySay(t *testing.T) {
	sh := newShop(t)
	st, other := sh.start("order-1"), sh.start("order-2")
	full := sh.modification(st, payment.Refund, "r-1")
	full.Action, full.Status, full.Final, full.External = acquirer.ActionRefund, payment.ModFailed, true, true
	full.AcquirerReference, full.Reason, full.Failure, full.AnsweredStatus = "rf_1", "damaged", payment.Failure{Code: "declined", Message: "m"}, 422
	bare := sh.modification(st, payment.Cancel, "x-1")
	sh.modify(bare, full, sh.modification(other, payment.Refund, "r-2"))
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		got, err := tx.ModificationsOf(ctx, []flow.Row{row(st.payment)})
		if err != nil {
			return err
		}
		sameRows(t, "modifications", got, []payment.Modification{full, bare}, "CreatedAt", "UpdatedAt")
		one, found, err := tx.ModificationByID(ctx, flow.Row{Merchant: sh.merchant, ID: full.ID})
		if !found || one.ID != full.ID || one.CreatedAt.IsZero() {
			t.Errorf("by id %+v, %v", one, found)
		}
		if _, found, e := tx.ModificationByID(ctx, flow.Row{Merchant: newID(), ID: full.ID}); found || e != nil {
			t.Errorf("another merchant's: %v, %v", found, e)
		}
		return err
	})
	done := bare
	done.Status, done.Action, done.AcquirerReference, done.AnsweredStatus, done.Version = payment.ModSucceeded, acquirer.ActionReverse, "rv_1", 201, 2
	save := func(expected payment.ModificationStatus, version int64) error {
		return sh.s.InTx(t.Context(), "save", func(ctx context.Context, tx flow.Tx) error {
			return tx.SaveModifications(ctx, []flow.ModificationChange{{ExpectedStatus: expected, ExpectedVersion: version, New: done}})
		})
	}
	if err := errors.Join(save(payment.ModUnknown, 1), save(payment.ModPending, 2)); !errors.Is(err, operation.ErrNothingDone) {
		t.Errorf("another state or version: %v", err)
	}
	if err := save(payment.ModPending, 1); err != nil {
		t.Fatal(err)
	}
	if err := save(payment.ModPending, 1); !errors.Is(err, operation.ErrNothingDone) {
		t.Errorf("saved twice: %v", err)
	}
	all, err := sh.s.ModificationsOfPayment(t.Context(), sh.merchant, st.payment.ID)
	if err != nil {
		t.Fatal(err)
	}
	sameRows(t, "saved", all, []payment.Modification{full, done}, "CreatedAt", "UpdatedAt")
}

// K8: who made a change, or joined one, is known when its operation is gone; who joined the payment itself is another thing.
func TestModificationsAreFoundByTheirCommands(t *testing.T) {
	sh := newShop(t)
	st := sh.start("order-1")
	m := sh.modification(st, payment.Capture, "c-1")
	sh.modify(m)
	command := func(key string) payment.Command {
		return payment.Command{Kind: "capture", Key: key, Fingerprint: [32]byte{9}, FPVersion: 2}
	}
	ref := func(merchant id.ID, key string) flow.CommandRef {
		return flow.CommandRef{Merchant: merchant, Kind: "capture", Key: key}
	}
	refs := []flow.CommandRef{ref(sh.merchant, "c-1"), ref(sh.merchant, "joined"), ref(sh.merchant, "the payment"), ref(sh.merchant, "none"), ref(newID(), "c-1")}
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		if err := tx.InsertJoined(ctx, []flow.Joined{
			{Merchant: sh.merchant, By: command("joined"), Payment: st.payment.ID, Modification: m.ID},
			{Merchant: sh.merchant, By: command("the payment"), Payment: st.payment.ID},
		}); err != nil {
			return err
		}
		got, err := tx.ModificationsByCommand(ctx, refs)
		if err != nil {
			return err
		}
		slices.SortFunc(got, func(a, b payment.Modification) int { return len(a.By.Key) - len(b.By.Key) })
		joined := m
		joined.By = command("joined")
		sameRows(t, "by command", got, []payment.Modification{m, joined}, "CreatedAt", "UpdatedAt")
		payments, err := tx.PaymentsByCommand(ctx, refs)
		if len(payments) != 1 || payments[0].By != command("the payment") {
			t.Errorf("payments by command %+v", payments)
		}
		return err
	})
}

func TestRefundsAreListed(t *testing.T) {
	sh := newShop(t)
	st, other := sh.start("order-1"), sh.start("order-2")
	stray := sh.stray(st, "ch_stray")
	compensation := sh.modification(st, payment.Compensation, "k-1")
	compensation.Movement = stray.ID
	first, second, capture := sh.modification(st, payment.Refund, "r-1"), sh.modification(other, payment.Refund, "r-2"), sh.modification(st, payment.Capture, "c-1")
	sh.modify(first, second, capture, compensation)
	for name, c := range map[string]struct {
		merchant, payment id.ID
		page              store.Page
		want              []id.ID
	}{
		"of the merchant":   {sh.merchant, id.ID{}, store.Page{Limit: 10}, []id.ID{second.ID, first.ID, compensation.ID}},
		"the newest":        {sh.merchant, id.ID{}, store.Page{Limit: 1}, []id.ID{second.ID}},
		"the next page":     {sh.merchant, id.ID{}, store.Page{Limit: 1, Before: second.ID}, []id.ID{first.ID}},
		"of a payment":      {sh.merchant, st.payment.ID, store.Page{Limit: 10}, []id.ID{first.ID, compensation.ID}},
		"its second page":   {sh.merchant, st.payment.ID, store.Page{Limit: 10, Before: first.ID}, []id.ID{compensation.ID}},
		"another merchant":  {newID(), st.payment.ID, store.Page{Limit: 10}, nil},
		"another's payment": {sh.merchant, newID(), store.Page{Limit: 10}, nil},
	} {
		got, err := sh.s.Refunds(t.Context(), c.merchant, c.payment, c.page)
		if err != nil {
			t.Fatal(err)
		}
		var ids []id.ID
		for _, m := range got {
			ids = append(ids, m.ID)
		}
		if !slices.Equal(ids, c.want) {
			t.Errorf("%s: %v, want %v", name, ids, c.want)
		}
	}
	for _, c := range []struct {
		merchant, refund id.ID
		want             bool
	}{{sh.merchant, first.ID, true}, {sh.merchant, compensation.ID, true}, {sh.merchant, capture.ID, false}, {newID(), first.ID, false}, {sh.merchant, newID(), false}} {
		m, found, err := sh.s.RefundByID(t.Context(), c.merchant, c.refund)
		if err != nil || found != c.want || found && m.ID != c.refund {
			t.Errorf("by id: %+v, %v, %v", m, found, err)
		}
	}
}

// A call that is not known at the claim is bound later, by whoever has the fence, once, and then sent under a first permit.
func TestACallIsBoundLater(t *testing.T) {
	sh := newShop(t)
	st := sh.start("order-1")
	cancel := sh.modification(st, payment.Cancel, "x-1")
	op := sh.operation("x-1")
	op.Kind, op.SendUntil = operation.CancelPayment, time.Time{}
	sh.insert(op)
	sh.modify(cancel)
	op.Intent, op.Payment, op.Modification, op.AcquirerKey = st.intent.ID, st.payment.ID, cancel.ID, cancel.AcquirerKey
	sh.tx(func(ctx context.Context, tx flow.Tx) error { return tx.BindOperations(ctx, []operation.Operation{op}) })
	if got := sh.read(op.Ref); got.Sends != 0 || got.Action != "" || got.Modification != cancel.ID || got.Payment != st.payment.ID {
		t.Fatalf("claimed %+v", got)
	}
	if got := sh.permit(usual(op)); got.Denied != operation.DeniedStale {
		t.Errorf("sent before it was known what: %+v", got)
	}
	call := op
	call.Account, call.Action, call.Object, call.RequestBody = sh.account, "reverse", "ch_1", []byte(`{"a":1}`)
	bind := func(o operation.Operation) bool {
		t.Helper()
		var bound []bool
		sh.tx(func(ctx context.Context, tx flow.Tx) (err error) {
			bound, err = tx.BindCalls(ctx, []operation.Operation{o})
			return err
		})
		return bound[0]
	}
	stale := call
	stale.Fence++
	if bind(stale) || !bind(call) {
		t.Error("the fence does not decide")
	}
	twice := call
	twice.Object = "ch_2"
	if bind(twice) || bind(st.op) {
		t.Error("a call was bound over another one")
	}
	got := sh.read(op.Ref)
	if got.Account != sh.account || got.Action != "reverse" || got.Object != "ch_1" || string(got.RequestBody) != `{"a":1}` ||
		got.AcquirerKey != cancel.AcquirerKey || got.Sends != 0 || !got.FirstPermitAt.IsZero() {
		t.Errorf("bound %+v", got)
	}
	ask := usual(op)
	ask.MaxSends, ask.CutOff = 1, 0 // at an acquirer without keys
	if got := sh.permit(ask); !got.Granted || got.Op.Sends != 1 || got.Op.FirstPermitAt.IsZero() {
		t.Errorf("the first permit %+v", got)
	}
	if got := sh.permit(usual(op)); !got.Granted {
		t.Errorf("a second one, where keys are honoured: %+v", got)
	}
	call.Action = ""
	err := sh.s.InTx(t.Context(), "bind", func(ctx context.Context, tx flow.Tx) error {
		_, err := tx.BindCalls(ctx, []operation.Operation{call})
		return err
	})
	if !errors.Is(err, operation.ErrNothingDone) {
		t.Errorf("a call without an action: %v", err)
	}
}
