-- Gives everything back that a relay holds, the upkeep too.
UPDATE main.{outbox_lane} SET owner = NULL, token = token + 1, leased_until = NULL WHERE owner = ?1
