package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/store"
)

// guard asks once; err is the transaction's.
func (sh *shop) guard() (g operation.Guard, err error) {
	sh.t.Helper()
	err = sh.s.InTx(sh.t.Context(), "guard", func(ctx context.Context, tx flow.Tx) (err error) {
		g, err = tx.Guard(ctx)
		return err
	})
	return g, err
}

func (sh *shop) mustGuard() operation.Guard {
	sh.t.Helper()
	g, err := sh.guard()
	if err != nil {
		sh.t.Fatal(err)
	}
	return g
}

func TestGuardOnAHealthyDatabase(t *testing.T) {
	sh := newShop(t)
	g := sh.mustGuard()
	if g.Epoch != 1 || g.Held || !g.LostFrom.IsZero() || time.Since(g.Now).Abs() > time.Minute {
		t.Errorf("got %+v", g)
	}
}

func TestGuardRefusesWhatIsNotDurable(t *testing.T) {
	for _, setting := range []string{"synchronous_commit = off", "default_transaction_read_only = on"} {
		t.Run(setting, func(t *testing.T) {
			sh := newShop(t)
			// A change after the start: the next session has it, and the claims must see it.
			sh.exec(sh.db.Superuser(), "ALTER DATABASE "+sh.db.Name()+" SET "+setting)
			sh.exec(sh.db.Superuser(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND usename = 'hapax_service'")
			g, err := sh.guard()
			for tries := 0; errors.Is(err, operation.ErrNothingDone) && !errors.Is(err, operation.ErrNotDurable) && tries < 10; tries++ {
				g, err = sh.guard() // sessions that were ended
			}
			if !errors.Is(err, operation.ErrNotDurable) || !errors.Is(err, operation.ErrNothingDone) {
				t.Errorf("got %+v, %v", g, err)
			}
		})
	}
}

func TestAnotherServerBeginsAnEpoch(t *testing.T) {
	for name, change := range map[string]string{
		"another system":   "UPDATE database_epoch SET system_identifier = '1'",
		"another timeline": "UPDATE database_epoch SET timeline = timeline + 1",
	} {
		t.Run(name, func(t *testing.T) {
			sh := newShop(t)
			sh.owner(change + ", seen_at = now() - interval '1 hour'")
			runs := 0
			var g operation.Guard
			sh.tx(func(ctx context.Context, tx flow.Tx) (err error) {
				runs++
				g, err = tx.Guard(ctx)
				return err
			})
			if runs != 2 || g.Epoch != 2 || !g.Held {
				t.Fatalf("after %d runs %+v", runs, g)
			}
			if since := g.Now.Sub(g.LostFrom); since < time.Hour || since > time.Hour+2*time.Minute {
				t.Errorf("the lost interval begins %v ago, want a little over an hour", since)
			}
			if g.LostTo.After(g.Now) || g.Now.Sub(g.LostTo) > time.Minute {
				t.Errorf("the lost interval ends at %v, now is %v", g.LostTo, g.Now)
			}
			if sh.s.Counters().EpochChanges != 1 {
				t.Error("the change was not counted")
			}
			if g = sh.mustGuard(); g.Epoch != 2 {
				t.Errorf("a plain claim afterwards: %+v", g)
			}
			// A second failover during the hold widens the interval, never narrows it.
			from := g.LostFrom
			sh.owner(change)
			if g = sh.mustGuard(); g.Epoch != 3 || !g.LostFrom.Equal(from) {
				t.Errorf("after the second change %+v, want the interval from %v", g, from)
			}
		})
	}
}

// The new server's clock may lie far behind: the interval goes on to when the old one was last seen.
func TestAServerWhoseClockLiesBehindBeginsAnEpoch(t *testing.T) {
	for name, begin := range map[string]func(*shop){
		"failover": func(sh *shop) {
			sh.owner("UPDATE database_epoch SET timeline = timeline + 1, seen_at = now() + interval '1 hour'")
		},
		"restored": func(sh *shop) {
			sh.owner("UPDATE database_epoch SET seen_at = now() + interval '1 hour'")
			if err := sh.s.EpochRestored(t.Context(), "a copy"); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			sh := newShop(t)
			begin(sh)
			g := sh.mustGuard()
			if ahead := g.LostTo.Sub(g.Now); !g.Held || ahead < 59*time.Minute || ahead > time.Hour {
				t.Errorf("got %+v, the end lies %v ahead", g, ahead)
			}
		})
	}
}

func TestReplicasBeginOneEpoch(t *testing.T) {
	sh := newShop(t)
	other := &shop{t: t, db: sh.db, s: again(t, sh.db)}
	sh.owner("UPDATE database_epoch SET system_identifier = '1'")
	done := make(chan operation.Guard, 2)
	for _, x := range []*shop{sh, other} {
		go func() {
			g, err := x.guard()
			if err != nil {
				t.Error(err)
			}
			done <- g
		}()
	}
	for range 2 {
		if g := <-done; g.Epoch != 2 {
			t.Errorf("epoch %d", g.Epoch)
		}
	}
}

func TestNothingLostPolicyHoldsNothing(t *testing.T) {
	sh := newShop(t, func(c *store.Config) { c.NothingLost = true })
	sh.owner("UPDATE database_epoch SET timeline = timeline + 7")
	if g := sh.mustGuard(); g.Epoch != 1 || g.Held {
		t.Errorf("got %+v", g)
	}
	if n := sh.count("database_epoch", "system_identifier <> '1'"); n != 1 {
		t.Error("the server was not noted")
	}
}

func TestAServerThatLiesBehindIsOnHold(t *testing.T) {
	sh := newShop(t)
	sh.mustGuard()
	sh.s.PretendFurther(1 << 40)
	if _, err := sh.guard(); !errors.Is(err, operation.ErrOnHold) || !errors.Is(err, operation.ErrNothingDone) {
		t.Fatalf("got %v", err)
	}
	if err := sh.s.EpochRestored(t.Context(), "restored from the copy of last night"); err != nil {
		t.Fatal(err)
	}
	g := sh.mustGuard()
	if g.Epoch <= 1 || !g.Held {
		t.Errorf("after `epoch restored` %+v", g)
	}
	if err := sh.s.AcknowledgeEpoch(t.Context(), g.Epoch+1, "wrong"); !errors.Is(err, store.ErrNotHeld) {
		t.Errorf("acknowledging another epoch: %v", err)
	}
	if err := sh.s.AcknowledgeEpoch(t.Context(), g.Epoch, "compared by hand"); err != nil {
		t.Fatal(err)
	}
	if err := sh.s.AcknowledgeEpoch(t.Context(), g.Epoch, "twice"); !errors.Is(err, store.ErrNotHeld) {
		t.Errorf("acknowledging twice: %v", err)
	}
	if g := sh.mustGuard(); g.Held {
		t.Errorf("after `epoch acknowledge` %+v", g)
	}
}

func TestAnEarlierEpochIsOnHold(t *testing.T) {
	sh := newShop(t)
	sh.owner("UPDATE database_epoch SET epoch = 5")
	sh.mustGuard()
	sh.owner("UPDATE database_epoch SET epoch = 4") // a copy of before
	if _, err := sh.guard(); !errors.Is(err, operation.ErrOnHold) {
		t.Fatalf("got %v", err)
	}
	sh.owner("UPDATE database_epoch SET epoch = 6")
	if g := sh.mustGuard(); g.Epoch != 6 {
		t.Errorf("got %+v", g)
	}
}

func TestARestartChangesNothing(t *testing.T) {
	sh := newShop(t)
	for range 20 {
		sh.claim("k" + newID().String())
		sh.mustGuard()
	}
	sh.s = again(t, sh.db)
	if g := sh.mustGuard(); g.Epoch != 1 || g.Held {
		t.Errorf("got %+v", g)
	}
}

func TestConcurrentGuardsAreNotTakenForARestore(t *testing.T) {
	sh := newShop(t)
	const workers, rounds = 6, 40
	done := make(chan error, workers)
	for w := range workers {
		go func() {
			for range rounds {
				op := sh.operation(string(rune('a'+w)) + newID().String())
				if err := sh.s.InTx(t.Context(), "claim", func(ctx context.Context, tx flow.Tx) error {
					if _, err := tx.Guard(ctx); err != nil {
						return err
					}
					_, err := tx.InsertOperations(ctx, []operation.Operation{op}, lease)
					return err
				}); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range workers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestHeartbeatIsRareAndOnlyForward(t *testing.T) {
	sh := newShop(t)
	seen := func() time.Time {
		e, err := sh.s.Epoch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return e.SeenAt
	}
	beat := func() {
		if err := sh.s.Heartbeat(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	sh.owner("UPDATE database_epoch SET seen_at = now() - interval '1 hour'")
	before := seen()
	beat()
	first := seen()
	if first.Sub(before) < 59*time.Minute {
		t.Errorf("the note went from %v to %v", before, first)
	}
	beat()
	if second := seen(); !second.Equal(first) && second.Sub(first) < time.Second {
		t.Errorf("written again after %v", second.Sub(first))
	}
}

func TestHoldByHand(t *testing.T) {
	sh := newShop(t)
	from := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	if err := sh.s.HoldEpoch(t.Context(), "the acquirer says so", from); err != nil {
		t.Fatal(err)
	}
	if g := sh.mustGuard(); !g.Held || g.Epoch != 2 || !g.LostFrom.Equal(from) {
		t.Errorf("got %+v", g)
	}
}
