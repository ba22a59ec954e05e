-- Deletes idempotency keys by primary key.
DELETE k FROM {outbox_key} k FORCE INDEX (PRIMARY) WHERE k.idempotency_key IN (:keys) AND k.created_at < NOW(6) - INTERVAL :age MICROSECOND
