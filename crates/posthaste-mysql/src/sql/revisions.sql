-- The revisions of lanes, in the snapshot of a read.
SELECT lane, revision FROM {outbox_lane} WHERE lane IN (:lanes)
