-- Takes or renews the upkeep's lease. Whoever comes at the same time waits for the row, and finds it taken.
UPDATE {outbox_lane} SET owner = $1, token = token + CASE WHEN owner = $1 THEN 0 ELSE 1 END,
    leased_until = now() + $2 * interval '1 microsecond'
WHERE lane = -1 AND (owner = $1 OR owner IS NULL OR leased_until IS NULL OR leased_until <= now())
RETURNING 1
