-- The dead rows, oldest first.
SELECT seq FROM main.{outbox} INDEXED BY {outbox_dead} WHERE status = -1 AND seq > ?1 ORDER BY seq
