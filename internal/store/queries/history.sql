-- name: NoteHistory :exec
-- The same note twice is one note: a transaction whose COMMIT had no answer may be run again (PROTOCOL K10).
INSERT INTO history (merchant_id, id, intent_id, payment_id, operation_id, kind, what, why, request_id, key_hash, fence, reference)
SELECT t.merchant_id, t.id, t.intent_id, t.payment_id, t.operation_id, t.kind, t.what, t.why,
       NULLIF(t.request_id, ''), NULLIF(t.key_hash, ''), t.fence, NULLIF(t.reference, '')
  FROM (SELECT unnest(@merchants::uuid[]) AS merchant_id, unnest(@ids::uuid[]) AS id, unnest(@intents::uuid[]) AS intent_id,
               unnest(@payments::uuid[]) AS payment_id, unnest(@operations::uuid[]) AS operation_id, unnest(@kinds::text[]) AS kind,
               unnest(@whats::text[]) AS what, unnest(@whys::text[]) AS why, unnest(@requests::text[]) AS request_id,
               unnest(@key_hashes::text[]) AS key_hash, unnest(@fences::bigint[]) AS fence, unnest(@refs::text[]) AS reference) t
ON CONFLICT (merchant_id, id) DO NOTHING;
