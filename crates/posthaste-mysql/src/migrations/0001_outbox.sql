-- The outbox and its side tables. The same statements serve MySQL and MariaDB: what only one of them takes stands in a
-- comment that only that one runs. Each can be run again, so a migration that was cut off half-way is repeated.

-- Which migrations were applied. It also tells an outbox from a table of somebody else's.
CREATE TABLE IF NOT EXISTS {outbox_migrations} (
    version    BIGINT       NOT NULL PRIMARY KEY,
    name       VARCHAR(64)  NOT NULL,
    applied_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)
) ENGINE=InnoDB;

-- The messages. id, event_type and payload are all that a plain INSERT must give.
--
-- id          a UUID v7, in its 16 bytes.
-- created_at  when the server took the message in: the order of a key's messages, and where that is the same, the id.
-- created_ts  the seconds of the time in the id, to partition by. MariaDB takes no generated column in a primary key
--             (error 1903), so there it is a default that nobody overrides.
-- status      0 pending, 1 processed, -1 dead.
-- next_attempt_at  in UTC. On a pending row: it is held back until then (also while it is due, and while it is being
--             published). On a dead row it says nothing: parked does.
-- parked      on a dead row: later messages of its key wait.
-- tombstone   the message has no payload, whatever stands there.
-- processed_at  when it was processed or given up.
-- lane        the hash of the key's bytes, or of the id where there is no key, modulo the number of lanes.
-- held_key    the hash of the key, on rows that hold it back; NULL on all others.
--
-- Index idx_status_id serves lists and the purge. The relay reads along posthaste_ready: what is ready of a lane in order,
-- and behind it what is held back by when it is due. One probe into posthaste_held says whether a row is blocked.
CREATE TABLE IF NOT EXISTS {outbox} (
    id              BINARY(16)    NOT NULL,
    aggregate_type  VARCHAR(128)  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
    aggregate_id    VARCHAR(128)  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
    event_type      VARCHAR(128)  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    payload         {payload}     NOT NULL,
    headers         JSON          NULL,
    status          SMALLINT      NOT NULL DEFAULT 0,
    attempt_count   INT           NOT NULL DEFAULT 0,
    last_error      VARCHAR(1024) CHARACTER SET utf8mb4 NULL,
    created_at      TIMESTAMP(6)  NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    updated_at      TIMESTAMP(6)  NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
    processed_at    TIMESTAMP(6)  NULL,
    created_ts      BIGINT        /*!80000 GENERATED ALWAYS AS (CONV(SUBSTR(HEX(id), 1, 12), 16, 10) DIV 1000) STORED */
                                  /*M!100600 NOT NULL DEFAULT (CONV(SUBSTR(HEX(id), 1, 12), 16, 10) DIV 1000) */,
{columns},
    PRIMARY KEY (id, created_ts),
{indexes}
) ENGINE=InnoDB{partition};

-- Who holds which lane. Lane -1 is the upkeep, the only one with a lease of its own.
CREATE TABLE IF NOT EXISTS {outbox_lane} (
    lane         SMALLINT     NOT NULL PRIMARY KEY,
    owner        BINARY(16)   NULL,
    token        BIGINT       NOT NULL DEFAULT 0,
    revision     BIGINT       NOT NULL DEFAULT 0,
    leased_until DATETIME(6)  NULL
) ENGINE=InnoDB;
INSERT IGNORE INTO {outbox_lane} (lane) VALUES {lane_rows};

-- The relays, and until when (in UTC) their leases last.
CREATE TABLE IF NOT EXISTS {outbox_relay} (
    id           BINARY(16)   NOT NULL PRIMARY KEY,
    name         TEXT         CHARACTER SET utf8mb4 NOT NULL,
    leased_until DATETIME(6)  NOT NULL,
    started_at   TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)
) ENGINE=InnoDB;

-- Idempotency keys outlive their message, and a unique index on a partitioned table could not hold them. As bytes: no
-- collation may make two of them the same.
CREATE TABLE IF NOT EXISTS {outbox_key} (
    idempotency_key VARBINARY(255) NOT NULL PRIMARY KEY,
    created_at      TIMESTAMP(6)   NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    KEY created_at (created_at)
) ENGINE=InnoDB;
