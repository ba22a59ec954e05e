-- Renews the lease: one narrow row.
INSERT INTO {outbox_relay} (id, name, leased_until) VALUES (:relay, :name, NOW(6) + INTERVAL :duration MICROSECOND)
ON DUPLICATE KEY UPDATE name = :name, leased_until = NOW(6) + INTERVAL :duration MICROSECOND
