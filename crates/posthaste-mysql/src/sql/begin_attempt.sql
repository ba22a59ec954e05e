-- Writes down that an attempt begins, if the record is still pending. The lane is locked.
UPDATE {outbox} FORCE INDEX (PRIMARY) SET attempt_count = :attempts
WHERE id = :id AND created_ts = :created_ts AND status = 0
