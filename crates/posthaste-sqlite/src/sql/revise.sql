-- Tells relays to read the lane from its start again, since rows they passed over may go on now.
UPDATE main.{outbox_lane} SET revision = revision + 1 WHERE lane = 0
