-- The lane's revision, in the snapshot of the read.
SELECT revision FROM main.{outbox_lane} WHERE lane = 0
