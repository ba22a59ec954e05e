-- Counts the rows that were never held back, up to a limit, in the index alone.
SELECT count(*) FROM (
    SELECT 1 FROM main.{outbox} INDEXED BY {outbox_ready}
    WHERE status = 0 AND next_attempt_at IS NULL LIMIT ?1)
