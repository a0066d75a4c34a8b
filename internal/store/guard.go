package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/store/dbgen"
)

const (
	// lostMargin is added before the last time that all was well: clocks of two servers differ a little.
	lostMargin = time.Minute
	// heartbeatEvery bounds how often the row of the epoch is written, by all replicas together.
	heartbeatEvery = time.Second
	whyMoved       = "the database's system identifier or timeline changed: a failover or a restore"
)

// identity is what tells one server's history from another's.
type identity struct {
	system   string
	timeline int32
}

// position is how far a server's history was seen to reach.
type position struct {
	identity
	epoch int64
	lsn   int64 // flushed WAL: survives a crash, so that a plain restart never lies behind
}

// memory remembers the furthest position that this process has seen (PROTOCOL A8).
type memory struct {
	mu  sync.Mutex
	far position
}

func (m *memory) read() position {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.far
}

// reached judges a position against what was known before it was asked for, and remembers it.
// Only what was known before counts: two questions may be answered in one order and read in the other.
func (m *memory) reached(before, now position) error {
	switch {
	case now.epoch < before.epoch:
		return fmt.Errorf("%w: epoch %d was seen, the database says %d", operation.ErrOnHold, before.epoch, now.epoch)
	case now.epoch == before.epoch && now.system == before.system && now.timeline < before.timeline:
		return fmt.Errorf("%w: timeline %d was seen, the server is on %d", operation.ErrOnHold, before.timeline, now.timeline)
	case now.epoch == before.epoch && now.identity == before.identity && now.lsn < before.lsn:
		return fmt.Errorf("%w: the server lies behind what it had: a copy was restored without `hapax epoch restored`", operation.ErrOnHold)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.epoch > m.far.epoch || now.epoch == m.far.epoch && (now.identity != m.far.identity || now.lsn > m.far.lsn) {
		m.far = now
	}
	return nil
}

// Guard implements operation.Tx: one statement, asked once per transaction (PROTOCOL K9, A8). It fails with
// operation.ErrNotDurable or ErrOnHold; nothing is committed after that.
func (t *tx) Guard(ctx context.Context) (operation.Guard, error) {
	if t.guard != nil {
		return *t.guard, nil
	}
	before := t.s.memory.read()
	row, err := t.q.Guard(ctx)
	if err != nil {
		return operation.Guard{}, t.fail("guard", err)
	}
	now, err := durable(row)
	if err != nil {
		return operation.Guard{}, t.fail("guard", err)
	}
	if now.system != row.SystemIdentifier || now.timeline != row.Timeline {
		t.moved = &identity{row.SystemIdentifier, row.Timeline}
		return operation.Guard{}, t.fail("guard", errors.New(whyMoved))
	}
	if err := t.s.memory.reached(before, now); err != nil {
		return operation.Guard{}, t.fail("guard", err)
	}
	t.guard = &operation.Guard{Now: row.Now.Time, Epoch: row.Epoch, Held: row.Held, LostFrom: row.LostFrom.Time, LostTo: row.LostTo.Time}
	return *t.guard, nil
}

// durable says where the server stands, or ErrNotDurable (PROTOCOL K9).
func durable(row dbgen.GuardRow) (position, error) {
	switch {
	case row.InRecovery:
		return position{}, fmt.Errorf("%w: it is a replica", operation.ErrNotDurable)
	case row.ReadOnly != "off":
		return position{}, fmt.Errorf("%w: it is read-only", operation.ErrNotDurable)
	case row.Fsync != "on":
		return position{}, fmt.Errorf("%w: fsync is %s", operation.ErrNotDurable, row.Fsync)
	case row.SynchronousCommit == "off":
		return position{}, fmt.Errorf("%w: synchronous_commit is off", operation.ErrNotDurable)
	}
	timeline, err := timelineOf(row.WalFile)
	return position{identity{row.ServerIdentifier, timeline}, row.Epoch, row.WalFlushed}, err
}

// timelineOf reads the timeline from the name of a WAL file: its first eight hexadecimal digits. The control file
// knows it too, but lags behind a promotion.
func timelineOf(walFile string) (int32, error) {
	if len(walFile) < 8 {
		return 0, fmt.Errorf("WAL file name %q is too short", walFile)
	}
	n, err := strconv.ParseInt(walFile[:8], 16, 32)
	return int32(n), err
}

// advance begins a new epoch in a transaction of its own, after the server turned out not to be the remembered one.
// again tells the caller to run its own transaction once more, whoever of several replicas wrote the change.
func (s *Store) advance(ctx context.Context, old identity) (again bool, err error) {
	written := false
	err = s.inTx(ctx, "change of epoch", s.begin, func(ctx context.Context, t *tx) error {
		row, err := t.q.Guard(ctx)
		if err != nil {
			return t.fail("guard", err)
		}
		now, err := durable(row)
		if err != nil {
			return t.fail("guard", err)
		}
		if row.SystemIdentifier != old.system || row.Timeline != old.timeline || now.identity == old {
			return nil // another replica was faster, or we are back at the old server
		}
		var n int64
		if s.cfg.NothingLost {
			n, err = t.q.AdoptServer(ctx, dbgen.AdoptServerParams{SystemIdentifier: now.system, Timeline: now.timeline,
				OldEpoch: row.Epoch, OldSystemIdentifier: old.system, OldTimeline: old.timeline})
		} else {
			n, err = t.q.AdvanceEpoch(ctx, dbgen.AdvanceEpochParams{Why: whyMoved, MarginUs: lostMargin.Microseconds(),
				SystemIdentifier: now.system, Timeline: now.timeline,
				OldEpoch: row.Epoch, OldSystemIdentifier: old.system, OldTimeline: old.timeline})
		}
		written = n == 1
		return t.fail("change of epoch", err)
	})
	if err != nil {
		return false, err
	}
	if written {
		s.counts.epochChanges.Add(1)
		s.cfg.Log.Warn("the database server changed", "nothing_lost_policy", s.cfg.NothingLost)
	}
	return true, nil
}

// Heartbeat notes that all is well, at most once a second for all replicas together. What a failover can have lost is
// counted from the last note that survived it (PROTOCOL A8).
func (s *Store) Heartbeat(ctx context.Context) error {
	return s.inTx(ctx, "heartbeat", s.begin, func(ctx context.Context, t *tx) error {
		guard, err := t.Guard(ctx)
		if err != nil {
			return err
		}
		return t.fail("heartbeat", t.q.Heartbeat(ctx, dbgen.HeartbeatParams{Epoch: guard.Epoch, EveryUs: heartbeatEvery.Microseconds()}))
	})
}
