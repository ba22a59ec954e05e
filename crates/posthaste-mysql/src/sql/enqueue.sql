-- Enqueues messages. created_at is left to its default, the time at which the statement began: the rows of one statement
-- share it, and stand in the order of their ids.
INSERT INTO {outbox} (id, event_type, aggregate_type, aggregate_id, payload, tombstone, content_type, headers, next_attempt_at, idempotency_key)
VALUES :rows
