-- When the first row that was never held back was enqueued.
SELECT created_at FROM main.{outbox} INDEXED BY {outbox_ready}
WHERE status = 0 AND next_attempt_at IS NULL ORDER BY seq LIMIT 1
