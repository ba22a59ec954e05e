-- Inserts one message, or nothing where the id is there already.
--
-- A schema of another version makes the id NULL, which the table refuses: the check has to be part of the insert,
-- since a SELECT before it would make a deferred transaction a reader, whose first write then fails at once where
-- another connection wrote in between. (INSERT … SELECT … WHERE was measured at half the speed.)
-- RETURNING says whether a row was inserted: not every driver can say how many rows a statement changed.
INSERT INTO main.{outbox} (
    id, event_type, aggregate_type, aggregate_id, next_attempt_at, created_at, status_at, content_type, headers,
    idempotency_key, payload)
VALUES (
    CASE WHEN (SELECT max(version) FROM main.{outbox_migrations}) = ?11 THEN ?1 END,
    ?2, ?3, ?4, ?5, ?6, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (id) DO NOTHING
RETURNING 1 AS messages
