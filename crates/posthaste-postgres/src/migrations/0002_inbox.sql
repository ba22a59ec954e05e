-- The inbox: which consumer has seen which message. It stands by itself, so that a service that only consumes can
-- have it without an outbox.

CREATE TABLE IF NOT EXISTS {outbox_migrations} (
    version    bigint      NOT NULL PRIMARY KEY,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- The id of a message is text: what a broker hands over is the idempotency key where the producer gave one.
CREATE TABLE {outbox_inbox} (
    consumer   text        COLLATE "C" NOT NULL,
    message_id text        COLLATE "C" NOT NULL,
    seen_at    timestamptz NOT NULL DEFAULT statement_timestamp(),
    CONSTRAINT {name:outbox_inbox_pkey} PRIMARY KEY (consumer, message_id)
);
-- The purge goes along it.
CREATE INDEX {name:outbox_inbox_seen_at} ON {outbox_inbox} (seen_at);

INSERT INTO {outbox_migrations} (version, name) VALUES (2, 'inbox');
