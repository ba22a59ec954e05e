-- Deletes one dead row, if it is still as it was when it was looked at, and says whether it parked its key.
DELETE FROM main.{outbox} WHERE seq = ?1 AND status = -1 AND status_at < ?2 RETURNING next_attempt_at IS NOT NULL
