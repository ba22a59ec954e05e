-- Enqueues messages: `VALUES` is followed by one `row.sql` for each.
--
-- No IGNORE, which would turn every error into a warning: a duplicate id is told by its error number. It undoes this
-- statement alone, so the caller's transaction stays usable. created_at is left to its default, the time at which the
-- statement began: the rows of one statement share it, and stand in the order of their ids.
INSERT INTO {outbox} (id, event_type, aggregate_type, aggregate_id, payload, tombstone, content_type, headers,
                      next_attempt_at, idempotency_key)
VALUES
