-- Writes down the number of attempts, before one is made or after it was not.
UPDATE main.{outbox} SET attempts = ?3 WHERE seq = ?1 AND id = ?2 AND status = 0
