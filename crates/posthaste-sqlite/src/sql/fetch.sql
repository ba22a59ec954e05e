-- Walks the rows that were never held back, in order. Only what decides whether a row is passed over; the rest is
-- fetched for the rows that are returned. The index is named because a table that was analysed while it was empty
-- would be scanned otherwise, processed rows and all.
SELECT seq, aggregate_type, aggregate_id
FROM main.{outbox} INDEXED BY {outbox_ready}
WHERE status = 0 AND next_attempt_at IS NULL AND seq > ?1 AND seq <= ?2
ORDER BY seq
