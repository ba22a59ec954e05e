-- The inbox: which consumer has seen which message.

-- The id of a message is text: what a broker hands over is the idempotency key where the producer gave one. Entries lie
-- in the order in which they were written, along which they are purged.
CREATE TABLE main.{outbox_inbox} (
    seq        INTEGER PRIMARY KEY,
    consumer   TEXT    NOT NULL,
    message_id TEXT    NOT NULL,
    seen_at    INTEGER NOT NULL DEFAULT
               (strftime('%s', 'now') * 1000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER)),
    UNIQUE (consumer, message_id)
);

INSERT INTO main.{outbox_migrations} (version, name) VALUES (2, 'inbox');
