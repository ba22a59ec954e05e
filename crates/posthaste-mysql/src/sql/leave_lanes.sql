-- Gives everything back, the upkeep too.
UPDATE {outbox_lane} FORCE INDEX (PRIMARY) SET owner = NULL, token = token + 1, leased_until = NULL
WHERE lane IN (:lanes) AND owner = :relay
