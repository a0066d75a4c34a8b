package outbox_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/outbox"
	"github.com/hapaxpay/hapax/internal/rig"
)

// running lets the relays of these replicas work until the test says stop, which waits for their end.
func running(t *testing.T, replicas ...*rig.Replica) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for _, p := range replicas {
		work.Go(func() { p.Relay.Run(ctx) })
	}
	return sync.OnceFunc(func() {
		cancel()
		work.Wait()
	})
}

// A message on which a sink hangs holds back its own intent, and no other at the same sink.
func TestAMessageThatHangsHoldsBackNoOtherIntent(t *testing.T) {
	r := rig.New(t, nil)
	hangs, open := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	l := &rig.Listener{Refuse: func(context.Context, outbox.Message) error {
		if first.CompareAndSwap(false, true) {
			close(hangs)
			<-open
		}
		return nil
	}}
	p := r.Replica(rig.WithSink(sink, l))
	stop := running(t, p)
	defer stop()
	letGo := sync.OnceFunc(func() { close(open) })
	defer letGo()
	pay(t, p, 0, 1)
	<-hangs
	pay(t, p, 1, 5)
	dbtest.Eventually(t, func() bool { return len(l.Heard()) == 5 })
	holdCommit(t, r, "order-0")(true)
	p.Relay.Wake()
	dbtest.Eventually(t, func() bool { return r.Count("SELECT count(*) FROM outbox") == 0 })
	letGo()
	dbtest.Eventually(t, func() bool { return len(l.Heard()) == 7 })
	stop()
	if repeats := r.AllHeard(l); repeats != 0 {
		t.Errorf("%d repeats", repeats)
	}
	r.Verify()
}

// Three replicas work at once while payments go on: each event is heard once where nothing fails, in the order of its intent.
func TestReplicasAtWorkShareWithoutDoubling(t *testing.T) {
	r := rig.New(t, nil)
	l := &rig.Listener{}
	var replicas []*rig.Replica
	for range 3 {
		replicas = append(replicas, r.Replica(rig.WithSink(sink, l)))
	}
	stop := running(t, replicas...)
	defer stop()
	var payers sync.WaitGroup
	for n, p := range replicas {
		payers.Go(func() { pay(t, p, 20*n, 20) })
	}
	payers.Wait()
	for n := range 10 {
		holdCommit(t, r, []string{"order-0", "order-20", "order-40"}[n%3])(true)
	}
	dbtest.Eventually(t, func() bool { return len(l.Heard()) >= 70 })
	stop()
	if repeats := r.AllHeard(l); repeats != 0 {
		t.Errorf("%d repeats", repeats)
	}
	r.Verify()
}

// A broker is away, and back again: nothing is lost, nothing overtakes, and no person is needed.
func TestABrokerThatWasAwayMissesNothing(t *testing.T) {
	r := rig.New(t, nil)
	var away atomic.Bool
	away.Store(true)
	l := &rig.Listener{Refuse: func(context.Context, outbox.Message) error {
		if away.Load() {
			return errors.New("connection refused")
		}
		return nil
	}}
	p := r.Replica(rig.WithSink(sink, l))
	pay(t, p, 0, 20)
	for range 3 {
		pass(t, p)
		holdCommit(t, r, "order-0")(true)
		holdCommit(t, r, "order-1")(true)
		r.Later(2 * time.Minute)
	}
	away.Store(false)
	pass(t, p)
	if repeats := r.AllHeard(l); repeats != 0 || len(l.Heard()) != 26 {
		t.Errorf("%d heard, %d repeats", len(l.Heard()), repeats)
	}
	r.Verify()
}

// A replica that has no such sink numbers the events, as during a deployment: they are kept for it.
func TestAReplicaWithoutTheSinkLosesNothing(t *testing.T) {
	r := rig.New(t, nil)
	l := &rig.Listener{}
	with, without := r.Replica(rig.WithSink(sink, l)), r.Replica()
	pass(t, with) // it has said once that it has the sink
	pay(t, without, 0, 3)
	pass(t, without)
	if n := r.Count("SELECT count(*) FROM outbox"); n != 0 {
		t.Fatalf("%d events are not numbered", n)
	}
	pass(t, with)
	if repeats := r.AllHeard(l); repeats != 0 {
		t.Errorf("%d repeats", repeats)
	}
}
