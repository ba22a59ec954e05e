-- Writes down what became of records whatever it is. The outcomes come first and each finds its row by the primary key.
-- kind 1 processed, 2 retry, 3 dead, 4 dead and parking its key, 5 released. The lanes are locked.
UPDATE (:outcomes) v STRAIGHT_JOIN {outbox} o FORCE INDEX (PRIMARY) ON o.id = v.id AND o.created_ts = v.created_ts
SET o.status = CASE v.kind WHEN 1 THEN 1 WHEN 3 THEN -1 WHEN 4 THEN -1 ELSE 0 END,
    o.attempt_count = COALESCE(v.attempts, o.attempt_count),
    o.last_error = COALESCE(v.error, o.last_error),
    o.parked = v.kind = 4,
    o.next_attempt_at = CASE v.kind WHEN 2 THEN NOW(6) + INTERVAL v.wait MICROSECOND WHEN 4 THEN NOW(6)
                                    WHEN 5 THEN o.next_attempt_at END,
    o.processed_at = CASE WHEN v.kind IN (1, 3, 4) THEN NOW(6) END
WHERE o.status = 0
