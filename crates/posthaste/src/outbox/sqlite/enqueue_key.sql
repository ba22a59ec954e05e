-- Takes an idempotency key, or does nothing where it was taken before. A conflict is no error, so the caller's
-- transaction stays usable.
INSERT INTO main.{outbox_key} (idempotency_key, created_at) VALUES (?1, ?2) ON CONFLICT DO NOTHING RETURNING 1 AS keys
