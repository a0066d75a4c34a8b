package store_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/store"
)

func (sh *shop) insert(rows ...operation.Operation) (fresh []bool) {
	sh.t.Helper()
	sh.tx(func(ctx context.Context, tx flow.Tx) (err error) {
		fresh, err = tx.InsertOperations(ctx, rows, lease)
		return err
	})
	return fresh
}

func TestClaimsOfABatchAreDecidedRowByRow(t *testing.T) {
	sh := newShop(t)
	other, _ := sh.addMerchant()
	old := sh.claim("old")[0]
	mine, twin, repeat, foreign := sh.operation("z"), sh.operation("z"), sh.operation("old"), sh.operation("z")
	foreign.Merchant = other
	otherKind := sh.operation("z")
	otherKind.Kind = operation.CreateIntent
	fresh := sh.insert(mine, repeat, twin, foreign, otherKind)
	if want := []bool{true, false, false, true, true}; !slices.Equal(fresh, want) {
		t.Fatalf("got %v, want %v", fresh, want)
	}
	row := sh.read(mine.Ref)
	if row.ID != mine.ID || row.ClaimID != mine.ClaimID || row.Fence != 1 || row.State != operation.InProgress || row.Fingerprint != mine.Fingerprint ||
		row.RequestID != mine.RequestID || !row.LeaseUntil.Equal(row.ClaimedAt.Add(lease)) || !row.DueAt.Equal(row.LeaseUntil) || row.Sends != 0 ||
		row.Epoch != 1 || row.Lost || !row.CreatedAt.Equal(row.ClaimedAt) || row.SendUntil.Sub(mine.SendUntil).Abs() > time.Millisecond {
		t.Errorf("stored %+v", row)
	}
	if row := sh.read(old.Ref); row.ClaimID != old.ClaimID {
		t.Error("a repeat changed the row")
	}
}

func TestCase014_ARepeatSeesTheRowItWaitedFor(t *testing.T) {
	sh := newShop(t)
	first, second := sh.operation("k"), sh.operation("k")
	type outcome struct {
		fresh bool
		rows  []operation.Operation
		err   error
	}
	done := make(chan outcome, 1)
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		if _, err := tx.InsertOperations(ctx, []operation.Operation{first}, lease); err != nil {
			return err
		}
		go func() {
			var o outcome
			o.err = sh.s.InTx(t.Context(), "repeat", func(ctx context.Context, tx flow.Tx) error {
				fresh, err := tx.InsertOperations(ctx, []operation.Operation{second}, lease)
				if err != nil {
					return err
				}
				o.fresh = fresh[0]
				o.rows, err = tx.ReadOperations(ctx, []operation.Ref{second.Ref})
				return err
			})
			done <- o
		}()
		sh.db.WaitBlocked(t, 1)
		return nil
	})
	o := <-done
	if o.err != nil || o.fresh || len(o.rows) != 1 || o.rows[0].ClaimID != first.ClaimID {
		t.Errorf("the repeat got %+v", o)
	}
}

func TestACrossedBatchOfClaimsDoesNotDeadlock(t *testing.T) {
	sh := newShop(t)
	keys := []string{"a", "B", "c", "D", "é", "f"}
	const workers = 4
	done := make(chan error, workers)
	for w := range workers {
		go func() {
			var rows []operation.Operation
			for i := range keys {
				rows = append(rows, sh.operation(keys[(i*(2*w+1)+w)%len(keys)]))
			}
			done <- sh.s.InTx(t.Context(), "batch", func(ctx context.Context, tx flow.Tx) error {
				_, err := tx.InsertOperations(ctx, rows, lease)
				return err
			})
		}()
	}
	for range workers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := sh.s.Counters().Retries; n != 0 {
		t.Errorf("%d transactions had to run again", n)
	}
}

func TestDeleteUndoesOnlyOnesOwnClaim(t *testing.T) {
	sh := newShop(t)
	op := sh.operation("k")
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		if _, err := tx.InsertOperations(ctx, []operation.Operation{op}, lease); err != nil {
			return err
		}
		return tx.DeleteOperations(ctx, []operation.Ref{op.Ref})
	})
	if n := sh.count("operation", "true"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	old := sh.claim("old")[0]
	err := sh.s.InTx(t.Context(), "delete", func(ctx context.Context, tx flow.Tx) error {
		return tx.DeleteOperations(ctx, []operation.Ref{old.Ref})
	})
	if !errors.Is(err, operation.ErrNothingDone) {
		t.Errorf("another transaction's claim: %v", err)
	}
	sh.read(old.Ref)
}

func take(op operation.Operation) operation.Take {
	return operation.Take{Ref: op.Ref, Fence: op.Fence, ClaimID: newID(), Lease: 2 * lease}
}

func (sh *shop) takeOver(takes ...operation.Take) (taken []operation.Operation) {
	sh.t.Helper()
	sh.tx(func(ctx context.Context, tx flow.Tx) (err error) {
		taken, err = tx.TakeOver(ctx, takes)
		return err
	})
	return taken
}

func TestTakeOver(t *testing.T) {
	sh := newShop(t)
	op := sh.claim("k")[0]
	if got := sh.takeOver(take(op)); len(got) != 0 {
		t.Errorf("taken before its lease was over: %+v", got)
	}
	sh.age(time.Minute)
	wrong := take(op)
	wrong.Fence = 2
	if got := sh.takeOver(wrong); len(got) != 0 {
		t.Errorf("taken with another fence: %+v", got)
	}
	k := take(op)
	got := sh.takeOver(k)
	if len(got) != 1 || got[0].Fence != 2 || got[0].ClaimID != k.ClaimID || got[0].State != operation.InProgress ||
		!got[0].LeaseUntil.Equal(got[0].ClaimedAt.Add(2*lease)) || !got[0].DueAt.Equal(got[0].LeaseUntil) {
		t.Fatalf("got %+v", got)
	}
	if got := sh.takeOver(k); len(got) != 1 || got[0].Fence != 2 { // K10: the answer to its COMMIT was lost
		t.Errorf("asked again with the same claim id: %+v", got)
	}
	sh.age(time.Hour)
	if got := sh.takeOver(take(op)); len(got) != 0 {
		t.Errorf("the first fence still takes: %+v", got)
	}
	for _, state := range []string{"awaiting_result", "in_review"} {
		sh.owner("UPDATE operation SET state = $1", state)
		current := sh.read(op.Ref)
		if got := sh.takeOver(take(current)); len(got) != 1 || string(got[0].State) != state {
			t.Errorf("%s: %+v", state, got)
		}
		sh.age(time.Hour)
	}
	sh.owner("UPDATE operation SET follows_id = $1", newID().String())
	if got := sh.takeOver(take(sh.read(op.Ref))); len(got) != 0 {
		t.Errorf("a row that follows another was taken: %+v", got)
	}
	sh.owner("UPDATE operation SET follows_id = NULL, state = 'completed', completed_at = now(), expires_at = now(), answer_status = 200")
	if got := sh.takeOver(take(sh.read(op.Ref))); len(got) != 0 {
		t.Errorf("a finished row was taken: %+v", got)
	}
}

func TestOneOfManyRacersTakesOver(t *testing.T) {
	sh := newShop(t)
	op := sh.claim("k")[0]
	sh.age(time.Minute)
	const racers = 3
	done := make(chan []operation.Operation, racers)
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		if _, err := tx.LockOperations(ctx, []operation.Ref{op.Ref}); err != nil {
			return err
		}
		for range racers {
			go func() {
				var taken []operation.Operation
				if err := sh.s.InTx(t.Context(), "race", func(ctx context.Context, tx flow.Tx) (err error) {
					taken, err = tx.TakeOver(ctx, []operation.Take{take(op)})
					return err
				}); err != nil {
					t.Error(err)
				}
				done <- taken
			}()
		}
		sh.db.WaitBlocked(t, racers) // each has decided that the row is due
		return nil
	})
	winners := 0
	for range racers {
		winners += len(<-done)
	}
	if row := sh.read(op.Ref); winners != 1 || row.Fence != 2 {
		t.Errorf("%d winners, fence %d", winners, row.Fence)
	}
}

func (sh *shop) pick(limit, perMerchant int) (picked []operation.Operation) {
	sh.t.Helper()
	sh.tx(func(ctx context.Context, tx flow.Tx) (err error) {
		picked, err = tx.PickDue(ctx, limit, perMerchant, lease, newID)
		return err
	})
	return picked
}

func TestPickDueIsFairAndOldestFirst(t *testing.T) {
	for name, distributed := range map[string]bool{"plain": false, "distributed": true} {
		t.Run(name, func(t *testing.T) {
			sh := newShop(t, func(c *store.Config) { c.Distributed = distributed })
			many := sh.claim("m1", "m2", "m3", "m4", "m5")
			few := &shop{t: t, db: sh.db, s: sh.s}
			few.merchant, few.account = sh.addMerchant()
			few.claim("f1")
			for i, key := range []string{"m5", "m4", "m3", "m2", "m1", "f1"} { // f1 is the youngest
				sh.owner("UPDATE operation SET due_at = now() - make_interval(mins => $1) WHERE idempotency_key = $2", 60-i, key)
			}
			done := sh.claim("done")[0]
			sh.owner("UPDATE operation SET state = 'completed', completed_at = now(), expires_at = now(), answer_status = 200, due_at = now() - interval '1 day' WHERE id = $1", done.ID.String())
			sh.claim("not-due")
			var got [][]string
			for range 4 {
				var keys []string
				for _, o := range sh.pick(3, 2) {
					keys = append(keys, o.Key)
					if o.Fence != 2 || !o.LeaseUntil.Equal(o.ClaimedAt.Add(2*lease)) {
						t.Errorf("%s: fence %d, lease of %v", o.Key, o.Fence, o.LeaseUntil.Sub(o.ClaimedAt))
					}
				}
				got = append(got, keys)
			}
			want := [][]string{{"m5", "m4", "f1"}, {"m3", "m2"}, {"m1"}, nil}
			if !slices.EqualFunc(got, want, slices.Equal[[]string]) {
				t.Errorf("got %v, want %v", got, want)
			}
			if row := sh.read(many[0].Ref); row.Fence != 2 {
				t.Errorf("fence %d", row.Fence)
			}
		})
	}
}

func TestPickDuePassesWhatIsLocked(t *testing.T) {
	sh := newShop(t)
	sh.claim("a", "b")
	sh.age(time.Minute)
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		if _, err := tx.LockOperations(ctx, []operation.Ref{{Merchant: sh.merchant, Kind: operation.CreatePayment, Key: "a"}}); err != nil {
			return err
		}
		if picked := sh.pick(10, 10); len(picked) != 1 || picked[0].Key != "b" {
			t.Errorf("picked %+v beside a locked row", picked)
		}
		return nil
	})
}

func TestPickDueTakesRowsThatFollow(t *testing.T) {
	sh := newShop(t)
	sh.claim("k")
	sh.owner("UPDATE operation SET follows_id = $1, due_at = now()", newID().String())
	if picked := sh.pick(10, 10); len(picked) != 1 || picked[0].Follows.IsZero() {
		t.Errorf("picked %+v", picked)
	}
}

func (sh *shop) save(rows ...operation.Operation) (saved []bool) {
	sh.t.Helper()
	sh.tx(func(ctx context.Context, tx flow.Tx) (err error) {
		saved, err = tx.SaveOperations(ctx, rows, 24*time.Hour)
		return err
	})
	return saved
}

func TestSaveOperationsIsFenced(t *testing.T) {
	sh := newShop(t)
	st := sh.start("order-1")
	stale, mine := st.op, sh.claim("b")[0]
	sh.age(time.Minute)
	sh.takeOver(take(stale))
	stale.State, stale.AnswerStatus, stale.AnswerBody = operation.Completed, 402, []byte("no")
	due := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	mine.State, mine.DueAt, mine.Checks = operation.AwaitingResult, due, 2
	if saved := sh.save(stale, mine); !slices.Equal(saved, []bool{false, true}) {
		t.Fatalf("saved %v", saved)
	}
	if row := sh.read(mine.Ref); row.State != operation.AwaitingResult || !row.DueAt.Equal(due) || row.Checks != 2 || row.AnswerStatus != 0 {
		t.Errorf("stored %+v", row)
	}
	current := sh.read(stale.Ref)
	if current.State != operation.InProgress || current.AnswerStatus != 0 {
		t.Errorf("a stale owner wrote %+v", current)
	}
	current.State, current.AnswerStatus, current.AnswerBody, current.Unsent = operation.Completed, 201, []byte(`{"ok":true}`), 1
	if saved := sh.save(current); !saved[0] {
		t.Fatal("the owner could not record")
	}
	row := sh.read(stale.Ref)
	if row.State != operation.Completed || row.AnswerStatus != 201 || string(row.AnswerBody) != `{"ok":true}` || row.Unsent != 1 ||
		row.CompletedAt.IsZero() || !row.ExpiresAt.Equal(row.CompletedAt.Add(24*time.Hour)) || row.Intent != st.intent.ID {
		t.Errorf("stored %+v", row)
	}
	current.AnswerStatus = 500
	if saved := sh.save(current); saved[0] {
		t.Error("a finished operation was written again")
	}
}

func TestBindOperationsOnlyOnce(t *testing.T) {
	sh := newShop(t)
	st := sh.start("order-1")
	if o := st.op; o.Sends != 1 || o.Unsent != 0 || o.FirstPermitAt.IsZero() || !o.LastPermitAt.Equal(o.FirstPermitAt) || o.PermitID.IsZero() ||
		o.Action != "charge" || o.AcquirerKey != st.payment.AcquirerKey || string(o.RequestBody) != "{}" || o.Account != sh.account || o.Payment != st.payment.ID {
		t.Errorf("stored %+v", o)
	}
	err := sh.s.InTx(t.Context(), "bind", func(ctx context.Context, tx flow.Tx) error {
		return tx.BindOperations(ctx, []operation.Operation{st.op})
	})
	if !errors.Is(err, operation.ErrNothingDone) {
		t.Errorf("bound twice: %v", err)
	}
	follower := sh.claim("second-tab")[0]
	follower.Intent, follower.Payment, follower.Follows = st.intent.ID, st.payment.ID, st.op.ID
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		return tx.BindOperations(ctx, []operation.Operation{follower})
	})
	if o := sh.read(follower.Ref); o.Sends != 0 || o.Follows != st.op.ID || !o.PermitID.IsZero() || o.SendUntil.IsZero() {
		t.Errorf("a follower is stored as %+v", o)
	}
	var open []operation.Operation
	sh.tx(func(ctx context.Context, tx flow.Tx) (err error) {
		open, err = tx.OpenOperations(ctx, []flow.Row{row(st.payment)})
		return err
	})
	if len(open) != 2 {
		t.Errorf("%d open operations of the payment", len(open))
	}
}

// What a command is about is kept from whatever statement told it.
func TestAnOperationKnowsItsModification(t *testing.T) {
	sh := newShop(t)
	st := sh.start("order-1")
	claimed, bound := sh.operation("claimed"), sh.claim("bound")[0]
	claimed.Modification = newID()
	sh.insert(claimed)
	bound.Intent, bound.Payment, bound.Modification, bound.Account = st.intent.ID, st.payment.ID, newID(), sh.account
	bound.Action, bound.AcquirerKey, bound.Object, bound.RequestBody, bound.PermitID = "refund", "hpx-r", "ch_1", []byte("{}"), newID()
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		return tx.BindOperations(ctx, []operation.Operation{bound})
	})
	if o := sh.read(claimed.Ref); o.Modification != claimed.Modification || o.Object != "" {
		t.Errorf("claimed %+v", o)
	}
	o := sh.read(bound.Ref)
	if o.Modification != bound.Modification || o.Object != "ch_1" || o.Sends != 1 {
		t.Errorf("bound %+v", o)
	}
	o.Modification = newID()
	sh.save(o)
	if saved := sh.read(bound.Ref); saved.Modification != o.Modification || saved.Object != "ch_1" {
		t.Errorf("saved %+v", saved)
	}
}

func TestANoteIsKeptOnce(t *testing.T) {
	sh := newShop(t)
	note := operation.Note{Merchant: sh.merchant, ID: newID(), Kind: operation.CreatePayment, What: operation.WhatClaimed, Request: "r", KeyHash: "h", Fence: 1}
	for range 2 { // the second time after a lost COMMIT
		sh.tx(func(ctx context.Context, tx flow.Tx) error { return tx.NoteHistory(ctx, []operation.Note{note}) })
	}
	if n := sh.count("history", "what = 'claimed' AND intent_id IS NULL AND key_hash = 'h'"); n != 1 {
		t.Errorf("%d notes", n)
	}
}

func TestPurgeTakesOnlyWhatIsFinishedAndOver(t *testing.T) {
	sh := newShop(t)
	sh.claim("open", "kept", "over-1", "over-2", "over-3")
	finish := "UPDATE operation SET state = 'completed', answer_status = 200, completed_at = now(), expires_at = now() + $1 * interval '1 hour' WHERE idempotency_key LIKE $2"
	sh.owner(finish, 1, "kept")
	sh.owner(finish, -1, "over-%")
	var purged []int
	for range 3 {
		n, err := sh.s.PurgeExpired(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		purged = append(purged, n)
	}
	if want := []int{2, 1, 0}; !slices.Equal(purged, want) {
		t.Errorf("purged %v, want %v", purged, want)
	}
	for _, key := range []string{"open", "kept"} {
		sh.read(operation.Ref{Merchant: sh.merchant, Kind: operation.CreatePayment, Key: key})
	}
}

func TestConcurrentPicksShareTheWork(t *testing.T) {
	sh := newShop(t)
	var keys []string
	for range 40 {
		keys = append(keys, newID().String())
	}
	sh.claim(keys...)
	sh.age(time.Minute)
	var picked [2]int
	dbtest.Eventually(t, func() bool {
		done := make(chan struct{})
		go func() { picked[1] += len(sh.pick(7, 7)); close(done) }()
		picked[0] += len(sh.pick(7, 7))
		<-done
		return picked[0]+picked[1] >= len(keys)
	})
	if n := sh.count("operation", "fence = 2"); n != len(keys) || picked[0]+picked[1] != len(keys) {
		t.Errorf("%v were picked, %d have the second fence", picked, n)
	}
}
