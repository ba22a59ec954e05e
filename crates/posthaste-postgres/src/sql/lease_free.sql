-- Locks free lanes, to take them in the next statement. Lanes that somebody has locked are being renewed, settled or
-- taken, and are left alone.
SELECT l.lane, l.owner IS NOT NULL AS expired FROM {outbox_lane} l
WHERE l.lane >= 0 AND l.lane <> ALL ($3) AND l.owner IS DISTINCT FROM $1
  AND (l.owner IS NULL OR NOT EXISTS (SELECT FROM {outbox_relay} r WHERE r.id = l.owner AND r.leased_until > now()))
ORDER BY l.lane LIMIT $2 FOR UPDATE OF l SKIP LOCKED
