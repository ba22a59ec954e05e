-- Takes back an idempotency key that this transaction wrote for a message that was refused for its id.
DELETE FROM {outbox_key} WHERE idempotency_key = ?
