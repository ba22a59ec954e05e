-- Takes idempotency keys: `VALUES` is followed by one `(?)` for each. One that was taken before is told by the error
-- number of a duplicate.
INSERT INTO {outbox_key} (idempotency_key) VALUES
