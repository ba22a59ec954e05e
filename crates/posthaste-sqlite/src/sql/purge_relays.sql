-- Forgets relays that died long ago. A lane whose owner is unknown counts as one whose owner's lease is over.
DELETE FROM main.{outbox_relay} WHERE leased_until < ?1
