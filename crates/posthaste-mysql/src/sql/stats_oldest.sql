-- For how long the oldest row has been ready, in microseconds: of each lane the first that nothing blocks.
SELECT TIMESTAMPDIFF(MICROSECOND, LEAST(COALESCE(MIN(o.ready), NOW(6)), COALESCE(MIN(o.due), NOW(6))), NOW(6)) AS age,
       MIN(o.ready) IS NULL AND MIN(o.due) IS NULL AS nothing
FROM (SELECT
    (SELECT t.created_at FROM {outbox} t FORCE INDEX (posthaste_ready)
     WHERE t.status = 0 AND t.lane = l.lane AND t.next_attempt_at IS NULL AND {blocker:t} IS NULL
     ORDER BY t.created_at, t.id LIMIT 1) AS ready,
    (SELECT t.next_attempt_at FROM {outbox} t FORCE INDEX (posthaste_ready)
     WHERE t.status = 0 AND t.lane = l.lane AND t.next_attempt_at <= NOW(6) AND {blocker:t} IS NULL
     ORDER BY t.next_attempt_at, t.created_at, t.id LIMIT 1) AS due
    FROM {outbox_lane} l WHERE l.lane >= 0) o
