-- The event type of a dead row.
SELECT event_type FROM main.{outbox} WHERE seq = ?1 AND status = -1
