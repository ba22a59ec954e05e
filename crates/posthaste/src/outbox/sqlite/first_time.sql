-- Notes that a consumer has seen a message, or does nothing where it was noted before.
INSERT INTO main.{outbox_inbox} (consumer, message_id, seen_at) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING
RETURNING 1 AS first_time
