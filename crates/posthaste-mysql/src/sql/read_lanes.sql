-- The revisions of lanes, in the snapshot of a read, and whether they hold anything back: what is held back stands at the end
-- of its lane in the ready index, so that is one look.
SELECT l.lane, l.revision,
       (SELECT t.next_attempt_at FROM {outbox} t FORCE INDEX (posthaste_ready)
        WHERE t.status = 0 AND t.lane = l.lane
        ORDER BY t.status DESC, t.lane DESC, t.next_attempt_at DESC LIMIT 1) IS NOT NULL AS held
FROM {outbox_lane} l WHERE l.lane IN (:lanes)
