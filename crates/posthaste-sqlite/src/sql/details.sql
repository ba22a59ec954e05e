-- The rest of a row, its payload too.
SELECT content_type, headers, idempotency_key, payload FROM main.{outbox} WHERE seq = ?1
