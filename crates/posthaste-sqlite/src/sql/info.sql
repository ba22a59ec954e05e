-- What a list shows of a row: everything in front of the payload.
SELECT seq, id, status, event_type, aggregate_type, aggregate_id, attempts, created_at, next_attempt_at, status_at,
    last_error
FROM main.{outbox} WHERE seq = ?1
