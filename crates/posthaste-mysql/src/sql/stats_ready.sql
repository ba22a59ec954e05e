-- Of the rows that are not held back, at most so many: how many there are, and how many are blocked.
SELECT COUNT(*) AS looked_at, COALESCE(SUM(r.blocker IS NOT NULL), 0) AS blocked
FROM (SELECT {blocker:t} AS blocker FROM {outbox} t FORCE INDEX (posthaste_ready)
      WHERE t.status = 0 AND t.lane IN (:lanes) AND t.next_attempt_at IS NULL LIMIT :most) r
