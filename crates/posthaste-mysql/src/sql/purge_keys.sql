-- Old idempotency keys, oldest first. Locks nothing: they are deleted by primary key.
SELECT idempotency_key FROM {outbox_key} WHERE created_at < NOW(6) - INTERVAL :age MICROSECOND ORDER BY created_at LIMIT :most
