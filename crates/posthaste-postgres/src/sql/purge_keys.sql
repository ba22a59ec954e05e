-- Deletes old idempotency keys, oldest first. They are found once, along the index by age, and deleted where they stand
-- (ctid): rows that this statement has locked do not move, and no statistics can make a join of it that looks through
-- the whole table for each.
DELETE FROM {outbox_key} WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {outbox_key} WHERE created_at < now() - $1 * interval '1 microsecond'
    ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED
))
RETURNING 1
