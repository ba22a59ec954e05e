-- Relays that change whether producers shall call do so one after another.
SELECT FROM {outbox_wake} FOR UPDATE
