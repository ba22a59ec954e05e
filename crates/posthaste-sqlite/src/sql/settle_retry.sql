-- Holds a row back until its next attempt.
UPDATE main.{outbox} SET attempts = ?3, last_error = ?4, next_attempt_at = ?5
WHERE seq = ?1 AND id = ?2 AND status = 0
