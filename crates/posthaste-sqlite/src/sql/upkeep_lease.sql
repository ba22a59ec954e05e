-- Takes the upkeep, unless another relay has it. Its lease has a time of its own.
UPDATE main.{outbox_lane} SET token = token + (owner IS NOT ?1), owner = ?1, leased_until = ?2
WHERE lane = -1 AND (owner IS NULL OR owner = ?1 OR leased_until IS NULL OR leased_until <= ?3)
