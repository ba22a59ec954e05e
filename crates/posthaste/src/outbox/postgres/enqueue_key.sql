-- Enqueues one message with an idempotency key, as enqueue.sql does without: the message is inserted only if its key
-- is new. If another open transaction has inserted the same key, this one waits to see what becomes of it.
WITH key AS (
    INSERT INTO {outbox_key} (key) VALUES ($10::text) ON CONFLICT DO NOTHING RETURNING 1
), message AS (
    INSERT INTO {outbox} (id, event_type, aggregate_type, aggregate_id, payload, content_type, headers, next_attempt_at,
                          idempotency_key)
    SELECT $1::text::uuid, $2::text, $3::text, $4::text, $5::bytea, $6::text, $7::text::jsonb, CASE
        WHEN $8::bigint > 0 THEN statement_timestamp() + $8::bigint * interval '1 microsecond'
        WHEN timestamptz 'epoch' + $9::bigint * interval '1 microsecond' > statement_timestamp()
            THEN timestamptz 'epoch' + $9::bigint * interval '1 microsecond' END, $10::text
    FROM key
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT (SELECT count(*) FROM message) AS messages,
       (SELECT count(pg_notify({channel}, '')) FROM {outbox_wake} WHERE idle) AS calls,
       (SELECT count(*) FROM key) AS keys
