-- Gives lanes back.
UPDATE {outbox_lane} FORCE INDEX (PRIMARY) SET owner = NULL, token = token + 1 WHERE lane IN (:lanes) AND lane >= 0 AND owner = :relay
