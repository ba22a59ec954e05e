-- Whether anything that a lane holds back is due. One arm of a UNION ALL: with the lane as a constant it is one look; as a
-- value of another table's row, it would be a walk through all that is ready.
(SELECT :lane AS lane FROM {outbox} t FORCE INDEX (posthaste_ready)
 WHERE t.status = 0 AND t.lane = :lane AND t.next_attempt_at <= NOW(6) LIMIT 1)
