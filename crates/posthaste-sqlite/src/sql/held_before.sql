-- The first row of a key that holds up the rows behind it, if it stands before a position: waiting, due again, or
-- dead and parking its key.
SELECT seq, id
FROM main.{outbox} INDEXED BY {outbox_held}
WHERE aggregate_type = ?1 AND aggregate_id = ?2 AND aggregate_id <> '' AND next_attempt_at IS NOT NULL
  AND seq < ?3
ORDER BY seq
LIMIT 1
