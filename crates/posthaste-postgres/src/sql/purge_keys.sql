-- Deletes old idempotency keys, oldest first.
WITH old AS MATERIALIZED (
    SELECT key FROM {outbox_key} WHERE created_at < now() - $1 * interval '1 microsecond'
    ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM {outbox_key} k USING old WHERE k.key = old.key
RETURNING 1
