-- Makes dead rows pending again. They are locked.
UPDATE {outbox} FORCE INDEX (PRIMARY) SET status = 0, attempt_count = 0, next_attempt_at = NULL, parked = 0, processed_at = NULL
WHERE (id, created_ts) IN (:rows) AND status = -1
