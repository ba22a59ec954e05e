-- Settled rows in the order of their ids, and whether each is old enough. Locks nothing.
SELECT id, created_ts, COALESCE(processed_at, updated_at) < NOW(6) - INTERVAL :age MICROSECOND AS old, parked
FROM {outbox} FORCE INDEX (idx_status_id) WHERE status = :status AND id > :after ORDER BY id LIMIT :most
