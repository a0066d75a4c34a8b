package sim

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/operation"
)

// history runs f as the first task of a replica and gives what it noted.
func history(t *testing.T, f func(s *Scheduler, r *Replica, say func(string))) []string {
	t.Helper()
	s := NewScheduler(1, NewTrace(nil))
	defer s.Close()
	r := s.NewReplica("r", 0)
	var said []string
	r.Go(func() { f(s, r, func(what string) { said = append(said, what) }) })
	s.Run(time.Hour*1000, func() bool { return false })
	return said
}

func expect(t *testing.T, said []string, want ...string) {
	t.Helper()
	if !slices.Equal(said, want) {
		t.Errorf("said %q, not %q", said, want)
	}
}

func TestTimeIsVirtual(t *testing.T) {
	expect(t, history(t, func(_ *Scheduler, r *Replica, say func(string)) {
		ctx, cancel := r.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		r.Sleep(ctx, 3*time.Second)
		say(r.Instant().Mono.String())
		r.Sleep(ctx, time.Hour) // the deadline comes first
		say(r.Instant().Mono.String())
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			say("over")
		}
		<-ctx.Done()
		r.Sleep(context.WithoutCancel(ctx), time.Second)
		say(r.Instant().Mono.String())
	}), "3s", "5s", "over", "6s")
}

func TestOneTaskAtATime(t *testing.T) {
	expect(t, history(t, func(_ *Scheduler, r *Replica, say func(string)) {
		done := r.NewSignal()
		r.Go(func() {
			say("second")
			r.Sleep(context.Background(), time.Second)
			say("third")
			done.Set()
		})
		say("first")
		if done.Wait(context.Background(), time.Minute) && !r.NewSignal().Wait(context.Background(), time.Second) {
			say("fourth")
		}
	}), "first", "second", "third", "fourth")
}

func TestCancelWakes(t *testing.T) {
	expect(t, history(t, func(_ *Scheduler, r *Replica, say func(string)) {
		ctx, cancel := r.WithCancel(context.Background())
		r.Go(func() {
			r.Sleep(context.Background(), time.Second)
			cancel()
		})
		inner, end := r.WithTimeout(wire.ForbidNetwork(ctx), time.Minute)
		defer end()
		r.NewSignal().Wait(inner, time.Hour)
		say(r.Instant().Mono.String() + " " + inner.Err().Error())
	}), "1s context canceled")
}

// TestSuspendedMachine: the monotonic clock stands still, the wall clock does not; in a stopped process both go on.
func TestSuspendedMachine(t *testing.T) {
	for _, c := range []struct {
		stop func(*Replica)
		mono string
	}{{func(r *Replica) { r.Suspend(time.Hour) }, "2s"}, {func(r *Replica) { r.Pause(time.Hour) }, "1h0m0s"}} {
		expect(t, history(t, func(_ *Scheduler, r *Replica, say func(string)) {
			c.stop(r)
			r.Sleep(context.Background(), 2*time.Second)
			say(r.Instant().Mono.String())
			if r.Instant().Wall.Sub(Start) >= time.Hour {
				say("late")
			}
		}), c.mono, "late")
	}
}

// TestKilledReplicaDoesNothingMore, and what waited in it unwinds without effect.
func TestKilledReplicaDoesNothingMore(t *testing.T) {
	expect(t, history(t, func(s *Scheduler, r *Replica, say func(string)) {
		done := r.NewSignal()
		r.Go(func() {
			defer done.Set()
			r.Sleep(context.Background(), time.Minute)
			say("never")
		})
		r.Sleep(context.Background(), time.Second)
		say("dies")
		r.Kill()
		r.Vanish()
	}), "dies")
}

// TestVanishInsideTransaction: the server rolls back.
func TestVanishInsideTransaction(t *testing.T) {
	s := NewScheduler(1, NewTrace(nil))
	defer s.Close()
	st := NewStore(s)
	row := operation.Operation{Ref: operation.Ref{Key: "k", Kind: operation.CreatePayment}, SendUntil: Start, ID: s.newID(Start)}
	insert := func(after func()) func(context.Context, flow.Tx) error {
		return func(ctx context.Context, tx flow.Tx) error {
			_, err := tx.InsertOperations(ctx, []operation.Operation{row}, time.Minute)
			after()
			return err
		}
	}
	r := s.NewReplica("r", 0)
	r.Go(func() {
		err := st.InTx(context.Background(), "claim", insert(func() { r.Kill(); r.Vanish() }))
		t.Errorf("a dead replica was answered: %v", err)
	})
	s.Run(time.Hour, func() bool { return false })
	if len(st.operations.order) != 0 {
		t.Error("the row of a vanished process is there")
	}
	st.Faults = func(string) TxFault { return TxFault{Lost: true, Undone: true} }
	other := s.NewReplica("other", 0)
	other.Go(func() {
		if err := st.InTx(context.Background(), "claim", insert(func() {})); !errors.Is(err, operation.ErrCommitUnknown) || len(st.operations.order) != 0 {
			t.Errorf("undone: %v with %d rows", err, len(st.operations.order))
		}
		st.Faults = func(string) TxFault { return TxFault{Lost: true, Again: 2} }
		if err := st.InTx(context.Background(), "claim", insert(func() {})); !errors.Is(err, operation.ErrCommitUnknown) || len(st.operations.order) != 1 {
			t.Errorf("committed: %v with %d rows", err, len(st.operations.order))
		}
	})
	s.Run(2*time.Hour, func() bool { return false })
}
