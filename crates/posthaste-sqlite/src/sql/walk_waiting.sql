-- Walks the rows that were held back, in order of the time they wait for.
SELECT seq, aggregate_type, aggregate_id, next_attempt_at
FROM main.{outbox} INDEXED BY {outbox_waiting}
WHERE status = 0 AND next_attempt_at IS NOT NULL
ORDER BY next_attempt_at
