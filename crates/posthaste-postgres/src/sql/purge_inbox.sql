-- Deletes old entries of the inbox, oldest first.
WITH old AS MATERIALIZED (
    SELECT consumer, message_id FROM {outbox_inbox} WHERE seen_at < now() - $1 * interval '1 microsecond'
    ORDER BY seen_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM {outbox_inbox} i USING old WHERE i.consumer = old.consumer AND i.message_id = old.message_id
RETURNING 1
