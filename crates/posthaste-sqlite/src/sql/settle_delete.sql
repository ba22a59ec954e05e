-- Settles a row where processed rows are not kept.
DELETE FROM main.{outbox} WHERE seq = ?1 AND id = ?2 AND status = 0
