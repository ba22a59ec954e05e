-- How many rows are dead, at most so many.
SELECT COUNT(*) AS dead FROM (SELECT 1 FROM {outbox} FORCE INDEX (idx_status_id) WHERE status = -1 LIMIT :most) d
