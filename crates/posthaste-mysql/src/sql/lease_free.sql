-- Finds lanes that seem to be free. Those that somebody has locked are being renewed, settled or taken, and are left alone. It is
-- a transaction of its own, so its locks end with it.
SELECT l.lane FROM {outbox_lane} l FORCE INDEX (PRIMARY)
WHERE l.lane >= 0 AND l.lane NOT IN (:kept) AND NOT (l.owner <=> :relay) AND (l.owner IS NULL OR l.owner NOT IN (:live))
ORDER BY l.lane LIMIT :most FOR UPDATE SKIP LOCKED
