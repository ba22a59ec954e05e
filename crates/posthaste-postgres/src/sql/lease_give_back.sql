-- Gives lanes back.
UPDATE {outbox_lane} SET owner = NULL, token = token + 1 WHERE owner = $1 AND lane = ANY ($2) AND lane >= 0
