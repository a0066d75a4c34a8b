package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Database is the consumer's database, whose transactions are of type T. OverPGX and OverSQL make one.
type Database[T any] struct {
	begin    func(context.Context) (T, error)
	tx       func(T) Tx
	commit   func(context.Context, T) error
	rollback func(context.Context, T) error // of a transaction that is over: does nothing
}

// Beginner is a pool or a connection of pgx.
type Beginner interface {
	BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error)
}

// OverPGX is the database behind a pool of pgx.
func OverPGX(pool Beginner) Database[pgx.Tx] {
	return Database[pgx.Tx]{
		begin: func(ctx context.Context) (pgx.Tx, error) {
			return pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
		},
		tx:     PGX,
		commit: func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		rollback: func(ctx context.Context, tx pgx.Tx) error {
			if err := tx.Rollback(ctx); !errors.Is(err, pgx.ErrTxClosed) {
				return err
			}
			return nil
		},
	}
}

// OverSQL is the database behind database/sql, with any driver of PostgreSQL.
func OverSQL(db *sql.DB) Database[*sql.Tx] {
	return Database[*sql.Tx]{
		begin: func(ctx context.Context) (*sql.Tx, error) {
			return db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		},
		tx:     SQL,
		commit: func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
		rollback: func(_ context.Context, tx *sql.Tx) error {
			if err := tx.Rollback(); !errors.Is(err, sql.ErrTxDone) {
				return err
			}
			return nil
		},
	}
}

// Once runs the effect in a transaction of its own and commits it, unless this consumer has marked the event before;
// first says that it ran. With a nil error the effect is durable, now or since an earlier delivery, and the delivery may
// be acknowledged. With any error it must not be: the event has to come again. That holds for a COMMIT without an answer
// as well, which may have happened: the next delivery finds the mark or finds none.
func (d Database[T]) Once(ctx context.Context, consumer, eventID string, effect func(ctx context.Context, tx T) error) (first bool, err error) {
	err = d.inTx(ctx, func(tx T) (err error) {
		first, err = Once(ctx, d.tx(tx), consumer, eventID, func(ctx context.Context) error { return effect(ctx, tx) })
		return err
	})
	return first && err == nil, err // no error of a commit comes with true
}

func (d Database[T]) inTx(ctx context.Context, f func(tx T) error) (err error) {
	tx, err := d.begin(ctx)
	if err != nil {
		return fmt.Errorf("inbox: begin: %w", err)
	}
	defer func() { // of a panic too
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackLimit)
		defer cancel()
		if undone := d.rollback(ctx, tx); undone != nil && err != nil {
			err = errors.Join(err, fmt.Errorf("inbox: rollback: %w", undone))
		}
	}()
	if err := f(tx); err != nil {
		return err
	}
	if err := d.commit(ctx, tx); err != nil {
		return fmt.Errorf("inbox: commit: %w", err)
	}
	return nil
}

// Bounds on forgetting.
const (
	// MinKeep is the least time for which marks are kept: a delivery is tried again for three days, and a person may
	// have it sent again after that. Keep them for months where there is room: an event that comes after its mark was
	// purged has its effect again.
	MinKeep = 14 * 24 * time.Hour

	purgeBatch   = 1000 // rows of one transaction
	purgeBatches = 1000 // of one table in one call
)

// ErrKeep says that Purge was asked to forget marks younger than MinKeep.
var ErrKeep = errors.New("inbox: marks must be kept longer")

// Locked rows belong to another purge, and are left to it.
var purges = []string{
	`DELETE FROM hapax_inbox WHERE (consumer, event_id) IN (SELECT consumer, event_id FROM hapax_inbox
		WHERE seen_at < now() - $1::bigint * interval '1 second' ORDER BY seen_at LIMIT $2 FOR UPDATE SKIP LOCKED)`,
	`DELETE FROM hapax_inbox_subject WHERE (consumer, subject) IN (SELECT consumer, subject FROM hapax_inbox_subject
		WHERE seen_at < now() - $1::bigint * interval '1 second' ORDER BY seen_at LIMIT $2 FOR UPDATE SKIP LOCKED)`,
}

// Purge forgets marks and versions of subjects older than keep, by the database's clock, in transactions of a thousand
// rows; it gives how many it forgot, also with an error. One call forgets a million of each at most: call it daily.
// It fails with ErrKeep, and forgets nothing, when keep is less than MinKeep.
func (d Database[T]) Purge(ctx context.Context, keep time.Duration) (forgotten int64, err error) {
	if keep < MinKeep {
		return 0, fmt.Errorf("%w: %s, at least %s", ErrKeep, keep, MinKeep)
	}
	for _, purge := range purges {
		for range purgeBatches {
			var rows int64
			err := d.inTx(ctx, func(tx T) (err error) {
				rows, err = d.tx(tx).Exec(ctx, purge, int64(keep/time.Second), purgeBatch)
				return err
			})
			if err != nil {
				return forgotten, fmt.Errorf("inbox: purge: %w", err)
			}
			if forgotten += rows; rows < purgeBatch {
				break
			}
		}
	}
	return forgotten, nil
}
