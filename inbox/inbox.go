// Package inbox makes a consumer's effect happen once, although its event comes at least once.
//
// Owns the mark of an event, one row in the consumer's own PostgreSQL database, in the transaction of the effect; its purge; a receiver of our webhooks.
// Never marks an event without its effect, nor answers a delivery before the commit; what an effect does outside that database it cannot make once.
// Read next: database.go for the usual way, webhook.go for webhooks, docs/consumers.md for other languages.
package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Schema makes the tables, if they are not there: one row for each consumer and event, and one for each consumer and
// subject where Newest is used. It belongs into the consumer's own migrations. A mark is read and written by its key
// only; the indexes by time serve Purge.
const Schema = `CREATE TABLE IF NOT EXISTS hapax_inbox (
  consumer text        NOT NULL,
  event_id text        NOT NULL,
  seen_at  timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (consumer, event_id)
);
CREATE INDEX IF NOT EXISTS hapax_inbox_seen_at ON hapax_inbox (seen_at);
CREATE TABLE IF NOT EXISTS hapax_inbox_subject (
  consumer text        NOT NULL,
  subject  text        NOT NULL,
  version  bigint      NOT NULL,
  seen_at  timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (consumer, subject)
);
CREATE INDEX IF NOT EXISTS hapax_inbox_subject_seen_at ON hapax_inbox_subject (seen_at);
`

// MaxNameBytes bounds the name of a consumer, an event's id and a subject: they are parts of keys.
const MaxNameBytes = 255

// rollbackLimit bounds the undoing of what failed. When it is over the connection is of no use, and its end undoes as well.
const rollbackLimit = 5 * time.Second

// ErrName says that a consumer, an event's id or a subject is empty or has more than MaxNameBytes bytes.
var ErrName = errors.New("inbox: unusable name")

// Tx is an open transaction of the consumer, at READ COMMITTED. PGX and SQL make one.
type Tx interface {
	// Exec runs one statement and says how many rows it changed.
	Exec(ctx context.Context, query string, args ...any) (int64, error)
}

// PGX is an open transaction of pgx.
func PGX(tx pgx.Tx) Tx { return pgxTx{tx} }

// SQL is an open transaction of database/sql over any driver of PostgreSQL.
func SQL(tx *sql.Tx) Tx { return sqlTx{tx} }

type pgxTx struct{ tx pgx.Tx }

func (t pgxTx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := t.tx.Exec(ctx, query, args...)
	return tag.RowsAffected(), err
}

type sqlTx struct{ tx *sql.Tx }

func (t sqlTx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := t.tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// A savepoint holds mark and effect together even where the caller commits in spite of an error. Names nest.
const (
	savepoint  = "SAVEPOINT hapax_inbox"
	undo       = "ROLLBACK TO SAVEPOINT hapax_inbox"
	release    = "RELEASE SAVEPOINT hapax_inbox"
	insertMark = "INSERT INTO hapax_inbox (consumer, event_id) VALUES ($1, $2) ON CONFLICT DO NOTHING"
)

// Once runs the effect, unless this consumer has marked the event before; first says that it ran. Mark and effect are
// in the caller's transaction, which the caller commits; only after that may the delivery be acknowledged.
//
// The effect writes through the same transaction. Another delivery of the event that comes meanwhile waits for this
// transaction: after its commit it sees the mark (false, nil), after its rollback it runs the effect itself. When the
// effect fails or panics, everything that it wrote and the mark are undone, and the event can come again; the rest of
// the transaction stays. Every other error leaves the transaction to be rolled back. At REPEATABLE READ or higher, who
// waited gets a serialization failure (40001) in place of false: to be tried again.
//
// What an effect does outside the transaction (a mail, a call) happens again when the transaction is lost after it:
// write it down as a row instead, and let the row be sent.
func Once(ctx context.Context, tx Tx, consumer, eventID string, effect func(context.Context) error) (first bool, err error) {
	if err := names(consumer, eventID); err != nil {
		return false, err
	}
	if _, err := tx.Exec(ctx, savepoint); err != nil {
		return false, fmt.Errorf("inbox: %w", err)
	}
	kept := false
	defer func() { // of a panic too
		if !kept {
			err = errors.Join(err, back(ctx, tx))
		}
	}()
	marked, err := tx.Exec(ctx, insertMark, consumer, eventID)
	if err != nil {
		return false, fmt.Errorf("inbox: mark: %w", err)
	}
	if marked > 0 {
		if err := effect(ctx); err != nil {
			return false, err
		}
	}
	// Fails when a statement of the effect did, though the effect said nothing of it.
	if _, err := tx.Exec(ctx, release); err != nil {
		return false, fmt.Errorf("inbox: %w", err)
	}
	kept = true
	return marked > 0, nil
}

// back undoes the mark and the effect, also when the caller's time is over.
func back(ctx context.Context, tx Tx) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackLimit)
	defer cancel()
	if _, err := tx.Exec(ctx, undo); err != nil {
		return fmt.Errorf("inbox: undo: %w", err)
	}
	return nil
}

const raiseVersion = `INSERT INTO hapax_inbox_subject (consumer, subject, version) VALUES ($1, $2, $3)
ON CONFLICT (consumer, subject) DO UPDATE SET version = EXCLUDED.version, seen_at = now()
WHERE hapax_inbox_subject.version < EXCLUDED.version`

// Newest says whether this version of the subject is higher than every one that this consumer has passed to it, and
// remembers it; others wait until the transaction ends. It is for effects that keep a copy of a state: called inside
// the effect, a false means that the copy is newer already, and that there is nothing to write. An effect that is owed
// for each event, such as a receipt, does without it.
func Newest(ctx context.Context, tx Tx, consumer, subject string, version int64) (bool, error) {
	if err := names(consumer, subject); err != nil {
		return false, err
	}
	rows, err := tx.Exec(ctx, raiseVersion, consumer, subject, version)
	if err != nil {
		return false, fmt.Errorf("inbox: version of the subject: %w", err)
	}
	return rows > 0, nil
}

func names(all ...string) error {
	for _, name := range all {
		if name == "" || len(name) > MaxNameBytes {
			return fmt.Errorf("%w: %d bytes, must be 1 to %d", ErrName, len(name), MaxNameBytes)
		}
	}
	return nil
}
