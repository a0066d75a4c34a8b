-- name: InsertMailTemplate :execrows
INSERT INTO mail_template (merchant_id, kind, enabled, sender, subject, body) VALUES (@merchant_id, @kind, true, @sender, @subject, @body)
ON CONFLICT (merchant_id, kind) DO NOTHING;

-- name: UpdateMailTemplate :execrows
UPDATE mail_template SET enabled = true, sender = @sender, subject = @subject, body = @body, updated_at = now()
 WHERE merchant_id = @merchant_id AND kind = @kind;

-- name: EnableMailTemplate :execrows
UPDATE mail_template SET enabled = @enabled, updated_at = now() WHERE merchant_id = @merchant_id AND kind = @kind;

-- name: MailTemplate :one
SELECT t.*, m.name FROM mail_template t JOIN merchant m ON m.merchant_id = t.merchant_id
 WHERE t.merchant_id = @merchant_id AND t.kind = @kind;

-- name: MailCode :many
-- The code that counts, and the database's time to judge it by.
SELECT sqlc.embed(c), now()::timestamptz AS read_at FROM cancel_code c
 WHERE c.merchant_id = @merchant_id AND c.payment_id = @payment_id ORDER BY c.ordinal DESC LIMIT 1;

-- name: InsertMail :execrows
INSERT INTO mail (merchant_id, mail_key, kind, event_id, payment_id, message_id, state, claim_id)
VALUES (@merchant_id, @mail_key, @kind, @event_id, @payment_id, @message_id, 'sending', @claim_id)
ON CONFLICT (merchant_id, mail_key) DO NOTHING;

-- name: ClaimMail :execrows
-- What is proven not sent may be sent; the same claim again is its own repeat after a lost COMMIT (K10).
UPDATE mail SET state = 'sending', why = '', claim_id = @claim_id, updated_at = now()
 WHERE merchant_id = @merchant_id AND mail_key = @mail_key
   AND (state = 'not_sent' OR state = 'sending' AND claim_id = @claim_id);

-- name: LoseMails :execrows
-- Whoever was sending it has not said a word for longer than anybody sends.
UPDATE mail SET state = 'unknown', why = @why, updated_at = now()
 WHERE merchant_id = @merchant_id AND state = 'sending' AND updated_at < now() - sqlc.arg(after_us)::bigint * interval '1 microsecond';

-- name: ReadMail :one
SELECT * FROM mail WHERE merchant_id = @merchant_id AND mail_key = @mail_key;

-- name: EndMail :execrows
-- What the sender has proven holds, even where somebody else has given the mail up meanwhile; what it does not know ends only
-- what is still open.
UPDATE mail SET state = @state, why = @why, updated_at = now()
 WHERE merchant_id = @merchant_id AND mail_key = @mail_key AND claim_id = @claim_id
   AND (state = 'sending' OR state = 'unknown' AND @state::text <> 'unknown');

-- name: ReopenMailDelivery :execrows
UPDATE delivery d SET state = 'waiting', ended_at = NULL, due_at = now(), since = now(), resends = d.resends + 1
  FROM mail m
 WHERE m.merchant_id = @merchant_id AND m.mail_key = @mail_key
   AND d.merchant_id = m.merchant_id AND d.sink = 'mail' AND d.event_id = m.event_id;

-- name: ResolveMail :execrows
-- A person has looked into the mail server's log.
UPDATE mail SET state = @state, why = @why, updated_at = now()
 WHERE merchant_id = @merchant_id AND mail_key = @mail_key AND state IN ('unknown', 'refused');

-- name: Mails :many
SELECT * FROM mail
 WHERE merchant_id = @merchant_id AND (@state::text = '' OR state = @state::text)
 ORDER BY created_at DESC, mail_key LIMIT @max_rows::int;

-- name: MailBacklog :one
-- What has been on its way for longer than anybody sends is unknown already, though nobody has written so yet. What is not sent
-- counts while its delivery is still tried.
SELECT count(*) FILTER (WHERE state = 'unknown'
                           OR state = 'sending' AND updated_at < now() - sqlc.arg(given_up_us)::bigint * interval '1 microsecond') AS unknown,
       count(*) FILTER (WHERE state = 'not_sent'
                           AND EXISTS (SELECT FROM delivery d
                                        WHERE d.merchant_id = mail.merchant_id AND d.sink = 'mail' AND d.event_id = mail.event_id
                                          AND d.state = 'waiting')) AS not_sent
  FROM mail WHERE state <> 'sent';
