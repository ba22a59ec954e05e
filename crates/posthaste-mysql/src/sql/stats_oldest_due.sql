-- The same of rows that were held back and are due, of which at most so many are looked at.
SELECT TIMESTAMPDIFF(MICROSECOND, MIN(d.since), NOW(6)) AS age
FROM (SELECT {blocker:t} AS blocker, t.next_attempt_at AS since FROM {outbox} t FORCE INDEX (posthaste_ready)
      WHERE t.status = 0 AND t.lane IN (:lanes) AND t.next_attempt_at <= NOW(6) LIMIT :most) d
WHERE d.blocker IS NULL
