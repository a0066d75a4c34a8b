package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
)

func (sh *shop) permit(ask operation.PermitAsk) (answer operation.PermitAnswer) {
	sh.t.Helper()
	sh.tx(func(ctx context.Context, tx flow.Tx) (err error) {
		answer, err = tx.Permit(ctx, ask)
		return err
	})
	return answer
}

// usual asks as the owner of a payment under way does, at an acquirer that honours keys.
func usual(op operation.Operation) operation.PermitAsk {
	return operation.PermitAsk{Ref: op.Ref, Fence: op.Fence, PermitID: newID(), MaxSends: 3, CutOff: 12 * time.Hour}
}

func TestPermitCountsBeforeAnythingLeaves(t *testing.T) {
	sh := newShop(t)
	st := sh.start("order-1")
	ask := usual(st.op)
	got := sh.permit(ask)
	if !got.Granted || got.Op.Sends != 2 || got.Op.PermitID != ask.PermitID || !got.Op.FirstPermitAt.Equal(st.op.FirstPermitAt) ||
		!got.Op.LastPermitAt.After(st.op.LastPermitAt) {
		t.Fatalf("got %+v", got)
	}
	if again := sh.permit(ask); !again.Granted || again.Op.Sends != 2 {
		t.Errorf("asked again with one id: %+v", again)
	}
	ask = usual(st.op)
	ask.Unsent = 1 // the second send saw no byte leave: it frees its place in the budget
	if got = sh.permit(ask); !got.Granted || got.Op.Sends != 3 || got.Op.Unsent != 1 {
		t.Errorf("after an unsent one %+v", got)
	}
	if got = sh.permit(usual(st.op)); !got.Granted || got.Op.Sends != 4 {
		t.Errorf("the third that left: %+v", got)
	}
	if got = sh.permit(usual(st.op)); got.Granted || got.Denied != operation.DeniedBudget {
		t.Errorf("past the budget: %+v", got)
	}
	if row := sh.read(st.op.Ref); row.Sends != 4 || row.Unsent != 1 {
		t.Errorf("a denial changed the row: %d sends, %d unsent", row.Sends, row.Unsent)
	}
}

func TestPermitIsDenied(t *testing.T) {
	// Each case starts from a payment under way whose owner may send, and breaks one condition.
	move := func(m payment.Movement) func(*shop, *started, *operation.PermitAsk) {
		return func(sh *shop, st *started, _ *operation.PermitAsk) {
			m.Merchant, m.ID, m.Account, m.Amount = sh.merchant, newID(), sh.account, st.intent.Amount
			if m.Reference == "" {
				m.Reference = "ch_1"
			}
			switch m.AcquirerKey {
			case "":
				m.Intent, m.Payment = st.intent.ID, st.payment.ID
			case "ours":
				m.AcquirerKey = st.payment.AcquirerKey
			}
			sh.tx(func(ctx context.Context, tx flow.Tx) error {
				_, err := tx.InsertMovements(ctx, []payment.Movement{m})
				return err
			})
		}
	}
	sql := func(text string) func(*shop, *started, *operation.PermitAsk) {
		return func(sh *shop, _ *started, _ *operation.PermitAsk) { sh.owner(text) }
	}
	asking := func(f func(*operation.PermitAsk)) func(*shop, *started, *operation.PermitAsk) {
		return func(_ *shop, _ *started, ask *operation.PermitAsk) { f(ask) }
	}
	for name, c := range map[string]struct {
		change func(*shop, *started, *operation.PermitAsk)
		denied string // empty: granted
	}{
		"nothing broken":         {asking(func(*operation.PermitAsk) {}), ""},
		"another fence":          {asking(func(a *operation.PermitAsk) { a.Fence++ }), operation.DeniedStale},
		"no such operation":      {asking(func(a *operation.PermitAsk) { a.Key = "other" }), operation.DeniedStale},
		"in review":              {sql("UPDATE operation SET state = 'in_review'"), operation.DeniedStale},
		"awaiting result":        {sql("UPDATE operation SET state = 'awaiting_result'"), ""},
		"finished":               {sql("UPDATE operation SET state = 'completed', answer_status = 200, completed_at = now(), expires_at = now()"), operation.DeniedStale},
		"more unsent than sent":  {asking(func(a *operation.PermitAsk) { a.Unsent = 2 }), operation.DeniedStale},
		"budget of one":          {asking(func(a *operation.PermitAsk) { a.MaxSends = 1 }), operation.DeniedBudget},
		"one that did not leave": {asking(func(a *operation.PermitAsk) { a.MaxSends, a.Unsent = 1, 1 }), ""},
		"sixteen ever":           {sql("UPDATE operation SET sends = 16, unsent = 15"), operation.DeniedBudget},
		"fifteen ever":           {sql("UPDATE operation SET sends = 15, unsent = 14"), ""},
		"past the cut-off":       {sql("UPDATE operation SET first_permit_at = now() - interval '13 hours'"), operation.DeniedCutOff},
		"before the cut-off":     {sql("UPDATE operation SET first_permit_at = now() - interval '11 hours', last_permit_at = now() - interval '13 hours'"), ""},
		"no cut-off, one left":   {asking(func(a *operation.PermitAsk) { a.CutOff = 0 }), operation.DeniedCutOff},
		"no cut-off, none left":  {asking(func(a *operation.PermitAsk) { a.CutOff, a.Unsent = 0, 1 }), ""},
		"too late to begin":      {sql("UPDATE operation SET send_until = now() - interval '1 second'"), operation.DeniedLate},
		"late, a client waits": {func(sh *shop, _ *started, ask *operation.PermitAsk) {
			sh.owner("UPDATE operation SET send_until = now() - interval '1 second'")
			ask.ClientWaiting = true
		}, ""},
		"intent expired":               {sql("UPDATE payment_intent SET pay_before = now() - interval '1 second'"), operation.DeniedExpired},
		"being canceled":               {sql("UPDATE payment SET status = 'canceling'"), operation.DeniedCanceling},
		"conflict":                     {sql("UPDATE payment_intent SET conflict = true"), operation.DeniedMoney},
		"applied money":                {move(payment.Movement{Kind: acquirer.MovementCharge, State: payment.Applied}), operation.DeniedMoney},
		"unapplied money":              {move(payment.Movement{Kind: acquirer.MovementCharge, State: payment.Unapplied, Cause: "amount"}), operation.DeniedMoney},
		"returned money":               {move(payment.Movement{Kind: acquirer.MovementCharge, State: payment.Returned}), ""},
		"a refund":                     {move(payment.Movement{Kind: acquirer.MovementRefund, State: payment.Applied}), ""},
		"unattributed money":           {move(payment.Movement{Kind: acquirer.MovementCharge, State: payment.Unapplied, Cause: "x", AcquirerKey: "ours"}), operation.DeniedMoney},
		"unattributed, given back":     {move(payment.Movement{Kind: acquirer.MovementCharge, State: payment.Returned, AcquirerKey: "ours"}), ""},
		"a sibling's, not asked about": {move(payment.Movement{Kind: acquirer.MovementCharge, State: payment.Unapplied, Cause: "x", AcquirerKey: "sibling"}), ""},
		"a sibling's money": {func(sh *shop, st *started, ask *operation.PermitAsk) {
			move(payment.Movement{Kind: acquirer.MovementCharge, State: payment.Unapplied, Cause: "x", AcquirerKey: "sibling"})(sh, st, ask)
			ask.Family = []string{"elder", "sibling"}
		}, operation.DeniedMoney},
		"a sibling's, given back": {func(sh *shop, st *started, ask *operation.PermitAsk) {
			move(payment.Movement{Kind: acquirer.MovementCharge, State: payment.Returned, AcquirerKey: "sibling"})(sh, st, ask)
			ask.Family = []string{"sibling"}
		}, ""},
		"its own, beside a family": {func(sh *shop, st *started, ask *operation.PermitAsk) {
			move(payment.Movement{Kind: acquirer.MovementCharge, State: payment.Unapplied, Cause: "x", AcquirerKey: "ours"})(sh, st, ask)
			ask.Family = []string{"sibling"}
		}, operation.DeniedMoney},
		"hold": {sql("UPDATE database_epoch SET held = true, epoch = 2, lost_from = now(), lost_to = now()"), operation.DeniedHold},
		"hold, from before, allowed": {func(sh *shop, _ *started, ask *operation.PermitAsk) {
			sh.owner("UPDATE database_epoch SET held = true, epoch = 2, lost_from = now(), lost_to = now()")
			ask.HeldOK = true // the row is of epoch 1
		}, operation.DeniedHold},
		"hold, begun in it, allowed": {func(sh *shop, _ *started, ask *operation.PermitAsk) {
			sh.owner("UPDATE database_epoch SET held = true, epoch = 2, lost_from = now(), lost_to = now()")
			sh.owner("UPDATE operation SET epoch = 2")
			ask.HeldOK = true
		}, ""},
		"hold, begun in it, not allowed": {func(sh *shop, _ *started, _ *operation.PermitAsk) {
			sh.owner("UPDATE database_epoch SET held = true, epoch = 2, lost_from = now(), lost_to = now()")
			sh.owner("UPDATE operation SET epoch = 2")
		}, operation.DeniedHold},
		"hold, account compared": {func(sh *shop, _ *started, _ *operation.PermitAsk) {
			sh.owner("UPDATE database_epoch SET held = true, epoch = 2, lost_from = now(), lost_to = now()")
			sh.owner("UPDATE acquirer_account SET compared_epoch = 2")
		}, ""},
		"an epoch without hold": {sql("UPDATE database_epoch SET epoch = 2"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sh := newShop(t)
			st := sh.start("order-1")
			ask := usual(st.op)
			c.change(sh, &st, &ask)
			before := sh.read(st.op.Ref)
			got := sh.permit(ask)
			if got.Granted != (c.denied == "") || got.Denied != c.denied {
				t.Errorf("granted %v, denied %q, want %q", got.Granted, got.Denied, c.denied)
			}
			after := sh.read(st.op.Ref)
			if got.Granted && (after.Sends != before.Sends+1 || after.Unsent != before.Unsent+ask.Unsent) || !got.Granted && after.Sends != before.Sends {
				t.Errorf("sends went from %d to %d", before.Sends, after.Sends)
			}
		})
	}
}

// What gives back, or up, is not barred by money or by time; a capture wants its hold and no conflict (PROTOCOL A0, W3, P7).
func TestPermitOfTheOtherKinds(t *testing.T) {
	const (
		expired  = "UPDATE payment_intent SET pay_before = now() - interval '1 second'"
		conflict = "UPDATE payment_intent SET conflict = true"
		late     = "UPDATE operation SET send_until = now() - interval '1 second'"
		held     = "UPDATE payment SET status = 'authorized', capture_method = 'manual', authorized_amount = amount"
		hold     = "UPDATE database_epoch SET held = true, epoch = 2, lost_from = now(), lost_to = now()"
		cutOff   = "UPDATE operation SET first_permit_at = now() - interval '13 hours'"
		reviewed = "UPDATE operation SET state = 'in_review'"
	)
	give := []operation.Kind{operation.CancelPayment, operation.CreateRefund, operation.Compensate}
	all := append([]operation.Kind{operation.CapturePayment}, give...)
	for name, c := range map[string]struct {
		kinds  []operation.Kind
		money  bool
		sql    []string
		denied string // empty: granted
	}{
		"money, expired, late":              {all, true, []string{held, expired, late}, ""},
		"conflict":                          {give, true, []string{conflict}, ""},
		"whatever the payment is":           {give, false, nil, ""},
		"capture in conflict":               {all[:1], false, []string{held, conflict}, operation.DeniedMoney},
		"capture without a hold":            {all[:1], false, nil, operation.DeniedMoney},
		"database on hold":                  {all, false, []string{held, hold}, operation.DeniedHold},
		"past the cut-off":                  {all, false, []string{held, cutOff}, operation.DeniedCutOff},
		"in review":                         {all, false, []string{held, reviewed}, operation.DeniedStale},
		"a kind that nobody thought of":     {[]operation.Kind{"other"}, false, []string{expired}, operation.DeniedExpired},
		"a kind that nobody thought of too": {[]operation.Kind{"other"}, true, nil, operation.DeniedMoney},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sh := newShop(t)
			st := sh.start("order-1")
			if c.money {
				sh.stray(st, "ch_1")
			}
			for _, sql := range c.sql {
				sh.owner(sql)
			}
			for _, kind := range c.kinds {
				sh.owner("UPDATE operation SET kind = $1", string(kind))
				op := sh.read(operation.Ref{Merchant: sh.merchant, Kind: kind, Key: st.op.Key})
				if got := sh.permit(usual(op)); got.Granted != (c.denied == "") || got.Denied != c.denied {
					t.Errorf("%s: granted %v, denied %q, want %q", kind, got.Granted, got.Denied, c.denied)
				}
				sh.owner("UPDATE operation SET sends = 1, permit_id = gen_random_uuid()")
			}
		})
	}
}

func TestPermitWithImpossibleLimitsIsADefect(t *testing.T) {
	sh := newShop(t)
	st := sh.start("order-1")
	for i, f := range []func(*operation.PermitAsk){
		func(a *operation.PermitAsk) { a.PermitID = [16]byte{} },
		func(a *operation.PermitAsk) { a.MaxSends = 0 },
		func(a *operation.PermitAsk) { a.Unsent = -1 },
		func(a *operation.PermitAsk) { a.CutOff = -1 },
	} {
		ask := usual(st.op)
		f(&ask)
		err := sh.s.InTx(t.Context(), "permit", func(ctx context.Context, tx flow.Tx) error {
			_, err := tx.Permit(ctx, ask)
			return err
		})
		if !errors.Is(err, operation.ErrNothingDone) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// Money that is being booked decides before a permit that already waits: both go through the lock of the intent.
func TestPermitWaitsForTheIntent(t *testing.T) {
	sh := newShop(t)
	st := sh.start("order-1")
	done := make(chan operation.PermitAnswer, 1)
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		if _, err := tx.LockIntents(ctx, []flow.IntentRef{{Merchant: sh.merchant, ID: st.intent.ID}}); err != nil {
			return err
		}
		go func() {
			var answer operation.PermitAnswer
			if err := sh.s.InTx(t.Context(), "permit", func(ctx context.Context, tx flow.Tx) (err error) {
				answer, err = tx.Permit(ctx, usual(st.op))
				return err
			}); err != nil {
				t.Error(err)
			}
			done <- answer
		}()
		sh.db.WaitBlocked(t, 1)
		fresh, err := tx.InsertMovements(ctx, []payment.Movement{{Merchant: sh.merchant, ID: newID(), Account: sh.account, Reference: "ch_1",
			Kind: acquirer.MovementCharge, Intent: st.intent.ID, Payment: st.payment.ID, Amount: st.intent.Amount, State: payment.Applied}})
		if err == nil && !fresh[0] {
			err = fmt.Errorf("not booked")
		}
		return err
	})
	if got := <-done; got.Granted || got.Denied != operation.DeniedMoney {
		t.Errorf("got %+v", got)
	}
}
