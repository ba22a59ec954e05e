-- Walks the rows that were never held back, in order, with what tells their state and age.
SELECT seq, aggregate_type, aggregate_id, created_at
FROM main.{outbox} INDEXED BY {outbox_ready}
WHERE status = 0 AND next_attempt_at IS NULL
ORDER BY seq
