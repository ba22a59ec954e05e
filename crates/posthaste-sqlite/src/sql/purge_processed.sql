-- Deletes one processed row, if it is still as it was when it was looked at.
DELETE FROM main.{outbox} WHERE seq = ?1 AND status = 1 AND status_at < ?2
