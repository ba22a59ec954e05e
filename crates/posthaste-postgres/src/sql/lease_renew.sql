-- Renews the lease: one narrow row, updated in place.
INSERT INTO {outbox_relay} AS r (id, name, leased_until)
VALUES ($1, $2, now() + $3 * interval '1 microsecond')
ON CONFLICT (id) DO UPDATE SET name = excluded.name, leased_until = excluded.leased_until
