-- Takes the lanes that were locked, if they are still free: this statement sees what was committed before they were
-- locked, and so a lease that was renewed in the meantime.
UPDATE {outbox_lane} l SET owner = $1, token = l.token + 1
WHERE l.lane = ANY ($2)
  AND (l.owner IS NULL OR NOT EXISTS (
      SELECT FROM {outbox_relay} r WHERE r.id = l.owner AND r.leased_until > clock_timestamp()))
RETURNING l.lane
