-- The pending rows, oldest first. Those that were held back are sorted by position; they are few.
SELECT seq FROM main.{outbox} INDEXED BY {outbox_ready} WHERE status = 0 AND next_attempt_at IS NULL AND seq > ?1
UNION ALL
SELECT seq FROM main.{outbox} INDEXED BY {outbox_waiting}
WHERE status = 0 AND next_attempt_at IS NOT NULL AND seq > ?1
ORDER BY seq
