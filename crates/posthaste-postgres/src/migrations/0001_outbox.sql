-- The outbox and its side tables.
--
-- Types are plain (smallint states, no enum), there is no extension, no trigger and no function, and everything here
-- needs no more than CREATE on the schema.

-- Which migrations were applied. It also tells an outbox from a table of somebody else's.
CREATE TABLE IF NOT EXISTS {outbox_migrations} (
    version    bigint      NOT NULL PRIMARY KEY,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- The messages. Every column but event_type has a default, so that a plain INSERT from any language is a complete
-- message.
--
-- seq       the place in the order; numbered without a cache, so that of two transactions of which one begins when
--           the other has ended, the later one gets the higher numbers.
-- id        a UUID v7. The default takes a random v4 (built in since PostgreSQL 13), puts the milliseconds over its
--           first 48 bits, and sets two bits that make a 7 of the version 4.
-- lane      the hash of the key, or of the id where there is none. hashtextextended is what hash partitioning is
--           built on, so it is the same in all versions that pg_upgrade leads to; the collation is named so that the
--           hash is that of the bytes.
-- status    0 pending, 1 processed, -1 dead.
-- next_attempt_at  on a pending row: it is held back until then (also while it is due, and while it is being
--           published); on a dead row: it parks its key.
-- processed_at  when it was processed or given up.
--
-- Names are compared byte by byte (COLLATE "C"), whatever the database's collation.
CREATE TABLE {outbox} (
    seq             bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    id              uuid        NOT NULL DEFAULT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
                                    PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                                    FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid,
    event_type      text        COLLATE "C" NOT NULL,
    aggregate_type  text        COLLATE "C" NOT NULL DEFAULT '',
    aggregate_id    text        COLLATE "C" NOT NULL DEFAULT '',
    payload         bytea,
    content_type    text,
    headers         jsonb       NOT NULL DEFAULT '{}',
    idempotency_key text        COLLATE "C",
    status          smallint    NOT NULL DEFAULT 0,
    attempts        integer     NOT NULL DEFAULT 0,
    next_attempt_at timestamptz,
    last_error      text,
    created_at      timestamptz NOT NULL DEFAULT statement_timestamp(),
    processed_at    timestamptz,
    lane            smallint    NOT NULL GENERATED ALWAYS AS (((CASE WHEN aggregate_id = ''
                        THEN uuid_hash_extended(id, 0)
                        ELSE hashtextextended(aggregate_id COLLATE "C", hashtextextended(aggregate_type COLLATE "C", 0))
                    END) & 9223372036854775807) % {lanes}) STORED,
    CONSTRAINT {name:outbox_pkey} PRIMARY KEY (id),
    CONSTRAINT {name:outbox_id_is_uuid_v7} CHECK (get_byte(uuid_send(id), 6) >> 4 = 7
        AND get_byte(uuid_send(id), 8) >> 6 = 2),
    CONSTRAINT {name:outbox_names_have_128_characters} CHECK (event_type <> '' AND char_length(event_type) <= 128
        AND char_length(aggregate_type) <= 128 AND char_length(aggregate_id) <= 128),
    CONSTRAINT {name:outbox_key_has_a_type} CHECK (aggregate_id = '' OR aggregate_type <> ''),
    CONSTRAINT {name:outbox_headers_are_an_object} CHECK (jsonb_typeof(headers) = 'object'),
    CONSTRAINT {name:outbox_status_is_known} CHECK (status IN (0, 1, -1))
){partition};
{partitions}
-- Only what is pending or dead is indexed, besides the id: a settle adds one entry to one index (the primary key), and
-- millions of processed rows cost the relay nothing.

-- What is ready, in order. The relay reads along it.
CREATE INDEX {name:outbox_ready} ON {outbox} (lane, seq) WHERE status = 0 AND next_attempt_at IS NULL;
-- What is held back, by when it is due.
CREATE INDEX {name:outbox_waiting} ON {outbox} (lane, next_attempt_at) WHERE status = 0 AND next_attempt_at IS NOT NULL;
-- What holds back later rows of its key: one probe answers whether a row is blocked. Rows without a key hold back
-- nothing; that they are left out also keeps the planner from using this index for anything else.
CREATE INDEX {name:outbox_held_back} ON {outbox} (aggregate_type, aggregate_id, seq)
    WHERE next_attempt_at IS NOT NULL AND aggregate_id <> '';
-- What was given up.
CREATE INDEX {name:outbox_dead} ON {outbox} (seq) WHERE status = -1;

-- Who holds which lane. Lane -1 is the upkeep, the only one with a lease of its own.
-- These small tables are updated in place: half of each page is left free, so that a new version of a row finds room
-- beside the old one and no index is touched (HOT).
CREATE TABLE {outbox_lane} (
    lane         smallint    NOT NULL PRIMARY KEY,
    owner        uuid,
    token        bigint      NOT NULL DEFAULT 0,
    revision     bigint      NOT NULL DEFAULT 0,
    leased_until timestamptz
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
INSERT INTO {outbox_lane} (lane) SELECT generate_series(-1, {lanes} - 1);

-- The relays, and until when their leases last.
CREATE TABLE {outbox_relay} (
    id           uuid        NOT NULL PRIMARY KEY,
    name         text        NOT NULL DEFAULT '',
    leased_until timestamptz NOT NULL,
    started_at   timestamptz NOT NULL DEFAULT now(),
    idle         boolean     NOT NULL DEFAULT false
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- Idempotency keys outlive their message, and a unique index on a partitioned table could not hold them.
CREATE TABLE {outbox_key} (
    key        text        COLLATE "C" NOT NULL PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT statement_timestamp()
);
CREATE INDEX {name:outbox_key_created_at} ON {outbox_key} (created_at);

-- One row: whether a relay is idle and wants to be called.
CREATE TABLE {outbox_wake} (
    only_row boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (only_row),
    idle     boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
INSERT INTO {outbox_wake} DEFAULT VALUES;

INSERT INTO {outbox_migrations} (version, name) VALUES (1, 'outbox');
