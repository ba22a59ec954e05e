-- Which lanes have something to read: two probes into the ready index for each. An idle relay asks for nothing more, so this
-- is the whole cost of a poll.
SELECT l.lane, l.revision,
       (SELECT 1 FROM {outbox} t FORCE INDEX (posthaste_ready)
        WHERE t.status = 0 AND t.lane = l.lane AND t.next_attempt_at IS NULL LIMIT 1) AS ready,
       (SELECT 1 FROM {outbox} t FORCE INDEX (posthaste_ready)
        WHERE t.status = 0 AND t.lane = l.lane AND t.next_attempt_at <= NOW(6) LIMIT 1) AS due
FROM {outbox_lane} l WHERE l.lane IN (:lanes)
