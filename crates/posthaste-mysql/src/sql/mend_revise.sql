-- Tells the lanes' relays to read them from their start.
UPDATE {outbox_lane} FORCE INDEX (PRIMARY) SET revision = revision + 1 WHERE lane IN (:lanes)
