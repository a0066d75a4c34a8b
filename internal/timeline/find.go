package timeline

import (
	"context"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/jackc/pgx/v5"
)

// hit is one thing that a story is about: an intent, or money that belongs to none.
type hit struct{ intent, movement id.ID }

// kinds are the kinds of commands, the second column of every index over idempotency keys.
var kinds = []string{string(operation.CreateIntent), string(operation.CreatePayment), string(operation.DecideReview),
	string(operation.CapturePayment), string(operation.CancelPayment), string(operation.CreateRefund), string(operation.IssueCode)}

// Prefixes that only this package reads.
const decisionPrefix = "dec_"

// resolveSQL finds intents by whatever q may be. Each part begins with the merchant, and is led by an index; the
// acquirer's references alone are searched among the merchant's payments and movements.
const resolveSQL = `
WITH found AS (
  SELECT id AS intent_id, NULL::uuid AS movement_id FROM payment_intent WHERE merchant_id = @merchant::uuid AND id = @intent::uuid
  UNION ALL SELECT id, NULL FROM payment_intent WHERE merchant_id = @merchant::uuid AND client_reference = @q
  UNION ALL SELECT intent_id, NULL FROM payment WHERE merchant_id = @merchant::uuid AND id = @payment::uuid
  UNION ALL SELECT intent_id, NULL FROM payment WHERE merchant_id = @merchant::uuid AND acquirer_key = @q
  UNION ALL SELECT intent_id, NULL FROM payment WHERE merchant_id = @merchant::uuid AND (acquirer_reference = @q OR session_reference = @q)
  UNION ALL SELECT intent_id, NULL FROM payment WHERE merchant_id = @merchant::uuid AND kind = ANY(@kinds::text[]) AND idempotency_key = @q
  UNION ALL SELECT intent_id, NULL FROM modification WHERE merchant_id = @merchant::uuid AND (id = ANY(@changes::uuid[]) OR acquirer_key = @q OR acquirer_reference = @q)
  UNION ALL SELECT intent_id, NULL FROM modification WHERE merchant_id = @merchant::uuid AND kind = ANY(@kinds::text[]) AND idempotency_key = @q
  UNION ALL SELECT intent_id, NULL FROM dispute WHERE merchant_id = @merchant::uuid AND reference = @q
  UNION ALL SELECT p.intent_id, NULL FROM cancel_code c JOIN payment p ON p.merchant_id = c.merchant_id AND p.id = c.payment_id
             WHERE c.merchant_id = @merchant::uuid AND c.kind = ANY(@kinds::text[]) AND c.idempotency_key = @q
  UNION ALL SELECT p.intent_id, NULL FROM joined_command j JOIN payment p ON p.merchant_id = j.merchant_id AND p.id = j.payment_id
             WHERE j.merchant_id = @merchant::uuid AND j.kind = ANY(@kinds::text[]) AND j.idempotency_key = @q
  UNION ALL SELECT intent_id, NULL FROM payment_intent_version WHERE merchant_id = @merchant::uuid AND kind = ANY(@kinds::text[]) AND idempotency_key = @q
  UNION ALL SELECT intent_id, NULL FROM operation WHERE merchant_id = @merchant::uuid AND id = @operation::uuid
  UNION ALL SELECT intent_id, NULL FROM operation WHERE merchant_id = @merchant::uuid AND kind = ANY(@kinds::text[]) AND idempotency_key = @q
  UNION ALL SELECT intent_id, NULL FROM event WHERE merchant_id = @merchant::uuid AND id = @event::uuid
  UNION ALL SELECT intent_id, movement_id FROM review WHERE merchant_id = @merchant::uuid AND id = @review::uuid
  UNION ALL SELECT r.intent_id, r.movement_id FROM decision d JOIN review r ON r.merchant_id = d.merchant_id AND r.id = d.review_id
             WHERE d.merchant_id = @merchant::uuid AND (d.id = @decision::uuid OR d.kind = ANY(@kinds::text[]) AND d.idempotency_key = @q)
  UNION ALL SELECT intent_id, id FROM movement WHERE merchant_id = @merchant::uuid AND (id = @movement::uuid OR acquirer_key = @q OR reference = @q)
  UNION ALL SELECT intent_id, NULL FROM evidence WHERE merchant_id = @merchant::uuid AND id = @evidence::uuid
  UNION ALL SELECT intent_id, NULL FROM inbox_message WHERE merchant_id = @merchant::uuid AND (id = @message::uuid OR message_id = @q)
  UNION ALL SELECT intent_id, NULL FROM history WHERE merchant_id = @merchant::uuid AND request_id = @q
  UNION ALL SELECT intent_id, NULL FROM history WHERE merchant_id = @merchant::uuid AND key_hash IN (@q, @hash)
)
SELECT DISTINCT intent_id, CASE WHEN intent_id IS NULL THEN movement_id END AS movement_id
  FROM found WHERE intent_id IS NOT NULL OR movement_id IS NOT NULL
 ORDER BY intent_id DESC NULLS LAST, movement_id DESC LIMIT @max_rows::int`

func resolve(ctx context.Context, tx pgx.Tx, merchant id.ID, q string) ([]hit, error) {
	args := pgx.NamedArgs{"merchant": merchant.String(), "q": q, "hash": operation.KeyHash(q), "kinds": kinds, "max_rows": maxStories}
	for name, prefix := range map[string]string{"intent": id.Intent, "payment": id.Payment, "operation": id.Operation, "event": id.Event,
		"review": id.Review, "movement": id.Movement, "evidence": id.Evidence, "decision": decisionPrefix, "message": id.Message} {
		args[name] = parse(prefix, q)
	}
	changes := []string{}
	for _, prefix := range []string{id.Capture, id.Cancel, id.Refund} {
		if x := parse(prefix, q); x != nil {
			changes = append(changes, *x)
		}
	}
	args["changes"] = changes
	rows, err := tx.Query(ctx, resolveSQL, args)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (h hit, err error) {
		var intent, movement *[16]byte
		err = row.Scan(&intent, &movement)
		h.intent, h.movement = orZero(intent), orZero(movement)
		return h, err
	})
}

// parse reads an id with the prefix, or a UUID as logs and databases print it; nil: it is neither.
func parse(prefix, q string) *string {
	x, err := id.Parse(prefix, q)
	if err != nil && len(q) == len(id.ID{}.String()) {
		x, err = id.ParseUUID(q)
	}
	if err != nil {
		return nil
	}
	s := x.String()
	return &s
}

func orZero(raw *[16]byte) id.ID {
	if raw == nil {
		return id.ID{}
	}
	return *raw
}
