-- Locks free lanes, to take them in the next statement. Lanes that somebody has locked are being renewed, settled or
-- taken, and are left alone.
SELECT l.lane, l.owner IS NOT NULL AS expired FROM {outbox_lane} l FORCE INDEX (PRIMARY)
WHERE l.lane >= 0 AND l.lane NOT IN (:kept) AND NOT (l.owner <=> :relay) AND (l.owner IS NULL OR l.owner NOT IN (:live))
ORDER BY l.lane LIMIT :most FOR UPDATE SKIP LOCKED
