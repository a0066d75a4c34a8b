package textbook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// clientKey is a client's key within its merchant; the merchant comes from authentication.
type clientKey struct {
	merchantID int64
	value      string
}

// providerKey is the key for the acquirer, within the merchant as well.
func (ck clientKey) providerKey() string {
	return strconv.FormatInt(ck.merchantID, 10) + ":" + ck.value
}

// fingerprint covers the business fields in a fixed order, each as "length:value", so that no
// separator inside a value can collide.
func fingerprint(r payRequest) string {
	var canonical strings.Builder
	for _, v := range []string{
		strconv.FormatInt(r.PaymentIntentID, 10),
		strconv.FormatInt(r.Amount, 10),
		r.Currency,
		r.PaymentMethod,
	} {
		canonical.WriteString(strconv.Itoa(len(v)) + ":" + v)
	}
	sum := sha256.Sum256([]byte(canonical.String()))
	return hex.EncodeToString(sum[:])
}

const (
	keyInProgress     = "IN_PROGRESS"
	keyAwaitingResult = "AWAITING_RESULT"
	keyCompleted      = "COMPLETED"
)

type claimKind int

const (
	claimBusy claimKind = iota
	claimFirst
	claimReclaimed
)

type claim struct {
	kind    claimKind
	attempt int
}

// errStaleAttempt says that a newer owner has the key: the transaction rolls back, the client gets 409.
var errStaleAttempt = errors.New("stale attempt")

// tryClaim takes a new key, or one whose lease ran out, with a new fencing token.
func tryClaim(ctx context.Context, tx pgx.Tx, ck clientKey, hash string, lease, retention time.Duration) (claim, error) {
	tag, err := tx.Exec(ctx, `
		INSERT INTO textbook.idempotency_keys
		       (merchant_id, idempotency_key, request_hash, status, lease_until, expires_at)
		VALUES ($1, $2, $3, 'IN_PROGRESS',
		        now() + make_interval(secs => $4),
		        now() + make_interval(secs => $5))
		ON CONFLICT (merchant_id, idempotency_key) DO NOTHING`,
		ck.merchantID, ck.value, hash, lease.Seconds(), retention.Seconds())
	if err != nil {
		return claim{}, fmt.Errorf("claim key: %w", err)
	}
	if tag.RowsAffected() == 1 {
		return claim{kind: claimFirst, attempt: 1}, nil
	}
	var attempt int
	err = tx.QueryRow(ctx, `
		UPDATE textbook.idempotency_keys
		   SET attempt = attempt + 1,
		       lease_until = now() + make_interval(secs => $4)
		 WHERE merchant_id = $1 AND idempotency_key = $2
		   AND request_hash = $3
		   AND status = 'IN_PROGRESS'
		   AND lease_until < now()
		RETURNING attempt`,
		ck.merchantID, ck.value, hash, lease.Seconds()).Scan(&attempt)
	if errors.Is(err, pgx.ErrNoRows) {
		return claim{kind: claimBusy}, nil
	}
	if err != nil {
		return claim{}, fmt.Errorf("reclaim key: %w", err)
	}
	return claim{kind: claimReclaimed, attempt: attempt}, nil
}

// claimForRecovery takes a key that waits for its outcome, whichever way; ok is false when somebody
// else has it.
func claimForRecovery(ctx context.Context, pool *pgxpool.Pool, ck clientKey, lease time.Duration) (attempt int, ok bool, err error) {
	err = pool.QueryRow(ctx, `
		UPDATE textbook.idempotency_keys
		   SET attempt = attempt + 1,
		       lease_until = now() + make_interval(secs => $3)
		 WHERE merchant_id = $1 AND idempotency_key = $2
		   AND status IN ('IN_PROGRESS', 'AWAITING_RESULT')
		   AND lease_until < now()
		RETURNING attempt`,
		ck.merchantID, ck.value, lease.Seconds()).Scan(&attempt)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("claim key for recovery: %w", err)
	}
	return attempt, true, nil
}

// complete stores the final answer, if the attempt still owns the key.
func complete(ctx context.Context, tx pgx.Tx, ck clientKey, attempt int, a answer) error {
	tag, err := tx.Exec(ctx, `
		UPDATE textbook.idempotency_keys
		   SET status = 'COMPLETED',
		       response_code = $4,
		       response_body = $5
		 WHERE merchant_id = $1 AND idempotency_key = $2
		   AND attempt = $3
		   AND status IN ('IN_PROGRESS', 'AWAITING_RESULT')`,
		ck.merchantID, ck.value, attempt, a.status, a.body)
	if err != nil {
		return fmt.Errorf("complete key: %w", err)
	}
	if tag.RowsAffected() != 1 {
		return errStaleAttempt
	}
	return nil
}

// awaitResult leaves the key to reconciliation after a grace period, if the attempt still owns it.
func awaitResult(ctx context.Context, tx pgx.Tx, ck clientKey, attempt int, grace time.Duration) error {
	tag, err := tx.Exec(ctx, `
		UPDATE textbook.idempotency_keys
		   SET status = 'AWAITING_RESULT',
		       lease_until = now() + make_interval(secs => $4)
		 WHERE merchant_id = $1 AND idempotency_key = $2
		   AND attempt = $3
		   AND status IN ('IN_PROGRESS', 'AWAITING_RESULT')`,
		ck.merchantID, ck.value, attempt, grace.Seconds())
	if err != nil {
		return fmt.Errorf("leave key to reconciliation: %w", err)
	}
	if tag.RowsAffected() != 1 {
		return errStaleAttempt
	}
	return nil
}

type keyRecord struct {
	requestHash, status string
	stored              answer // of a COMPLETED key
}

func findKey(ctx context.Context, pool *pgxpool.Pool, ck clientKey) (keyRecord, error) {
	var r keyRecord
	var code *int
	var body *json.RawMessage
	err := pool.QueryRow(ctx, `
		SELECT request_hash, status, response_code, response_body
		  FROM textbook.idempotency_keys
		 WHERE merchant_id = $1 AND idempotency_key = $2`,
		ck.merchantID, ck.value).Scan(&r.requestHash, &r.status, &code, &body)
	if err != nil {
		return keyRecord{}, fmt.Errorf("find key: %w", err)
	}
	if r.status == keyCompleted {
		if code == nil || body == nil {
			return keyRecord{}, errors.New("completed key without a stored answer")
		}
		r.stored = answer{status: *code, body: *body}
	}
	return r, nil
}

// purgeBatch bounds one pass of Purge, in keys.
const purgeBatch = 10_000

// Purge deletes one batch of completed keys past their retention and says how many. Keys that are
// not completed stay: their attempt may still be repeated or reconciled.
func (s *Service) Purge(ctx context.Context) (int64, error) {
	tag, err := s.pool.Exec(ctx, `
		DELETE FROM textbook.idempotency_keys
		 WHERE (merchant_id, idempotency_key) IN (
		        SELECT merchant_id, idempotency_key
		          FROM textbook.idempotency_keys
		         WHERE status = 'COMPLETED' AND expires_at < now()
		         LIMIT $1)`, purgeBatch)
	if err != nil {
		return 0, fmt.Errorf("textbook: purge: %w", err)
	}
	return tag.RowsAffected(), nil
}
