-- Settles a row that was held back, and so lets the later rows of its key go on.
UPDATE main.{outbox} SET status = 1, status_at = ?3, next_attempt_at = NULL
WHERE seq = ?1 AND id = ?2 AND status = 0
