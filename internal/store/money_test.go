package store_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/ledger"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/store"
	"github.com/hapaxpay/hapax/money"
)

func TestAMovementIsBookedOnce(t *testing.T) {
	sh := newShop(t)
	st := sh.start("order-1")
	m := payment.Movement{Merchant: sh.merchant, ID: newID(), Account: sh.account, Reference: "ch_1", Kind: acquirer.MovementCharge,
		AcquirerKey: st.payment.AcquirerKey, Intent: st.intent.ID, Payment: st.payment.ID, Amount: st.intent.Amount, State: payment.Applied, At: time.Now()}
	twin, refund, stray := m, m, m
	twin.ID, refund.ID, stray.ID = newID(), newID(), newID()
	refund.Kind = acquirer.MovementRefund
	stray.Reference, stray.Intent, stray.Payment, stray.State, stray.Cause = "ch_2", id.ID{}, id.ID{}, payment.Unapplied, "unattributed"
	var fresh []bool
	sh.tx(func(ctx context.Context, tx flow.Tx) (err error) {
		fresh, err = tx.InsertMovements(ctx, []payment.Movement{m, twin, refund, stray})
		return err
	})
	if want := []bool{true, false, true, true}; !slices.Equal(fresh, want) {
		t.Fatalf("got %v, want %v", fresh, want)
	}
	read := func(keys ...string) (all []payment.Movement) {
		sh.tx(func(ctx context.Context, tx flow.Tx) (err error) {
			all, err = tx.MovementsOf(ctx, []flow.Row{rowOf(st.intent)}, keys)
			return err
		})
		slices.SortFunc(all, func(a, b payment.Movement) int { return slices.Compare(a.ID[:], b.ID[:]) })
		return all
	}
	if got := read(); len(got) != 2 {
		t.Errorf("of the intent %+v", got)
	}
	got := read("other", st.payment.AcquirerKey)
	if len(got) != 3 {
		t.Fatalf("with the key %+v", got)
	}
	sameRows(t, "movement", got[0], m)
	sameRows(t, "stray", got[2], stray)
	ofMerchant := func(intents []flow.Row, keys ...string) (all []payment.Movement, err error) {
		err = sh.s.InTx(t.Context(), "movements", func(ctx context.Context, tx flow.Tx) (err error) {
			all, err = tx.MovementsOf(ctx, intents, keys)
			return err
		})
		return all, err
	}
	if got, err := ofMerchant([]flow.Row{{Merchant: sh.merchant}}, st.payment.AcquirerKey); err != nil || len(got) != 1 || got[0].ID != stray.ID {
		t.Errorf("by the key alone %+v, %v", got, err)
	}
	if got, err := ofMerchant([]flow.Row{{Merchant: newID()}}, st.payment.AcquirerKey); err != nil || len(got) != 0 {
		t.Errorf("another merchant's %+v, %v", got, err)
	}
	if got, err := ofMerchant(nil); err != nil || len(got) != 0 {
		t.Errorf("of nothing %+v, %v", got, err)
	}
	if _, err := ofMerchant(nil, st.payment.AcquirerKey); !errors.Is(err, operation.ErrNothingDone) {
		t.Errorf("a key of any merchant: %v", err)
	}

	stray.Intent, stray.Payment, stray.State, stray.Cause = st.intent.ID, st.payment.ID, payment.Returned, ""
	sh.tx(func(ctx context.Context, tx flow.Tx) error { return tx.SaveMovements(ctx, []payment.Movement{stray}) })
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		got, found, err := tx.MovementByID(ctx, flow.Row{Merchant: sh.merchant, ID: stray.ID})
		if err == nil && !found {
			t.Error("not found")
		}
		sameRows(t, "saved", got, stray)
		if _, found, e := tx.MovementByID(ctx, flow.Row{Merchant: newID(), ID: stray.ID}); found || e != nil {
			t.Errorf("another merchant's: %v, %v", found, e)
		}
		return err
	})
	absent, again, aside := stray, stray, m
	absent.ID, again.State = newID(), payment.Applied
	aside.State, aside.Cause = payment.Unapplied, "x"
	for what, m := range map[string]payment.Movement{"does not exist": absent, "was given back": again, "was applied": m, "was applied and is put aside": aside} {
		err := sh.s.InTx(t.Context(), "save", func(ctx context.Context, tx flow.Tx) error { return tx.SaveMovements(ctx, []payment.Movement{m}) })
		if !errors.Is(err, operation.ErrNothingDone) {
			t.Errorf("a movement that %s: %v", what, err)
		}
	}
	back, still := m, refund // applied money is given back; money kept aside may be kept for another cause
	back.State = payment.Returned
	still.ID, still.Reference, still.Kind, still.State, still.Cause, still.Object = newID(), "h_1", acquirer.MovementHold, payment.Unapplied, "x", "ch_1"
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		if _, err := tx.InsertMovements(ctx, []payment.Movement{still}); err != nil {
			return err
		}
		still.Cause = "y"
		return tx.SaveMovements(ctx, []payment.Movement{back, still})
	})
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		got, _, err := tx.MovementByID(ctx, flow.Row{Merchant: sh.merchant, ID: still.ID})
		sameRows(t, "hold", got, still)
		return err
	})
	if n := sh.count("movement", "state = 'returned'"); n != 2 {
		t.Errorf("%d movements are given back, want 2", n)
	}
}

func TestALedgerKeyIsNeverUsedTwice(t *testing.T) {
	sh := newShop(t)
	st := sh.start("order-1")
	entries, err := ledger.Post(ledger.Subject{Merchant: sh.merchant, Intent: st.intent.ID, Payment: st.payment.ID, Account: sh.account, Base: "seed:auth:1"},
		ledger.Posting{Rule: ledger.Received, Amount: st.intent.Amount})
	if err != nil {
		t.Fatal(err)
	}
	book := func() error {
		for i := range entries {
			entries[i].ID = newID()
		}
		return sh.s.InTx(t.Context(), "record", func(ctx context.Context, tx flow.Tx) error { return tx.InsertEntries(ctx, entries) })
	}
	if err := book(); err != nil {
		t.Fatal(err)
	}
	err = book()
	if name, ok := store.Violation(err); !ok || name != "ledger_entry_pkey" || !errors.Is(err, operation.ErrNothingDone) {
		t.Errorf("got %v", err)
	}
	if n := sh.s.Counters().LedgerHits; n != 1 {
		t.Errorf("%d hits were counted", n)
	}
	if n := sh.count("ledger_entry", "merchant_id = $1 AND currency = 'EUR'", sh.merchant.String()); n != 2 {
		t.Errorf("%d entries", n)
	}
}

func TestEventsInTheirOrder(t *testing.T) {
	sh := newShop(t)
	st := sh.start("order-1")
	event := func(version int64) payment.Event {
		return payment.Event{Merchant: sh.merchant, ID: newID(), Intent: st.intent.ID, Payment: st.payment.ID, Version: version,
			Key: payment.EventKey(st.intent.KeySeed, version), Type: payment.EventPaid, Payload: []byte(`{"v":1}`), At: time.Now()}
	}
	first, second := event(1), event(2)
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		return tx.InsertEvents(ctx, []payment.Event{second, first})
	})
	got, err := sh.s.EventsOfIntent(t.Context(), sh.merchant, st.intent.ID, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	sameRows(t, "events", got, []payment.Event{first, second})
	if got, err = sh.s.EventsOfIntent(t.Context(), sh.merchant, st.intent.ID, 1, 10); err != nil || len(got) != 1 || got[0].Version != 2 {
		t.Errorf("after the first: %+v, %v", got, err)
	}
	if got, err = sh.s.Events(t.Context(), sh.merchant, store.Page{Limit: 1}); err != nil || len(got) != 1 || got[0].ID != second.ID {
		t.Errorf("newest: %+v, %v", got, err)
	}
	if got, err = sh.s.Events(t.Context(), sh.merchant, store.Page{Limit: 5, Before: second.ID}); err != nil || len(got) != 1 || got[0].ID != first.ID {
		t.Errorf("next page: %+v, %v", got, err)
	}
	one, found, err := sh.s.EventByID(t.Context(), sh.merchant, first.ID)
	if err != nil || !found || one.Key != first.Key {
		t.Errorf("by id: %+v, %v, %v", one, found, err)
	}
	if _, found, err = sh.s.EventByID(t.Context(), newID(), first.ID); err != nil || found {
		t.Errorf("another merchant's: %v, %v", found, err)
	}
	second.ID = newID()
	if err := sh.s.InTx(t.Context(), "record", func(ctx context.Context, tx flow.Tx) error { return tx.InsertEvents(ctx, []payment.Event{second}) }); err == nil {
		t.Error("one version was taken twice")
	}
}

func TestEvidenceIsStoredOnceWithAllItSays(t *testing.T) {
	sh := newShop(t)
	st := sh.start("order-1")
	full := evidence.Observation{
		Merchant: sh.merchant, ID: newID(), Intent: st.intent.ID, Payment: st.payment.ID, Operation: st.op.ID, Account: sh.account, Source: evidence.FromCall,
		Reply: acquirer.Reply{Outcome: acquirer.OutcomeSucceeded, Class: "charged", Code: "00", Failure: "f", Message: "m", Reference: "ch_1",
			OurReference: "k", Amount: money.Must(1500, "EUR"), RequestID: "theirs", RawHash: [32]byte{7}, BytesWritten: 120},
		AskedAt: time.Now(), MovedAt: time.Now(), Fence: 3, Inference: evidence.InferGiveUp, Person: "ann", Note: "n", Request: "ours",
		Modification: newID(), Effect: evidence.Moved, Why: "money taken",
	}
	full.About, full.Object, full.Session, full.Final, full.ExpiresAt = acquirer.ActionCapture, "ch_0", "s_1", true, time.Now().Add(time.Hour)
	bare := evidence.Observation{Merchant: sh.merchant, ID: newID(), Source: evidence.FromWebhook, Reply: acquirer.Reply{Class: "unlisted"}, Effect: evidence.Noted}
	keep := func(rows ...evidence.Observation) (fresh []bool) {
		sh.tx(func(ctx context.Context, tx flow.Tx) (err error) {
			fresh, err = tx.InsertEvidence(ctx, rows)
			return err
		})
		return fresh
	}
	if fresh := keep(full, bare); !slices.Equal(fresh, []bool{true, true}) {
		t.Errorf("first %v", fresh)
	}
	third := bare
	third.ID = newID()
	if fresh := keep(bare, third); !slices.Equal(fresh, []bool{false, true}) {
		t.Errorf("again %v", fresh)
	}
	for where, want := range map[string]int{
		"outcome = 'succeeded' AND class = 'charged' AND code = '00' AND failure = 'f' AND message = 'm' AND reference = 'ch_1' AND our_reference = 'k' AND amount = 1500 AND currency = 'EUR'":                        1,
		"acquirer_request_id = 'theirs' AND raw_hash = decode(rpad('07', 64, '0'), 'hex') AND bytes_written = 120 AND asked_at IS NOT NULL AND moved_at IS NOT NULL":                                                   1,
		"fence = 3 AND inference = 'give_up' AND person = 'ann' AND note = 'n' AND request_id = 'ours' AND effect = 'moved' AND why = 'money taken' AND source = 'call' AND operation_id IS NOT NULL":                  1,
		"about = 'capture' AND object = 'ch_0' AND session = 's_1' AND final AND expires_at > moved_at AND modification_id IS NOT NULL":                                                                                1,
		"about = 'charge' AND object IS NULL AND session IS NULL AND NOT final AND expires_at IS NULL AND modification_id IS NULL":                                                                                     2,
		"outcome = 'unknown' AND code IS NULL AND reference IS NULL AND amount IS NULL AND currency IS NULL AND raw_hash IS NULL AND asked_at IS NULL AND intent_id IS NULL AND person IS NULL AND account_id IS NULL": 2,
	} {
		if n := sh.count("evidence", where); n != want {
			t.Errorf("%d rows with %s, want %d", n, where, want)
		}
	}
}

// What came too early is read again as it was told, the oldest first.
func TestEarlyEvidenceIsReadAsItWasTold(t *testing.T) {
	sh := newShop(t)
	st, other := sh.start("order-1"), sh.start("order-2")
	early := evidence.Observation{
		Merchant: sh.merchant, ID: newID(), Intent: st.intent.ID, Payment: st.payment.ID, Operation: st.op.ID, Modification: newID(), Account: sh.account,
		Source: evidence.FromWebhook, Reply: acquirer.Reply{Outcome: acquirer.OutcomeSucceeded, Class: "captured", Code: "00", Failure: "f", Message: "m",
			About: acquirer.ActionCapture, Reference: "cp_1", OurReference: "k", Object: "ch_1", Session: "s_1", Amount: money.Must(500, "EUR"), Final: true,
			ExpiresAt: time.Now().Add(time.Hour), At: time.Now(), RequestID: "theirs", RawHash: [32]byte{7}, BytesWritten: 120},
		AskedAt: time.Now(), Fence: 3, Inference: evidence.InferGiveUp, Person: "ann", Note: "n", Request: "ours", Effect: evidence.Early, Why: "no hold yet",
	}
	bare := evidence.Observation{Merchant: sh.merchant, ID: newID(), Intent: st.intent.ID, Payment: st.payment.ID, Source: evidence.FromLookup,
		Reply: acquirer.Reply{Class: "x", About: acquirer.ActionRefund}, Effect: evidence.Early}
	moved, foreign := bare, bare
	moved.ID, moved.Effect, foreign.ID, foreign.Intent, foreign.Payment = newID(), evidence.Moved, newID(), other.intent.ID, other.payment.ID
	for _, o := range []evidence.Observation{early, bare, moved, foreign} {
		sh.tx(func(ctx context.Context, tx flow.Tx) error {
			_, err := tx.InsertEvidence(ctx, []evidence.Observation{o})
			return err
		})
	}
	read := func(limit int, payments ...flow.Row) (got []evidence.Observation) {
		sh.tx(func(ctx context.Context, tx flow.Tx) (err error) {
			got, err = tx.EarlyEvidence(ctx, payments, limit)
			return err
		})
		return got
	}
	early.MovedAt = early.At
	sameRows(t, "early", read(10, row(st.payment)), []evidence.Observation{early, bare})
	if got := read(1, row(other.payment), row(st.payment)); len(got) != 1 || got[0].ID != early.ID {
		t.Errorf("at most one: %+v", got)
	}
	if got := read(10, flow.Row{Merchant: newID(), ID: st.payment.ID}); len(got) != 0 {
		t.Errorf("another merchant's: %+v", got)
	}
}

func TestReviewsOpenOnceAndCloseOnce(t *testing.T) {
	sh := newShop(t)
	st := sh.start("order-1")
	movement := newID()
	about := func(reason payment.ReviewReason, movement id.ID) payment.Review {
		return payment.Review{Merchant: sh.merchant, ID: newID(), Intent: st.intent.ID, Payment: st.payment.ID, Operation: st.op.ID, Movement: movement, Reason: reason, Detail: "d"}
	}
	open := func(rows ...payment.Review) (fresh []bool) {
		sh.tx(func(ctx context.Context, tx flow.Tx) (err error) {
			fresh, err = tx.OpenReviews(ctx, rows)
			return err
		})
		return fresh
	}
	onMovement, onPayment, twin := about(payment.ReviewAmountMismatch, movement), about(payment.ReviewNoProof, id.ID{}), about(payment.ReviewAmountMismatch, movement)
	stray := payment.Review{Merchant: sh.merchant, ID: newID(), Movement: newID(), Reason: payment.ReviewUnattributed}
	if fresh := open(onMovement, onPayment, twin, stray); !slices.Equal(fresh, []bool{true, true, false, true}) {
		t.Errorf("opened %v", fresh)
	}
	if fresh := open(about(payment.ReviewNoProof, id.ID{}), about(payment.ReviewWindowOver, id.ID{})); !slices.Equal(fresh, []bool{false, true}) {
		t.Errorf("opened again %v", fresh)
	}
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		got, err := tx.ReviewsOf(ctx, []flow.Row{rowOf(st.intent)}, []flow.Row{{Merchant: sh.merchant, ID: stray.Movement}, {Merchant: sh.merchant, ID: movement}})
		if len(got) != 4 {
			t.Errorf("open entries %+v", got)
		}
		return err
	})
	onPayment.Decision = "ask_again"
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		got, found, err := tx.LockReview(ctx, flow.Row{Merchant: sh.merchant, ID: onPayment.ID})
		if err != nil || !found || got.Reason != payment.ReviewNoProof || got.OpenedAt.IsZero() || !got.DecidedAt.IsZero() || got.Operation != st.op.ID || got.Detail != "d" {
			t.Errorf("locked %+v, %v, %v", got, found, err)
		}
		return tx.CloseReviews(ctx, []payment.Review{onPayment})
	})
	err := sh.s.InTx(t.Context(), "close", func(ctx context.Context, tx flow.Tx) error { return tx.CloseReviews(ctx, []payment.Review{onPayment}) })
	if !errors.Is(err, operation.ErrNothingDone) {
		t.Errorf("closed twice: %v", err)
	}
	if fresh := open(about(payment.ReviewNoProof, id.ID{})); !fresh[0] {
		t.Error("a decided entry keeps a new one out")
	}
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		got, found, err := tx.ReadReview(ctx, flow.Row{Merchant: sh.merchant, ID: onPayment.ID})
		if !found || got.Decision != "ask_again" || got.DecidedAt.IsZero() {
			t.Errorf("read %+v, %v", got, found)
		}
		if _, found, e := tx.LockReview(ctx, flow.Row{Merchant: newID(), ID: onPayment.ID}); found || e != nil {
			t.Errorf("another merchant's: %v, %v", found, e)
		}
		return err
	})
	listed, err := sh.s.OpenReviews(t.Context(), sh.merchant, onMovement.ID, 2)
	if err != nil || len(listed) != 2 || listed[0].ID != stray.ID {
		t.Errorf("listed %+v, %v", listed, err)
	}
}

func TestADecisionKeepsItsCommand(t *testing.T) {
	sh := newShop(t)
	st := sh.start("order-1")
	review := payment.Review{Merchant: sh.merchant, ID: newID(), Intent: st.intent.ID, Payment: st.payment.ID, Reason: payment.ReviewNoProof}
	d := flow.Decision{Merchant: sh.merchant, ID: newID(), Review: review.ID, By: payment.Command{Kind: "decide_review", Key: "d-1", Fingerprint: [32]byte{5}, FPVersion: 1},
		Verdict: flow.VerdictPaid, Reference: "ch_9", Person: "ann", Second: "bob", Reason: "seen at the acquirer"}
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		if _, err := tx.OpenReviews(ctx, []payment.Review{review}); err != nil {
			return err
		}
		return tx.InsertDecision(ctx, d)
	})
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		got, found, err := tx.DecisionByCommand(ctx, flow.CommandRef{Merchant: sh.merchant, Kind: "decide_review", Key: "d-1"})
		if !found {
			t.Error("not found")
		}
		sameRows(t, "decision", got, d, "At")
		if _, found, e := tx.DecisionByCommand(ctx, flow.CommandRef{Merchant: sh.merchant, Kind: "decide_review", Key: "d-2"}); found || e != nil {
			t.Errorf("another key: %v, %v", found, e)
		}
		return err
	})
	r, decisions, found, err := sh.s.ReviewByID(t.Context(), sh.merchant, review.ID)
	if err != nil || !found || r.ID != review.ID || len(decisions) != 1 || decisions[0].Second != "bob" {
		t.Errorf("read %+v, %+v, %v, %v", r, decisions, found, err)
	}
	d.ID = newID()
	if err := sh.s.InTx(t.Context(), "decide", func(ctx context.Context, tx flow.Tx) error { return tx.InsertDecision(ctx, d) }); err == nil {
		t.Error("one command was kept twice")
	}
}
