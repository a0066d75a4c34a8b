-- name: Accounts :many
SELECT * FROM acquirer_account WHERE merchant_id = ANY(@merchants::uuid[]) ORDER BY merchant_id, id;

-- name: MarkCompared :execrows
UPDATE acquirer_account SET compared_epoch = GREATEST(compared_epoch, @epoch::bigint)
 WHERE merchant_id = @merchant_id AND id = @id;

-- name: AddAccount :exec
INSERT INTO acquirer_account (merchant_id, id, adapter, settings, secrets)
VALUES (@merchant_id, @id, @adapter, CAST(@settings::text AS jsonb), @secrets);

-- name: ReplaceAccount :execrows
UPDATE acquirer_account SET settings = CAST(@settings::text AS jsonb), secrets = @secrets, paused = @paused
 WHERE merchant_id = @merchant_id AND id = @id;

-- name: UncomparedAccounts :many
-- Paused ones too: what they executed in the lost interval moved money all the same (PROTOCOL A8).
SELECT * FROM acquirer_account WHERE compared_epoch < @epoch ORDER BY merchant_id, id LIMIT @max_rows::int;

-- name: PauseAccount :execrows
UPDATE acquirer_account SET paused = @paused WHERE merchant_id = @merchant_id AND id = @id;

-- name: RoutingRules :many
SELECT * FROM routing_rule WHERE merchant_id = ANY(@merchants::uuid[]) ORDER BY merchant_id, priority, id;

-- name: AddRoutingRule :exec
INSERT INTO routing_rule (merchant_id, id, account_id, priority, weight, currency, method_prefix, flow)
VALUES (@merchant_id, @id, @account_id, @priority, @weight, @currency, @method_prefix, @flow);

-- name: RemoveRoutingRule :execrows
DELETE FROM routing_rule WHERE merchant_id = @merchant_id AND id = @id;
