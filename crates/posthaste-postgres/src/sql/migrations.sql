-- The migrations that were applied.
SELECT version, name FROM {outbox_migrations} ORDER BY version
