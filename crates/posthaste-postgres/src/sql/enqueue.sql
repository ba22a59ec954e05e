-- Enqueues one message without an idempotency key: one statement and so one round trip.
--
-- A message whose id is there already is left out without an error (ON CONFLICT), so that the caller's transaction
-- stays usable; the count says so. RETURNING names no column, so that INSERT is the only right that is needed on the
-- outbox. NOTIFY takes a lock that all committing transactions share, so it is sent only while a relay has said that
-- it is idle; it carries nothing.
WITH message AS (
    INSERT INTO {outbox} (id, event_type, aggregate_type, aggregate_id, payload, content_type, headers, next_attempt_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7::jsonb, CASE
        WHEN $8 > 0 THEN statement_timestamp() + $8 * interval '1 microsecond'
        WHEN $9 > statement_timestamp() THEN $9 END)
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT (SELECT count(*) FROM message) AS messages,
       (SELECT count(pg_notify({channel}, '')) FROM {outbox_wake} WHERE idle) AS calls
