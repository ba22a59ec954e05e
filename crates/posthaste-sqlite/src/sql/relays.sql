-- The relays, and how many lanes each holds.
SELECT id, name, leased_until, (SELECT count(*) FROM main.{outbox_lane} WHERE owner = id AND lane >= 0)
FROM main.{outbox_relay} ORDER BY started_at, id
