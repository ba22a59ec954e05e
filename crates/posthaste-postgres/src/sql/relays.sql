-- The relays, with the lanes that each holds and how long its lease goes on.
SELECT r.id, r.name, (SELECT count(*) FROM {outbox_lane} l WHERE l.owner = r.id AND l.lane >= 0) AS lanes,
       (extract(epoch FROM r.leased_until - now()) * 1000000)::bigint AS lease_left
FROM {outbox_relay} r ORDER BY r.started_at, r.id
