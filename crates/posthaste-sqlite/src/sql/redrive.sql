-- Makes a dead row pending again, at its old place. Why it died stays to be seen until it is settled again.
UPDATE main.{outbox} SET status = 0, status_at = ?2, attempts = 0, next_attempt_at = NULL
WHERE seq = ?1 AND status = -1
