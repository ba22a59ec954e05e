-- The inbox: which consumer has seen which message. It stands by itself, so that a service that only consumes can
-- have it without an outbox.
CREATE TABLE IF NOT EXISTS {outbox_migrations} (
    version    BIGINT       NOT NULL PRIMARY KEY,
    name       VARCHAR(64)  NOT NULL,
    applied_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)
) ENGINE=InnoDB;

-- The id of a message is what a broker hands over: the idempotency key where the producer gave one. As bytes: no
-- collation may make two of them the same.
CREATE TABLE IF NOT EXISTS {outbox_inbox} (
    consumer   VARBINARY(255) NOT NULL,
    message_id VARBINARY(255) NOT NULL,
    seen_at    TIMESTAMP(6)   NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    PRIMARY KEY (consumer, message_id),
    KEY seen_at (seen_at)
) ENGINE=InnoDB;
