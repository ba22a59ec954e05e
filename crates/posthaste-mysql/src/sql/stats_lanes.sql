-- The lanes, and whether a live relay holds each.
SELECT l.lane, EXISTS (SELECT 1 FROM {outbox_relay} r WHERE r.id = l.owner AND r.leased_until > NOW(6)) AS leased
FROM {outbox_lane} l WHERE l.lane >= 0
