-- Writes idempotency keys. One that is there already is an error, of this statement only. If another open transaction
-- has written the same key, this one waits to see what becomes of it.
INSERT INTO {outbox_key} (idempotency_key) VALUES :rows
