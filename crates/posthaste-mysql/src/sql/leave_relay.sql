-- Removes the relay from the table of relays.
DELETE FROM {outbox_relay} WHERE id = :relay
