-- A page of dead rows, oldest first: $3 those with these ids, or any; $4 those given up so many microseconds ago.
SELECT id, seq, lane, event_type, next_attempt_at IS NOT NULL AND aggregate_id <> '' AS parks
FROM {outbox} t
WHERE t.status = -1 AND t.seq > $1 AND ($3 IS NULL OR t.id = ANY ($3))
  AND ($4 IS NULL OR t.processed_at < now() - $4 * interval '1 microsecond')
ORDER BY t.seq LIMIT $2
