package textbook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	statusUnknown  = "UNKNOWN"
	statusPaid     = "PAID"
	statusDeclined = "DECLINED"
	statusFailed   = "FAILED"
)

// payment is a row of payments; version is its optimistic lock.
type payment struct {
	id, intentID          int64
	status                string
	transactionID, reason *string
	version               int
}

var (
	// errAttemptExists says that the intent has an attempt that is not refused; the client gets 409.
	errAttemptExists = errors.New("payment intent has an attempt")
	// errOptimisticLock says that somebody changed the payment since it was read.
	errOptimisticLock = errors.New("payment was changed by another")
)

const (
	singleAttemptIndex = "ux_payment_intent_single_attempt"
	uniqueViolation    = "23505"
)

func insertPending(ctx context.Context, tx pgx.Tx, ck clientKey, r payRequest) (id int64, err error) {
	err = tx.QueryRow(ctx, `
		INSERT INTO textbook.payments
		       (merchant_id, idempotency_key, payment_intent_id, amount_minor, currency, payment_method_id, status)
		VALUES ($1, $2, $3, $4, $5, $6, 'PENDING')
		RETURNING id`,
		ck.merchantID, ck.value, r.PaymentIntentID, r.Amount, r.Currency, r.PaymentMethod).Scan(&id)
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == uniqueViolation && pgErr.ConstraintName == singleAttemptIndex {
		return 0, errAttemptExists
	}
	if err != nil {
		return 0, fmt.Errorf("insert payment: %w", err)
	}
	return id, nil
}

// querier is a pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

const selectPayment = `SELECT id, payment_intent_id, status, transaction_id, reason, version FROM textbook.payments `

func scanPayment(row pgx.Row) (payment, error) {
	var p payment
	if err := row.Scan(&p.id, &p.intentID, &p.status, &p.transactionID, &p.reason, &p.version); err != nil {
		return payment{}, fmt.Errorf("find payment: %w", err)
	}
	return p, nil
}

func findPayment(ctx context.Context, q querier, id int64) (payment, error) {
	return scanPayment(q.QueryRow(ctx, selectPayment+`WHERE id = $1`, id))
}

func findByClientKey(ctx context.Context, q querier, ck clientKey) (payment, error) {
	return scanPayment(q.QueryRow(ctx, selectPayment+
		`WHERE merchant_id = $1 AND idempotency_key = $2 ORDER BY id DESC LIMIT 1`, ck.merchantID, ck.value))
}

// save writes what changed, if nobody changed the row since it was read.
func (p payment) save(ctx context.Context, tx pgx.Tx) error {
	tag, err := tx.Exec(ctx, `
		UPDATE textbook.payments
		   SET status = $3, transaction_id = $4, reason = $5, version = version + 1
		 WHERE id = $1 AND version = $2`,
		p.id, p.version, p.status, p.transactionID, p.reason)
	if err != nil {
		return fmt.Errorf("save payment: %w", err)
	}
	if tag.RowsAffected() != 1 {
		return errOptimisticLock
	}
	return nil
}

// publishSucceeded writes the event into the outbox, in the transaction that pays.
func publishSucceeded(ctx context.Context, tx pgx.Tx, p payment) error {
	payload, err := json.Marshal(map[string]any{
		"payment_intent_id": p.intentID,
		"transaction_id":    p.transactionID,
	})
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	if _, err := tx.Exec(ctx, `
		INSERT INTO textbook.outbox (topic, message_key, payload)
		VALUES ('payments.succeeded', $1, $2)`,
		strconv.FormatInt(p.intentID, 10), payload); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	return nil
}

// stuckPayment is a PENDING or UNKNOWN payment whose key's lease ran out, with the request to repeat.
type stuckPayment struct {
	paymentID     int64
	ck            clientKey
	request       payRequest
	keyValidUntil time.Time
}

// providerKeyStillValid says whether the acquirer still keeps the key. The window is counted from the
// payment's creation, not from the first call.
func (p stuckPayment) providerKeyStillValid() bool { return time.Now().Before(p.keyValidUntil) }

func (s *Service) findRecoverable(ctx context.Context, limit int) ([]stuckPayment, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT p.id, p.merchant_id, p.idempotency_key,
		       p.payment_intent_id, p.amount_minor, p.currency, p.payment_method_id,
		       p.created_at + make_interval(secs => $2)
		  FROM textbook.payments p
		  JOIN textbook.idempotency_keys k
		    ON k.merchant_id = p.merchant_id AND k.idempotency_key = p.idempotency_key
		 WHERE p.status IN ('PENDING', 'UNKNOWN')
		   AND k.lease_until < now()
		 ORDER BY k.lease_until
		 LIMIT $1`, limit, s.scaled(s.cfg.ProviderKeyWindow).Seconds())
	if err != nil {
		return nil, fmt.Errorf("find recoverable payments: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (p stuckPayment, err error) {
		err = row.Scan(&p.paymentID, &p.ck.merchantID, &p.ck.value,
			&p.request.PaymentIntentID, &p.request.Amount, &p.request.Currency, &p.request.PaymentMethod,
			&p.keyValidUntil)
		return p, err
	})
}

// enqueueReview hands a payment to a person; a second time changes nothing.
func (s *Service) enqueueReview(ctx context.Context, paymentID int64) error {
	if _, err := s.pool.Exec(ctx, `
		INSERT INTO textbook.manual_review (payment_id) VALUES ($1) ON CONFLICT DO NOTHING`, paymentID); err != nil {
		return fmt.Errorf("hand payment to a person: %w", err)
	}
	return nil
}
