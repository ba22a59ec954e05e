-- Of the rows that are held back, at most so many: how many there are, are blocked, and are due.
SELECT COUNT(*) AS looked_at, COALESCE(SUM(h.blocker IS NOT NULL), 0) AS blocked,
       COALESCE(SUM(h.due AND h.blocker IS NULL), 0) AS due
FROM (SELECT {blocker:t} AS blocker, t.next_attempt_at <= NOW(6) AS due FROM {outbox} t FORCE INDEX (posthaste_ready)
      WHERE t.status = 0 AND t.lane IN (:lanes) AND t.next_attempt_at IS NOT NULL LIMIT :most) h
