-- For how long the oldest row that was never held back has been ready, in microseconds: of each lane the first that nothing
-- blocks.
SELECT TIMESTAMPDIFF(MICROSECOND, MIN(o.ready), NOW(6)) AS age
FROM (SELECT
    (SELECT t.created_at FROM {outbox} t FORCE INDEX (posthaste_ready)
     WHERE t.status = 0 AND t.lane = l.lane AND t.next_attempt_at IS NULL AND {blocker:t} IS NULL
     ORDER BY t.created_at, t.id LIMIT 1) AS ready
    FROM {outbox_lane} l WHERE l.lane >= 0) o
