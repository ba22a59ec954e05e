-- Deletes old idempotency keys. Keys lie in the order in which they were written, so only the first few are
-- looked at.
DELETE FROM main.{outbox_key}
WHERE seq IN (SELECT seq FROM main.{outbox_key} NOT INDEXED ORDER BY seq LIMIT ?1) AND created_at < ?2
