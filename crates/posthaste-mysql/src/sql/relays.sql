-- The relays, and what they hold. lease_left is in microseconds.
SELECT r.id, r.name, TIMESTAMPDIFF(MICROSECOND, NOW(6), r.leased_until) AS lease_left,
       (SELECT COUNT(*) FROM {outbox_lane} l WHERE l.owner = r.id AND l.lane >= 0) AS lanes
FROM {outbox_relay} r ORDER BY r.started_at, r.id
