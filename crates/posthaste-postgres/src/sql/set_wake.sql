-- Producers shall call while a live relay is idle. The row is written only when that changes.
UPDATE {outbox_wake} w SET idle = i.idle
FROM (SELECT EXISTS (SELECT FROM {outbox_relay} WHERE idle AND leased_until > now()) AS idle) i
WHERE w.idle <> i.idle
