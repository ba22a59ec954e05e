-- Takes back an idempotency key that this transaction wrote for a message that was refused for its id. Only the row
-- of this very transaction can be meant: the key had just been inserted.
DELETE FROM {outbox_key} WHERE key = $1::text
