package store

import (
	"errors"
	"strings"

	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// SQLSTATEs that mean something to us.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	uniqueViolation      = "23505"
	undefinedTable       = "42P01"
	duplicateTable       = "42P07"
	duplicateObject      = "42710" // the type of a table that another session is making
	idleInTxTimeout      = "25P03"
	classIntegrity       = "23"
)

// Violation gives the name of the constraint or unique index that an error is about, without the suffix that a shard
// adds (DESIGN data rule 7). ok is false for every other error.
func Violation(err error) (constraint string, ok bool) {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || !strings.HasPrefix(pg.Code, classIntegrity) {
		return "", false
	}
	return withoutShard(pg.ConstraintName), true
}

// withoutShard cuts an optional _<digits>.
func withoutShard(name string) string {
	base := strings.TrimRight(name, "0123456789")
	if base != name && strings.HasSuffix(base, "_") {
		return strings.TrimSuffix(base, "_")
	}
	return name
}

func isCode(err error, codes ...string) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	for _, code := range codes {
		if pg.Code == code {
			return true
		}
	}
	return false
}

// retryable says that the transaction was undone by the database and can be run again as a whole.
func retryable(err error) bool { return isCode(err, serializationFailure, deadlockDetected) }

// commitMeaning says what a failed COMMIT proves: ErrNothingDone only where the server itself said that it did not
// commit; else ErrCommitUnknown. A fatal error proves nothing: a server that is shut down while it waits for a standby
// has committed already. Nor does pgconn.SafeToRetry: a connection that dies while the answer is awaited is reported
// like one that was closed before anything was sent.
func commitMeaning(err error) error {
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrTxCommitRollback):
		return operation.ErrNothingDone
	case errors.As(err, &pg) && (pg.SeverityUnlocalized == "ERROR" || pg.Code == idleInTxTimeout): // idle: no COMMIT was seen
		return operation.ErrNothingDone
	}
	return operation.ErrCommitUnknown
}
