-- Notes that a consumer has seen a message. If another open transaction notes the same, this one waits to see what
-- becomes of it. RETURNING names no column, so that INSERT is the only right that is needed.
INSERT INTO {outbox_inbox} (consumer, message_id) VALUES ($1::text, $2::text) ON CONFLICT DO NOTHING
RETURNING 1::bigint AS first_time
