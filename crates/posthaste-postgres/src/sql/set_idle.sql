-- Notes whether this relay is idle.
UPDATE {outbox_relay} SET idle = $2 WHERE id = $1 AND idle <> $2
