-- The processed rows, oldest first, along the primary key; there is no index over them, and they are mostly the
-- first ones.
SELECT seq FROM main.{outbox} NOT INDEXED WHERE status = 1 AND seq > ?1 ORDER BY seq
