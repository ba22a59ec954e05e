-- The rest of one row, by its primary key.
SELECT id, event_type, attempts, created_at, content_type, headers, idempotency_key, payload
FROM main.{outbox} WHERE seq = ?1
