-- Marks records as processed: whole primary keys, in their order, so that each is found by itself and no other row is
-- touched, whatever the optimizer thinks of the table. The lanes are locked.
UPDATE {outbox} FORCE INDEX (PRIMARY) SET status = 1, next_attempt_at = NULL, processed_at = NOW(6)
WHERE (id, created_ts) IN (:rows) AND status = 0
