-- Inserts many messages at once: this with its first row is followed by more rows of plain placeholders. The first row
-- alone looks at the schema's version, as enqueue.sql does. An id that is there already fails the statement, and with it
-- nothing is inserted.
INSERT INTO main.{outbox} (
    id, event_type, aggregate_type, aggregate_id, next_attempt_at, created_at, status_at, content_type, headers,
    idempotency_key, payload)
VALUES (
    CASE WHEN (SELECT max(version) FROM main.{outbox_migrations}) = ? THEN ? END,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
