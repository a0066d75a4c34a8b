-- name: LockIntentOf :one
-- Money and conflicts of an intent are judged under its lock (PROTOCOL P7).
SELECT i.id FROM payment_intent i
 WHERE i.merchant_id = @merchant_id
   AND i.id = (SELECT o.intent_id FROM operation o
                WHERE o.merchant_id = @merchant_id AND o.kind = @kind AND o.idempotency_key = @idempotency_key)
   FOR UPDATE;

-- name: GrantPermit :one
-- The permit (PROTOCOL A0): no row, no send. WhyDenied reads the same conditions, one by one. Only what first takes or holds
-- money is barred by time, by money that is there, and by a cancel (W3, P7, X6); what gives back, or up, is barred by none of them.
UPDATE operation o
   SET sends = o.sends + 1, unsent = o.unsent + @unsent::int, permit_id = @permit_id::uuid,
       last_permit_at = now(), first_permit_at = COALESCE(o.first_permit_at, now())
 WHERE o.merchant_id = @merchant_id AND o.kind = @kind AND o.idempotency_key = @idempotency_key
   AND o.fence = @fence AND o.state IN ('in_progress', 'awaiting_result')
   AND o.permit_id IS DISTINCT FROM @permit_id::uuid
   AND o.action IS NOT NULL
   AND o.sends < @max_ever::int AND o.unsent + @unsent::int <= o.sends
   AND o.sends - o.unsent - @unsent::int < @max_sends::int
   AND CASE WHEN sqlc.arg(cut_off_us)::bigint = 0 THEN o.sends - o.unsent - @unsent::int = 0
            ELSE o.first_permit_at IS NULL OR o.first_permit_at + sqlc.arg(cut_off_us)::bigint * interval '1 microsecond' > now() END
   AND CASE
       WHEN o.kind IN ('cancel', 'refund', 'compensate') THEN true
       WHEN o.kind = 'capture' THEN
            NOT (SELECT i.conflict FROM payment_intent i WHERE i.merchant_id = o.merchant_id AND i.id = o.intent_id)
            AND EXISTS (SELECT FROM payment p WHERE p.merchant_id = o.merchant_id AND p.id = o.payment_id AND p.status = 'authorized')
       ELSE (@client_waiting::boolean OR o.send_until > now())
            AND NOT EXISTS (SELECT FROM payment p WHERE p.merchant_id = o.merchant_id AND p.id = o.payment_id AND p.status = 'canceling')
            AND (SELECT i.pay_before > now() AND NOT i.conflict FROM payment_intent i WHERE i.merchant_id = o.merchant_id AND i.id = o.intent_id)
            AND NOT EXISTS (SELECT FROM movement m WHERE m.merchant_id = o.merchant_id AND m.intent_id = o.intent_id
                               AND m.kind IN ('charge', 'capture') AND m.state <> 'returned')
            AND NOT EXISTS (SELECT FROM movement m WHERE m.merchant_id = o.merchant_id AND m.acquirer_key = ANY(array_append(@family::text[], o.acquirer_key))
                               AND m.payment_id IS NULL AND m.kind IN ('charge', 'capture') AND m.state <> 'returned')
       END
   AND (SELECT NOT e.held OR (@held_ok::boolean AND o.epoch = e.epoch)
            OR EXISTS (SELECT FROM acquirer_account a WHERE a.merchant_id = o.merchant_id AND a.id = o.account_id AND a.compared_epoch >= e.epoch)
          FROM database_epoch e WHERE e.singleton)
RETURNING o.*;

-- name: WhyDenied :one
SELECT sqlc.embed(o),
       (o.kind NOT IN ('capture', 'cancel', 'refund', 'compensate') AND (i.pay_before IS NULL OR i.pay_before <= now()))::boolean AS expired,
       (CASE
        WHEN o.kind IN ('cancel', 'refund', 'compensate') THEN false
        WHEN o.kind = 'capture' THEN COALESCE(i.conflict, true)
             OR NOT EXISTS (SELECT FROM payment p WHERE p.merchant_id = o.merchant_id AND p.id = o.payment_id AND p.status = 'authorized')
        ELSE COALESCE(i.conflict, true)
             OR EXISTS (SELECT FROM movement m WHERE m.merchant_id = o.merchant_id AND m.intent_id = o.intent_id
                           AND m.kind IN ('charge', 'capture') AND m.state <> 'returned')
             OR EXISTS (SELECT FROM movement m WHERE m.merchant_id = o.merchant_id AND m.acquirer_key = ANY(array_append(@family::text[], o.acquirer_key))
                           AND m.payment_id IS NULL AND m.kind IN ('charge', 'capture') AND m.state <> 'returned')
        END)::boolean AS money_or_conflict,
       (o.kind NOT IN ('capture', 'cancel', 'refund', 'compensate')
        AND EXISTS (SELECT FROM payment p WHERE p.merchant_id = o.merchant_id AND p.id = o.payment_id AND p.status = 'canceling'))::boolean AS canceling,
       (e.held AND NOT (@held_ok::boolean AND o.epoch = e.epoch)
        AND NOT EXISTS (SELECT FROM acquirer_account a WHERE a.merchant_id = o.merchant_id AND a.id = o.account_id
                           AND a.compared_epoch >= e.epoch))::boolean AS on_hold,
       (o.kind NOT IN ('capture', 'cancel', 'refund', 'compensate')
        AND NOT @client_waiting::boolean AND o.send_until <= now())::boolean AS late,
       (CASE WHEN sqlc.arg(cut_off_us)::bigint = 0 THEN o.sends - o.unsent - @unsent::int > 0
             ELSE o.first_permit_at + sqlc.arg(cut_off_us)::bigint * interval '1 microsecond' <= now() END IS TRUE)::boolean AS cut_off
  FROM operation o
  JOIN database_epoch e ON e.singleton
  LEFT JOIN payment_intent i ON i.merchant_id = o.merchant_id AND i.id = o.intent_id
 WHERE o.merchant_id = @merchant_id AND o.kind = @kind AND o.idempotency_key = @idempotency_key;
