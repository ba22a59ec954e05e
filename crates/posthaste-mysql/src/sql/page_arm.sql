-- Where the ready rows of a stretch of a lane stand: read from the index alone, in its order. One arm of a UNION ALL.
(SELECT :scan AS scan, CAST(UNIX_TIMESTAMP(t.created_at) * 1000000 AS SIGNED) AS created, t.id, t.created_ts
 FROM {outbox} t FORCE INDEX (posthaste_ready)
 WHERE t.status = 0 AND t.lane = :lane AND t.next_attempt_at IS NULL AND :stretch
 ORDER BY t.created_at, t.id LIMIT :most)
