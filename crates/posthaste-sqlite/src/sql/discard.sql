-- Deletes a dead row, and says whether it parked its key.
DELETE FROM main.{outbox} WHERE seq = ?1 AND status = -1 RETURNING next_attempt_at IS NOT NULL
