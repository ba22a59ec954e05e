-- Counts the dead rows, up to a limit, in the index alone.
SELECT count(*) FROM (
    SELECT 1 FROM main.{outbox} INDEXED BY {outbox_dead} WHERE status = -1 LIMIT ?1)
