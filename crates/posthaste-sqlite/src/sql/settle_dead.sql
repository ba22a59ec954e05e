-- Gives a row up. With a time in `next_attempt_at` it parks its key; without, its key goes on.
UPDATE main.{outbox} SET status = -1, status_at = ?3, attempts = ?4, last_error = ?5, next_attempt_at = ?6
WHERE seq = ?1 AND id = ?2 AND status = 0
