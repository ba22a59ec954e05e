-- Where the rows of a lane stand that were held back and are due, those first that have been due for longest: from the index
-- alone, in its order. One arm of a UNION ALL.
(SELECT t.id, t.created_ts FROM {outbox} t FORCE INDEX (posthaste_ready)
 WHERE t.status = 0 AND t.lane = :lane AND t.next_attempt_at <= NOW(6)
 ORDER BY t.next_attempt_at, t.created_at, t.id LIMIT :most)
