-- name: FeedHead :one
SELECT position FROM feed_head WHERE merchant_id = @merchant_id;

-- name: Feed :many
SELECT f.position, e.payload
  FROM feed f JOIN event e ON e.merchant_id = f.merchant_id AND e.id = f.event_id
 WHERE f.merchant_id = @merchant_id AND f.position > @after::bigint
 ORDER BY f.position LIMIT @max_rows::int;

-- name: FeedOfSubject :many
-- The narrowest filter has the statement of its own, and with it the index; the others are conditions in it.
SELECT f.position, e.payload
  FROM feed f JOIN event e ON e.merchant_id = f.merchant_id AND e.id = f.event_id
 WHERE f.merchant_id = @merchant_id AND f.subject_id = @subject_id AND f.position > @after::bigint
   AND (@type::text = '' OR f.type = @type::text) AND (@customer::text = '' OR f.customer = @customer::text)
 ORDER BY f.position LIMIT @max_rows::int;

-- name: FeedOfCustomer :many
SELECT f.position, e.payload
  FROM feed f JOIN event e ON e.merchant_id = f.merchant_id AND e.id = f.event_id
 WHERE f.merchant_id = @merchant_id AND f.customer = @customer::text AND f.position > @after::bigint
   AND (@type::text = '' OR f.type = @type::text)
 ORDER BY f.position LIMIT @max_rows::int;

-- name: FeedOfType :many
SELECT f.position, e.payload
  FROM feed f JOIN event e ON e.merchant_id = f.merchant_id AND e.id = f.event_id
 WHERE f.merchant_id = @merchant_id AND f.type = @type::text AND f.position > @after::bigint
 ORDER BY f.position LIMIT @max_rows::int;
