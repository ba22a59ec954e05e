-- Forgets a relay.
DELETE FROM main.{outbox_relay} WHERE id = ?1
