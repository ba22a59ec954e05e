-- Takes the lanes that were locked, if they are still free: this statement sees what was committed before they were locked,
-- and so a lease that was renewed in the meantime.
UPDATE {outbox_lane} l SET l.owner = :relay, l.token = l.token + 1
WHERE l.lane IN (:lanes)
  AND (l.owner IS NULL OR l.owner NOT IN (SELECT r.id FROM {outbox_relay} r WHERE r.leased_until > SYSDATE(6)))
