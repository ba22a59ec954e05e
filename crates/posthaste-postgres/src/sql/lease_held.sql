-- Locks the lanes that the relay holds, in order, so that nobody takes one while the lease is being renewed: whoever
-- wants to take a lane skips those that are locked. With it, what the share is reckoned from.
WITH held AS MATERIALIZED (
    SELECT lane FROM {outbox_lane} WHERE owner = $1 AND lane >= 0 ORDER BY lane FOR SHARE
)
SELECT (SELECT array_agg(lane) FROM held) AS held,
       (SELECT count(*) FROM {outbox_lane} WHERE lane >= 0) AS total,
       (SELECT count(*) FROM {outbox_relay} WHERE leased_until > now() OR id = $1) AS live,
       (SELECT max(version) FROM {outbox_migrations}) AS version
