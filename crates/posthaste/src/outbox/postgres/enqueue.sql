-- Enqueues one message without an idempotency key: one statement and so one round trip.
--
-- A message whose id is there already is left out without an error (ON CONFLICT), so that the caller's transaction
-- stays usable; the count says so. RETURNING names no column, so that INSERT is the only right that is needed on the
-- outbox. NOTIFY takes a lock that all committing transactions share, so it is sent only while a relay has said that
-- it is idle; it carries nothing.
--
-- Every value is bound as text, bigint or bytea, which every driver can bind, and is cast to its column's type. $9 is
-- in microseconds since 1970.
WITH message AS (
    INSERT INTO {outbox} (id, event_type, aggregate_type, aggregate_id, payload, content_type, headers, next_attempt_at)
    VALUES ($1::text::uuid, $2::text, $3::text, $4::text, $5::bytea, $6::text, $7::text::jsonb, CASE
        WHEN $8::bigint > 0 THEN statement_timestamp() + $8::bigint * interval '1 microsecond'
        WHEN timestamptz 'epoch' + $9::bigint * interval '1 microsecond' > statement_timestamp()
            THEN timestamptz 'epoch' + $9::bigint * interval '1 microsecond' END)
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT (SELECT count(*) FROM message) AS messages,
       (SELECT count(pg_notify({channel}, '')) FROM {outbox_wake} WHERE idle) AS calls
