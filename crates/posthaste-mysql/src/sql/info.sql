-- What a list shows of the row t, with the id of the row of its key that blocks it. Times are microseconds since 1970.
t.id, t.status, t.event_type, t.aggregate_type, t.aggregate_id, t.attempt_count,
CAST(UNIX_TIMESTAMP(t.created_at) * 1000000 AS SIGNED) AS created,
CASE WHEN t.status = 0 THEN TIMESTAMPDIFF(MICROSECOND, '1970-01-01', t.next_attempt_at) END AS waits_until,
CASE WHEN t.status = 1 OR t.status = -1
    THEN CAST(UNIX_TIMESTAMP(COALESCE(t.processed_at, t.updated_at)) * 1000000 AS SIGNED) END AS settled,
t.last_error,
t.status = 0 AND COALESCE(t.next_attempt_at > NOW(6), FALSE) AS waits,
CASE WHEN t.status = 0 THEN {blocker:t} END AS blocked_by
