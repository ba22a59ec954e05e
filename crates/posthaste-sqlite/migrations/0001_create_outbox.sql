-- The outbox and its side tables.
--
-- Whoever inserts evaluates the defaults and checks with an SQLite of their own, so only functions are used that
-- every SQLite since 3.31 has. Times are milliseconds since 1970 (UTC).

CREATE TABLE main.{outbox_migrations} (
    version    INTEGER PRIMARY KEY,
    name       TEXT    NOT NULL,
    applied_at INTEGER NOT NULL DEFAULT
               (strftime('%s', 'now') * 1000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER))
);

-- AUTOINCREMENT: a position is never used again, also after the rows behind it were deleted.
-- The columns a relay passes over rows by come first, and the payload last, so that looking at a row does not
-- load a large payload.
-- `status_at` always holds a time, so that a row keeps its length when it is settled: SQLite then overwrites it in
-- place, and does not write a large payload again.
CREATE TABLE main.{outbox} (
    seq             INTEGER PRIMARY KEY AUTOINCREMENT,
    -- A UUID of version 7.
    id              TEXT    NOT NULL DEFAULT (printf(
        '%08x-%04x-7%03x-%04x-%012x',
        (strftime('%s', 'now') * 1000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER)) >> 16,
        (strftime('%s', 'now') * 1000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER)) & 0xffff,
        random() & 0x0fff,
        0x8000 | (random() & 0x3fff),
        random() & 0xffffffffffff)),
    event_type      TEXT    NOT NULL,
    -- The key whose order is kept, where aggregate_id is not empty.
    aggregate_type  TEXT    NOT NULL DEFAULT '',
    aggregate_id    TEXT    NOT NULL DEFAULT '',
    -- 0 pending, 1 processed, -1 dead.
    status          INTEGER NOT NULL DEFAULT 0,
    -- How many attempts failed.
    attempts        INTEGER NOT NULL DEFAULT 0,
    -- On a pending row: it is held back until then. On a dead row: it parks its key.
    next_attempt_at INTEGER,
    created_at      INTEGER NOT NULL DEFAULT
                    (strftime('%s', 'now') * 1000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER)),
    -- Since when the row has its status.
    status_at       INTEGER NOT NULL DEFAULT
                    (strftime('%s', 'now') * 1000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER)),
    -- When it was processed or given up.
    processed_at    INTEGER GENERATED ALWAYS AS (CASE WHEN status <> 0 THEN status_at END) VIRTUAL,
    last_error      TEXT,
    content_type    TEXT,
    -- A JSON object of texts.
    headers         TEXT,
    idempotency_key TEXT,
    -- Text or blob; NULL is a tombstone.
    payload         BLOB,

    CONSTRAINT "id must be a UUID of version 7 in lower case" CHECK (
        typeof(id) = 'text' AND length(CAST(id AS BLOB)) = 36 AND id GLOB
        '[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-7[0-9a-f][0-9a-f][0-9a-f]-[89ab][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]'),
    CONSTRAINT "event_type must be a text of 1 to 128 characters" CHECK (
        typeof(event_type) = 'text' AND length(event_type) BETWEEN 1 AND 128
        AND instr(event_type, char(0)) = 0),
    CONSTRAINT "aggregate_type must be a text of at most 128 characters" CHECK (
        typeof(aggregate_type) = 'text' AND length(aggregate_type) <= 128
        AND instr(aggregate_type, char(0)) = 0),
    CONSTRAINT "aggregate_id must be a text of at most 128 characters" CHECK (
        typeof(aggregate_id) = 'text' AND length(aggregate_id) <= 128 AND instr(aggregate_id, char(0)) = 0),
    CONSTRAINT "aggregate_type must be set where aggregate_id is" CHECK (
        aggregate_id = '' OR aggregate_type <> ''),
    CONSTRAINT "status must be 0 (pending), 1 (processed) or -1 (dead)" CHECK (status IN (0, 1, -1)),
    CONSTRAINT "attempts must be a whole number" CHECK (
        typeof(attempts) = 'integer' AND attempts BETWEEN 0 AND 4294967295),
    CONSTRAINT "next_attempt_at must be in milliseconds since 1970, and NULL once processed" CHECK (
        next_attempt_at IS NULL OR (typeof(next_attempt_at) = 'integer' AND status <> 1)),
    CONSTRAINT "created_at must be in milliseconds since 1970" CHECK (typeof(created_at) = 'integer'),
    CONSTRAINT "status_at must be in milliseconds since 1970" CHECK (typeof(status_at) = 'integer'),
    CONSTRAINT "content_type must be a text of at most 128 characters" CHECK (
        content_type IS NULL OR (typeof(content_type) = 'text' AND length(content_type) <= 128
        AND instr(content_type, char(0)) = 0)),
    CONSTRAINT "headers must be a JSON object" CHECK (
        headers IS NULL OR CASE WHEN json_valid(headers) THEN json_type(headers) = 'object' ELSE 0 END),
    CONSTRAINT "idempotency_key must be a text of 1 to 255 bytes" CHECK (
        idempotency_key IS NULL OR (typeof(idempotency_key) = 'text'
        AND length(CAST(idempotency_key AS BLOB)) BETWEEN 1 AND 255 AND instr(idempotency_key, char(0)) = 0)),
    CONSTRAINT "payload must be text, blob or NULL" CHECK (typeof(payload) IN ('text', 'blob', 'null'))
);

-- Every index ends in the rowid, which is seq.
CREATE UNIQUE INDEX main.{outbox_id} ON {outbox} (id);
-- What may be published at once, in order.
CREATE INDEX main.{outbox_ready} ON {outbox} (status) WHERE status = 0 AND next_attempt_at IS NULL;
-- What waits for a time, by that time.
CREATE INDEX main.{outbox_waiting} ON {outbox} (next_attempt_at)
    WHERE status = 0 AND next_attempt_at IS NOT NULL;
-- What holds up the later messages of its key.
CREATE INDEX main.{outbox_held} ON {outbox} (aggregate_type, aggregate_id)
    WHERE next_attempt_at IS NOT NULL AND aggregate_id <> '';
CREATE INDEX main.{outbox_dead} ON {outbox} (status) WHERE status = -1;

-- Idempotency keys, in the order in which they were written.
CREATE TABLE main.{outbox_key} (
    seq             INTEGER PRIMARY KEY,
    idempotency_key TEXT    NOT NULL UNIQUE,
    created_at      INTEGER NOT NULL DEFAULT
                    (strftime('%s', 'now') * 1000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER))
);

CREATE TABLE main.{outbox_relay} (
    id           TEXT    NOT NULL PRIMARY KEY,
    -- For people.
    name         TEXT    NOT NULL,
    leased_until INTEGER NOT NULL,
    started_at   INTEGER NOT NULL
) WITHOUT ROWID;

-- Lane 0 is the whole outbox; lane -1 stands for the upkeep, whose lease has a time of its own.
CREATE TABLE main.{outbox_lane} (
    lane         INTEGER PRIMARY KEY,
    owner        TEXT,
    -- Counts the changes of owner.
    token        INTEGER NOT NULL DEFAULT 0,
    -- Counts the times at which dead rows let go of rows behind them.
    revision     INTEGER NOT NULL DEFAULT 0,
    leased_until INTEGER
);
INSERT INTO main.{outbox_lane} (lane) VALUES (0), (-1);

INSERT INTO main.{outbox_migrations} (version, name) VALUES (1, 'create outbox');
