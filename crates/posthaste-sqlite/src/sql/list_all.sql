-- All rows, oldest first, along the primary key.
SELECT seq FROM main.{outbox} NOT INDEXED WHERE seq > ?1 ORDER BY seq
