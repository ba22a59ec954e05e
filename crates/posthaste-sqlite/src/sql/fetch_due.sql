-- Walks the rows that were held back and are due, in order of the time they waited for, from a place on.
SELECT seq, aggregate_type, aggregate_id, next_attempt_at
FROM main.{outbox} INDEXED BY {outbox_waiting}
WHERE status = 0 AND next_attempt_at IS NOT NULL
  AND (next_attempt_at, seq) > (?1, ?2) AND next_attempt_at <= ?3
ORDER BY next_attempt_at, seq
