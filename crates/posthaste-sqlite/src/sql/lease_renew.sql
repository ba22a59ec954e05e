-- Renews a relay's lease, and makes the relay known at the first time.
INSERT INTO main.{outbox_relay} (id, name, leased_until, started_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (id) DO UPDATE SET name = excluded.name, leased_until = excluded.leased_until
