-- Looks at a bounded stretch of the table for rows to purge, along the primary key: an index over settled rows
-- would cost every settle. Rows lie in order of `created_at`, as long as no clock goes back.
SELECT seq, status, status_at, created_at
FROM main.{outbox} NOT INDEXED
WHERE seq > ?1
ORDER BY seq
LIMIT ?2
