-- Enqueues many messages in one statement. ORDER BY makes the sequence follow the order of the arrays. Nothing is
-- inserted unless all idempotency keys are new; the counts tell a duplicate key from a duplicate id, and the caller
-- rolls back to a savepoint.
WITH input AS MATERIALIZED (
    SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        WITH ORDINALITY AS i(id, event_type, aggregate_type, aggregate_id, payload, content_type, headers, delay, at,
                             idempotency_key, place)
), key AS (
    INSERT INTO {outbox_key} (key)
    SELECT idempotency_key FROM input WHERE idempotency_key IS NOT NULL ORDER BY idempotency_key
    ON CONFLICT DO NOTHING
    RETURNING 1
), message AS (
    INSERT INTO {outbox} (id, event_type, aggregate_type, aggregate_id, payload, content_type, headers, next_attempt_at,
                          idempotency_key)
    SELECT id, event_type, aggregate_type, aggregate_id, payload, content_type, headers::jsonb, CASE
        WHEN delay > 0 THEN statement_timestamp() + delay * interval '1 microsecond'
        WHEN at > statement_timestamp() THEN at END, idempotency_key
    FROM input
    WHERE (SELECT count(*) FROM key) = (SELECT count(idempotency_key) FROM input)
    ORDER BY place
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT (SELECT count(*) FROM message) AS messages,
       (SELECT count(pg_notify({channel}, '')) FROM {outbox_wake} WHERE idle) AS calls,
       (SELECT count(*) FROM key) AS keys
