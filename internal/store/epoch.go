package store

import (
	"context"
	"errors"
	"time"

	"github.com/hapaxpay/hapax/internal/store/dbgen"
)

// Epoch is what is known about the database's history (PROTOCOL A8).
type Epoch struct {
	Epoch            int64
	SystemIdentifier string
	Timeline         int
	Held             bool
	Why              string
	LostFrom, LostTo time.Time // zero: never lost anything
	SeenAt           time.Time // when all was well last
	ChangedAt        time.Time
}

// Epoch reads it.
func (s *Store) Epoch(ctx context.Context) (e Epoch, err error) {
	err = s.look(ctx, "epoch", func(ctx context.Context, q *dbgen.Queries) error {
		row, err := q.ReadEpoch(ctx)
		e = Epoch{Epoch: row.Epoch, SystemIdentifier: row.SystemIdentifier, Timeline: int(row.Timeline), Held: row.Held, Why: row.HeldWhy,
			LostFrom: domainAt(row.LostFrom), LostTo: domainAt(row.LostTo), SeenAt: domainAt(row.SeenAt), ChangedAt: domainAt(row.ChangedAt)}
		return err
	})
	return e, err
}

// ErrNotHeld says that there is no hold to end.
var ErrNotHeld = errors.New("sends are not on hold")

// EpochRestored says that this database is a restored copy: a new epoch begins, and everything since the copy was last
// seen well may be lost (PROTOCOL A8). It must be called before anything is served from the copy.
func (s *Store) EpochRestored(ctx context.Context, why string) error {
	return s.change(ctx, "epoch restored", func(ctx context.Context, q *dbgen.Queries) error {
		row, err := q.Guard(ctx)
		if err != nil {
			return err
		}
		now, err := durable(row)
		if err != nil {
			return err
		}
		n, err := q.RestoreEpoch(ctx, dbgen.RestoreEpochParams{Why: why, MarginUs: lostMargin.Microseconds(),
			SystemIdentifier: now.system, Timeline: now.timeline})
		return errors.Join(err, affected(n, 1))
	})
}

// HoldEpoch puts sends on hold by hand, for an interval that began at from and ends now.
func (s *Store) HoldEpoch(ctx context.Context, why string, from time.Time) error {
	return s.change(ctx, "epoch hold", func(ctx context.Context, q *dbgen.Queries) error {
		n, err := q.HoldEpoch(ctx, dbgen.HoldEpochParams{Why: why, LostFrom: dbTime(from)})
		return errors.Join(err, affected(n, 1))
	})
}

// AcknowledgeEpoch ends the hold of an epoch on a person's word that nothing of the lost interval is left to find. It
// fails with ErrNotHeld when that epoch is not on hold.
func (s *Store) AcknowledgeEpoch(ctx context.Context, epoch int64, why string) error {
	return s.change(ctx, "epoch acknowledge", func(ctx context.Context, q *dbgen.Queries) error {
		n, err := q.AcknowledgeEpoch(ctx, dbgen.AcknowledgeEpochParams{Why: why, Epoch: epoch})
		if err == nil && n == 0 {
			return ErrNotHeld
		}
		return err
	})
}
