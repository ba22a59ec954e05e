-- Forgets relays whose lease was over a day ago.
DELETE FROM {outbox_relay} WHERE leased_until < now() - interval '1 day'
