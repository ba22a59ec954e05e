-- Forgets relays whose lease was over a day ago.
DELETE FROM {outbox_relay} WHERE leased_until < NOW(6) - INTERVAL 1 DAY
