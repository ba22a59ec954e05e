-- Which lanes have something to read: two probes into the ready index for each. What is held back stands at the end of its
-- lane in this index, what is ready at the start, so each probe is one look, however much there is.
SELECT l.lane, l.revision,
       (SELECT 1 FROM {outbox} t FORCE INDEX (posthaste_ready)
        WHERE t.status = 0 AND t.lane = l.lane AND t.next_attempt_at IS NULL LIMIT 1) AS ready,
       (SELECT t.next_attempt_at FROM {outbox} t FORCE INDEX (posthaste_ready)
        WHERE t.status = 0 AND t.lane = l.lane
        ORDER BY t.status DESC, t.lane DESC, t.next_attempt_at DESC LIMIT 1) IS NOT NULL AS held
FROM {outbox_lane} l WHERE l.lane IN (:lanes)
