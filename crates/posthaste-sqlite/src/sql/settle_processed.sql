-- Settles a row that was never held back. It leaves `next_attempt_at` alone, so SQLite need not look at the indexes
-- over it; the row keeps its length and is overwritten in place.
UPDATE main.{outbox} SET status = 1, status_at = ?3
WHERE seq = ?1 AND id = ?2 AND status = 0 AND next_attempt_at IS NULL
