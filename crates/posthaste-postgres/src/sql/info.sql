-- What a list shows of a row, with the id of the row of its key that blocks it.
{row}.seq, {row}.id, {row}.status, {row}.event_type, {row}.aggregate_type, {row}.aggregate_id, {row}.attempts, {row}.created_at,
CASE WHEN {row}.status = 0 THEN {row}.next_attempt_at END AS next_attempt_at, {row}.processed_at, {row}.last_error,
{row}.status = 0 AND coalesce({row}.next_attempt_at > now(), false) AS waits,
CASE WHEN {row}.status = 0 AND {row}.aggregate_id <> '' THEN (
    SELECT b.id FROM {outbox} b WHERE b.aggregate_type = {row}.aggregate_type AND b.aggregate_id = {row}.aggregate_id
       AND b.aggregate_id <> '' AND b.next_attempt_at IS NOT NULL AND b.seq < {row}.seq ORDER BY b.seq LIMIT 1) END AS blocked_by
