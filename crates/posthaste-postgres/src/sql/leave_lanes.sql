-- Gives everything back, the upkeep too.
WITH held AS MATERIALIZED (
    SELECT lane FROM {outbox_lane} WHERE owner = $1 ORDER BY lane FOR UPDATE
)
UPDATE {outbox_lane} l SET owner = NULL, token = l.token + 1, leased_until = NULL FROM held h WHERE l.lane = h.lane
