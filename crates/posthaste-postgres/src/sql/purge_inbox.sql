-- Deletes old entries of the inbox, oldest first, as purge_keys.sql does.
DELETE FROM {outbox_inbox} WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {outbox_inbox} WHERE seen_at < now() - $1 * interval '1 microsecond'
    ORDER BY seen_at LIMIT $2 FOR UPDATE SKIP LOCKED
))
RETURNING 1
