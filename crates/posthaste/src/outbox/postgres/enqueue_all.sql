-- Enqueues many messages in one statement. ORDER BY makes the sequence follow the order of the arrays. Nothing is
-- inserted unless all idempotency keys are new; the counts tell a duplicate key from a duplicate id, and the caller
-- rolls back to a savepoint.
--
-- The arrays are bound as their text, since not every driver can bind arrays. The payloads come one behind the other
-- in $5, and are cut out of it by their starts and lengths; a length of NULL is a tombstone.
WITH input AS MATERIALIZED (
    SELECT * FROM unnest($1::text::uuid[], $2::text::text[], $3::text::text[], $4::text::text[], $6::text::text[],
                         $7::text::text[], $8::text::bigint[], $9::text::bigint[], $10::text::text[],
                         $11::text::integer[], $12::text::integer[])
        WITH ORDINALITY AS i(id, event_type, aggregate_type, aggregate_id, content_type, headers, delay, at,
                             idempotency_key, start, length, place)
), key AS (
    INSERT INTO {outbox_key} (key)
    SELECT idempotency_key FROM input WHERE idempotency_key IS NOT NULL ORDER BY idempotency_key
    ON CONFLICT DO NOTHING
    RETURNING 1
), message AS (
    INSERT INTO {outbox} (id, event_type, aggregate_type, aggregate_id, payload, content_type, headers, next_attempt_at,
                          idempotency_key)
    SELECT id, event_type, aggregate_type, aggregate_id, substring($5::bytea FROM start FOR length), content_type,
        headers::jsonb, CASE
        WHEN delay > 0 THEN statement_timestamp() + delay * interval '1 microsecond'
        WHEN timestamptz 'epoch' + at * interval '1 microsecond' > statement_timestamp()
            THEN timestamptz 'epoch' + at * interval '1 microsecond' END, idempotency_key
    FROM input
    WHERE (SELECT count(*) FROM key) = (SELECT count(idempotency_key) FROM input)
    ORDER BY place
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT (SELECT count(*) FROM message) AS messages,
       (SELECT count(pg_notify({channel}, '')) FROM {outbox_wake} WHERE idle) AS calls,
       (SELECT count(*) FROM key) AS keys
