-- Takes or renews the upkeep's lease. Whoever comes at the same time waits for the row, and finds it taken.
UPDATE {outbox_lane} SET token = token + IF(owner <=> :relay, 0, 1), owner = :relay,
    leased_until = NOW(6) + INTERVAL :duration MICROSECOND
WHERE lane = -1 AND (owner = :relay OR owner IS NULL OR leased_until IS NULL OR leased_until <= NOW(6))
