-- Who holds the lane, and until when. `leased_until` is NULL where the owner is unknown.
SELECT owner, token, (SELECT leased_until FROM main.{outbox_relay} WHERE id = owner)
FROM main.{outbox_lane} WHERE lane = 0
