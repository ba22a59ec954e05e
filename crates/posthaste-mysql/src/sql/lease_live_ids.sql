-- The relays whose lease goes on. Locks nothing.
SELECT id FROM {outbox_relay} WHERE leased_until > NOW(6)
